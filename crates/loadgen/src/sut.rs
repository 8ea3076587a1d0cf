//! The system under test: what it must offer, and how it answers.

use crate::clock::Nanos;
use crate::sample::{QuerySample, SampleId};

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

/// Why a sample got no good answer; each kind is counted apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FailureKind {
    /// No connection, or it broke.
    Connection,
    /// The answer did not come within the client's deadline.
    Timeout,
    /// The endpoint refused (HTTP status outside 2xx).
    Status,
    /// The endpoint reported an error inside its answer.
    ErrorEvent,
    /// The answer ended before it was complete.
    Truncated,
    /// The answer could not be understood.
    Malformed,
    /// The client gave the query up (shutdown, cancel).
    Canceled,
}

/// Where answers are reported; cheap to clone, usable from any thread.
#[derive(Debug, Clone)]
pub struct Responder {}

impl Responder {
    /// The run's clock, to stamp events with.
    #[must_use]
    pub fn now(&self) -> Nanos {
        Nanos::ZERO
    }
    /// When the request went out (first byte handed to the socket).
    pub fn sent(&self, _id: SampleId, _at: Nanos) {}
    /// The first output token arrived at `at`; `data` is kept only if this sample is logged.
    pub fn first_token(&self, _id: SampleId, _at: Nanos, _data: &[u8]) {}
    /// The answer is complete; `data` is kept only if this sample is logged.
    pub fn complete(&self, _id: SampleId, _at: Nanos, _data: &[u8], _n_tokens: i64) {}
    /// The sample failed; `detail` is kept for the first few of each kind.
    pub fn fail(&self, _id: SampleId, _at: Nanos, _kind: FailureKind, _detail: &str) {}
}
