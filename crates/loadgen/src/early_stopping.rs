//! The binomial bound that decides whether a run was long enough to trust its tail.
//!
//! A run of n queries with t over the latency limit is trusted when, were the true share of slow
//! queries exactly 1 − percentile, seeing so few of them would have had a chance below 1 %.
//! SingleStream and MultiStream turn the same bound into a latency estimate. Pure arithmetic.

use crate::stats::Ranked;

/// Confidence of every early-stopping statement; fixed by the MLPerf rules.
pub const CONFIDENCE: f64 = 0.99;

/// Percentile of the second SingleStream estimate, whatever the run's own percentile.
pub const SECOND_PERCENTILE: f64 = 0.99;

/// Chance below which "no slower than asked" is believed: the f64 0.010000000000000009, not 0.01.
const DOUBT: f64 = 1.0 - CONFIDENCE;

/// More than any run has; beyond it sums of counts would overflow.
const MOST_QUERIES: f64 = (1_u64 << 60) as f64;

/// Chance that at most `n_over` of `n_queries` are over the limit, each with chance
/// 1 − `percentile`.
///
/// The largest term comes from `binomial_term`, each further one from its neighbor; all are
/// positive, so nothing cancels and the relative error stays near 1e-13 for ten million queries.
/// Terms fall faster the further they are from the mean: a few standard deviations' worth
/// (thousands, at ten million queries) reach the last bit. A first term that underflows to 0 ends
/// the sum at once.
///
/// Example: 2 queries, 1 over, percentile 0.5 → P(0) + P(1) = 1/4 + 2/4 = 0.75.
#[must_use]
pub fn chance_of_at_most(n_over: u64, n_queries: u64, percentile: f64) -> f64 {
    if n_over >= n_queries {
        return 1.0;
    }
    let odds_under = percentile / (1.0 - percentile);
    let mean = n_queries as f64 * (1.0 - percentile);
    if n_over as f64 > mean {
        // The lower tail is nearly 1 and its terms rise away from n_over: sum the short side.
        let mut term = binomial_term(n_over + 1, n_queries, percentile);
        let mut sum = term;
        for k in n_over + 2..=n_queries {
            term *= (n_queries - k + 1) as f64 / k as f64 / odds_under;
            sum += term;
            if term <= sum * f64::EPSILON {
                break;
            }
        }
        return 1.0 - sum;
    }
    let mut term = binomial_term(n_over, n_queries, percentile);
    let mut sum = term;
    for k in (1..=n_over).rev() {
        term *= k as f64 / (n_queries - k + 1) as f64 * odds_under;
        sum += term;
        if term <= sum * f64::EPSILON {
            break;
        }
    }
    sum
}

