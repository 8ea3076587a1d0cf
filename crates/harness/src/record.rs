//! Puts the record of a run together: the outcome, the client's own figures, the configuration,
//! the machine. Decides nothing but whether the client kept up.

use std::collections::BTreeMap;

use prony_loadgen::Outcome;
use prony_loadgen::incident::FailureKind;
use prony_loadgen::issue::EndReason;
use prony_loadgen::metrics::Metrics;
use prony_loadgen::outcome::PhaseOutcome;
use prony_loadgen::scenario::{Phase, Scenario};
use prony_loadgen::settings::EffectiveSettings;
use prony_loadgen::settings::fields::FIELDS;
use prony_report::run_record::{self as report, RunRecord, SCHEMA_VERSION};
use sha2::{Digest, Sha256};

use crate::datasets::Dataset;
use crate::figures;
use crate::own_cost;
use crate::scenario_file::ScenarioFile;
use crate::stream_stats::StreamStats;

/// Below this share of the scheduled rate the load that was asked for was not sent.
const LEAST_SENT_SHARE: f64 = 0.99;

/// A client later than this at the highest percentile that can be told is part of what was
/// measured …
const MOST_SEND_LAG_MS: f64 = 1.0;

/// … unless it is this small a share of the median latency.
const MOST_SEND_LAG_SHARE: f64 = 0.01;

/// What a record is made of, beside the outcome.
pub(crate) struct Ran<'a> {
    pub(crate) file: &'a ScenarioFile,
    pub(crate) dataset: &'a dyn Dataset,
    pub(crate) stats: StreamStats,
    pub(crate) endpoint: report::Endpoint,
    pub(crate) environment: prony_report::environment::Environment,
    /// `spun` or `slept`.
    pub(crate) wait_policy: &'static str,
    pub(crate) canceled: bool,
    /// Wall-clock time at the origin of the run's clock, ns since 1970 UTC.
    pub(crate) origin_unix_ns: i64,
}

/// The record of a run.
pub(crate) fn record(outcome: &Outcome, ran: &Ran<'_>) -> RunRecord {
    let file = ran.file;
    let mut record = RunRecord {
        schema_version: SCHEMA_VERSION,
        name: file.name.clone(),
        description: file.description.clone(),
        scenario: file.settings.scenario.conf_name().to_owned(),
        mode: file.settings.mode.to_string(),
        command_line: std::env::args().collect(),
        unofficial_because: unofficial(file, &ran.environment),
        client: client(outcome, ran),
        endpoint: ran.endpoint.clone(),
        environment: ran.environment.clone(),
        config: config(file, ran.dataset),
        ..RunRecord::default()
    };
    record.verdict.canceled = ran.canceled;
    // The performance phase, or what there is of a run that has none.
    let phases = &outcome.phases;
    let mut performance = phases.iter().filter(|p| p.phase == Phase::Performance);
    if let Some(phase) = outcome.result().or(performance.next()).or(phases.last()) {
        add_phase(&mut record, phase, ran);
    }
    record
}

fn add_phase(record: &mut RunRecord, phase: &PhaseOutcome, ran: &Ran<'_>) {
    let streamed = ran.file.generation.stream;
    let effective = &phase.effective;
    record.started_unix_ms = (ran.origin_unix_ns + phase.start.0) / 1_000_000;
    record.duration_s = figures::duration_s(&phase.columns);
    record.figures = figures::figures(&phase.columns, &ran.stats, streamed);
    record.series = figures::series(&phase.columns, streamed);
    record.failures = failures(phase);
    record.config.effective = effective_map(effective);
    record.figures.target_percentile = Some(effective.target_latency_percentile);
    let Some(judged) = &phase.judged else {
        // Nothing is timed here; an accuracy run is complete when every sample was answered.
        let (issued, completed) = (record.figures.n_issued, record.figures.n_completed);
        record.verdict.valid = completed == issued && issued > 0 && !ran.canceled;
        return;
    };
    if effective.scenario == Scenario::Server {
        record.figures.requested_per_s = Some(effective.target_qps);
        record.figures.scheduled_per_s = finite(judged.metrics.rates.scheduled_per_s);
    }
    if effective.scenario == Scenario::Offline {
        // All is asked for at once; when it goes out says something of the in-flight cap only.
        record.figures.sent_per_s = None;
    }
    record.headline = headline(&judged.metrics, effective);
    let verdict = &judged.verdict;
    let late = client_limits(&record.figures);
    let reasons = verdict.reasons.iter().cloned();
    record.verdict = report::Verdict {
        valid: verdict.validity.is_valid() && !ran.canceled,
        official_valid: verdict.official_validity.is_valid(),
        client_limited: !late.is_empty(),
        canceled: ran.canceled,
        reasons: reasons.chain(end_reasons(phase)).chain(late).collect(),
        advice: verdict.advice.clone(),
        assertions: Vec::new(),
    };
}

