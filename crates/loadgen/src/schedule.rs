//! Settings and seeds in, planned queries out: which samples are loaded, asked for, and when due.
//!
//! Pure: no clock, no system under test. `sets` cuts the data set into loadable sets, `order`
//! picks the samples, `arrivals` the times, `log_sampling` the answers that are kept, `split` the
//! share of each issuing thread. [`PhasePlan`] holds the outcome in at most 12 bytes a query.

pub mod sets;

pub mod order;

pub mod arrivals;

pub mod log_sampling;

pub mod split;

use crate::clock::Nanos;
use crate::rng::StdlibFlavour;
use crate::sample::SampleIndex;
use crate::scenario::Phase;
use crate::schedule::arrivals::Arrivals;
use crate::schedule::order::{Order, Source};
use crate::settings::EffectiveSettings;
use crate::settings::quota::Quota;

pub use log_sampling::AccuracyLogSampling;
pub use sets::loadable_sets;
pub use split::ThreadShare;

/// The queries of one phase over one loaded set.
///
/// Memory: Server keeps 12 bytes a query, SingleStream and MultiStream 4, Offline nothing a sample
/// unless its copies are shuffled (then 4); besides 4 bytes for each sample of the set.
#[derive(Debug, Clone)]
pub struct PhasePlan {
    set: Vec<SampleIndex>,
    samples_per_query: usize,
    n_queries: usize,
    arrivals: Arrivals,
    order: Order,
}

impl PhasePlan {
    /// Plans the queries of `phase` over `loaded_set`, one of [`loadable_sets`].
    ///
    /// Every call starts its random streams afresh, so that each set of an accuracy phase sees
    /// the same pattern, as in the reference.
    ///
    /// # Panics
    /// If `performance_issue_same_index` lies outside the set or the plan does not fit memory;
    /// [`validate`](crate::settings::validate()) refuses both.
    #[must_use]
    pub fn generate(
        eff: &EffectiveSettings,
        phase: Phase,
        loaded_set: &[SampleIndex],
        flavour: StdlibFlavour,
    ) -> Self {
        let quota = Quota::of(eff, phase, loaded_set.len() as u64);
        let arrivals = Arrivals::generate(eff, &quota);
        let n_queries = arrivals.n_queries();
        let source = Source {
            eff,
            phase,
            set: loaded_set,
            flavour,
        };
        let order = Order::generate(&source, &quota, n_queries);
        Self {
            set: loaded_set.to_vec(),
            samples_per_query: count(quota.samples_per_query),
            n_queries,
            arrivals,
            order,
        }
    }

    /// Number of queries planned; the run may end before the last.
    #[must_use]
    pub fn n_queries(&self) -> usize {
        self.n_queries
    }

    /// Number of samples in each query.
    #[must_use]
    pub fn samples_per_query(&self) -> usize {
        self.samples_per_query
    }

    /// Number of samples planned; sample sequence numbers of the next phase start after them.
    #[must_use]
    pub fn n_samples(&self) -> usize {
        self.n_queries * self.samples_per_query
    }

    /// Samples in the loaded set, padding included.
    #[must_use]
    pub fn set_len(&self) -> usize {
        self.set.len()
    }

    /// When the query is due, from the start of the phase.
    ///
    /// # Panics
    /// If there is no such query.
    #[inline]
    #[must_use]
    pub fn due(&self, query_idx: usize) -> Nanos {
        debug_assert!(
            query_idx < self.n_queries,
            "query {query_idx} of {}",
            self.n_queries
        );
        self.arrivals.due(query_idx)
    }

    /// The samples of the query, in order.
    ///
    /// # Panics
    /// If there is no such query.
    #[inline]
    pub fn samples(&self, query_idx: usize) -> impl Iterator<Item = SampleIndex> + '_ {
        debug_assert!(
            query_idx < self.n_queries,
            "query {query_idx} of {}",
            self.n_queries
        );
        self.order
            .run(&self.set, query_idx)
            .iter()
            .copied()
            .cycle()
            .take(self.samples_per_query)
    }

    /// Time of the query after the last, had there been one.
    #[must_use]
    pub fn generated_duration(&self) -> Nanos {
        self.arrivals.end()
    }

    /// Bytes the plan occupies on the heap.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.set.capacity() * size_of::<SampleIndex>()
            + self.arrivals.heap_bytes()
            + self.order.heap_bytes()
    }
}

/// A count as an index; `validate` has refused what would not fit memory.
pub(crate) fn count(n: u64) -> usize {
    usize::try_from(n).expect("counts beyond the address space are refused by validate")
}
