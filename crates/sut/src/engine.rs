//! What the engine thread does: it owns backend, cache and the running set.
//!
//! Each turn: take what has arrived, drop whose client has left or whose deadline has passed, start
//! what fits, plan a step, compute it, hand out the tokens. New sequences join at the next step and
//! finished ones leave at once. When the cache runs out, the youngest gives its blocks back and
//! starts again, with all it has drawn, before anybody new. The thread sleeps on its bell when
//! there is nothing to compute.
//!
//! A panic anywhere in a turn ends the thread (`engine_thread`): dropping the engine answers every
//! waiter. What can be refused has been refused before (admission).

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::{Answers, Backend, BackendError, Loaded, Row, Step};
use crate::batch::{self, Decision, PlannedRow, Room, Seat, StepLimits, StepPlan};
use crate::clock;
use crate::metrics::Metrics;
use crate::pace::Pace;
use crate::queue::{Inbox, Queue, earlier};
use crate::status::Status;
use crate::stream::{Drawn, Finish};
use crate::tokenize::TokenTable;

mod running;
mod seats;

use running::Running;

/// Longest sleep with nothing to do. A ring ends it; the bound is only there so that no fault in
/// the ringing can hold a request for ever.
const IDLE_WAIT: Duration = Duration::from_secs(1);

/// What an engine needs beside its backend.
#[derive(Debug, Clone)]
pub struct EngineParts {
    /// Where handlers leave sequences.
    pub inbox: Arc<Inbox>,
    /// Where it counts.
    pub metrics: Arc<Metrics>,
    /// Bounds of a step.
    pub limits: StepLimits,
    /// How long a step that mixes prompts with decoding should take.
    pub target_itl: Duration,
}

/// What a turn did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// A step was computed; look again at once.
    Stepped,
    /// Nothing to compute before this time, or before the bell rings.
    Idle(Option<Instant>),
}

/// Backend, queue and running set. Lives on one thread.
pub struct Engine {
    backend: Box<dyn Backend>,
    table: Arc<TokenTable>,
    parts: EngineParts,
    pace: Pace,
    status: Arc<Status>,
    queue: Queue,
    /// Those with a seat, oldest first, which is the order prompts are computed in.
    running: Vec<Running>,
    /// Those that gave their seat up, oldest first.
    preempted: Vec<Running>,
    last_start: Option<Instant>,
    scratch: Scratch,
}

/// Buffers kept from step to step.
#[derive(Default)]
struct Scratch {
    step: Step,
    answers: Answers,
    bytes: Vec<u8>,
    text: String,
}

impl Engine {
    /// An engine with nothing to do.
    #[must_use]
    pub fn new(loaded: Loaded, parts: EngineParts, status: Arc<Status>) -> Self {
        Engine {
            backend: loaded.backend,
            table: loaded.texts.table,
            pace: Pace::new(parts.target_itl, parts.limits.max_tokens),
            parts,
            status,
            queue: Queue::default(),
            running: Vec::new(),
            preempted: Vec::new(),
            last_start: None,
            scratch: Scratch::default(),
        }
    }

    /// Takes turns until it is told to stop.
    pub fn run(mut self) {
        while !self.status.is_told_to_stop() {
            let now = clock::now();
            if let Turn::Idle(wake_at) = self.turn(now) {
                let wake_at = wake_at.unwrap_or(now + IDLE_WAIT);
                self.parts.inbox.bell().wait_until(wake_at, clock::now());
            }
        }
    }

    /// One turn: at most one step.
    pub fn turn(&mut self, now: Instant) -> Turn {
        self.parts.inbox.drain_into(&mut self.queue);
        if self.parts.inbox.bell().take_client_left() {
            self.drop_canceled();
        }
        self.drop_expired(now);
        self.start_waiting(now);
        self.status.beat(now, !self.running.is_empty());
        let plan = loop {
            match batch::plan(&self.seats(), self.room(), now) {
                Decision::Preempt(seat) => self.preempt(seat),
                Decision::Step(plan) => break plan,
            }
        };
        if plan.rows.is_empty() {
            self.set_gauges();
            return Turn::Idle(earlier(plan.wake_at, self.first_deadline()));
        }
        self.compute(&plan, now);
        self.running.retain(|running| !running.ended);
        self.set_gauges();
        Turn::Stepped
    }

    fn seats(&self) -> Vec<Seat> {
        let seat = |running: &Running| Seat {
            n_fed: running.n_fed,
            n_unfed: running.ids.len() - running.n_fed,
            ready_at: self.backend.ready_at(running.seq),
        };
        self.running.iter().map(seat).collect()
    }

    fn room(&self) -> Room {
        Room {
            max_tokens: self.parts.limits.max_tokens,
            max_chunk: self.pace.chunk(),
            kv_free: self.backend.kv_free_tokens(),
            kv_block: self.backend.info().kv_block_tokens,
        }
    }

    fn drop_canceled(&mut self) {
        let in_queue = self.queue.drop_canceled();
        let n_canceled = in_queue + self.end_where(|r| r.outlet.is_canceled(), None);
        self.parts.metrics.canceled.inc_by(n_canceled as u64);
    }

    fn drop_expired(&mut self, now: Instant) {
        let in_queue = self.queue.take_expired(now);
        let mut n_expired = in_queue.len();
        for mut waiting in in_queue {
            waiting.outlet.finish(Finish::Expired);
        }
        let is_over = |r: &Running| r.deadline.is_some_and(|deadline| deadline <= now);
        n_expired += self.end_where(is_over, Some(Finish::Expired));
        self.parts.metrics.expired.inc_by(n_expired as u64);
    }

