//! Figures in, lines of advice out: how far from passing, how far the target could rise.
//!
//! Estimates, and worded as such; the verdict never depends on them.

use crate::early_stopping::{Check, TailEstimate};
use crate::headroom::rate_factor;
use crate::metrics::{Metrics, PerformanceData};
use crate::scenario::Scenario;
use crate::settings::EffectiveSettings;
use crate::stats::mean;

/// Completed rate below this share of the scheduled one means the queue was growing.
const KEEPING_UP: f64 = 0.98;

/// A rise of less than one percent is noise.
const WORTH_SAYING: f64 = 1.01;

/// Every line of advice the figures of a phase give rise to.
#[must_use]
pub(crate) fn advice(
    metrics: &Metrics,
    data: &PerformanceData,
    eff: &EffectiveSettings,
) -> Vec<String> {
    let mut lines = Vec::new();
    if eff.scenario == Scenario::Server {
        lines.extend(rates_line(metrics));
    }
    let checks = [
        ("", &metrics.early_latency),
        ("time to first token: ", &metrics.early_ttft),
        ("time per output token: ", &metrics.early_tpot),
    ];
    for (what, check) in checks {
        lines
            .extend(early_stopping_advice(check, metrics, eff).map(|line| format!("{what}{line}")));
    }
    lines.extend(duration_advice(metrics, data, eff));
    if eff.scenario == Scenario::Server {
        lines.extend(backlog_advice(metrics, data).or_else(|| headroom_advice(metrics, data, eff)));
    }
    lines
}

/// How many more queries would do, and whether any number would.
fn early_stopping_advice(
    check: &Check,
    metrics: &Metrics,
    eff: &EffectiveSettings,
) -> Option<String> {
    if check.met() {
        return None;
    }
    match check {
        Check::Skipped => None,
        Check::Estimate {
            n_queries, first, ..
        } => Some(stream_advice(*n_queries, first)),
        Check::Limit {
            n_queries,
            n_over,
            n_needed: Some(n_needed),
        } => {
            let more = n_needed - n_queries;
            let line = format!("would pass with {more} more queries if all met the limit");
            Some(line + &at_this_share(*n_over, *n_queries, metrics, eff))
        }
        Check::Limit { n_needed: None, .. } => Some(format!(
            "no number of queries can vouch for percentile {}",
            eff.target_latency_percentile * 100.0
        )),
    }
}

fn stream_advice(n_queries: u64, first: &TailEstimate) -> String {
    let percentile = first.percentile * 100.0;
    match first.n_needed {
        Some(needed) => format!("would pass with {} more queries", needed - n_queries),
        None => format!("no number of queries can vouch for percentile {percentile}"),
    }
}

/// What to expect if the share of slow queries stays what it was.
fn at_this_share(
    n_over: u64,
    n_queries: u64,
    metrics: &Metrics,
    eff: &EffectiveSettings,
) -> String {
    if n_over == 0 {
        return String::new();
    }
    let share = n_over as f64 / n_queries as f64;
    let allowed = 1.0 - eff.target_latency_percentile;
    let Some(total) = queries_at_share(share, allowed) else {
        return format!(
            "; with {:.3} % over it and {:.3} % allowed, a longer run alone will not pass",
            share * 100.0,
            allowed * 100.0
        );
    };
    let more = total.saturating_sub(n_queries).max(1);
    let seconds = more as f64 / metrics.rates.completed_per_s;
    format!("; at the share over it so far, with about {more} more (about {seconds:.0} s)")
}

/// About how many queries make a share over the limit believable, if any number does.
///
/// Normal approximation of the bound: n·(allowed − share) ≥ z·√(n·allowed·(1 − allowed)) with
/// z = 2.3263, the 99 % quantile. Example: 5 % over, 10 % allowed → (2.3263·0.3/0.05)² = 195.
fn queries_at_share(share: f64, allowed: f64) -> Option<u64> {
    const Z_99: f64 = 2.326_347_874_040_841;
    let gap = allowed - share;
    (gap > 0.0).then(|| (Z_99 * Z_99 * allowed * (1.0 - allowed) / (gap * gap)).ceil() as u64)
}