/// Why the load that was sent is not the load that was asked for; empty if it is.
fn client_limits(figures: &report::Figures) -> Vec<String> {
    let mut limits = Vec::new();
    if let (Some(scheduled), Some(sent)) = (figures.scheduled_per_s, figures.sent_per_s)
        && sent < scheduled * LEAST_SENT_SHARE
    {
        limits.push(format!(
            "the client sent {sent:.3} requests/s of {scheduled:.3} scheduled"
        ));
    }
    if let (Some(_), Some(lag), Some(latency)) = (
        figures.scheduled_per_s,
        &figures.send_lag_ms,
        &figures.latency_ms,
    ) {
        let (name, lag_ms) = highest_resolved(lag);
        if lag_ms > MOST_SEND_LAG_MS.max(latency.p50 * MOST_SEND_LAG_SHARE) {
            limits.push(format!(
                "the client sent {lag_ms:.2} ms late at the {name} percentile"
            ));
        }
    }
    limits
}

/// The highest percentile that is more than the single worst value: one hiccup of the machine in
/// a short run does not make the client the limit.
fn highest_resolved(lag: &report::Distribution) -> (&'static str, f64) {
    let percentiles = [
        ("99th", 0.99, lag.p99),
        ("95th", 0.95, lag.p95),
        ("90th", 0.90, lag.p90),
    ];
    let found = percentiles
        .into_iter()
        .find(|(_, share, _)| lag.is_resolved(*share));
    found.map_or(("50th", lag.p50), |(name, _, value)| (name, value))
}

/// Ends that a reader of the figures must know of.
fn end_reasons(phase: &PhaseOutcome) -> impl Iterator<Item = String> {
    phase.ends.iter().filter_map(|end| match end {
        EndReason::TooManyOutstanding { outstanding, .. } => Some(format!(
            "stopped early: {outstanding} queries were outstanding"
        )),
        EndReason::Canceled => Some("called off before its end".to_owned()),
        EndReason::TimeLimit => Some("stopped by its time limit".to_owned()),
        EndReason::Lost => Some("gave up on samples that were never answered".to_owned()),
        EndReason::Natural
        | EndReason::AllIssued
        | EndReason::RanOut
        | EndReason::MaxQueryCount { .. }
        | EndReason::MaxDuration { .. } => None,
    })
}

fn headline(metrics: &Metrics, effective: &EffectiveSettings) -> report::Headline {
    let percentile = effective.target_latency_percentile * 100.0;
    let (name, value, unit) = match effective.scenario {
        Scenario::SingleStream => (
            format!("latency at percentile {percentile}"),
            metrics.sample_latency.at_target as f64 / 1e6,
            "ms",
        ),
        Scenario::MultiStream => (
            format!("query latency at percentile {percentile}"),
            metrics
                .query_latency
                .as_ref()
                .map_or(f64::NAN, |d| d.at_target as f64 / 1e6),
            "ms",
        ),
        Scenario::Server => (
            "completed samples".to_owned(),
            metrics.rates.completed_per_s,
            "samples/s",
        ),
        Scenario::Offline => (
            "samples".to_owned(),
            metrics.rates.offline_per_s,
            "samples/s",
        ),
    };
    report::Headline {
        name,
        value: finite(value),
        unit: unit.to_owned(),
    }
}

fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

fn failures(phase: &PhaseOutcome) -> Vec<report::FailureCount> {
    let report_of = &phase.incidents;
    let kinds = FailureKind::ALL.into_iter().zip(report_of.failures);
    let mut failures: Vec<report::FailureCount> = kinds
        .filter(|(_, count)| *count > 0)
        .map(|(kind, count)| {
            let first = report_of
                .first_failures
                .iter()
                .find(|failure| failure.kind == kind);
            report::FailureCount {
                kind: kind.name().to_owned(),
                count,
                first_detail: first.map_or_else(String::new, |failure| failure.detail.clone()),
            }
        })
        .collect();
    failures.sort_by_key(|failure| std::cmp::Reverse(failure.count));
    failures
}

fn unofficial(
    file: &ScenarioFile,
    environment: &prony_report::environment::Environment,
) -> Vec<String> {
    let mut reasons = Vec::new();
    if file.is_quick {
        reasons.push("--quick shortened the run".to_owned());
    }
    if environment.build_profile != "release" {
        reasons.push("prony is a debug build".to_owned());
    }
    reasons
}

fn client(outcome: &Outcome, ran: &Ran<'_>) -> report::Client {
    report::Client {
        n_connections_ahead: u64::from(ran.file.n_connections()),
        n_connections_late: ran.stats.n_opened_late,
        max_in_flight_allowed: u64::from(ran.file.client.max_in_flight),
        max_in_flight_seen: ran.stats.max_in_flight,
        n_held_back: ran.stats.n_held_back,
        n_counted_by_events: ran.stats.n_counted_by_events,
        n_warmup_queries: u64::from(ran.file.client.warmup_queries),
        n_warmup_failures: outcome.warmup.failed(),
        wait_policy: ran.wait_policy.to_owned(),
        cpu_s: own_cost::cpu_s(),
        max_rss_bytes: own_cost::max_rss_bytes(),
    }
}

