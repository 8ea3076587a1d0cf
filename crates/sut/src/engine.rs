//! What the engine thread does: it owns backend, cache and the running set.
//!
//! Each turn: take what has arrived, drop whose client has left, start what fits, plan a step,
//! compute it, hand out the tokens. New sequences join at the next step and finished ones leave
//! at once. The thread sleeps on its bell when there is nothing to compute.
//!
//! A panic anywhere in a turn ends the thread (`engine_thread`): dropping the engine answers every
//! waiter. What can be refused has been refused before (admission).

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::{Backend, BackendError, Loaded, Row, SeqId, Step};
use crate::batch::{self, PlannedRow, Seat, StepLimits, StepPlan};
use crate::clock;
use crate::detokenize::Assembler;
use crate::metrics::Metrics;
use crate::queue::{Inbox, Queue, Waiting};
use crate::status::Status;
use crate::stream::{Finish, Outlet};
use crate::tokenize::TokenTable;

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
    status: Arc<Status>,
    queue: Queue,
    /// In the order they started, which is the order prompts are computed in.
    running: Vec<Running>,
    last_start: Option<Instant>,
    scratch: Scratch,
}

/// Buffers kept from step to step.
#[derive(Default)]
struct Scratch {
    step: Step,
    next: Vec<Option<u32>>,
    bytes: Vec<u8>,
    text: String,
}

/// A sequence that has its cache.
struct Running {
    seq: SeqId,
    /// The prompt, later the one token drawn last; computed up to `n_fed`.
    ids: Vec<u32>,
    n_fed: usize,
    n_prompt: usize,
    n_generated: usize,
    max_tokens: usize,
    ignore_eos: bool,
    assembler: Assembler,
    outlet: Outlet,
    arrived: Instant,
    started: Instant,
    /// Of the first and the latest token.
    drawn_at: Option<(Instant, Instant)>,
    /// Its cache is given back; it leaves the running set in this turn.
    ended: bool,
}

