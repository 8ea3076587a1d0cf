//! The only place that refuses a request once it has been understood.
//!
//! Counts what is open and what waits, in requests and in tokens, before anything is queued; so
//! no queue behind it can overflow. A request with several prompts is accepted whole or not at
//! all. Past this point a request ends by answer, cancel, failure or shutdown.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::config::Limits;
use crate::metrics::Metrics;

/// Why a request was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Prompt and output do not fit the model, or never fit the cache.
    TooLong {
        /// Tokens of the prompt.
        n_prompt: usize,
        /// Tokens asked for.
        max_tokens: usize,
        /// Tokens that fit.
        max_model_len: usize,
    },
    /// A prompt id that the model has no token for.
    TokenOutOfRange {
        /// The id.
        id: u32,
        /// Ids are below this.
        vocab_size: usize,
    },
    /// The prompt has no tokens.
    EmptyPrompt,
    /// More at once than may ever wait; coming back later would not help.
    LargerThanQueue {
        /// Prompts of the request.
        n_prompts: usize,
        /// Their tokens.
        n_tokens: usize,
        /// Prompts that may wait.
        max_queue: usize,
        /// Tokens that may wait.
        max_queue_tokens: usize,
    },
    /// As much is waiting as may wait.
    QueueFull {
        /// When to try again, from how fast the queue has been moving.
        retry_after: Duration,
    },
    /// The server is going down, or its engine broke.
    Unavailable,
}

/// What the loaded model allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelBounds {
    /// Prompt and output together.
    pub max_model_len: usize,
    /// Ids are below this.
    pub vocab_size: usize,
}

/// The gate. Shared by all handlers.
#[derive(Debug)]
pub struct Admission {
    limits: Limits,
    bounds: ModelBounds,
    metrics: Arc<Metrics>,
    load: Arc<Load>,
}

/// What is in the house; permits give back on drop.
#[derive(Debug, Default)]
struct Load {
    /// Requests whose answer is not finished.
    open_requests: AtomicUsize,
    waiting: AtomicUsize,
    waiting_tokens: AtomicUsize,
    /// Smoothed time between two starts of sequences, in nanoseconds; 0 = not known yet.
    start_gap_ns: AtomicU64,
    closed: AtomicBool,
}

impl Admission {
    /// An open gate with nothing behind it.
    #[must_use]
    pub fn new(limits: Limits, bounds: ModelBounds, metrics: Arc<Metrics>) -> Self {
        Admission {
            limits,
            bounds,
            metrics,
            load: Arc::default(),
        }
    }

    /// What the loaded model allows.
    #[must_use]
    pub fn bounds(&self) -> ModelBounds {
        self.bounds
    }

    /// Room for the output when the client names no limit.
    #[must_use]
    pub fn room_after(&self, n_prompt: usize) -> usize {
        self.bounds.max_model_len.saturating_sub(n_prompt).max(1)
    }

    /// Whether one prompt can be served at all.
    ///
    /// # Errors
    /// The [`Refusal`], which is the client's fault.
    pub fn check(&self, prompt: &[u32], max_tokens: usize) -> Result<(), Refusal> {
        if prompt.is_empty() {
            return Err(Refusal::EmptyPrompt);
        }
        let ModelBounds {
            max_model_len,
            vocab_size,
        } = self.bounds;
        if let Some(&id) = prompt.iter().find(|&&id| id as usize >= vocab_size) {
            return Err(Refusal::TokenOutOfRange { id, vocab_size });
        }
        if prompt.len().saturating_add(max_tokens) > max_model_len {
            self.metrics.rejected_too_long.inc();
            return Err(Refusal::TooLong {
                n_prompt: prompt.len(),
                max_tokens,
                max_model_len,
            });
        }
        Ok(())
    }

