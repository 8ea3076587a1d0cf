//! What the load generator recorded, as the figures and plot points of a run record.
//!
//! Latencies are those of answered samples only: a refusal is fast and would flatter the server.
//! Definitions: docs/METRICS.md.

use prony_loadgen::outcome::Columns;
use prony_loadgen::recorder::{NEVER, SampleStatus};
use prony_loadgen::stats::{Ranked, mean};
use prony_report::run_record::{Distribution, Figures, SamplePoint, Series};

use crate::stream_stats::StreamStats;

/// Points of a distribution curve: enough for a smooth line and a visible 99.5th percentile.
const N_QUANTILES: usize = 201;

/// Samples shown over time at most; thinned evenly past that.
const MAX_POINTS: usize = 2_000;

/// Bins of the throughput plot: at most so many, and four answers in each on average, because
/// whole answers falling into narrow bins look like jitter.
const MAX_BINS: usize = 60;
const ANSWERS_PER_BIN: usize = 4;

/// The times of one sample, in ns from the start of the phase.
#[derive(Debug, Clone, Copy)]
struct Sample {
    due: i64,
    sent: Option<i64>,
    first_token: Option<i64>,
    done: i64,
    n_tokens: Option<i64>,
}

impl Sample {
    fn latency(&self) -> i64 {
        self.done - self.due
    }

    fn service_time(&self) -> Option<i64> {
        self.sent.map(|sent| self.done - sent)
    }

    fn ttft(&self) -> Option<i64> {
        self.first_token.map(|first| first - self.due)
    }

    /// (done − first token) / (n_tokens − 1); an answer of one token has none.
    fn tpot(&self) -> Option<i64> {
        let n_gaps = self.n_tokens? - 1;
        let span = self.done - self.first_token?;
        (n_gaps > 0).then(|| span / n_gaps)
    }
}

/// Everything that is measured, without the rates that only the settings know.
#[must_use]
pub fn figures(columns: &Columns, stats: &StreamStats, streamed: bool) -> Figures {
    let samples = completed(columns);
    let count = |wanted: fn(&SampleStatus) -> bool| {
        columns
            .status
            .iter()
            .filter(|status| wanted(status))
            .count() as u64
    };
    let duration_s = duration_s(columns);
    let n_tokens: Option<i64> = samples.iter().map(|sample| sample.n_tokens).sum();
    let n_tokens = n_tokens.map(|n| n.max(0).unsigned_abs());
    let per_s = |n: f64| (duration_s > 0.0).then_some(n / duration_s);
    let of = |values: Vec<i64>| distribution_ms(&values);
    Figures {
        n_issued: columns.status.len() as u64,
        n_completed: samples.len() as u64,
        n_failed: count(|status| matches!(status, SampleStatus::Failed(_))),
        n_lost: count(|status| matches!(status, SampleStatus::Lost)),
        n_canceled: count(|status| matches!(status, SampleStatus::Canceled)),
        n_output_tokens: n_tokens,
        sent_per_s: sent_per_s(columns),
        completed_per_s: per_s(samples.len() as f64),
        output_tokens_per_s: n_tokens.and_then(|n| per_s(n as f64)),
        latency_ms: of(samples.iter().map(Sample::latency).collect()),
        service_time_ms: of(samples.iter().filter_map(Sample::service_time).collect()),
        // Without a stream the first token comes with the last: neither figure means anything.
        ttft_ms: of(samples
            .iter()
            .filter_map(Sample::ttft)
            .filter(|_| streamed)
            .collect()),
        tpot_ms: of(samples
            .iter()
            .filter_map(Sample::tpot)
            .filter(|_| streamed)
            .collect()),
        itl_ms: gaps_ms(stats),
        send_lag_ms: of(send_lags(columns)),
        ..Figures::default()
    }
}

/// From the start of the phase to the last answer.
#[must_use]
pub fn duration_s(columns: &Columns) -> f64 {
    let last = columns
        .done_ns
        .iter()
        .copied()
        .filter(|done| *done != NEVER)
        .max();
    last.unwrap_or(0).max(0) as f64 / 1e9
}

