//! Figures of a golden run: computed from its trace, or read back from its log where it has none.

use prony_loadgen::early_stopping::{Check, SECOND_PERCENTILE, TailEstimate};
use prony_loadgen::early_stopping::{FoundEstimate, min_queries_for_estimate, most_over_allowed};
use prony_loadgen::metrics::{Metrics, PerformanceData, Rates, without_overhead_per_s};
use prony_loadgen::report::keys::{self, DistributionKeys};
use prony_loadgen::report::trace::SampleTrace;
use prony_loadgen::scenario::Scenario;
use prony_loadgen::settings::EffectiveSettings;
use prony_loadgen::stats::Distribution;

use crate::folder::Folder;
use crate::trace::samples;

/// Figures and the data the verdict needs.
pub(crate) fn figures(folder: &Folder, eff: &EffectiveSettings) -> (Metrics, PerformanceData) {
    if let Some(samples) = samples(folder) {
        let samples: Vec<SampleTrace> = samples.into_values().collect();
        let data = from_trace(folder, eff, &samples[n_accuracy_samples(folder)..]);
        return (Metrics::compute(&data, eff), data);
    }
    from_log(folder, eff)
}

/// Samples of the accuracy phases that ran before the performance phase.
fn n_accuracy_samples(folder: &Folder) -> usize {
    let counts = |key: &str| {
        let lines = folder.lines.iter().filter(|line| line.key == key);
        lines.map(|line| line.count() as usize).collect::<Vec<_>>()
    };
    let queries = counts("generated_query_count");
    let per_query = counts("generated_samples_per_query");
    let n_phases = queries.len();
    queries
        .iter()
        .zip(per_query)
        .take(n_phases - 1)
        .map(|(n, per)| n * per)
        .sum()
}

/// The reference's own times to the nanosecond; only the start of a stream scenario is not in the
/// trace, and is taken to be when the first query was issued (some ten ns later).
fn from_trace(
    folder: &Folder,
    eff: &EffectiveSettings,
    samples: &[SampleTrace],
) -> PerformanceData {
    let latency = |sample: &SampleTrace| sample.done.0 - sample.scheduled.0;
    let start = samples.iter().map(|s| s.scheduled).min().expect("samples");
    let last = samples.iter().max_by_key(|s| s.query_seq).expect("samples");
    let of_last = samples.iter().filter(|s| s.query_seq == last.query_seq);
    let done = of_last.map(|s| s.done).max().expect("samples");
    let n_queries = last.query_seq - samples[0].query_seq + 1;
    let mut data = PerformanceData {
        queries_issued: n_queries,
        sample_latencies_ns: samples.iter().map(latency).collect(),
        max_latency_ns: samples.iter().map(latency).max().expect("samples"),
        final_query_scheduled_ns: (last.scheduled - start).0,
        final_query_issued_ns: (last.issued - start).0,
        final_query_all_samples_done_ns: (done - start).0,
        ..PerformanceData::default()
    };
    if eff.scenario == Scenario::MultiStream {
        let queries = samples.chunk_by(|a, b| a.query_seq == b.query_seq);
        let slowest = |query: &[SampleTrace]| query.iter().map(latency).max().expect("samples");
        data.query_latencies_ns = queries.map(slowest).collect();
    }
    if eff.requested.use_token_latencies {
        data.n_tokens = token_counts(folder, samples);
        if eff.scenario != Scenario::Offline {
            let first = |s: &SampleTrace| s.first_token.expect("a first token");
            data.ttft_ns = samples.iter().map(|s| (first(s) - s.scheduled).0).collect();
            let tpot = |(s, n): (&SampleTrace, &i64)| (s.done - first(s)).0 / (n - 1);
            data.tpot_ns = samples.iter().zip(&data.n_tokens).map(tpot).collect();
        }
    }
    data
}

/// Token counts are not in the trace: each thread of the SUT took them from the case's list in
/// turn, and samples went to the threads in turn.
fn token_counts(folder: &Folder, samples: &[SampleTrace]) -> Vec<i64> {
    let sut = &folder.case["sut"];
    let listed = sut["tokens"].as_array().expect("counts");
    let n_threads = sut
        .get("threads")
        .map_or(1, |n| n.as_u64().expect("a count") as usize);
    let recorded = |i: usize| match listed[i / n_threads % listed.len()].as_i64() {
        Some(n) if n >= 2 => n,
        _ => 0,
    };
    (0..samples.len()).map(recorded).collect()
}

