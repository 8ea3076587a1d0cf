//! Records of a performance phase in, figures out: latency, TTFT, TPOT, rates, tokens.

/// Everything the figures and the verdict are computed from, for one performance phase.
///
/// Times are nanoseconds; latencies run from the scheduled time (invariant 1).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PerformanceData {
    /// Queries handed to the SUT.
    pub queries_issued: u64,
    /// Completion − scheduled, one per sample, in issue order.
    pub sample_latencies_ns: Vec<i64>,
    /// Last completion of the query − scheduled; MultiStream only, else empty.
    pub query_latencies_ns: Vec<i64>,
    /// First token − scheduled; token mode only, else empty.
    pub ttft_ns: Vec<i64>,
    /// (latency − TTFT) / (n_tokens − 1); token mode only, else empty.
    pub tpot_ns: Vec<i64>,
    /// Output tokens a sample; token mode only, else empty.
    pub n_tokens: Vec<i64>,
    /// Largest sample latency.
    pub max_latency_ns: i64,
    /// Scheduled time of the last issued query, from the start of the phase.
    pub final_query_scheduled_ns: i64,
    /// Issue time of the last issued query, from the start of the phase.
    pub final_query_issued_ns: i64,
    /// When the last issued query (not the latest completion) was wholly answered.
    pub final_query_all_samples_done_ns: i64,
}