/// Sent − due of every sample that was sent, answered or not.
fn send_lags(columns: &Columns) -> Vec<i64> {
    let sent = columns
        .sent_ns
        .iter()
        .enumerate()
        .filter(|(_, sent)| **sent != NEVER);
    sent.map(|(place, sent)| sent - due(columns, place))
        .collect()
}

/// (n − 1) / (last send − first send).
///
/// Example: sends at 0, 1, 2 and 3 s → 3 / 3 s = 1 /s. `None` where all went out at once.
fn sent_per_s(columns: &Columns) -> Option<f64> {
    let sent = || {
        columns
            .sent_ns
            .iter()
            .copied()
            .filter(|sent| *sent != NEVER)
    };
    let span = sent().max()? - sent().min()?;
    let n = sent().count();
    (span > 0).then(|| (n - 1) as f64 / (span as f64 / 1e9))
}

fn due(columns: &Columns, place: usize) -> i64 {
    columns.due_ns[place / columns.samples_per_query.max(1)]
}

fn completed(columns: &Columns) -> Vec<Sample> {
    let stamp = |list: &[i64], place: usize| list.get(place).copied().filter(|at| *at != NEVER);
    let places = columns.status.iter().enumerate();
    places
        .filter(|(_, status)| **status == SampleStatus::Completed)
        .map(|(place, _)| Sample {
            due: due(columns, place),
            sent: stamp(&columns.sent_ns, place),
            first_token: stamp(&columns.first_token_ns, place),
            done: columns.done_ns[place],
            n_tokens: stamp(&columns.n_tokens, place),
        })
        .collect()
}

fn ms(ns: i64) -> f64 {
    ns as f64 / 1e6
}

/// `None` without values. Percentiles as the reference takes them: one value, no interpolation.
fn distribution_ms(values: &[i64]) -> Option<Distribution> {
    if values.is_empty() {
        return None;
    }
    let mut ranked = Ranked::new(values);
    Some(Distribution {
        n: values.len() as u64,
        mean: ms(mean(values)),
        min: ms(ranked.nth(0)),
        p50: ms(ranked.percentile(0.50)),
        p90: ms(ranked.percentile(0.90)),
        p95: ms(ranked.percentile(0.95)),
        p99: ms(ranked.percentile(0.99)),
        p99_9: ms(ranked.percentile(0.999)),
        max: ms(ranked.nth(values.len() - 1)),
    })
}

fn gaps_ms(stats: &StreamStats) -> Option<Distribution> {
    let at = |share: f64| stats.gap_ns(share).map(|ns| ns as f64 / 1e6);
    Some(Distribution {
        n: stats.n_gaps(),
        mean: stats.mean_gap_ns()? / 1e6,
        min: at(0.0)?,
        p50: at(0.50)?,
        p90: at(0.90)?,
        p95: at(0.95)?,
        p99: at(0.99)?,
        p99_9: at(0.999)?,
        max: stats.max_gap_ns()? as f64 / 1e6,
    })
}

/// Points for the plots.
#[must_use]
pub fn series(columns: &Columns, streamed: bool) -> Series {
    let samples = completed(columns);
    let n_bins = (samples.len() / ANSWERS_PER_BIN).clamp(1, MAX_BINS);
    let bin_s = (duration_s(columns) / n_bins as f64).max(1e-6);
    let mut completed_per_bin = vec![0; n_bins + 1];
    let mut tokens_per_bin = vec![0; n_bins + 1];
    for sample in &samples {
        let bin = ((sample.done as f64 / 1e9 / bin_s) as usize).min(n_bins);
        completed_per_bin[bin] += 1;
        tokens_per_bin[bin] += sample.n_tokens.unwrap_or(0).max(0).unsigned_abs();
    }
    fold_last_bin(&mut completed_per_bin);
    fold_last_bin(&mut tokens_per_bin);
    let step = samples.len().div_ceil(MAX_POINTS).max(1);
    let points = samples.iter().step_by(step).map(|sample| SamplePoint {
        due_s: sample.due as f64 / 1e9,
        latency_ms: ms(sample.latency()),
        ttft_ms: sample.ttft().filter(|_| streamed).map(ms),
        tpot_ms: sample.tpot().filter(|_| streamed).map(ms),
    });
    Series {
        latency_ms_quantiles: quantiles_ms(samples.iter().map(Sample::latency).collect()),
        service_time_ms_quantiles: quantiles_ms(
            samples.iter().filter_map(Sample::service_time).collect(),
        ),
        samples: points.collect(),
        bin_s,
        completed_per_bin,
        tokens_per_bin,
    }
}

