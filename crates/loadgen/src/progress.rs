//! Live counters of the phase under way, and how a run is called off.
//!
//! The recorder writes the counters on the timed path; a progress bar reads them a few times a
//! second through [`Progress`]. Nothing here is a result.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::clock::{Bell, Nanos};

/// Keeps what different threads write on different cache lines (128: lines are fetched in pairs).
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line<T>(T);

/// Counters of one phase. `issued` has one writer a thread, the answers many.
#[derive(Debug)]
pub(crate) struct Counters {
    issued: Line<AtomicU64>,
    answers: Line<Answers>,
    /// `answered` at which the issuing thread wants to be woken; `u64::MAX` when it does not.
    wake_at: Line<AtomicU64>,
}

#[derive(Debug)]
struct Answers {
    answered: AtomicU64,
    failed: AtomicU64,
    tokens: AtomicU64,
    last_activity_ns: AtomicI64,
    last_ttft_ns: AtomicI64,
}

/// `last_ttft_ns` before the first one.
const NO_TTFT: i64 = i64::MIN;

impl Counters {
    pub(crate) fn new(start: Nanos) -> Self {
        Self {
            issued: Line::default(),
            answers: Line(Answers {
                answered: AtomicU64::new(0),
                failed: AtomicU64::new(0),
                tokens: AtomicU64::new(0),
                last_activity_ns: AtomicI64::new(start.0),
                last_ttft_ns: AtomicI64::new(NO_TTFT),
            }),
            wake_at: Line(AtomicU64::new(u64::MAX)),
        }
    }

    /// Samples handed out so far. Relaxed: slots are published by their own status.
    #[inline]
    pub(crate) fn issued(&self) -> u64 {
        self.issued.0.load(Ordering::Relaxed)
    }

    /// Counts samples that are about to be handed out.
    #[inline]
    pub(crate) fn add_issued(&self, samples: u64) {
        self.issued.0.fetch_add(samples, Ordering::Relaxed);
    }

    /// Samples answered so far, well or badly. Acquire: pairs with [`Self::answered_one`], so what
    /// a completion wrote before counting is seen after reading the count.
    #[inline]
    pub(crate) fn answered(&self) -> u64 {
        self.answers.0.answered.load(Ordering::SeqCst)
    }

    /// Counts one answer; true if the issuing thread waits for this many.
    ///
    /// SeqCst: one half of the wake-up handshake described at [`Bell::ring`]; it also releases
    /// the slot's columns to whoever reads the count.
    #[inline]
    pub(crate) fn answered_one(&self, at: Nanos, n_tokens: i64) -> bool {
        let answers = &self.answers.0;
        // Relaxed: read only by the progress bar and by the silence time-out, which can be late.
        answers.last_activity_ns.store(at.0, Ordering::Relaxed);
        if n_tokens > 0 {
            answers
                .tokens
                .fetch_add(n_tokens.unsigned_abs(), Ordering::Relaxed);
        }
        let answered = answers.answered.fetch_add(1, Ordering::SeqCst) + 1;
        answered >= self.wake_at.0.load(Ordering::SeqCst)
    }

