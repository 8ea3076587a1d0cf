//! Which lines the detail log holds before and during a run, in the order other tools expect.
//!
//! Preamble, requested and effective settings, one phase: a function each. Only names and orders
//! values that were computed elsewhere; results are in `results.rs`.

use crate::clock::Nanos;
use crate::scenario::Scenario;
use crate::settings::{EffectiveSettings, TestSettings};

use super::detail::{DetailLog, LogValue};
use super::format::{iso_datetime, power_time};
use super::keys::detail as key;

/// Where the program that made a log came from; empty texts where that is not known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BuildInfo {
    /// Name, version and revision.
    pub version: String,
    /// ISO date of the build, local time.
    pub build_date_local: String,
    /// ISO date of the build, UTC.
    pub build_date_utc: String,
    /// ISO date of the revision.
    pub git_commit_date: String,
    /// Last entries of the history.
    pub git_log_message: String,
    /// Uncommitted changes.
    pub git_status_message: String,
    /// SHA-1 of every source file.
    pub file_sha1: Vec<(String, String)>,
}

impl BuildInfo {
    /// This crate's own version.
    #[must_use]
    pub fn this_build() -> Self {
        Self {
            version: format!("{} ({})", env!("CARGO_PKG_VERSION"), env!("CARGO_PKG_NAME")),
            ..Self::default()
        }
    }
}

/// What the first lines of a log name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preamble<'a> {
    /// Where this program came from.
    pub build: &'a BuildInfo,
    /// When the test started, ns since 1970-01-01 UTC.
    pub started_unix_ns: i64,
    /// Name the SUT gave.
    pub sut_name: &'a str,
    /// How long it took to give it.
    pub get_sut_name_duration_ns: i64,
    /// Name the sample library gave.
    pub qsl_name: &'a str,
    /// Samples in the data set.
    pub qsl_total_count: u64,
    /// Samples that fit in memory.
    pub qsl_performance_count: u64,
}

/// Versions, date and names. Warnings about audit.config or test05 follow it.
pub fn preamble(log: &mut DetailLog, at: Nanos, of: &Preamble<'_>) {
    let build = of.build;
    log.push(at, key::LOADGEN_VERSION, build.version.as_str());
    log.push(at, key::BUILD_DATE_LOCAL, build.build_date_local.as_str());
    log.push(at, key::BUILD_DATE_UTC, build.build_date_utc.as_str());
    log.push(at, key::GIT_COMMIT_DATE, build.git_commit_date.as_str());
    log.push(at, key::GIT_LOG_MESSAGE, build.git_log_message.as_str());
    log.push(
        at,
        key::GIT_STATUS_MESSAGE,
        build.git_status_message.as_str(),
    );
    log.push(at, key::FILE_SHA1, LogValue::Map(build.file_sha1.clone()));
    log.push(at, key::TEST_DATETIME, iso_datetime(of.started_unix_ns));
    log.push(at, key::SUT_NAME, of.sut_name);
    log.push(
        at,
        key::GET_SUT_NAME_DURATION_NS,
        of.get_sut_name_duration_ns,
    );
    log.push(at, key::QSL_NAME, of.qsl_name);
    log.push(at, key::QSL_TOTAL_COUNT, of.qsl_total_count);
    log.push(at, key::QSL_PERFORMANCE_COUNT, of.qsl_performance_count);
}

/// The `requested_*` lines.
pub fn requested(log: &mut DetailLog, at: Nanos, t: &TestSettings) {
    log.push(at, key::REQUESTED_SCENARIO, t.scenario.conf_name());
    log.push(at, key::REQUESTED_TEST_MODE, t.mode.to_string());
    requested_of_scenario(log, at, t);
    let bounds = [
        t.min_duration_ms,
        t.max_duration_ms,
        t.min_query_count,
        t.max_query_count,
    ];
    push_all(log, at, key::REQUESTED_BOUNDS, bounds.map(LogValue::from));
    push_all(log, at, key::REQUESTED_PASSED_ON, passed_on(t));
    let counts = [
        t.performance_sample_count_override,
        t.accuracy_sample_count_override,
    ];
    push_all(
        log,
        at,
        key::REQUESTED_SAMPLE_COUNTS,
        counts.map(LogValue::from),
    );
    log.push(
        at,
        key::REQUESTED_CONCATENATE,
        t.sample_concatenate_permutation,
    );
    if t.use_token_latencies {
        log.push(at, key::REQUESTED_USE_TOKEN_LATENCIES, true);
        if t.scenario != Scenario::Offline {
            let limits = [t.server_ttft_latency, t.server_tpot_latency];
            push_all(
                log,
                at,
                key::REQUESTED_TOKEN_LIMITS,
                limits.map(LogValue::from),
            );
        }
    }
}

