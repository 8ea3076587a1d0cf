//! Which samples each query asks for.
//!
//! The reference draws three lists from the sample stream before the first query, needed or not,
//! and only then picks samples one by one from the same stream. The draws of the unneeded lists
//! are made here too, without the lists.

use crate::rng::{Mt19937, StdlibFlavour};
use crate::sample::SampleIndex;
use crate::scenario::{Phase, Scenario};
use crate::schedule::count;
use crate::settings::EffectiveSettings;
use crate::settings::quota::{Quota, padding};

/// The sample order of a phase.
#[derive(Debug, Clone)]
pub enum Order {
    /// Query `i` takes neighbouring samples from this position of the set on; the list is used
    /// round and round.
    Starts(Vec<u32>),
    /// One query takes the whole set, round and round.
    WholeSet,
    /// One query takes these samples, round and round.
    Listed(Vec<SampleIndex>),
}

/// What the order is drawn from.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// Seed and rules.
    pub eff: &'a EffectiveSettings,
    /// Part of the test.
    pub phase: Phase,
    /// The loaded set, padding included.
    pub set: &'a [SampleIndex],
    /// How integers are drawn.
    pub flavour: StdlibFlavour,
}

impl Order {
    /// The order of `n_queries` queries over the set of `source`.
    ///
    /// # Panics
    /// If the set is empty, or `performance_issue_same_index` lies outside it.
    #[must_use]
    pub fn generate(source: &Source<'_>, quota: &Quota, n_queries: usize) -> Self {
        assert!(
            !source.set.is_empty(),
            "a phase needs at least one loaded sample"
        );
        let mut rng = Mt19937::new(source.eff.requested.sample_index_rng_seed);
        let equal_issue = source.eff.requested.sample_concatenate_permutation;
        match source.eff.scenario {
            // Nothing is read from the stream: skip even the lists' draws.
            Scenario::Offline if !equal_issue => source.offline_in_order(),
            Scenario::Offline => {
                source.lists(&mut rng, quota);
                source.offline_shuffled(&mut rng, quota)
            }
            Scenario::SingleStream | Scenario::MultiStream | Scenario::Server => {
                let lists = source.lists(&mut rng, quota);
                Self::Starts(source.starts(&mut rng, lists, n_queries))
            }
        }
    }

    /// The samples a query takes, from the start of the slice on, round and round.
    #[inline]
    #[must_use]
    pub fn run<'a>(&'a self, set: &'a [SampleIndex], query_idx: usize) -> &'a [SampleIndex] {
        match self {
            Self::Starts(starts) => {
                let i = if query_idx < starts.len() {
                    query_idx
                } else {
                    query_idx % starts.len()
                };
                &set[starts[i] as usize..]
            }
            Self::WholeSet => set,
            Self::Listed(samples) => samples,
        }
    }

    /// Bytes on the heap.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        match self {
            Self::Starts(starts) => starts.capacity() * size_of::<u32>(),
            Self::WholeSet => 0,
            Self::Listed(samples) => samples.capacity() * size_of::<SampleIndex>(),
        }
    }
}

/// Which of the lists drawn up front the queries follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pick {
    /// Each start once: list A (accuracy) or B (unique).
    Once,
    /// Whole permutations, one after the other: list C.
    Permutations,
    /// Always this position.
    Fixed(u32),
    /// Anew for each query.
    Random,
}