/// The printed figures put back where they came from; conditions are judged on times that only
/// say on which side of the limit the run was.
fn from_log(folder: &Folder, eff: &EffectiveSettings) -> (Metrics, PerformanceData) {
    // Two decimals in the summary, six digits in the detail log: the longer text says more.
    let rate = |label: &str, key: &str| {
        let summary = folder
            .summary
            .lines()
            .find_map(|line| line.strip_prefix(label));
        let detail = folder.line(key).map(|line| line.raw.as_str());
        let longer = summary
            .into_iter()
            .chain(detail)
            .max_by_key(|text| text.len());
        longer.map_or(f64::NAN, |rate| rate.parse().expect("a rate"))
    };
    let sample_latency = distribution(folder, eff, &keys::SAMPLE_LATENCY);
    let n_queries = folder.line("result_query_count").expect("a count").count();
    let met = |key: &str| folder.line(key).expect("a condition").raw == "true";
    let duration_ns = if met("result_min_duration_met") {
        eff.min_duration_ms as i64 * 1_000_000
    } else {
        0
    };
    let data = PerformanceData {
        queries_issued: n_queries,
        sample_latencies_ns: vec![0; (n_queries * eff.samples_per_query) as usize],
        max_latency_ns: duration_ns,
        final_query_scheduled_ns: duration_ns,
        final_query_issued_ns: duration_ns,
        ..PerformanceData::default()
    };
    let rates = Rates {
        requested_per_s: eff.target_qps,
        scheduled_per_s: rate(
            "Scheduled samples per second : ",
            "result_scheduled_samples_per_sec",
        ),
        completed_per_s: rate(
            "Completed samples per second    : ",
            "result_completed_samples_per_sec",
        ),
        offline_per_s: rate("Samples per second: ", "result_samples_per_second"),
        with_overhead_per_s: rate(
            "QPS w/ loadgen overhead         : ",
            "result_qps_with_loadgen_overhead",
        ),
        without_overhead_per_s: without_overhead_per_s(&sample_latency),
        goodput_per_s: f64::NAN,
    };
    let metrics = Metrics {
        sample_latency,
        query_latency: (eff.scenario == Scenario::MultiStream)
            .then(|| distribution(folder, eff, &keys::QUERY_LATENCY)),
        ttft: None,
        tpot: None,
        rates,
        tokens: None,
        inferred_tokens_per_s: None,
        n_over_latency: folder
            .line("result_overlatency_query_count")
            .map_or(0, |l| l.count()),
        early_latency: early_check(folder, eff, n_queries),
        early_ttft: Check::Skipped,
        early_tpot: Check::Skipped,
    };
    (metrics, data)
}

fn distribution(folder: &Folder, eff: &EffectiveSettings, keys: &DistributionKeys) -> Distribution {
    let value = |key: &str| {
        folder.line(key).expect("a figure").json["value"]
            .as_i64()
            .expect("ns")
    };
    let percentiles = keys.percentiles.map(value);
    let label = format!("{:.2}", eff.target_latency_percentile * 100.0);
    let at = keys::PERCENTILE_LABELS
        .iter()
        .position(|of| *of == label)
        .expect("a reported one");
    Distribution {
        n: 1,
        min: value(keys.min),
        max: value(keys.max),
        mean: value(keys.mean),
        percentiles,
        at_target: percentiles[at],
    }
}

fn early_check(folder: &Folder, eff: &EffectiveSettings, n_queries: u64) -> Check {
    let percentile = eff.target_latency_percentile;
    let estimate = |percentile: f64, key: &str| TailEstimate {
        percentile,
        n_needed: min_queries_for_estimate(percentile),
        found: most_over_allowed(n_queries, percentile)
            .filter(|&t| t >= 1)
            .map(|t| FoundEstimate {
                n_discarded: t - 1,
                latency_ns: folder.line(key).expect("an estimate").json["value"]
                    .as_i64()
                    .expect("ns"),
            }),
    };
    match eff.scenario {
        Scenario::Offline => Check::Skipped,
        Scenario::Server => {
            let n_over = folder
                .line("result_overlatency_query_count")
                .expect("a count")
                .count();
            Check::limit(n_over, n_queries, percentile)
        }
        Scenario::SingleStream => Check::Estimate {
            n_queries,
            first: estimate(percentile, "early_stopping_latency_ss"),
            second: Some(estimate(SECOND_PERCENTILE, "early_stopping_latency_ms")),
        },
        Scenario::MultiStream => Check::Estimate {
            n_queries,
            first: estimate(percentile, "early_stopping_latency_ms"),
            second: None,
        },
    }
}