/// Fewest queries under the limit that make a run with `n_over` queries over it believable:
/// the smallest h with `chance_of_at_most(n_over, h + n_over) < 1 − 0.99`.
///
/// `None` if no number would do (percentile 1 and above, or a hair below) or any would (0 and
/// below).
/// Example: percentile 0.5, none over: 0.5^7 = 0.0078 < 0.01 < 0.5^6 = 0.0156 → 7.
#[must_use]
pub fn under_needed(n_over: u64, percentile: f64) -> Option<u64> {
    if !(percentile > 0.0 && percentile < 1.0) {
        return None;
    }
    let enough = |h: u64| chance_of_at_most(n_over, h + n_over, percentile) < DOUBT;
    // Doubling from the mean: the answer is within a few standard deviations of it.
    let mean = n_over as f64 * percentile / (1.0 - percentile);
    if mean > MOST_QUERIES {
        return None;
    }
    let mut high = (mean as u64).max(1);
    let mut low = 0; // Invariant: `low` queries are too few (with none under, the chance is 1).
    let mut step = 8 + (high as f64).sqrt() as u64;
    while !enough(high) {
        low = high;
        high += step;
        step *= 2;
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if enough(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    Some(high)
}

/// Most queries over the limit a run of `n_queries` may have and still be believed.
///
/// `None` if even a clean run is too short. Equals the largest t with
/// `under_needed(t) + t <= n_queries`, found by one search over t: for a fixed number of queries
/// the chance rises with t. Example: percentile 0.9, 64 queries → 1 (h(1) = 63); 63 queries → 0.
#[must_use]
pub fn most_over_allowed(n_queries: u64, percentile: f64) -> Option<u64> {
    if !(percentile > 0.0 && percentile < 1.0) {
        return None;
    }
    let believed = |t: u64| chance_of_at_most(t, n_queries, percentile) < DOUBT;
    if !believed(0) {
        return None;
    }
    // Invariant: low is believed, high is not: at least half of all runs stay at or below the mean.
    let mean = (n_queries as f64 * (1.0 - percentile)).ceil() as u64;
    let (mut low, mut high) = (0, (mean + 1).min(n_queries));
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if believed(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    Some(low)
}

/// Fewest queries a SingleStream or MultiStream run needs for an estimate: h(1) + 1.
#[must_use]
pub fn min_queries_for_estimate(percentile: f64) -> Option<u64> {
    under_needed(1, percentile).map(|h| h + 1)
}

/// Chance of exactly `k` out of `n`, each with chance 1 − `percentile`.
///
/// Loader's saddle-point form: factorials enter only through their small Stirling remainders, so
/// no two large logarithms are subtracted (with `ln_gamma` ten million queries would cost seven
/// digits). Source: C. Loader, "Fast and Accurate Computation of Binomial Probabilities" (2000).
fn binomial_term(k: u64, n: u64, percentile: f64) -> f64 {
    let (k_f, n_f, over) = (k as f64, n as f64, 1.0 - percentile);
    if k == 0 {
        return (n_f * percentile.ln()).exp();
    }
    if k == n {
        return (n_f * over.ln()).exp();
    }
    let rest = n_f - k_f;
    let exponent = stirling_remainder(n)
        - stirling_remainder(k)
        - stirling_remainder(n - k)
        - deviance(k_f, n_f * over)
        - deviance(rest, n_f * percentile);
    exponent.exp() * (n_f / (std::f64::consts::TAU * k_f * rest)).sqrt()
}

/// ln n! − ln(√(2πn)·(n/e)^n): what Stirling's formula leaves out.
///
/// The asymptotic series in 1/n, exact to the last bit from 16 on; below, the definition itself.
/// Example: n = 1 → 1 − ln √(2π) = 0.0810614667953273.
fn stirling_remainder(n: u64) -> f64 {
    let n_f = n as f64;
    if n < 16 {
        let factorial: f64 = (1..=n).map(|i| i as f64).product();
        let ln_sqrt_tau_n = 0.5 * (std::f64::consts::TAU * n_f).ln();
        return factorial.ln() - ln_sqrt_tau_n - n_f * n_f.ln() + n_f;
    }
    let inverse_square = 1.0 / (n_f * n_f);
    let series = [
        1.0 / 1188.0,
        -1.0 / 1680.0,
        1.0 / 1260.0,
        -1.0 / 360.0,
        1.0 / 12.0,
    ];
    series.iter().fold(0.0, |sum, c| sum * inverse_square + c) / n_f
}

/// x·ln(x/m) + m − x, without cancellation when x is near m.
///
/// With v = (x − m)/(x + m): (x − m)·v + 2x·(v³/3 + v⁵/5 + …). Source: Loader 2000, §3.
fn deviance(x: f64, m: f64) -> f64 {
    if (x - m).abs() >= 0.1 * (x + m) {
        return x * (x / m).ln() + m - x;
    }
    let v = (x - m) / (x + m);
    let mut sum = (x - m) * v;
    let mut power = 2.0 * x * v;
    for odd in (3..).step_by(2) {
        power *= v * v;
        let next = sum + power / f64::from(odd);
        if next == sum {
            break;
        }
        sum = next;
    }
    sum
}

/// One application of the bound, with the numbers its text quotes.
#[derive(Debug, Clone, PartialEq)]
pub enum Check {
    /// Not made: Offline, or first-token latencies after per-token latencies failed.
    Skipped,
    /// Server: is the share of slow queries small enough, given how many were seen?
    Limit {
        /// Queries issued.
        n_queries: u64,
        /// Latencies over the limit.
        n_over: u64,
        /// Queries needed in all, the over-latency ones included; none if no number would do.
        n_needed: Option<u64>,
    },
    /// SingleStream and MultiStream: which latency can be vouched for?
    Estimate {
        /// Queries issued.
        n_queries: u64,
        /// The run's own percentile.
        first: TailEstimate,
        /// The 99th percentile as well; SingleStream only, and only if the first was found.
        second: Option<TailEstimate>,
    },
}

/// The latency that can be vouched for at one percentile.
#[derive(Debug, Clone, PartialEq)]
pub struct TailEstimate {
    /// Fraction of 1.
    pub percentile: f64,
    /// Fewest queries for an estimate; none if no number would do.
    pub n_needed: Option<u64>,
    /// None if the run had too few queries.
    pub found: Option<FoundEstimate>,
}

/// An estimate that could be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundEstimate {
    /// Slowest queries left out.
    pub n_discarded: u64,
    /// The slowest latency left.
    pub latency_ns: i64,
}

impl Check {
    /// Server: `n_over` of `n_queries` were over the limit.
    #[must_use]
    pub fn limit(n_over: u64, n_queries: u64, percentile: f64) -> Self {
        Self::Limit {
            n_queries,
            n_over,
            n_needed: under_needed(n_over, percentile).map(|h| h + n_over),
        }
    }

    /// Whether the run was long enough; a check not made stands in nobody's way.
    #[must_use]
    pub fn met(&self) -> bool {
        match self {
            Self::Skipped => true,
            Self::Limit {
                n_queries,
                n_needed,
                ..
            } => n_needed.is_some_and(|needed| *n_queries >= needed),
            Self::Estimate { first, .. } => first.found.is_some(),
        }
    }
}

impl TailEstimate {
    /// The latency left when as many slow queries are discarded as the bound allows.
    ///
    /// With t the largest count ≥ 1 the bound allows among `n_queries`, t − 1 are discarded and
    /// the (t)-th slowest latency stands. Example: percentile 0.9, 100 queries: t = 3, so two are
    /// discarded and the value at index 97 of the sorted list is the estimate.
    #[must_use]
    pub fn of(ranked: &mut Ranked, n_queries: u64, percentile: f64) -> Self {
        let allowed = most_over_allowed(n_queries, percentile).filter(|&t| t >= 1);
        Self {
            percentile,
            n_needed: min_queries_for_estimate(percentile),
            found: allowed.map(|t| FoundEstimate {
                n_discarded: t - 1,
                latency_ns: ranked.nth((n_queries - t) as usize),
            }),
        }
    }

    /// The estimate, 0 if there is none, as the logs print it.
    #[must_use]
    pub fn latency_ns(&self) -> i64 {
        self.found.map_or(0, |found| found.latency_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn chances_worked_by_hand() {
        for (n_over, n, p, chance) in [
            (1, 2, 0.5, 0.75),
            (0, 3, 0.9, 0.729),
            (1, 3, 0.9, 0.972),
            (2, 3, 0.9, 0.999),
            (3, 3, 0.9, 1.0),
        ] {
            let got = chance_of_at_most(n_over, n, p);
            assert!(
                (got - chance).abs() < 1e-15,
                "{n_over} of {n} at {p}: {got}"
            );
        }
    }

    #[test]
    fn stirling_remainder_of_one_and_of_the_seam() {
        assert!((stirling_remainder(1) - 0.081_061_466_795_327_3).abs() < 1e-15);
        // 1/(12·16) − 1/(360·16³) + 1/(1260·16⁵) = 0.005207655919609640 (next term 1e-12).
        assert!((stirling_remainder(16) - 0.005_207_655_919_6).abs() < 1e-12);
    }

    #[test]
    fn percentiles_no_run_can_meet() {
        assert_eq!(under_needed(0, 1.0), None);
        // The largest f64 below 1: ten million over it would need 9e22 under it.
        assert_eq!(under_needed(10_000_000, 1.0 - f64::EPSILON / 2.0), None);
        assert_eq!(most_over_allowed(1_000_000, 1.0), None);
        assert!(!Check::limit(0, 1_000_000, 1.0).met());
    }

    proptest! {
        #[test]
        fn the_two_searches_agree(n in 1_u64..20_000, p in 0.5_f64..0.999) {
            match most_over_allowed(n, p) {
                None => prop_assert!(under_needed(0, p).is_some_and(|h| h > n)),
                Some(t) => {
                    prop_assert!(under_needed(t, p).is_some_and(|h| h + t <= n));
                    prop_assert!(under_needed(t + 1, p).is_some_and(|h| h + t + 1 > n));
                }
            }
        }
    }
}