    /// Ends the started sequences that `is_over` names and returns how many those were.
    fn end_where(&mut self, is_over: impl Fn(&Running) -> bool, finish: Option<Finish>) -> usize {
        let mut n_ended = 0;
        let Engine {
            running,
            preempted,
            backend,
            ..
        } = self;
        for set in [running, preempted] {
            for ended in set.extract_if(.., |r| is_over(r)) {
                let Running {
                    seq, mut outlet, ..
                } = ended;
                // Before the last word: see release().
                backend.close(seq);
                n_ended += 1;
                match finish {
                    Some(finish) => outlet.finish(finish),
                    None => drop(outlet),
                }
            }
        }
        n_ended
    }

    /// When the first deadline passes, so that an idle engine wakes for it.
    fn first_deadline(&self) -> Option<Instant> {
        let started = self.running.iter().chain(&self.preempted);
        let first = started.filter_map(|running| running.deadline).min();
        earlier(first, self.queue.first_deadline())
    }

    /// Computes a plan. When one row is at fault, the rows are tried alone and only that one fails.
    fn compute(&mut self, plan: &StepPlan, now: Instant) {
        match self.step(&plan.rows, now) {
            Ok(()) => {}
            Err(BackendError::BadRow(_)) if plan.rows.len() > 1 => {
                for row in &plan.rows {
                    if let Err(error) = self.step(&[*row], now) {
                        self.fail(&[*row], &error);
                    }
                }
            }
            Err(error) => self.fail(&plan.rows, &error),
        }
    }

    fn step(&mut self, rows: &[PlannedRow], now: Instant) -> Result<(), BackendError> {
        let Scratch { step, answers, .. } = &mut self.scratch;
        step.ids.clear();
        step.rows.clear();
        step.followers.clear();
        answers.next.clear();
        answers.scores.clear();
        for row in rows {
            let running = &self.running[row.seat];
            step.ids
                .extend_from_slice(&running.ids[running.n_fed..][..row.n_tokens]);
            let followers = running.asked_about(row.n_tokens);
            step.followers.extend_from_slice(followers);
            step.rows.push(Row {
                seq: running.seq,
                n_ids: row.n_tokens,
                draw: row.draw,
                n_scored: followers.len(),
            });
        }
        self.backend.step(step, answers)?;
        assert_eq!(
            answers.next.len(),
            rows.len(),
            "a backend answers every row"
        );
        let done = clock::now();
        let metrics = &self.parts.metrics;
        metrics
            .step_seconds
            .observe(done.saturating_duration_since(now).as_secs_f64());
        metrics.batch_rows.observe(rows.len() as f64);
        metrics.iteration_tokens.observe(step.ids.len() as f64);
        let n_prompt: usize = rows.iter().map(|r| r.n_tokens).filter(|&n| n > 1).sum();
        if n_prompt < step.ids.len() {
            self.pace
                .observe(n_prompt, done.saturating_duration_since(now));
        }
        let mut scores = std::mem::take(&mut answers.scores).into_iter();
        let n_scored: Vec<usize> = step.rows.iter().map(|row| row.n_scored).collect();
        for (i, (row, n_scored)) in rows.iter().zip(n_scored).enumerate() {
            let running = &mut self.running[row.seat];
            running.n_fed += row.n_tokens;
            running.scores.extend(scores.by_ref().take(n_scored));
            if let Some(token) = self.scratch.answers.next[i].take() {
                self.take_token(row.seat, token, done);
            }
        }
        Ok(())
    }

    fn take_token(&mut self, seat: usize, token: Drawn, now: Instant) {
        let id = token.id;
        let running = &mut self.running[seat];
        running.note_token(id, now, &self.parts.metrics);
        let Scratch { bytes, text, .. } = &mut self.scratch;
        bytes.clear();
        text.clear();
        let is_eos = !running.ignore_eos && self.backend.info().eos_ids.contains(&id);
        let stopped = is_eos || {
            self.table.append(id, bytes);
            running.assembler.push(bytes, text)
        };
        let finish = if stopped {
            Some(Finish::Stop)
        } else if running.n_generated() == running.max_tokens {
            Some(Finish::Length)
        } else {
            None
        };
        if let Some(finish) = finish {
            running.assembler.flush(text);
            running.record_end(finish, now, &self.parts.metrics);
            self.release(seat);
        }
        self.running[seat]
            .outlet
            .push(token, &self.scratch.text, finish);
    }

    fn fail(&mut self, rows: &[PlannedRow], error: &BackendError) {
        tracing::error!(%error, n_rows = rows.len(), "step failed");
        self.parts.metrics.failed.inc_by(rows.len() as u64);
        for row in rows {
            self.release(row.seat);
            self.running[row.seat].outlet.finish(Finish::Failed);
        }
    }

    /// Gives a sequence's cache back. Comes before its last word to the client, so that whoever has
    /// an answer in hand finds the cache free.
    fn release(&mut self, seat: usize) {
        let running = &mut self.running[seat];
        running.ended = true;
        self.backend.close(running.seq);
        self.set_gauges();
    }

    fn set_gauges(&self) {
        let metrics = &self.parts.metrics;
        let n_running = self.running.iter().filter(|running| !running.ended).count();
        metrics.requests_running.set(n_running as i64);
        let n_preempted = self.preempted.len() as i64;
        metrics.cache.requests_preempted.set(n_preempted);
        let capacity = self.backend.info().kv_capacity_tokens;
        let used = capacity - self.backend.kv_free_tokens();
        metrics.cache.usage.set(used as f64 / capacity as f64);
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod pressure_tests;