fn config(file: &ScenarioFile, dataset: &dyn Dataset) -> report::Config {
    let requested = requested_map(file);
    let dataset_sha256 = dataset.digest();
    let mut hash = Sha256::new();
    for (key, value) in &requested {
        // Where the endpoint is does not change what is asked of it.
        if key != "endpoint.url" {
            hash.update(format!("{key} = {value}\n"));
        }
    }
    hash.update(&dataset_sha256);
    report::Config {
        path: file.path.display().to_string(),
        sha256: hash
            .finalize()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect(),
        dataset: dataset.name().to_owned(),
        n_dataset_samples: dataset.len() as u64,
        dataset_sha256,
        requested,
        effective: BTreeMap::new(),
    }
}

/// Every key as a scenario file would have it, defaults included; of headers only the names.
fn requested_map(file: &ScenarioFile) -> BTreeMap<String, String> {
    let (generation, client) = (&file.generation, &file.client);
    let optional = |value: Option<String>| value.unwrap_or_else(|| "not set".to_owned());
    let headers: Vec<&str> = file
        .endpoint
        .headers
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    let mut map: BTreeMap<String, String> = [
        ("endpoint.url", file.endpoint.url.to_string()),
        ("endpoint.api", file.endpoint.api.name().to_owned()),
        ("endpoint.model", optional(file.endpoint.model.clone())),
        ("endpoint.headers", headers.join(", ")),
        ("generation.max_tokens", generation.max_tokens.to_string()),
        ("generation.temperature", generation.temperature.to_string()),
        (
            "generation.top_p",
            optional(generation.top_p.map(|p| p.to_string())),
        ),
        (
            "generation.seed",
            optional(generation.seed.map(|seed| seed.to_string())),
        ),
        ("generation.ignore_eos", generation.ignore_eos.to_string()),
        ("generation.stream", generation.stream.to_string()),
        ("client.connections", file.n_connections().to_string()),
        ("client.max_in_flight", client.max_in_flight.to_string()),
        ("client.timeout_s", client.timeout.as_secs_f64().to_string()),
        ("client.warmup_queries", client.warmup_queries.to_string()),
        (
            "client.max_failed_fraction",
            client.max_failed_fraction.to_string(),
        ),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect();
    for field in FIELDS {
        let value = field.get(&file.settings).to_string();
        // Two names of the reference lack the unit their values have.
        let has_unit = !matches!(field.unit, "ns" | "ms") || field.name.ends_with(field.unit);
        let unit = if has_unit {
            String::new()
        } else {
            format!("_{}", field.unit)
        };
        map.insert(format!("settings.{}{unit}", field.name), value);
    }
    map
}

fn effective_map(effective: &EffectiveSettings) -> BTreeMap<String, String> {
    [
        ("samples_per_query", effective.samples_per_query.to_string()),
        ("target_qps", effective.target_qps.to_string()),
        ("target_latency_ns", effective.target_latency_ns.to_string()),
        (
            "target_latency_percentile",
            effective.target_latency_percentile.to_string(),
        ),
        ("max_async_queries", effective.max_async_queries.to_string()),
        (
            "target_duration_ms",
            effective.target_duration_ms.to_string(),
        ),
        ("min_duration_ms", effective.min_duration_ms.to_string()),
        ("max_duration_ms", effective.max_duration_ms.to_string()),
        ("min_query_count", effective.min_query_count.to_string()),
        ("max_query_count", effective.max_query_count.to_string()),
        ("min_sample_count", effective.min_sample_count.to_string()),
        (
            "performance_sample_count",
            effective.performance_sample_count.to_string(),
        ),
        (
            "accuracy_sample_count",
            effective.accuracy_sample_count.to_string(),
        ),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(n: u64, lag_p95: f64, lag_p99: f64) -> report::Figures {
        let lag = report::Distribution {
            n,
            p95: lag_p95,
            p99: lag_p99,
            ..Default::default()
        };
        let latency = report::Distribution {
            n,
            p50: 50.0,
            ..Default::default()
        };
        report::Figures {
            scheduled_per_s: Some(2.0),
            sent_per_s: Some(1.99),
            send_lag_ms: Some(lag),
            latency_ms: Some(latency),
            ..report::Figures::default()
        }
    }

    #[test]
    fn a_late_client_limits_the_run() {
        assert_eq!(client_limits(&figures(100, 0.1, 0.9)), Vec::<String>::new());
        let late = ["the client sent 1.10 ms late at the 99th percentile"];
        assert_eq!(client_limits(&figures(100, 0.1, 1.1)), late);
        // Of 64 values the 99th percentile is the largest; the 95th is the one that counts.
        assert_eq!(client_limits(&figures(64, 0.1, 9.0)), Vec::<String>::new());
    }

    #[test]
    fn load_that_was_not_sent_limits_the_run() {
        let slow = report::Figures {
            sent_per_s: Some(1.97),
            ..figures(100, 0.1, 0.1)
        };
        let expected = ["the client sent 1.970 requests/s of 2.000 scheduled"];
        assert_eq!(client_limits(&slow), expected);
    }
}