impl Engine {
    /// An engine with nothing to do.
    #[must_use]
    pub fn new(loaded: Loaded, parts: EngineParts, status: Arc<Status>) -> Self {
        Engine {
            backend: loaded.backend,
            table: loaded.texts.table,
            parts,
            status,
            queue: Queue::default(),
            running: Vec::new(),
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
        self.start_waiting(now);
        self.status.beat(now, !self.running.is_empty());
        let seats: Vec<Seat> = self.running.iter().map(|r| self.seat(r)).collect();
        let plan = batch::plan(&seats, self.parts.limits, now);
        if plan.rows.is_empty() {
            self.set_gauges();
            return Turn::Idle(plan.wake_at);
        }
        self.compute(&plan, now);
        self.running.retain(|running| !running.ended);
        self.set_gauges();
        Turn::Stepped
    }

    fn seat(&self, running: &Running) -> Seat {
        Seat {
            n_unfed: running.ids.len() - running.n_fed,
            ready_at: self.backend.ready_at(running.seq),
        }
    }

    fn drop_canceled(&mut self) {
        let mut n_canceled = self.queue.drop_canceled();
        for seat in 0..self.running.len() {
            if self.running[seat].outlet.is_canceled() {
                self.release(seat);
                n_canceled += 1;
            }
        }
        self.parts.metrics.canceled.inc_by(n_canceled as u64);
        self.running.retain(|running| !running.ended);
    }

    fn start_waiting(&mut self, now: Instant) {
        let info = self.backend.info();
        let needed = self
            .queue
            .iter()
            .map(|w| info.kv_cost(w.request.kv_tokens()));
        let kv_free = self.backend.kv_free_tokens();
        let n = batch::n_starts(self.running.len(), kv_free, needed, self.parts.limits);
        for waiting in (0..n).filter_map(|_| self.queue.pop()).collect::<Vec<_>>() {
            self.start(waiting, now);
        }
    }

    fn start(&mut self, waiting: Waiting, now: Instant) {
        let Waiting {
            request,
            mut outlet,
            permit,
            arrived,
        } = waiting;
        permit.start(self.last_start.replace(now), now);
        let metrics = &self.parts.metrics;
        metrics.queue_seconds.observe((now - arrived).as_secs_f64());
        match self.backend.open(&request, now) {
            Ok(seq) => {
                metrics
                    .request_prompt_tokens
                    .observe(request.prompt.len() as f64);
                self.running.push(Running {
                    seq,
                    n_fed: 0,
                    n_prompt: request.prompt.len(),
                    n_generated: 0,
                    max_tokens: request.max_tokens,
                    ignore_eos: request.params.ignore_eos,
                    assembler: Assembler::new(&request.params.stop),
                    ids: request.prompt,
                    outlet,
                    arrived,
                    started: now,
                    drawn_at: None,
                    ended: false,
                });
            }
            Err(error) => {
                tracing::error!(%error, "sequence could not be opened");
                metrics.failed.inc();
                outlet.finish(Finish::Failed);
            }
        }
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
        let Scratch { step, next, .. } = &mut self.scratch;
        step.ids.clear();
        step.rows.clear();
        next.clear();
        for row in rows {
            let running = &self.running[row.seat];
            step.ids
                .extend_from_slice(&running.ids[running.n_fed..][..row.n_tokens]);
            step.rows.push(Row {
                seq: running.seq,
                n_ids: row.n_tokens,
                draw: row.draw,
            });
        }
        self.backend.step(step, next)?;
        assert_eq!(next.len(), rows.len(), "a backend answers every row");
        let done = clock::now();
        let metrics = &self.parts.metrics;
        metrics
            .step_seconds
            .observe(done.saturating_duration_since(now).as_secs_f64());
        metrics.batch_rows.observe(rows.len() as f64);
        metrics.iteration_tokens.observe(step.ids.len() as f64);
        for (i, row) in rows.iter().enumerate() {
            self.running[row.seat].n_fed += row.n_tokens;
            if let Some(id) = self.scratch.next[i] {
                self.take_token(row.seat, id, done);
            }
        }
        Ok(())
    }

    fn take_token(&mut self, seat: usize, id: u32, now: Instant) {
        let running = &mut self.running[seat];
        let metrics = &self.parts.metrics;
        running.n_generated += 1;
        running.ids.clear();
        running.ids.push(id);
        running.n_fed = 0;
        metrics.generation_tokens.inc();
        match &mut running.drawn_at {
            Some((_, latest)) => {
                metrics.itl_seconds.observe((now - *latest).as_secs_f64());
                *latest = now;
            }
            none => {
                *none = Some((now, now));
                metrics.prompt_tokens.inc_by(running.n_prompt as u64);
                metrics
                    .ttft_seconds
                    .observe((now - running.arrived).as_secs_f64());
                metrics
                    .prefill_seconds
                    .observe((now - running.started).as_secs_f64());
            }
        }
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
        } else if running.n_generated == running.max_tokens {
            Some(Finish::Length)
        } else {
            None
        };
        if finish.is_some() {
            running.assembler.flush(text);
            record_end(metrics, running, finish, now);
            self.release(seat);
        }
        self.running[seat]
            .outlet
            .push(id, &self.scratch.text, finish);
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
        let capacity = self.backend.info().kv_capacity_tokens;
        let used = capacity - self.backend.kv_free_tokens();
        metrics.kv_cache_usage.set(used as f64 / capacity as f64);
    }
}

fn record_end(metrics: &Metrics, running: &Running, finish: Option<Finish>, now: Instant) {
    let ended_by = if finish == Some(Finish::Length) {
        &metrics.success_length
    } else {
        &metrics.success_stop
    };
    ended_by.inc();
    metrics
        .request_generation_tokens
        .observe(running.n_generated as f64);
    metrics
        .e2e_seconds
        .observe((now - running.arrived).as_secs_f64());
    metrics
        .inference_seconds
        .observe((now - running.started).as_secs_f64());
    if let Some((first, _)) = running.drawn_at {
        metrics.decode_seconds.observe((now - first).as_secs_f64());
    }
}

#[cfg(test)]
mod tests;
