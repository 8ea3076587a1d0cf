//! When queries are due: drawn for Server, evenly spaced elsewhere.
//!
//! The evenly spaced times only size the plan: those scenarios issue when the SUT is ready. The
//! mean rate of a drawn schedule is whatever the draw gives; it is not scaled to the target.

use crate::clock::Nanos;
use crate::rng::Mt19937;
use crate::scenario::Scenario;
use crate::schedule::count;
use crate::settings::EffectiveSettings;
use crate::settings::quota::Quota;

/// Room kept beyond the expected number of drawn arrivals, in standard deviations of a Poisson
/// count: past it the list would grow by copying.
const SPARE_DEVIATIONS: f64 = 6.0;

/// Due times of a phase's queries.
#[derive(Debug, Clone)]
pub enum Arrivals {
    /// Query `i` is due at `i · gap_ns`.
    Even {
        /// Time between queries.
        gap_ns: i64,
        /// Number of queries.
        n_queries: usize,
    },
    /// Poisson arrivals.
    Drawn {
        /// Due time of each query.
        due_ns: Vec<i64>,
        /// Due time of the query after the last.
        end_ns: i64,
    },
}

impl Arrivals {
    /// As many arrivals as `quota` asks for.
    #[must_use]
    pub fn generate(eff: &EffectiveSettings, quota: &Quota) -> Self {
        match eff.scenario {
            Scenario::Server => {
                let mut rng = Mt19937::new(eff.requested.schedule_rng_seed);
                drawn(&mut rng, eff.target_qps, quota)
            }
            Scenario::SingleStream | Scenario::MultiStream | Scenario::Offline => {
                let n_queries = count(quota.evenly_spaced_queries());
                Self::Even {
                    gap_ns: quota.gap_ns,
                    n_queries,
                }
            }
        }
    }

    /// Number of queries.
    #[must_use]
    pub fn n_queries(&self) -> usize {
        match self {
            Self::Even { n_queries, .. } => *n_queries,
            Self::Drawn { due_ns, .. } => due_ns.len(),
        }
    }

    /// Due time of a query, from the start of the phase.
    #[inline]
    #[must_use]
    pub fn due(&self, query_idx: usize) -> Nanos {
        match self {
            Self::Even { gap_ns, .. } => Nanos(gap_ns.saturating_mul(query_idx as i64)),
            Self::Drawn { due_ns, .. } => Nanos(due_ns[query_idx]),
        }
    }

    /// Due time of the query after the last.
    #[must_use]
    pub fn end(&self) -> Nanos {
        match self {
            Self::Even { n_queries, .. } => self.due(*n_queries),
            Self::Drawn { end_ns, .. } => Nanos(*end_ns),
        }
    }

    /// Bytes on the heap.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        match self {
            Self::Even { .. } => 0,
            Self::Drawn { due_ns, .. } => due_ns.capacity() * size_of::<i64>(),
        }
    }
}

fn drawn(rng: &mut Mt19937, qps: f64, quota: &Quota) -> Arrivals {
    let expected = quota.evenly_spaced_queries() as f64;
    let capacity = expected + SPARE_DEVIATIONS * expected.sqrt();
    let mut due_ns = Vec::with_capacity(count(capacity as u64));
    let mut wanted = count(quota.min_queries);
    let step = count(quota.step);
    let (mut last, mut next) = (0_i64, 0_i64);
    while due_ns.len() < wanted || last < quota.duration_ns {
        if due_ns.len() >= wanted {
            wanted += step;
        }
        last = next;
        due_ns.push(last);
        next = last.saturating_add(rng.exponential_gap_ns(qps));
    }
    Arrivals::Drawn {
        due_ns,
        end_ns: next,
    }
}
