//! What the outside may know of the engine thread without asking it: a heartbeat and three flags.
//!
//! Health checks read it and never wait behind work.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// No turn for this long with work at hand means the engine hangs. Far above any step: a 4096-token
/// chunk of a billion-parameter model takes under a minute even on one core.
const STALL: Duration = Duration::from_mins(2);

/// What the outside may know of the engine without asking it.
#[derive(Debug)]
pub struct Status {
    origin: Instant,
    /// Start of the latest turn, in milliseconds after `origin`.
    beat_ms: AtomicU64,
    busy: AtomicBool,
    alive: AtomicBool,
    stop: AtomicBool,
}

impl Status {
    /// Of a thread about to start.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Status {
            origin: now,
            beat_ms: AtomicU64::new(0),
            busy: AtomicBool::new(false),
            alive: AtomicBool::new(true),
            stop: AtomicBool::new(false),
        }
    }

    /// Whether the engine thread runs.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }

    /// Whether it has work and has not moved for two minutes.
    #[must_use]
    pub fn is_stalled(&self, now: Instant) -> bool {
        // Relaxed: one step early or late does not matter.
        let beat = Duration::from_millis(self.beat_ms.load(Ordering::Relaxed));
        self.busy.load(Ordering::Relaxed)
            && now.saturating_duration_since(self.origin + beat) > STALL
    }

    /// A turn begins; `busy` when there is something to compute.
    pub fn beat(&self, now: Instant, busy: bool) {
        let ms = now.saturating_duration_since(self.origin).as_millis();
        self.beat_ms
            .store(u64::try_from(ms).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.busy.store(busy, Ordering::Relaxed);
    }

    /// Asks the thread to end after its current step.
    pub fn tell_to_stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    /// Whether [`Status::tell_to_stop`] was called.
    #[must_use]
    pub fn is_told_to_stop(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// The thread has ended, for whatever reason.
    pub fn set_ended(&self) {
        self.alive.store(false, Ordering::Release);
    }
}
