//! What went wrong with answers during a run: failures by kind, and answers that fit no sample.
//!
//! Everything is counted; the first few of each kind are kept with their details. Bounded, so a
//! SUT that fails a million times costs a million counts and a handful of lines.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::clock::Nanos;
use crate::sample::SampleId;

/// Why a sample got no good answer; each kind is counted apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum FailureKind {
    /// No connection, or it broke.
    Connection = 0,
    /// The answer did not come within the client's deadline.
    Timeout = 1,
    /// The endpoint refused (HTTP status outside 2xx).
    Status = 2,
    /// The endpoint reported an error inside its answer.
    ErrorEvent = 3,
    /// The answer ended before it was complete.
    Truncated = 4,
    /// The answer could not be understood.
    Malformed = 5,
    /// The client gave the query up (shutdown, cancel).
    Canceled = 6,
}

impl FailureKind {
    /// Every kind, in the order of their numbers.
    pub const ALL: [Self; 7] = [
        Self::Connection,
        Self::Timeout,
        Self::Status,
        Self::ErrorEvent,
        Self::Truncated,
        Self::Malformed,
        Self::Canceled,
    ];

    /// Short name for tables and logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Timeout => "timeout",
            Self::Status => "status",
            Self::ErrorEvent => "error event",
            Self::Truncated => "truncated",
            Self::Malformed => "malformed",
            Self::Canceled => "canceled",
        }
    }
}

/// An answer that fits no open sample; ignored, as the reference does, but counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Incident {
    /// The sample was already answered.
    CompletedTwice = 0,
    /// A second first token.
    FirstTokenTwice = 1,
    /// A first token after the answer.
    FirstTokenAfterDone = 2,
    /// The sample belongs to an earlier phase.
    OldSample = 3,
    /// No such sample was issued.
    UnknownSample = 4,
    /// The sample had been given up as lost.
    LateSample = 5,
}

impl Incident {
    /// Every kind, in the order of their numbers.
    pub const ALL: [Self; 6] = [
        Self::CompletedTwice,
        Self::FirstTokenTwice,
        Self::FirstTokenAfterDone,
        Self::OldSample,
        Self::UnknownSample,
        Self::LateSample,
    ];

    /// The reference's error text for this.
    #[must_use]
    pub fn message(self) -> &'static str {
        match self {
            Self::CompletedTwice | Self::FirstTokenTwice => "Attempted to complete a sample twice.",
            Self::FirstTokenAfterDone => {
                "Attempted to record token latency after sample was completed"
            }
            Self::OldSample => "Received completion for an old sample.",
            Self::UnknownSample => "Received SequenceId that was too large.",
            // Ours: the reference would still be waiting.
            Self::LateSample => "Received completion for a sample that was given up.",
        }
    }
}

/// How many of each kind are kept with their details.
pub const KEPT_PER_KIND: usize = 8;

/// One incident that was kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptIncident {
    /// What happened.
    pub incident: Incident,
    /// The id that was reported.
    pub id: SampleId,
    /// When, on the run's clock.
    pub at: Nanos,
}

/// One failure that was kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptFailure {
    /// Why it failed.
    pub kind: FailureKind,
    /// Which sample.
    pub id: SampleId,
    /// When, on the run's clock.
    pub at: Nanos,
    /// What the client said about it.
    pub detail: String,
}

/// Counts and first details of one phase.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IncidentReport {
    /// Failures of each kind, in the order of [`FailureKind::ALL`].
    pub failures: [u64; FailureKind::ALL.len()],
    /// The first few failures of each kind.
    pub first_failures: Vec<KeptFailure>,
    /// Incidents of each kind, in the order of [`Incident::ALL`].
    pub incidents: [u64; Incident::ALL.len()],
    /// The first few incidents of each kind.
    pub first_incidents: Vec<KeptIncident>,
}

impl IncidentReport {
    /// Failures of all kinds.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.failures.iter().sum()
    }
}

/// Where incidents are noted during a run; shared by its phases, so that an answer to a sample of
/// an earlier phase is still seen.
#[derive(Debug, Default)]
pub(crate) struct Incidents {
    failures: [AtomicU64; FailureKind::ALL.len()],
    incidents: [AtomicU64; Incident::ALL.len()],
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    failures: Vec<KeptFailure>,
    incidents: Vec<KeptIncident>,
}

impl Incidents {
    /// Relaxed counters: they are read after the phase, when its threads have synchronised.
    #[cold]
    pub(crate) fn note(&self, incident: Incident, id: SampleId, at: Nanos) {
        let before = self.incidents[incident as usize].fetch_add(1, Ordering::Relaxed);
        if before < KEPT_PER_KIND as u64 {
            lock(&self.kept)
                .incidents
                .push(KeptIncident { incident, id, at });
        }
    }

    #[cold]
    pub(crate) fn failed(&self, id: SampleId, at: Nanos, kind: FailureKind, detail: &str) {
        let before = self.failures[kind as usize].fetch_add(1, Ordering::Relaxed);
        if before < KEPT_PER_KIND as u64 {
            lock(&self.kept).failures.push(KeptFailure {
                kind,
                id,
                at,
                detail: detail.to_owned(),
            });
        }
    }

    /// What was noted since the last call.
    pub(crate) fn take(&self) -> IncidentReport {
        let mut kept = lock(&self.kept);
        IncidentReport {
            failures: std::array::from_fn(|k| self.failures[k].swap(0, Ordering::Relaxed)),
            first_failures: std::mem::take(&mut kept.failures),
            incidents: std::array::from_fn(|k| self.incidents[k].swap(0, Ordering::Relaxed)),
            first_incidents: std::mem::take(&mut kept.incidents),
        }
    }
}

/// Entries are pushed whole, so a panic elsewhere leaves nothing half-written.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