    /// Lets a request in, with one permit for each of its sequences to wait.
    ///
    /// # Errors
    /// [`Refusal::LargerThanQueue`], [`Refusal::QueueFull`] or [`Refusal::Unavailable`]; then
    /// nothing was counted.
    pub fn admit(
        &self,
        prompt_tokens: &[usize],
    ) -> Result<(OpenRequest, Vec<WaitPermit>), Refusal> {
        // Counted as open first and checked for closing after: a drain that begins in between
        // sees either this request or refuses it.
        let open = OpenRequest::count(&self.load);
        // SeqCst pairs with close(): see there.
        if self.load.closed.load(Ordering::SeqCst) {
            self.metrics.rejected_unavailable.inc();
            return Err(Refusal::Unavailable);
        }
        self.check_size(prompt_tokens)?;
        let permits: Vec<WaitPermit> = prompt_tokens
            .iter()
            .map(|&n_tokens| WaitPermit::count(&self.load, n_tokens))
            .collect();
        let full = self.load.waiting.load(Ordering::Relaxed) > self.limits.max_queue
            || self.load.waiting_tokens.load(Ordering::Relaxed) > self.limits.max_queue_tokens;
        if full {
            drop(permits);
            self.metrics.rejected_queue_full.inc();
            return Err(Refusal::QueueFull {
                retry_after: self.retry_after(),
            });
        }
        Ok((open, permits))
    }

    /// Whether a request fits the empty queue.
    fn check_size(&self, prompt_tokens: &[usize]) -> Result<(), Refusal> {
        let Limits {
            max_queue,
            max_queue_tokens,
            ..
        } = self.limits;
        let (n_prompts, n_tokens) = (prompt_tokens.len(), prompt_tokens.iter().sum());
        if n_prompts <= max_queue && n_tokens <= max_queue_tokens {
            return Ok(());
        }
        self.metrics.rejected_too_long.inc();
        Err(Refusal::LargerThanQueue {
            n_prompts,
            n_tokens,
            max_queue,
            max_queue_tokens,
        })
    }

    /// Lets nobody in from now on.
    pub fn close(&self) {
        // SeqCst: either admit() sees this, or whoever reads open_requests() after close() sees
        // its count; with weaker orders both could miss each other.
        self.load.closed.store(true, Ordering::SeqCst);
    }

    /// Whether the gate is closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.load.closed.load(Ordering::SeqCst)
    }

    /// Requests whose answer is not finished.
    #[must_use]
    pub fn open_requests(&self) -> usize {
        self.load.open_requests.load(Ordering::SeqCst)
    }

    /// Sequences that wait, in whatever hands they are just now.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.load.waiting.load(Ordering::Relaxed)
    }

    /// The time the queue takes to move by its present length, between 1 s and 60 s.
    fn retry_after(&self) -> Duration {
        let gap = Duration::from_nanos(self.load.start_gap_ns.load(Ordering::Relaxed));
        let waiting = u32::try_from(self.load.waiting.load(Ordering::Relaxed)).unwrap_or(u32::MAX);
        gap.saturating_mul(waiting)
            .clamp(Duration::from_secs(1), Duration::from_mins(1))
    }
}

/// A request that has been let in. Held until its answer is finished, sent or not.
#[derive(Debug)]
pub struct OpenRequest {
    load: Arc<Load>,
}

