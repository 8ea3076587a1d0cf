//! Time that stands still until somebody waits for it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::clock::{Clock, Nanos, TimeSource, Wait, Wake};

/// 2026-01-01 00:00:00 UTC: where virtual wall-clock time begins.
const EPOCH_UNIX_NS: i64 = 1_767_225_600_000_000_000;

type Action = Box<dyn FnOnce() + Send>;

/// A clock that jumps from event to event while the run waits; clones share the time.
///
/// Events at the same time happen in the order they were planned.
#[derive(Clone, Default)]
pub struct VirtualClock {
    now: Arc<AtomicI64>,
    events: Arc<Mutex<Events>>,
}

#[derive(Default)]
struct Events {
    /// When, in which order, and the position of the action.
    order: BinaryHeap<Reverse<(i64, u64)>>,
    actions: std::collections::BTreeMap<u64, Action>,
    planned: u64,
}

impl VirtualClock {
    /// A clock at 0 with nothing planned.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Plans `action` for `at`, or for now if that has passed.
    pub fn at(&self, at: Nanos, action: impl FnOnce() + Send + 'static) {
        let at = at.max(self.now());
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let number = events.planned;
        events.planned += 1;
        events.order.push(Reverse((at.0, number)));
        events.actions.insert(number, Box::new(action));
    }

    /// The earliest event no later than `until`, taken off the list.
    fn next(&self, until: Option<Nanos>) -> Option<(i64, Action)> {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let Reverse((at, number)) = *events.order.peek()?;
        if until.is_some_and(|until| at > until.0) {
            return None;
        }
        events.order.pop();
        let action = events.actions.remove(&number)?;
        Some((at, action))
    }
}

impl Clock for VirtualClock {
    fn source(&self) -> TimeSource {
        TimeSource::Virtual(Arc::clone(&self.now))
    }

    fn wait(&self, wait: &Wait<'_>) -> Wake {
        loop {
            if (wait.ready)() {
                return Wake::Ready;
            }
            // Relaxed: one thread drives virtual time.
            match (self.next(wait.until), wait.until) {
                (Some((at, action)), _) => {
                    self.now.fetch_max(at, Ordering::Relaxed);
                    action();
                }
                (None, Some(until)) => {
                    self.now.fetch_max(until.0, Ordering::Relaxed);
                    return if (wait.ready)() {
                        Wake::Ready
                    } else {
                        Wake::Due
                    };
                }
                (None, None) => return Wake::Stuck,
            }
        }
    }

    fn unix_ns(&self) -> i64 {
        EPOCH_UNIX_NS + self.now().0
    }

    fn single_threaded(&self) -> bool {
        true
    }
}
