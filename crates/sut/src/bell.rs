//! How the engine thread sleeps, and how others wake it.
//!
//! One flag under a mutex: a ring before the wait is not lost, many rings are one. No spinning:
//! on a small machine every turn of a spin is taken from the model.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A bell that one thread listens to.
#[derive(Debug, Default)]
pub struct Bell {
    rung: Mutex<bool>,
    heard: Condvar,
    /// Some client has left since the engine last looked.
    client_left: AtomicBool,
}

impl Bell {
    /// Wakes the listener, now or at its next wait.
    pub fn ring(&self) {
        let mut rung = self.lock();
        if !*rung {
            *rung = true;
            self.heard.notify_one();
        }
    }

    /// Says that a client has left, so that the engine looks for whose sequences to drop.
    pub fn ring_client_left(&self) {
        // Release: the engine that sees the flag also sees that client's own cancel mark.
        self.client_left.store(true, Ordering::Release);
        self.ring();
    }

    /// Whether a client has left since the last call.
    pub fn take_client_left(&self) -> bool {
        // The plain load first: this is asked every step and the answer is nearly always no.
        self.client_left.load(Ordering::Relaxed) && self.client_left.swap(false, Ordering::Acquire)
    }

    /// Sleeps until somebody rings or `timeout` is over.
    pub fn wait(&self, timeout: Duration) {
        let mut rung = self.lock();
        if !*rung {
            (rung, _) = self
                .heard
                .wait_timeout(rung, timeout)
                .unwrap_or_else(PoisonError::into_inner);
        }
        // A wake-up for no reason only makes the engine look once more.
        *rung = false;
    }

    /// Sleeps until somebody rings or `deadline`.
    pub fn wait_until(&self, deadline: Instant, now: Instant) {
        self.wait(deadline.saturating_duration_since(now));
    }

    /// A panic cannot leave a bool half changed.
    fn lock(&self) -> MutexGuard<'_, bool> {
        self.rung.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