impl Source<'_> {
    /// First match wins, in the reference's order.
    fn pick(&self) -> Pick {
        let r = &self.eff.requested;
        let one_sample = self.eff.scenario != Scenario::MultiStream;
        if r.performance_issue_unique {
            Pick::Once
        } else if r.performance_issue_same {
            Pick::Fixed(self.same_position())
        } else if one_sample && r.sample_concatenate_permutation {
            Pick::Permutations
        } else if self.phase == Phase::Accuracy {
            Pick::Once
        } else {
            Pick::Random
        }
    }

    fn same_position(&self) -> u32 {
        let index = self.eff.requested.performance_issue_same_index;
        assert!(
            index < self.set.len() as u64,
            "performance_issue_same_index {index} not in set"
        );
        index as u32
    }

    /// Length of the set without padding.
    fn distinct(&self) -> u32 {
        (self.set.len() - count(padding(self.eff))) as u32
    }

    /// Draws lists A, B and C and returns the one the queries follow, if it is one of them.
    fn lists(&self, rng: &mut Mt19937, quota: &Quota) -> Option<Vec<u32>> {
        let stride = match self.eff.scenario {
            Scenario::MultiStream => count(quota.samples_per_query),
            Scenario::SingleStream | Scenario::Server | Scenario::Offline => 1,
        };
        let starts: Vec<u32> = (0..self.distinct()).step_by(stride).collect();
        let pick = self.pick();
        let unique = self.eff.requested.performance_issue_unique;
        let (a, b) = match self.phase {
            Phase::Accuracy => {
                let a = self.shuffled(rng, &starts, pick == Pick::Once && !unique);
                (a, self.shuffled(rng, &starts, unique))
            }
            Phase::Performance => (None, self.shuffled(rng, &starts, unique)),
        };
        let passes = quota.list_queries.div_ceil(self.set.len() as u64);
        let c = self.permutations(rng, passes, pick == Pick::Permutations);
        a.or(b).or(c)
    }

    /// A shuffled copy of `starts` if it is wanted; its draws in any case.
    fn shuffled(&self, rng: &mut Mt19937, starts: &[u32], wanted: bool) -> Option<Vec<u32>> {
        if !wanted {
            rng.skip_shuffle(starts.len() as u32, self.flavour);
            return None;
        }
        let mut list = starts.to_vec();
        rng.shuffle(&mut list, self.flavour);
        Some(list)
    }

    /// `passes` permutations of the set, each shuffled from the one before.
    fn permutations(&self, rng: &mut Mt19937, passes: u64, wanted: bool) -> Option<Vec<u32>> {
        let len = self.set.len() as u32;
        if !wanted {
            (0..passes).for_each(|_| rng.skip_shuffle(len, self.flavour));
            return None;
        }
        let mut running: Vec<u32> = (0..len).collect();
        let mut list = Vec::with_capacity(count(passes.saturating_mul(u64::from(len))));
        for _ in 0..passes {
            rng.shuffle(&mut running, self.flavour);
            list.extend_from_slice(&running);
        }
        Some(list)
    }

    fn starts(&self, rng: &mut Mt19937, list: Option<Vec<u32>>, n_queries: usize) -> Vec<u32> {
        match self.pick() {
            Pick::Once | Pick::Permutations => list.expect("the followed list was kept"),
            Pick::Fixed(position) => vec![position],
            Pick::Random => {
                let distinct = self.distinct();
                (0..n_queries)
                    .map(|_| rng.below(distinct, self.flavour))
                    .collect()
            }
        }
    }

    fn offline_in_order(&self) -> Order {
        if self.eff.requested.performance_issue_same {
            return Order::Listed(vec![self.set[self.same_position() as usize]]);
        }
        Order::WholeSet
    }

    /// Whole copies of the set, each shuffled from the set's own order; a rest stays in order.
    fn offline_shuffled(&self, rng: &mut Mt19937, quota: &Quota) -> Order {
        if self.eff.requested.performance_issue_same {
            return self.offline_in_order();
        }
        let n_samples = count(quota.samples_per_query);
        let mut samples = Vec::with_capacity(n_samples);
        for _ in 0..n_samples / self.set.len() {
            let copy_start = samples.len();
            samples.extend_from_slice(self.set);
            rng.shuffle(&mut samples[copy_start..], self.flavour);
        }
        samples.extend_from_slice(&self.set[..n_samples % self.set.len()]);
        Order::Listed(samples)
    }
}
