//! Order statistics and means over latencies, as the reference defines them.
//!
//! A percentile is the value at one index of the sorted list, never an interpolation. Figures need
//! a handful of ranks out of millions, so [`Ranked`] partitions around each rank asked for instead
//! of sorting. Knows nothing of scenarios or units.

/// Percentiles every distribution is reported at, as fractions of 1.
pub const REPORTED_PERCENTILES: [f64; 6] = [0.50, 0.90, 0.95, 0.97, 0.99, 0.999];

/// Index, in a sorted list of `n` values, of the value reported for `percentile`.
///
/// trunc(n · p) with the f64 product, at most n − 1. Example: n = 100, p = 0.9 → index 90, the
/// 91st smallest. The product is not tidied up: 0.9500000000000001 (95 · 0.01 as configuration
/// files give it) must land where the reference lands.
///
/// Source: reference behavior, `results.cc` of LoadGen 6.0.17 (black box, golden results).
#[must_use]
pub fn percentile_index(n: usize, percentile: f64) -> usize {
    let index = (n as f64 * percentile) as usize;
    index.min(n.saturating_sub(1))
}

/// Sum of the values divided by their number, toward zero; 0 for an empty list.
///
/// Summed in 128 bits: ten million latencies of an hour each overflow 64. Example: [1, 2, 4] → 2.
#[must_use]
pub fn mean(values: &[i64]) -> i64 {
    if values.is_empty() {
        return 0;
    }
    let sum: i128 = values.iter().map(|&v| i128::from(v)).sum();
    // Invariant: the mean lies between the smallest and the largest value, so it fits.
    (sum / values.len() as i128) as i64
}

/// Values of which any rank can be asked for; each question sorts a little more of them.
#[derive(Debug, Clone)]
pub struct Ranked {
    values: Vec<i64>,
    /// Ranks already in place, ascending: everything left of one is ≤ it, everything right ≥ it.
    placed: Vec<usize>,
}

impl Ranked {
    /// Takes a copy, because the caller's order (issue order) carries meaning.
    #[must_use]
    pub fn new(values: &[i64]) -> Self {
        Self {
            values: values.to_vec(),
            placed: Vec::with_capacity(16),
        }
    }

    /// Number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there is nothing to ask for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The value at `rank` of the sorted list, 0 the smallest; a rank past the end is the largest.
    ///
    /// Returns 0 when there are no values, as the reference prints for figures it could not take.
    pub fn nth(&mut self, rank: usize) -> i64 {
        if self.values.is_empty() {
            return 0;
        }
        let rank = rank.min(self.values.len() - 1);
        if let Err(gap) = self.placed.binary_search(&rank) {
            let from = gap.checked_sub(1).map_or(0, |left| self.placed[left] + 1);
            let to = self.placed.get(gap).copied().unwrap_or(self.values.len());
            self.values[from..to].select_nth_unstable(rank - from);
            self.placed.insert(gap, rank);
        }
        self.values[rank]
    }

    /// The value reported for `percentile`.
    pub fn percentile(&mut self, percentile: f64) -> i64 {
        self.nth(percentile_index(self.values.len(), percentile))
    }

    /// How many values are larger than `limit`.
    #[must_use]
    pub fn n_over(&self, limit: i64) -> u64 {
        self.values.iter().filter(|&&v| v > limit).count() as u64
    }
}

/// What is reported of one kind of latency.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Distribution {
    /// How many values there were; the figures below are 0 if none.
    pub n: u64,
    /// Smallest value.
    pub min: i64,
    /// Largest value.
    pub max: i64,
    /// Mean, toward zero.
    pub mean: i64,
    /// Values at [`REPORTED_PERCENTILES`], in that order.
    pub percentiles: [i64; REPORTED_PERCENTILES.len()],
    /// Value at the percentile the scenario is judged by.
    pub at_target: i64,
}

impl Distribution {
    /// Takes every reported figure from `ranked`.
    #[must_use]
    pub fn of(ranked: &mut Ranked, target_percentile: f64) -> Self {
        Self {
            n: ranked.len() as u64,
            min: ranked.values.iter().copied().min().unwrap_or(0),
            max: ranked.values.iter().copied().max().unwrap_or(0),
            mean: mean(&ranked.values),
            percentiles: REPORTED_PERCENTILES.map(|p| ranked.percentile(p)),
            at_target: ranked.percentile(target_percentile),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn percentile_index_truncates_the_f64_product() {
        for (n, p, index) in [
            (100, 0.9, 90),
            (1, 0.9, 0),
            (10, 0.99, 9),
            (1000, 0.999, 999),
            // 20 · 0.95 is exactly 19 in f64, 20 · 0.9500000000000001 a hair more: same index.
            (20, 0.95, 19),
            (20, 0.950_000_000_000_000_1, 19),
            // 100 · 0.57 = 56.99999999999999 in f64: one lower than on paper, as the reference.
            (100, 0.57, 56),
            (5, 1.0, 4),
            (0, 0.5, 0),
        ] {
            assert_eq!(percentile_index(n, p), index, "n {n} p {p}");
        }
    }

    #[test]
    fn mean_of_large_and_negative_values() {
        assert_eq!(mean(&[1, 2, 4]), 2);
        assert_eq!(mean(&[-1, -2, -4]), -2);
        assert_eq!(mean(&[i64::MAX, i64::MAX]), i64::MAX);
        assert_eq!(mean(&[]), 0);
    }

    #[test]
    fn no_values_no_figures() {
        let d = Distribution::of(&mut Ranked::new(&[]), 0.9);
        assert_eq!(d, Distribution::default());
    }

    proptest! {
        #[test]
        fn every_rank_equals_the_sorted_list(
            values in prop::collection::vec(-50_i64..50, 1..200),
            asked in prop::collection::vec(0_usize..220, 1..20),
        ) {
            let mut sorted = values.clone();
            sorted.sort_unstable();
            let mut ranked = Ranked::new(&values);
            for rank in asked {
                prop_assert_eq!(ranked.nth(rank), sorted[rank.min(values.len() - 1)]);
            }
        }
    }
}
