//! What the client's thread counts for itself, beside what the load generator records: gaps
//! between outputs, connections, and how often the in-flight cap held a request back.
//!
//! Memory does not grow with the number of requests.

use hdrhistogram::Histogram;
use prony_loadgen::clock::Nanos;

/// Counters of one phase.
#[derive(Debug, Clone)]
pub struct StreamStats {
    /// Gaps between consecutive outputs of an answer, in ns, to three digits.
    gaps_ns: Histogram<u64>,
    /// Connections opened while the phase was on, not ahead of it.
    pub n_opened_late: u64,
    /// Requests that had to wait because the in-flight cap was reached.
    pub n_held_back: u64,
    /// Most requests in flight at once.
    pub max_in_flight: u64,
    /// Answers whose tokens were counted by events, for lack of a count by the server.
    pub n_counted_by_events: u64,
}

/// Longest gap that is told apart from longer ones: an hour.
const MAX_GAP_NS: u64 = 3_600_000_000_000;

impl Default for StreamStats {
    fn default() -> Self {
        Self {
            gaps_ns: Histogram::new_with_bounds(1, MAX_GAP_NS, 3)
                .expect("bounds and digits are constants within the crate's limits"),
            n_opened_late: 0,
            n_held_back: 0,
            max_in_flight: 0,
            n_counted_by_events: 0,
        }
    }
}

impl StreamStats {
    /// Counts one gap.
    #[inline]
    pub fn record_gap(&mut self, gap: Nanos) {
        self.gaps_ns.saturating_record(gap.0.max(0).unsigned_abs());
    }

    /// Number of gaps seen.
    #[must_use]
    pub fn n_gaps(&self) -> u64 {
        self.gaps_ns.len()
    }

    /// The gap that a share of all gaps does not exceed; `None` without any gap.
    #[must_use]
    pub fn gap_ns(&self, share: f64) -> Option<u64> {
        (self.n_gaps() > 0).then(|| self.gaps_ns.value_at_quantile(share))
    }

    /// The mean gap.
    #[must_use]
    pub fn mean_gap_ns(&self) -> Option<f64> {
        (self.n_gaps() > 0).then(|| self.gaps_ns.mean())
    }

    /// The longest gap.
    #[must_use]
    pub fn max_gap_ns(&self) -> Option<u64> {
        (self.n_gaps() > 0).then(|| self.gaps_ns.max())
    }
}