/// Which setting makes the next run long enough, if this one was too short.
fn duration_advice(
    metrics: &Metrics,
    data: &PerformanceData,
    eff: &EffectiveSettings,
) -> Option<String> {
    let min_ns = eff.min_duration_ms as f64 * 1e6;
    match eff.scenario {
        Scenario::Offline if (data.max_latency_ns as f64) < min_ns => Some(format!(
            "offline_expected_qps of about {:.6} would make the query long enough",
            metrics.rates.offline_per_s
        )),
        Scenario::SingleStream if (data.final_query_issued_ns as f64) < min_ns => Some(format!(
            "single_stream_expected_latency_ns of about {} would generate enough queries",
            metrics.sample_latency.mean
        )),
        Scenario::MultiStream if (data.final_query_issued_ns as f64) < min_ns => Some(format!(
            "multi_stream_expected_latency_ns of about {} would generate enough queries",
            metrics.query_latency.as_ref().map_or(0, |d| d.mean)
        )),
        Scenario::SingleStream | Scenario::MultiStream | Scenario::Server | Scenario::Offline => {
            None
        }
    }
}

/// The rate asked for, the one the arrivals drawn for the seeds really have, and the one achieved.
///
/// The draw is not rescaled to the request: with n arrivals it is off by about 1/√n. One query has
/// no rate.
fn rates_line(metrics: &Metrics) -> Option<String> {
    let rates = &metrics.rates;
    let line = format!(
        "samples/s: requested {:.2}, drawn {:.2} ({:+.2} %), completed {:.2}",
        rates.requested_per_s,
        rates.scheduled_per_s,
        (rates.scheduled_per_s / rates.requested_per_s - 1.0) * 100.0,
        rates.completed_per_s
    );
    rates.scheduled_per_s.is_finite().then_some(line)
}

/// Says so when answers came more slowly than queries and ever later.
///
/// Both must hold: the completed rate of any short run is lower than the scheduled one, because
/// the last answer's latency lies behind the last query.
fn backlog_advice(metrics: &Metrics, data: &PerformanceData) -> Option<String> {
    let rates = &metrics.rates;
    let quarter = data.sample_latencies_ns.len() / 4;
    let first = mean(&data.sample_latencies_ns[..quarter]);
    let last = mean(&data.sample_latencies_ns[data.sample_latencies_ns.len() - quarter..]);
    let behind = rates.completed_per_s < rates.scheduled_per_s * KEEPING_UP;
    (behind && last > first.saturating_mul(2)).then(|| {
        format!(
            "completed {:.2} samples/s of {:.2} scheduled, the last quarter took {:.1} times as \
             long as the first: the queue was growing",
            rates.completed_per_s,
            rates.scheduled_per_s,
            last as f64 / first as f64
        )
    })
}

/// How far the target rate could rise, by a replay of the run; see [`rate_factor`].
fn headroom_advice(
    metrics: &Metrics,
    data: &PerformanceData,
    eff: &EffectiveSettings,
) -> Option<String> {
    let checks = [
        &metrics.early_latency,
        &metrics.early_ttft,
        &metrics.early_tpot,
    ];
    if !checks.iter().all(|check| check.met()) {
        return None;
    }
    let factor = rate_factor(data, eff).filter(|factor| *factor > WORTH_SAYING)?;
    let target = three_digits(eff.target_qps * factor);
    Some(format!(
        "target could rise to about {target} samples/s (replay of this run, each answer keeping \
         the server busy as long as it did; more if it gains from batching)"
    ))
}

/// Rounded down to three significant digits: an estimate, and never more than was estimated.
///
/// Examples: 330.2585 → 330, 1.998 → 1.99, 12 345 → 12300.
fn three_digits(value: f64) -> String {
    let exponent = value.log10().floor() as i32;
    let decimals = usize::try_from(2 - exponent).unwrap_or(0);
    let unit = 10_f64.powi(exponent - 2);
    // A quotient that is whole on paper may come out a hair below.
    let rounded = (value / unit + 1e-9).floor() * unit;
    format!("{rounded:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_at_share_worked_by_hand() {
        // (2.326347874 · 0.3 / 0.05)² = 194.83
        assert_eq!(queries_at_share(0.05, 0.10), Some(195));
        assert_eq!(queries_at_share(0.10, 0.10), None);
    }

    #[test]
    fn three_digits_rounds_down() {
        for (value, text) in [
            (330.2585, "330"),
            (1.999, "1.99"),
            (12_345.0, "12300"),
            (0.013_29, "0.0132"),
            (200.0, "200"),
            (0.1, "0.100"),
        ] {
            assert_eq!(three_digits(value), text);
        }
    }
}
