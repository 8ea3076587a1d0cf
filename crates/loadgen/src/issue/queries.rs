//! What is issued: the planned queries of a phase, or the warm-up's.

use crate::clock::Nanos;
use crate::sample::SampleIndex;
use crate::schedule::PhasePlan;

/// The queries of a phase, ready to go.
#[derive(Debug)]
pub(crate) enum Queries {
    /// As the scenario and the seeds have it.
    Planned(PhasePlan),
    /// Warm-up: whatever comes first in the set.
    WarmUp {
        /// The samples of all queries, one query after the other.
        samples: Vec<SampleIndex>,
        samples_per_query: usize,
    },
}

impl Queries {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Planned(plan) => plan.n_queries(),
            Self::WarmUp {
                samples,
                samples_per_query,
            } => samples.len() / samples_per_query,
        }
    }

    pub(crate) fn samples_per_query(&self) -> usize {
        match self {
            Self::Planned(plan) => plan.samples_per_query(),
            Self::WarmUp {
                samples_per_query, ..
            } => *samples_per_query,
        }
    }

    /// When the query is due, from the start; only Server looks at it.
    #[inline]
    pub(crate) fn due(&self, query: usize) -> Nanos {
        match self {
            Self::Planned(plan) => plan.due(query),
            Self::WarmUp { .. } => Nanos::ZERO,
        }
    }

    /// Calls `with` for every sample of the query, in order.
    #[inline]
    pub(crate) fn for_each_sample(&self, query: usize, with: impl FnMut(SampleIndex)) {
        match self {
            Self::Planned(plan) => plan.samples(query).for_each(with),
            Self::WarmUp {
                samples,
                samples_per_query,
            } => {
                let first = query * samples_per_query;
                let samples = &samples[first..first + samples_per_query];
                samples.iter().copied().for_each(with);
            }
        }
    }
}