    pub(crate) fn failed_one(&self) {
        self.answers.0.failed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn first_token(&self, at: Nanos, ttft: Nanos) {
        let answers = &self.answers.0;
        answers.last_activity_ns.store(at.0, Ordering::Relaxed);
        answers.last_ttft_ns.store(ttft.0, Ordering::Relaxed);
    }

    /// When the last answer or first token came, or the phase began.
    pub(crate) fn last_activity(&self) -> Nanos {
        Nanos(self.answers.0.last_activity_ns.load(Ordering::Relaxed))
    }

    /// Asks to be woken once `answered` answers are in; `None` takes it back.
    pub(crate) fn wake_at(&self, answered: Option<u64>) {
        self.wake_at
            .0
            .store(answered.unwrap_or(u64::MAX), Ordering::SeqCst);
    }
}

/// What a run is doing, for a progress bar; clone the `Arc` it comes in and ask for snapshots.
#[derive(Debug, Default)]
pub struct Progress {
    phase: Mutex<Option<LivePhase>>,
}

#[derive(Debug, Clone)]
struct LivePhase {
    name: &'static str,
    planned: u64,
    start: Nanos,
    counters: Arc<Counters>,
}

/// The counters of a phase at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgressSnapshot {
    /// "warm-up", "accuracy" or "performance".
    pub phase: &'static str,
    /// Samples planned; a natural end may come before all are issued.
    pub planned: u64,
    /// Samples handed to the SUT.
    pub issued: u64,
    /// Samples answered, failures included.
    pub completed: u64,
    /// Samples that failed.
    pub failed: u64,
    /// Output tokens of the samples answered.
    pub tokens: u64,
    /// Issued and not yet answered.
    pub in_flight: u64,
    /// Start of the phase on the run's clock.
    pub start: Nanos,
    /// Latest time from issue to first token.
    pub last_ttft: Option<Nanos>,
}

impl Progress {
    /// The phase under way, or the last one; `None` before the first.
    #[must_use]
    pub fn snapshot(&self) -> Option<ProgressSnapshot> {
        let live = lock(&self.phase).clone()?;
        let answers = &live.counters.answers.0;
        let issued = live.counters.issued();
        let completed = answers.answered.load(Ordering::Relaxed);
        let ttft_ns = answers.last_ttft_ns.load(Ordering::Relaxed);
        Some(ProgressSnapshot {
            phase: live.name,
            planned: live.planned,
            issued,
            completed,
            failed: answers.failed.load(Ordering::Relaxed),
            tokens: answers.tokens.load(Ordering::Relaxed),
            in_flight: issued.saturating_sub(completed),
            start: live.start,
            last_ttft: (ttft_ns != NO_TTFT).then_some(Nanos(ttft_ns)),
        })
    }

    pub(crate) fn begin(
        &self,
        name: &'static str,
        planned: u64,
        start: Nanos,
        counters: Arc<Counters>,
    ) {
        *lock(&self.phase) = Some(LivePhase {
            name,
            planned,
            start,
            counters,
        });
    }
}

/// Calls a run off from any thread; cheap to clone, and every wait of the run hears it.
#[derive(Debug, Clone, Default)]
pub struct Cancel {
    shared: Arc<CancelState>,
}

#[derive(Debug, Default)]
struct CancelState {
    canceled: AtomicBool,
    bells: Mutex<Vec<Arc<Bell>>>,
}

impl Cancel {
    /// A handle that nobody has pulled yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends the run: nothing more is issued, what is outstanding is recorded as canceled.
    pub fn cancel(&self) {
        // SeqCst: the change a sleeper looks for; see `Bell::ring`.
        self.shared.canceled.store(true, Ordering::SeqCst);
        for bell in lock(&self.shared.bells).iter() {
            bell.ring();
        }
    }

    /// Whether the run was called off. SeqCst is a plain load on x86 and pairs with `cancel`.
    #[inline]
    #[must_use]
    pub fn is_canceled(&self) -> bool {
        self.shared.canceled.load(Ordering::SeqCst)
    }

    /// Has `bell` rung on cancelling for as long as the guard lives.
    pub(crate) fn rings(&self, bell: &Arc<Bell>) -> CancelBell {
        lock(&self.shared.bells).push(Arc::clone(bell));
        CancelBell {
            cancel: self.clone(),
            bell: Arc::clone(bell),
        }
    }
}

/// Takes a bell off a [`Cancel`] when dropped.
pub(crate) struct CancelBell {
    cancel: Cancel,
    bell: Arc<Bell>,
}

impl Drop for CancelBell {
    fn drop(&mut self) {
        lock(&self.cancel.shared.bells).retain(|bell| !Arc::ptr_eq(bell, &self.bell));
    }
}

/// A panic elsewhere must not hide the counters or the cancel handle: the data are plain numbers.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