fn requested_of_scenario(log: &mut DetailLog, at: Nanos, t: &TestSettings) {
    match t.scenario {
        Scenario::SingleStream => {
            let values = [
                t.single_stream_expected_latency_ns.into(),
                t.single_stream_target_latency_percentile.into(),
            ];
            push_all(log, at, key::REQUESTED_SINGLE_STREAM, values);
        }
        Scenario::MultiStream => {
            let values = [
                t.multi_stream_expected_latency_ns.into(),
                t.multi_stream_target_latency_percentile.into(),
                t.multi_stream_samples_per_query.into(),
            ];
            push_all(log, at, key::REQUESTED_MULTI_STREAM, values);
        }
        Scenario::Server => {
            let values = [
                t.server_target_qps.into(),
                t.server_target_latency_ns.into(),
                t.server_target_latency_percentile.into(),
                t.server_coalesce_queries.into(),
                i64::from(t.server_find_peak_qps_decimals_of_precision).into(),
                t.server_find_peak_qps_boundary_step_size.into(),
                t.server_max_async_queries.into(),
                t.server_num_issue_query_threads.into(),
            ];
            push_all(log, at, key::REQUESTED_SERVER, values);
        }
        Scenario::Offline => {
            push_all(
                log,
                at,
                key::REQUESTED_OFFLINE,
                [t.offline_expected_qps.into()],
            );
        }
    }
}

/// The `effective_*` lines.
pub fn effective(log: &mut DetailLog, at: Nanos, eff: &EffectiveSettings) {
    let values = [
        eff.scenario.conf_name().into(),
        eff.mode.to_string().into(),
        eff.samples_per_query.into(),
        eff.target_qps.into(),
        eff.target_latency_ns.into(),
        eff.target_latency_percentile.into(),
        eff.max_async_queries.into(),
        eff.target_duration_ms.into(),
        eff.min_duration_ms.into(),
        eff.max_duration_ms.into(),
        eff.min_query_count.into(),
        eff.max_query_count.into(),
        eff.min_sample_count.into(),
    ];
    push_all(log, at, key::EFFECTIVE, values);
    push_all(log, at, key::EFFECTIVE_PASSED_ON, passed_on(&eff.requested));
    let counts = [eff.performance_sample_count, eff.accuracy_sample_count];
    push_all(
        log,
        at,
        key::EFFECTIVE_SAMPLE_COUNTS,
        counts.map(LogValue::from),
    );
    let concatenate = eff.requested.sample_concatenate_permutation;
    log.push(at, key::EFFECTIVE_CONCATENATE, concatenate);
}

/// Settings that mean the same requested and effective.
fn passed_on(t: &TestSettings) -> [LogValue; key::PASSED_ON] {
    [
        t.qsl_rng_seed.into(),
        t.sample_index_rng_seed.into(),
        t.schedule_rng_seed.into(),
        t.accuracy_log_rng_seed.into(),
        t.accuracy_log_probability.into(),
        t.accuracy_log_sampling_target.into(),
        t.print_timestamps.into(),
        t.performance_issue_unique.into(),
        t.performance_issue_same.into(),
        t.performance_issue_same_index.into(),
    ]
}

/// As many lines as there are keys; the compiler sees to it that there is a value for each.
#[track_caller]
pub(super) fn push_all<const N: usize>(
    log: &mut DetailLog,
    at: Nanos,
    keys: [&'static str; N],
    values: [LogValue; N],
) {
    for (key, value) in keys.into_iter().zip(values) {
        log.push(at, key, value);
    }
}

/// Which samples were brought into memory.
pub fn loaded_set(log: &mut DetailLog, at: Nanos, samples: Vec<u32>) {
    log.push(at, key::LOADED_QSL_SET, LogValue::List(samples));
}

/// What was generated: queries, samples each, and the time after the last gap.
pub fn generated(log: &mut DetailLog, at: Nanos, n_queries: u64, per_query: u64, duration: Nanos) {
    log.push(at, key::GENERATED_QUERY_COUNT, n_queries);
    log.push(at, key::GENERATED_SAMPLES_PER_QUERY, per_query);
    log.push(at, key::GENERATED_QUERY_DURATION, duration.0);
}

/// The end of a phase: logger counters, then the window in which power was drawn.
///
/// `begin_unix_ns` is when the first query went out, `lasted` the time to the latest completion.
pub fn phase_end(log: &mut DetailLog, at: Nanos, begin_unix_ns: i64, lasted: Nanos) {
    for counter in key::LOGGER_COUNTERS {
        log.push(at, counter, 0_u64);
    }
    log.push(at, key::POWER_BEGIN, power_time(begin_unix_ns));
    log.push(at, key::POWER_END, power_time(begin_unix_ns + lasted.0));
}
