//! Where sequences wait for the engine: first come, first served.
//!
//! Handlers push into the [`Inbox`]; the engine moves everything from there into its own [`Queue`],
//! which needs no lock. Neither refuses: admission has counted before.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::admission::WaitPermit;
use crate::bell::Bell;
use crate::request::Generate;
use crate::stream::Outlet;

/// A sequence that has been admitted and not started.
#[derive(Debug)]
pub struct Waiting {
    /// What to generate.
    pub request: Generate,
    /// Where its text goes.
    pub outlet: Outlet,
    /// Its place in the queue.
    pub permit: WaitPermit,
    /// When its request was read.
    pub arrived: Instant,
}

/// Hands sequences from the handlers to the engine thread.
///
/// Bounded by admission: whoever pushes holds a [`WaitPermit`] for each entry.
#[derive(Debug)]
pub struct Inbox {
    /// `None` once the engine has ended.
    entries: Mutex<Option<Vec<Waiting>>>,
    bell: Arc<Bell>,
}

impl Inbox {
    /// An inbox whose engine listens to `bell`.
    #[must_use]
    pub fn new(bell: Arc<Bell>) -> Self {
        Inbox {
            entries: Mutex::new(Some(Vec::new())),
            bell,
        }
    }

    /// The bell of the engine that empties this inbox.
    #[must_use]
    pub fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    /// Leaves the sequences of one request for the engine. When the engine has ended, they are
    /// dropped, which answers their handler with a failure.
    pub fn push(&self, sequences: impl IntoIterator<Item = Waiting>) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entries) = entries.as_mut() {
            entries.extend(sequences);
        }
        drop(entries);
        self.bell.ring();
    }

    /// Moves all entries to the end of `queue`.
    pub fn drain_into(&self, queue: &mut Queue) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entries) = entries.as_mut() {
            queue.entries.extend(entries.drain(..));
        }
    }

    /// The engine ends: what is here and what is pushed later is answered with a failure.
    pub fn close(&self) {
        let left = self
            .entries
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        drop(left);
    }
}

/// The engine's own queue.
#[derive(Debug, Default)]
pub struct Queue {
    entries: VecDeque<Waiting>,
}

impl Queue {
    /// Number of waiting sequences.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The waiting sequences, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Waiting> {
        self.entries.iter()
    }

    /// Takes the oldest.
    pub fn pop(&mut self) -> Option<Waiting> {
        self.entries.pop_front()
    }

    /// Drops the sequences whose client has left and returns how many those were.
    pub fn drop_canceled(&mut self) -> usize {
        let before = self.entries.len();
        self.entries.retain(|waiting| !waiting.outlet.is_canceled());
        before - self.entries.len()
    }
}
