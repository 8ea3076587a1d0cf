//! The system under test: what it must offer, and how it answers.
//!
//! The answers go straight to the recorder's slots; nothing here waits or allocates.

use std::sync::Arc;

use crate::clock::{Nanos, TimeSource};
use crate::recorder::Recorder;
use crate::sample::{QuerySample, SampleId};

pub use crate::incident::FailureKind;

/// The thing that is measured, or the client that speaks to it.
pub trait SystemUnderTest: Sync {
    /// Name for the logs.
    fn name(&self) -> &str;
    /// Takes one query. Called on the issuing thread: return at once, answer through `responder`
    /// (clone it to keep it) from any thread, in any order, inside this call or after it.
    fn issue(&self, samples: &[QuerySample], responder: &Responder);
    /// No further query of this phase will come; whatever is held back must be sent now.
    fn flush(&self);
}

/// Where answers are reported; cheap to clone, usable from any thread, at any time.
///
/// An answer that fits no open sample (a second one, one of an earlier phase, an id that was
/// never issued, one that came after the run gave it up as lost) is counted and otherwise ignored;
/// one that comes after the run was called off is only ignored.
#[derive(Debug, Clone)]
pub struct Responder {
    recorder: Arc<Recorder>,
    time: TimeSource,
}

impl Responder {
    pub(crate) fn new(recorder: Arc<Recorder>, time: TimeSource) -> Self {
        Self { recorder, time }
    }

    /// The run's clock, to stamp events with.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.time.now()
    }

    /// When the request went out (first byte handed to the socket).
    #[inline]
    pub fn sent(&self, id: SampleId, at: Nanos) {
        self.recorder.sent(id, in_reach(at));
    }

    /// The first output token arrived at `at`; `data` is kept only if this sample is logged.
    /// Recorded in token mode only.
    pub fn first_token(&self, id: SampleId, at: Nanos, data: &[u8]) {
        self.recorder.first_token(id, in_reach(at), data);
    }

    /// The answer is complete; `data` is kept only if this sample is logged, and copied then.
    #[inline]
    pub fn complete(&self, id: SampleId, at: Nanos, data: &[u8], n_tokens: i64) {
        self.recorder.complete(id, in_reach(at), data, n_tokens);
    }

    /// The sample failed; `detail` is kept for the first few of each kind.
    pub fn fail(&self, id: SampleId, at: Nanos, kind: FailureKind, detail: &str) {
        self.recorder.fail(id, in_reach(at), kind, detail);
    }
}

/// Stamps are the SUT's word: held within 73 years of the clock's origin, so that none of them
/// reads as "never" and no sum or difference of two overflows.
#[inline]
fn in_reach(at: Nanos) -> Nanos {
    const FAR: i64 = i64::MAX / 4;
    Nanos(at.0.clamp(-FAR, FAR))
}
