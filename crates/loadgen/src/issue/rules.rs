//! When a phase stops before its plan is exhausted, and why it stopped.
//!
//! Pure: counts and times in, a reason out.

use crate::clock::Nanos;
use crate::scenario::Scenario;
use crate::schedule::ThreadShare;

/// Why a phase stopped issuing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndReason {
    /// Minimum query count and duration met (not Server).
    Natural,
    /// Every planned query was issued: the only regular end of Server and of accuracy phases.
    AllIssued,
    /// Every planned query was issued before the minimum count and duration were met.
    RanOut,
    /// More queries outstanding than `server_max_async_queries`.
    TooManyOutstanding {
        /// Queries this thread had issued.
        issued: u64,
        /// Queries without an answer, over all threads.
        outstanding: u64,
    },
    /// `max_query_count` reached.
    MaxQueryCount {
        /// Queries this thread had issued.
        issued: u64,
    },
    /// `max_duration_ms` passed.
    MaxDuration {
        /// Issue time of the last query, from the start.
        duration: Nanos,
    },
    /// The run was called off.
    Canceled,
    /// The phase's time limit passed.
    TimeLimit,
    /// Samples stayed without an answer for too long.
    Lost,
}

impl EndReason {
    /// Whether waiting for answers is pointless or unwanted from here on.
    pub(crate) fn abandons_answers(self) -> bool {
        matches!(self, Self::Canceled | Self::TimeLimit | Self::Lost)
    }
}

/// When to stop before the plan is exhausted; see spec section 8 of the reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StopRules {
    /// Accuracy phases issue everything.
    pub(crate) everything: bool,
    pub(crate) min_query_count: u64,
    pub(crate) target_duration: Nanos,
    /// 0 means no limit, here and below.
    pub(crate) max_query_count: u64,
    pub(crate) max_duration: Nanos,
    pub(crate) max_async_queries: u64,
    pub(crate) lost_sample_timeout: Option<Nanos>,
    pub(crate) time_limit: Option<Nanos>,
}

/// Where a thread stands after it issued a query.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Standing {
    /// Queries this thread has issued.
    pub(crate) issued: u64,
    /// Queries without an answer, over all threads; looked at in Server only.
    pub(crate) outstanding: u64,
    /// Issue time of the last query, from the start.
    pub(crate) duration: Nanos,
}

impl StopRules {
    /// The rules of one of several issuing threads: its share of the counts.
    pub(crate) fn of_thread(self, share: ThreadShare) -> Self {
        Self {
            min_query_count: share.of_count(self.min_query_count),
            max_query_count: share.of_count(self.max_query_count),
            ..self
        }
    }

    /// Whether to stop, by the reference's rules in the reference's order.
    ///
    /// The duration is that of the last *issue*, so SingleStream goes one query past the minimum.
    #[inline]
    pub(crate) fn stop(&self, scenario: Scenario, at: Standing) -> Option<EndReason> {
        if self.everything {
            return None;
        }
        let Standing {
            issued,
            outstanding,
            duration,
        } = at;
        let server = scenario == Scenario::Server;
        if server && self.max_async_queries != 0 && outstanding > self.max_async_queries {
            return Some(EndReason::TooManyOutstanding {
                issued,
                outstanding,
            });
        }
        if !server && issued >= self.min_query_count && duration >= self.target_duration {
            return Some(EndReason::Natural);
        }
        if self.max_query_count != 0 && issued >= self.max_query_count {
            return Some(EndReason::MaxQueryCount { issued });
        }
        if self.max_duration != Nanos::ZERO && duration > self.max_duration {
            return Some(EndReason::MaxDuration { duration });
        }
        None
    }

    /// The end of a thread that has nothing left to issue.
    pub(crate) fn exhausted(&self, scenario: Scenario) -> EndReason {
        if self.everything || scenario == Scenario::Server {
            EndReason::AllIssued
        } else {
            EndReason::RanOut
        }
    }
}
