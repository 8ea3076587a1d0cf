//! Messages of the detail log, as the reference words them.
//!
//! Kept apart from the keys because the runtime, not the log writers, decides when each is due.

#![allow(missing_docs, reason = "each message says what it is for")]

use super::format::general;

pub const STARTING_PERFORMANCE: &str = "Starting performance mode";
pub const STARTING_ACCURACY: &str = "Starting accuracy mode";
pub const STARTING_FIND_PEAK: &str = "Starting FindPeakPerformance mode";
pub const ENDING_NATURALLY: &str = "Ending naturally: Minimum query count and test duration met.";
pub const RAN_OUT: &str = "Ending early: Ran out of generated queries to issue before the \
    minimum query count and test duration were reached. Please update the relevant expected \
    latency or target qps in the TestSettings so they are more accurate.";
pub const AUDIT_CONFIG_FOUND: &str = "Found Audit Config file (audit.config). Overriding \
    TestSettings from audit.config file.";
pub const TEST05: &str = "Test05 flag detected Overriding random seeds";
pub const MULTIPLE_CONF: &str =
    "Multiple conf files are used. This is not valid for official submission.";

pub const N_TOKENS_ZERO: &str =
    "n_tokens argument missing or attempted to record 0 as number of tokens";
pub const N_TOKENS_ONE: &str = "Number of tokens need to be greater than 1";
pub const N_TOKENS_NEGATIVE: &str = "Attempted to record a negative number of tokens";
pub const TWICE: &str = "Attempted to complete a sample twice.";
pub const NO_FIRST_TOKEN: &str =
    "Attempted to record a sample latency before it's first token latency";
pub const LATE_FIRST_TOKEN: &str = "Attempted to record token latency after sample was completed";

pub const FIND_PEAK_SERVER_ONLY: &str =
    "Finding peak performance is only supported in Server scenarios.";
pub const SAME_AND_UNIQUE: &str = "Performance_issue_unique and performance_issue_same, both \
    cannot be true at the same time. performance_issue_unique: 1 performance_issue_same: 1";

/// `settings.server_num_issue_query_threads` is not what registered.
#[must_use]
pub fn issue_threads_mismatch(wanted: u64, registered: u64) -> String {
    format!(
        "Mismatch between settings and number of registered IssueQueryThreads! \
         settings.server_num_issue_query_threads = {wanted} but {registered} threads registered."
    )
}

/// max_duration_ms was reached.
#[must_use]
pub fn max_duration_reached(thread: usize, duration_ns: i64) -> String {
    format!(
        "IssueQueryThread {thread} Ending early: Max test duration reached. \
         duration_ns {duration_ns}"
    )
}

/// max_query_count was reached.
#[must_use]
pub fn max_query_count_reached(thread: usize, query_count: u64) -> String {
    format!(
        "IssueQueryThread {thread} Ending early: Max query count reached. \
         query_count {query_count}"
    )
}

/// server_max_async_queries was exceeded.
#[must_use]
pub fn too_many_outstanding(thread: usize, issued: u64, outstanding: u64) -> String {
    format!(
        "IssueQueryThread {thread} Ending early: Too many outstanding queries. \
         issued {issued} outstanding {outstanding}"
    )
}

/// A rate below zero was replaced by 1.
#[must_use]
pub fn invalid_rate(field: &str, requested: f64, using: f64) -> String {
    let (requested, using) = (general(requested), general(using));
    format!("Invalid value for {field} requested. requested: {requested} using: {using}")
}

/// performance_issue_same_index is not in the loaded set.
#[must_use]
pub fn same_index_too_large(index: u64, performance_sample_count: u64) -> String {
    format!(
        "Sample Idx to be repeated in performance_issue_same mode cannot be greater than \
         loaded performance_sample_count. performance_issue_same_index: {index} \
         performance_sample_count: {performance_sample_count}"
    )
}

/// FindPeakPerformance: the rates of a trial are printed with six decimals.
#[must_use]
pub fn find_peak_base(qps: f64) -> String {
    format!("FindPeakPerformance: Check validity of the base settings field: {qps:.6}")
}

/// FindPeakPerformance: the bounds are widened.
#[must_use]
pub fn find_peak_widening(lower: f64, upper: f64) -> String {
    format!("FindBoundaries: Checking fields [{lower:.6}, {upper:.6})")
}

/// FindPeakPerformance: the peak lies between these.
#[must_use]
pub fn find_peak_bounds(lower: f64, upper: f64) -> String {
    format!("FindPeakPerformance: Found boundaries: [{lower:.6}, {upper:.6})")
}

/// FindPeakPerformance: the bounds are halved.
#[must_use]
pub fn find_peak_bisecting(lower: f64, upper: f64, middle: f64) -> String {
    format!(
        "FindPeakPerformanceBinarySearch: Testing the mid value of bounds \
         [{lower:.6}, {upper:.6}): {middle:.6}"
    )
}

/// FindPeakPerformance: the result.
#[must_use]
pub fn find_peak_found(qps: f64) -> String {
    format!("FindPeakPerformance: Found peak performance field: {qps:.6}")
}

/// FindPeakPerformance: the first trial already failed, for `reason` (a recommendation).
#[must_use]
pub fn find_peak_base_fails(reason: &str) -> String {
    format!(
        "FindPeakPerformance: Initial lower bound does not satisfy performance constraints, \
         msg: {reason}"
    )
}
