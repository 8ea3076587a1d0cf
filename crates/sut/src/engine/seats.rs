//! Who gets a seat, and who gives it back.

use std::time::Instant;

use super::Engine;
use super::running::Running;
use crate::batch;
use crate::queue::Waiting;
use crate::stream::Finish;

impl Engine {
    /// Seats whoever is next while there is room: first those that had a seat before.
    pub(super) fn start_waiting(&mut self, now: Instant) {
        while self.running.len() < self.parts.limits.max_rows {
            let (root, ids) = match (self.preempted.first(), self.queue.first()) {
                (Some(next), _) => (next.cache_root, &next.ids),
                (None, Some(next)) => (next.request.cache_root, &next.request.prompt),
                (None, None) => return,
            };
            if !self.may_start(root, ids) {
                return;
            }
            if !self.preempted.is_empty() {
                let again = self.preempted.remove(0);
                self.seat(again);
            } else if let Some(waiting) = self.queue.pop() {
                self.start(waiting, now);
            }
        }
    }

    fn may_start(&self, root: Option<u64>, ids: &[u32]) -> bool {
        let mut needed = self.backend.info().kv_cost(ids.len());
        let known = root.and_then(|root| self.backend.known_prefix(root, ids));
        if let Some(known) = known {
            let same_root = self.running.iter().filter(|r| r.cache_root == root);
            let prompts = same_root.map(|r| (&r.ids[..], r.n_fed));
            let block = self.backend.info().kv_block_tokens;
            if batch::awaits_prefix(ids, known.tokens, prompts, block) {
                return false;
            }
            needed -= known.owned_tokens;
        }
        batch::may_start(&self.seats(), needed, self.room())
    }

    fn start(&mut self, mut waiting: Waiting, now: Instant) {
        waiting.permit.start(self.last_start.replace(now), now);
        let metrics = &self.parts.metrics;
        let waited = now.saturating_duration_since(waiting.arrived);
        metrics.queue_seconds.observe(waited.as_secs_f64());
        let request = &waiting.request;
        match self.backend.open(request, now) {
            Ok(seq) => {
                let n_prompt = request.prompt.len() as f64;
                metrics.request_prompt_tokens.observe(n_prompt);
                let max_tokens = request.max_tokens as f64;
                metrics.request_params_max_tokens.observe(max_tokens);
                self.seat(Running::new(seq, waiting, now));
            }
            Err(error) => {
                tracing::error!(%error, "sequence could not be opened");
                metrics.failed.inc();
                waiting.outlet.finish(Finish::Failed);
            }
        }
    }

    fn seat(&mut self, mut running: Running) {
        let n_known = self.backend.seat(running.seq, &running.ids);
        running.n_fed = n_known;
        if running.cache_root.is_some() {
            let metrics = &self.parts.metrics;
            metrics
                .cache
                .prefix_queries
                .inc_by(running.ids.len() as u64);
            metrics.cache.prefix_hits.inc_by(n_known as u64);
        }
        if running.drawn_at.is_none() {
            running.n_known = n_known;
        }
        insert(&mut self.running, running);
    }

    /// Takes a sequence's seat and cache away; it starts again before anybody new.
    pub(super) fn preempt(&mut self, seat: usize) {
        let mut running = self.running.remove(seat);
        tracing::debug!(n_tokens = running.ids.len(), "preempted");
        self.parts.metrics.cache.preemptions.inc();
        self.backend.unseat(running.seq);
        running.start_over();
        insert(&mut self.preempted, running);
    }
}

/// Puts a sequence behind those that are as old or older.
fn insert(set: &mut Vec<Running>, running: Running) {
    let place = set.partition_point(|other| other.order <= running.order);
    set.insert(place, running);
}