/// The very last answer falls on the end of the last bin; it belongs inside.
fn fold_last_bin(bins: &mut Vec<u64>) {
    if let Some(last) = bins.pop()
        && let Some(bin) = bins.last_mut()
    {
        *bin += last;
    }
}

fn quantiles_ms(mut values: Vec<i64>) -> Vec<f64> {
    if values.is_empty() {
        return Vec::new();
    }
    values.sort_unstable();
    let last = values.len() - 1;
    (0..N_QUANTILES)
        .map(|i| ms(values[i * last / (N_QUANTILES - 1)]))
        .collect()
}

#[cfg(test)]
mod tests {
    use prony_loadgen::sut::FailureKind;

    use super::*;

    const S: i64 = 1_000_000_000;

    /// Two answered samples and a failed one; the second was sent 0.1 s late.
    fn columns() -> Columns {
        let failed = SampleStatus::Failed(FailureKind::Status);
        Columns {
            samples_per_query: 1,
            due_ns: vec![0, S, 2 * S],
            issued_ns: vec![0, S, 2 * S],
            sent_ns: vec![0, S + S / 10, 2 * S],
            first_token_ns: vec![S / 2, S + S / 2, NEVER],
            done_ns: vec![S, 3 * S, 2 * S + 1],
            n_tokens: vec![6, 1, NEVER],
            status: vec![SampleStatus::Completed, SampleStatus::Completed, failed],
            ..Columns::default()
        }
    }

    #[test]
    fn figures_worked_by_hand() {
        let figures = figures(&columns(), &StreamStats::default(), true);
        assert_eq!(
            (figures.n_issued, figures.n_completed, figures.n_failed),
            (3, 2, 1)
        );
        // Latencies 1 s and 2 s; the refused one, 1 ns, is not among them.
        let latency = figures.latency_ms.unwrap();
        assert_eq!((latency.n, latency.mean, latency.max), (2, 1500.0, 2000.0));
        // From send: 1 s and 1.9 s.
        assert_eq!(figures.service_time_ms.unwrap().max, 1900.0);
        assert_eq!(figures.ttft_ms.unwrap().mean, 500.0);
        // 0.5 s for five gaps; the answer of one token has none.
        let tpot = figures.tpot_ms.unwrap();
        assert_eq!((tpot.n, tpot.mean), (1, 100.0));
        assert_eq!(figures.send_lag_ms.unwrap().max, 100.0);
        // Three sends over 2 s; two answers and seven tokens over 3 s.
        assert_eq!(figures.sent_per_s, Some(1.0));
        assert_eq!(figures.completed_per_s, Some(2.0 / 3.0));
        assert_eq!(
            (figures.n_output_tokens, figures.output_tokens_per_s),
            (Some(7), Some(7.0 / 3.0))
        );
    }

    #[test]
    fn without_a_stream_there_is_no_first_token() {
        let figures = figures(&columns(), &StreamStats::default(), false);
        assert_eq!(
            (figures.ttft_ms, figures.tpot_ms, figures.itl_ms),
            (None, None, None)
        );
    }

    #[test]
    fn bins_hold_every_answer_once() {
        let series = series(&columns(), true);
        assert_eq!(series.completed_per_bin.iter().sum::<u64>(), 2);
        assert_eq!(series.tokens_per_bin.iter().sum::<u64>(), 7);
        // Two answers are too few for more than one bin; the one at its very end is inside.
        assert_eq!(series.completed_per_bin, [2]);
        assert_eq!(series.latency_ms_quantiles.first(), Some(&1000.0));
        assert_eq!(series.latency_ms_quantiles.last(), Some(&2000.0));
    }

    #[test]
    fn an_empty_phase_has_no_figures() {
        let figures = figures(&Columns::default(), &StreamStats::default(), true);
        assert_eq!(
            (figures.n_issued, figures.latency_ms, figures.sent_per_s),
            (0, None, None)
        );
        assert!(series(&Columns::default(), true).samples.is_empty());
    }
}