impl OpenRequest {
    fn count(load: &Arc<Load>) -> Self {
        load.open_requests.fetch_add(1, Ordering::SeqCst);
        OpenRequest {
            load: Arc::clone(load),
        }
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.load.open_requests.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A sequence's place in the queue. Dropped when the sequence starts or is given up.
#[derive(Debug)]
pub struct WaitPermit {
    load: Arc<Load>,
    n_tokens: usize,
}

/// Weight of the newest gap in the smoothed one: the last ten or so starts count.
const NEWEST_GAP_SHARE: u64 = 10;

impl WaitPermit {
    fn count(load: &Arc<Load>, n_tokens: usize) -> Self {
        // Relaxed: counts only, nothing is published by them.
        load.waiting.fetch_add(1, Ordering::Relaxed);
        load.waiting_tokens.fetch_add(n_tokens, Ordering::Relaxed);
        WaitPermit {
            load: Arc::clone(load),
            n_tokens,
        }
    }

    /// The sequence starts; `last_start` is when the one before it did. Called by one thread only.
    pub fn start(&self, last_start: Option<Instant>, now: Instant) {
        let Some(last) = last_start else { return };
        let gap = u64::try_from((now - last).as_nanos()).unwrap_or(u64::MAX);
        let old = self.load.start_gap_ns.load(Ordering::Relaxed);
        let new = if old == 0 {
            gap
        } else {
            old - old / NEWEST_GAP_SHARE + gap / NEWEST_GAP_SHARE
        };
        self.load.start_gap_ns.store(new.max(1), Ordering::Relaxed);
    }
}

impl Drop for WaitPermit {
    fn drop(&mut self) {
        self.load.waiting.fetch_sub(1, Ordering::Relaxed);
        self.load
            .waiting_tokens
            .fetch_sub(self.n_tokens, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(max_queue: usize, max_queue_tokens: usize) -> Admission {
        let limits = Limits {
            max_batch_rows: 1,
            max_batch_tokens: 1,
            kv_tokens: 100,
            max_queue,
            max_queue_tokens,
        };
        let bounds = ModelBounds {
            max_model_len: 10,
            vocab_size: 5,
        };
        Admission::new(limits, bounds, Arc::new(Metrics::new("m")))
    }

    #[test]
    fn what_can_never_fit_is_refused_with_counts() {
        let gate = gate(1, 1);
        assert_eq!(gate.check(&[0; 6], 4), Ok(()));
        let too_long = Refusal::TooLong {
            n_prompt: 6,
            max_tokens: 5,
            max_model_len: 10,
        };
        assert_eq!(gate.check(&[0; 6], 5), Err(too_long));
        assert!(gate.check(&[0; 6], usize::MAX).is_err());
        assert_eq!(gate.check(&[], 1), Err(Refusal::EmptyPrompt));
        let range = Refusal::TokenOutOfRange {
            id: 5,
            vocab_size: 5,
        };
        assert_eq!(gate.check(&[4, 5], 1), Err(range));
        assert_eq!((gate.room_after(4), gate.room_after(10)), (6, 1));
    }

    #[test]
    fn the_queue_is_bounded_in_requests_and_tokens_and_gives_back() {
        let gate = gate(2, 100);
        let (open, permits) = gate.admit(&[10, 10]).unwrap();
        assert!(matches!(gate.admit(&[1]), Err(Refusal::QueueFull { .. })));
        assert_eq!(gate.open_requests(), 1);
        drop(permits);
        let (_one, permit) = gate.admit(&[60]).unwrap();
        assert!(matches!(gate.admit(&[60]), Err(Refusal::QueueFull { .. })));
        drop(permit);
        // All or nothing: the refused one left no trace.
        assert!(gate.admit(&[50, 50]).is_ok());
        drop((open, _one));
        assert_eq!(gate.open_requests(), 0);
        assert_eq!(gate.metrics.rejected_queue_full.get(), 2);
    }

    #[test]
    fn a_request_larger_than_the_queue_is_not_told_to_come_back() {
        let gate = gate(2, 100);
        for prompts in [&[1, 1, 1][..], &[60, 41]] {
            let refusal = gate.admit(prompts).unwrap_err();
            assert!(
                matches!(refusal, Refusal::LargerThanQueue { .. }),
                "{refusal:?}"
            );
        }
        assert_eq!((gate.open_requests(), gate.waiting()), (0, 0));
        assert!(gate.admit(&[60, 40]).is_ok());
    }

    #[test]
    fn retry_after_is_queue_length_times_gap() {
        let gate = gate(3, 1000);
        let start = crate::clock::now();
        let (_open, mut permits) = gate.admit(&[1, 1, 1]).unwrap();
        permits.pop().unwrap().start(None, start);
        permits
            .pop()
            .unwrap()
            .start(Some(start), start + Duration::from_secs(4));
        // Two wait after this, each start took 4 s.
        let (_open, _two) = gate.admit(&[1]).unwrap();
        assert_eq!(gate.retry_after(), Duration::from_secs(8));
    }

    #[test]
    fn a_closed_gate_lets_nobody_in() {
        let gate = gate(1, 1);
        gate.close();
        assert_eq!(gate.admit(&[1]).unwrap_err(), Refusal::Unavailable);
        assert_eq!(gate.open_requests(), 0);
    }
}
