//! A sequence that has started: what of it is computed, drawn and told.

use std::time::Instant;

use crate::backend::SeqId;
use crate::detokenize::Assembler;
use crate::metrics::Metrics;
use crate::queue::Waiting;
use crate::request::Generate;
use crate::stream::{Drawn, Finish, Outlet};

pub(super) struct Running {
    pub(super) seq: SeqId,
    /// The prompt and all that was drawn: what a new computation would start from.
    pub(super) ids: Vec<u32>,
    /// How many of `ids` are in the cache. Invariant: below their number.
    pub(super) n_fed: usize,
    n_prompt: usize,
    /// Tokens of the prompt that were in the cache at the start.
    pub(super) n_known: usize,
    pub(super) max_tokens: usize,
    pub(super) ignore_eos: bool,
    pub(super) cache_root: Option<u64>,
    pub(super) assembler: Assembler,
    pub(super) outlet: Outlet,
    pub(super) arrived: Instant,
    pub(super) started: Instant,
    /// Its age for the order of things: see [`crate::queue::Waiting::order`].
    pub(super) order: Instant,
    pub(super) deadline: Option<Instant>,
    /// Whether the prompt's tokens are asked about.
    score_prompt: bool,
    /// How likely the prompt's tokens were, the first left out, as far as it is computed.
    pub(super) scores: Vec<Drawn>,
    /// Of the first and the latest token.
    pub(super) drawn_at: Option<(Instant, Instant)>,
    /// Its cache is given back; it leaves the running set in this turn.
    pub(super) ended: bool,
}

impl Running {
    /// What `waiting` becomes when it starts `now`; its place in the queue is given up.
    pub(super) fn new(seq: SeqId, waiting: Waiting, now: Instant) -> Self {
        let (order, deadline) = (waiting.order(), waiting.deadline());
        let Generate {
            prompt,
            max_tokens,
            params,
            cache_root,
        } = waiting.request;
        Running {
            seq,
            n_fed: 0,
            n_prompt: prompt.len(),
            n_known: 0,
            ids: prompt,
            max_tokens,
            ignore_eos: params.ignore_eos,
            cache_root,
            assembler: Assembler::new(&params.stop),
            outlet: waiting.outlet,
            arrived: waiting.arrived,
            started: now,
            order,
            deadline,
            score_prompt: params.score_prompt,
            scores: Vec::new(),
            drawn_at: None,
            ended: false,
        }
    }

    /// Tokens drawn so far.
    pub(super) fn n_generated(&self) -> usize {
        self.ids.len() - self.n_prompt
    }

    /// Of the next `n` tokens to feed, the ones that follow them and are asked about.
    pub(super) fn asked_about(&self, n: usize) -> &[u32] {
        if !self.score_prompt || self.drawn_at.is_some() {
            return &[];
        }
        let end = (self.n_fed + n + 1).min(self.ids.len());
        &self.ids[self.n_fed + 1..end]
    }

    /// Its cache has been given back: all is to be computed again.
    pub(super) fn start_over(&mut self) {
        self.n_fed = 0;
        self.scores.clear();
    }

    /// Takes in a token drawn `now`.
    pub(super) fn note_token(&mut self, id: u32, now: Instant, metrics: &Metrics) {
        self.ids.push(id);
        metrics.generation_tokens.inc();
        if let Some((_, latest)) = &mut self.drawn_at {
            let gap = now - std::mem::replace(latest, now);
            metrics.itl_seconds.observe(gap.as_secs_f64());
            return;
        }
        self.drawn_at = Some((now, now));
        if self.score_prompt {
            self.outlet.tell_prompt(std::mem::take(&mut self.scores));
        }
        metrics.prompt_tokens.inc_by(self.n_prompt as u64);
        let n_computed = self.n_prompt - self.n_known;
        metrics
            .cache
            .prompt_tokens_computed
            .observe(n_computed as f64);
        let seconds_since = |then: Instant| (now - then).as_secs_f64();
        metrics.ttft_seconds.observe(seconds_since(self.arrived));
        metrics.prefill_seconds.observe(seconds_since(self.started));
    }

    /// Counts a sequence whose text is complete.
    pub(super) fn record_end(&self, finish: Finish, now: Instant, metrics: &Metrics) {
        let ended_by = if finish == Finish::Length {
            &metrics.success_length
        } else {
            &metrics.success_stop
        };
        ended_by.inc();
        let n_generated = self.n_generated() as f64;
        metrics.request_generation_tokens.observe(n_generated);
        let seconds_since = |then: Instant| (now - then).as_secs_f64();
        metrics.e2e_seconds.observe(seconds_since(self.arrived));
        metrics
            .inference_seconds
            .observe(seconds_since(self.started));
        if let Some((first, _)) = self.drawn_at {
            metrics.decode_seconds.observe(seconds_since(first));
        }
    }
}
