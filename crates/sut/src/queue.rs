//! Where sequences wait for the engine: first come, first served, by their age.
//!
//! A priority is worth a time of waiting, so that the order of two sequences never changes and
//! nobody waits for ever behind others that came later.
//!
//! Handlers push into the [`Inbox`]; the engine moves everything from there into its own [`Queue`],
//! which needs no lock. Neither refuses: admission has counted before.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::admission::WaitPermit;
use crate::bell::Bell;
use crate::request::Generate;
use crate::stream::Outlet;

/// How much earlier a sequence counts as arrived for each step of priority.
pub const PRIORITY_STEP: Duration = Duration::from_secs(10);

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

impl Waiting {
    /// Its age for the order of things: the earliest goes first.
    #[must_use]
    pub fn order(&self) -> Instant {
        let priority = self.request.params.priority;
        let shift = PRIORITY_STEP * priority.unsigned_abs();
        let shifted = if priority < 0 {
            self.arrived.checked_sub(shift)
        } else {
            self.arrived.checked_add(shift)
        };
        shifted.unwrap_or(self.arrived)
    }

    /// When nobody wants its answer any more.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.arrived.checked_add(self.request.params.deadline?)
    }
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

    /// Moves all entries to their places in `queue`.
    pub fn drain_into(&self, queue: &mut Queue) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entries) = entries.as_mut() {
            entries.drain(..).for_each(|waiting| queue.insert(waiting));
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
    /// Invariant: in their order, those of one order as they came.
    entries: VecDeque<Waiting>,
    /// Invariant: no deadline is earlier.
    first_deadline: Option<Instant>,
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

    /// The oldest.
    #[must_use]
    pub fn first(&self) -> Option<&Waiting> {
        self.entries.front()
    }

    fn insert(&mut self, waiting: Waiting) {
        let order = waiting.order();
        let place = self.entries.partition_point(|w| w.order() <= order);
        self.first_deadline = earlier(self.first_deadline, waiting.deadline());
        self.entries.insert(place, waiting);
    }

    /// A time before which no deadline passes, if any sequence has one.
    #[must_use]
    pub fn first_deadline(&self) -> Option<Instant> {
        self.first_deadline
    }

    /// Takes out those whose deadline has passed.
    pub fn take_expired(&mut self, now: Instant) -> Vec<Waiting> {
        if self.first_deadline.is_none_or(|first| now < first) {
            return Vec::new();
        }
        let is_over = |w: &Waiting| w.deadline().is_some_and(|deadline| deadline <= now);
        let (over, left) = self.entries.drain(..).partition::<VecDeque<_>, _>(is_over);
        self.entries = left;
        let deadlines = self.entries.iter().map(Waiting::deadline);
        self.first_deadline = deadlines.fold(None, earlier);
        over.into()
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

/// The earlier of two times that may not be there.
#[must_use]
pub fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    a.into_iter().chain(b).min()
}
