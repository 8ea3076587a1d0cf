//! Every key and mark other tools look for in the logs, letter for letter, mistakes included.
//!
//! Submission checkers and compliance scripts match on these; nothing else in the crate spells
//! them. Whole messages are in `messages.rs`, the labels of the summary in its layout,
//! `summary.rs`. Source: logs of LoadGen 6.0.17 in `tests/golden/loadgen`.

use crate::verdict::Recommendation;

pub use super::messages as message;

/// What every detail line starts with.
pub const LINE_MARKER: &str = ":::MLLOG ";
/// `namespace` of every detail line.
pub const NAMESPACE: &str = "mlperf::logging";
/// `event_type` of every detail line.
pub const EVENT_TYPE: &str = "POINT_IN_TIME";

/// Rule above and below a title in the summary.
pub const BAR: &str = "================================================";

/// Keys of the detail log that stand alone.
pub mod detail {
    #![allow(
        missing_docs,
        reason = "a key's meaning is in docs/METRICS.md, not here"
    )]

    pub const LOADGEN_VERSION: &str = "loadgen_version";
    pub const BUILD_DATE_LOCAL: &str = "loadgen_build_date_local";
    pub const BUILD_DATE_UTC: &str = "loadgen_build_date_utc";
    pub const GIT_COMMIT_DATE: &str = "loadgen_git_commit_date";
    pub const GIT_LOG_MESSAGE: &str = "loadgen_git_log_message";
    pub const GIT_STATUS_MESSAGE: &str = "loadgen_git_status_message";
    pub const FILE_SHA1: &str = "loadgen_file_sha1";
    pub const TEST_DATETIME: &str = "test_datetime";
    pub const SUT_NAME: &str = "sut_name";
    pub const GET_SUT_NAME_DURATION_NS: &str = "get_sut_name_duration_ns";
    pub const QSL_NAME: &str = "qsl_name";
    pub const QSL_TOTAL_COUNT: &str = "qsl_reported_total_count";
    pub const QSL_PERFORMANCE_COUNT: &str = "qsl_reported_performance_count";

    pub const REQUESTED_SCENARIO: &str = "requested_scenario";
    pub const REQUESTED_TEST_MODE: &str = "requested_test_mode";
    /// SingleStream only.
    pub const REQUESTED_SINGLE_STREAM: [&str; 2] = [
        "requested_single_stream_expected_latency_ns",
        "requested_single_stream_target_latency_percentile",
    ];
    /// MultiStream only.
    pub const REQUESTED_MULTI_STREAM: [&str; 3] = [
        "requested_multi_stream_expected_latency_ns",
        "requested_multi_stream_target_latency_percentile",
        "requested_multi_stream_samples_per_query",
    ];
    /// Server only.
    pub const REQUESTED_SERVER: [&str; 8] = [
        "requested_server_target_qps",
        "requested_server_target_latency_ns",
        "requested_server_target_latency_percentile",
        "requested_server_coalesce_queries",
        "requested_server_find_peak_qps_decimals_of_precision",
        "requested_server_find_peak_qps_boundary_step_size",
        "requested_server_max_async_queries",
        "requested_server_num_issue_query_threads",
    ];
    /// Offline only.
    pub const REQUESTED_OFFLINE: [&str; 1] = ["requested_offline_expected_qps"];
    /// How long, how many.
    pub const REQUESTED_BOUNDS: [&str; 4] = [
        "requested_min_duration_ms",
        "requested_max_duration_ms",
        "requested_min_query_count",
        "requested_max_query_count",
    ];
    /// Number of settings that mean the same requested and effective.
    pub const PASSED_ON: usize = 10;
    /// As requested.
    pub const REQUESTED_PASSED_ON: [&str; PASSED_ON] = [
        "requested_qsl_rng_seed",
        "requested_sample_index_rng_seed",
        "requested_schedule_rng_seed",
        "requested_accuracy_log_rng_seed",
        "requested_accuracy_log_probability",
        "requested_accuracy_log_sampling_target",
        "requested_print_timestamps",
        "requested_performance_issue_unique",
        "requested_performance_issue_same",
        "requested_performance_issue_same_index",
    ];
    /// 0 leaves the count to the sample library.
    pub const REQUESTED_SAMPLE_COUNTS: [&str; 2] = [
        "requested_performance_sample_count_override",
        "requested_accuracy_sample_count_override",
    ];
    pub const REQUESTED_CONCATENATE: &str = "requested_sample_concatenate_permutation";
    pub const REQUESTED_USE_TOKEN_LATENCIES: &str = "requested_use_token_latencies";
    /// Token mode except Offline.
    pub const REQUESTED_TOKEN_LIMITS: [&str; 2] = [
        "requested_server_ttft_latency",
        "requested_server_tpot_latency",
    ];
    /// What the scenario makes of the request.
    pub const EFFECTIVE: [&str; 13] = [
        "effective_scenario",
        "effective_test_mode",
        "effective_samples_per_query",
        "effective_target_qps",
        "effective_target_latency_ns",
        "effective_target_latency_percentile",
        "effective_max_async_queries",
        "effective_target_duration_ms",
        "effective_min_duration_ms",
        "effective_max_duration_ms",
        "effective_min_query_count",
        "effective_max_query_count",
        "effective_min_sample_count",
    ];
    /// As requested, or as audit.config and test05 set them.
    pub const EFFECTIVE_PASSED_ON: [&str; PASSED_ON] = [
        "effective_qsl_rng_seed",
        "effective_sample_index_rng_seed",
        "effective_schedule_rng_seed",
        "effective_accuracy_log_rng_seed",
        "effective_accuracy_log_probability",
        "effective_accuracy_log_sampling_target",
        "effective_print_timestamps",
        "effective_performance_issue_unique",
        "effective_performance_issue_same",
        "effective_performance_issue_same_index",
    ];
    /// Override or the library's own count.
    pub const EFFECTIVE_SAMPLE_COUNTS: [&str; 2] = [
        "effective_performance_sample_count",
        "effective_accuracy_sample_count",
    ];
    pub const EFFECTIVE_CONCATENATE: &str = "effective_sample_concatenate_permutation";

    pub const GENERIC_MESSAGE: &str = "generic_message";
    pub const WARNING_GENERIC_MESSAGE: &str = "warning_generic_message";
    pub const ERROR_RUNTIME: &str = "error_runtime";
    pub const ERROR_INVALID_CONFIG: &str = "error_invalid_config";
    pub const ERROR_INVALID_TEST_SETTINGS: &str = "error_invalid_test_settings";

    pub const LOADED_QSL_SET: &str = "loaded_qsl_set";
    pub const GENERATED_QUERY_COUNT: &str = "generated_query_count";
    pub const GENERATED_SAMPLES_PER_QUERY: &str = "generated_samples_per_query";
    pub const GENERATED_QUERY_DURATION: &str = "generated_query_duration";
    pub const POWER_BEGIN: &str = "power_begin";
    pub const POWER_END: &str = "power_end";

    /// Counters of the reference's logger; zero here, where producers contend for nothing.
    pub const LOGGER_COUNTERS: [&str; 6] = [
        "logger_swap_request_slots_retry_count",
        "logger_swap_request_slots_retry_retry_count",
        "logger_swap_request_slots_retry_reencounter_count",
        "logger_start_reading_entries_retry_count",
        "logger_tls_total_log_cas_fail_count",
        "logger_tls_total_swap_buffers_slot_retry_count",
    ];

    pub const RESULT_VALIDITY: &str = "result_validity";
    pub const RESULT_PERF_CONSTRAINTS_MET: &str = "result_perf_constraints_met";
    pub const RESULT_MIN_DURATION_MET: &str = "result_min_duration_met";
    pub const RESULT_MIN_QUERIES_MET: &str = "result_min_queries_met";
    pub const EARLY_STOPPING_MET: &str = "early_stopping_met";
    pub const RESULT_INVALID_REASON: &str = "result_invalid_reason";
    pub const EARLY_STOPPING_RESULT: &str = "early_stopping_result";
    pub const EARLY_STOPPING_TTFT_RESULT: &str = "early_stopping_ttft_result";
    pub const EARLY_STOPPING_TPOT_RESULT: &str = "early_stopping_tpot_result";
    pub const RESULT_QUERY_COUNT: &str = "result_query_count";
    pub const QPS_WITH_OVERHEAD: &str = "result_qps_with_loadgen_overhead";
    pub const QPS_WITHOUT_OVERHEAD: &str = "result_qps_without_loadgen_overhead";
    pub const EARLY_STOPPING_LATENCY_SS: &str = "early_stopping_latency_ss";
    pub const EARLY_STOPPING_LATENCY_MS: &str = "early_stopping_latency_ms";
    pub const OVERLATENCY_QUERY_COUNT: &str = "result_overlatency_query_count";
    pub const SCHEDULED_SAMPLES_PER_SEC: &str = "result_scheduled_samples_per_sec";
    pub const COMPLETED_SAMPLES_PER_SEC: &str = "result_completed_samples_per_sec";
    pub const SAMPLES_PER_SECOND: &str = "result_samples_per_second";
    pub const TOKEN_THROUGHPUT_WITH_OVERHEAD: &str =
        "result_token_throughput_with_loadgen_overhead";
    pub const TOKEN_THROUGHPUT: &str = "result_token_throughput";
    pub const COMPLETED_TOKENS_PER_SECOND: &str = "result_completed_tokens_per_second";
    pub const TOKENS_PER_SECOND: &str = "result_tokens_per_second";
    pub const INFERRED_COMPLETED_TOKENS_PER_SECOND: &str =
        "result_inferred_completed_tokens_per_second";
    pub const INFERRED_TOKENS_PER_SECOND: &str = "result_inferred_tokens_per_second";
    pub const NUM_ERRORS: &str = "num_errors";

    /// Not the reference's; written only if `LogSettings::own_keys` asks for them.
    pub const OWN_RESULTS: [&str; 5] = [
        "prony_validity",
        "prony_invalid_reasons",
        "prony_advice",
        "prony_requested_samples_per_sec",
        "prony_goodput_samples_per_sec",
    ];
}

/// Keys of one distribution in the detail log.
pub struct DistributionKeys {
    /// Smallest value.
    pub min: &'static str,
    /// Largest value.
    pub max: &'static str,
    /// Mean.
    pub mean: &'static str,
    /// At `stats::REPORTED_PERCENTILES`.
    pub percentiles: [&'static str; 6],
}

/// Sample latency.
pub const SAMPLE_LATENCY: DistributionKeys = DistributionKeys {
    min: "result_min_latency_ns",
    max: "result_max_latency_ns",
    mean: "result_mean_latency_ns",
    percentiles: [
        "result_50.00_percentile_latency_ns",
        "result_90.00_percentile_latency_ns",
        "result_95.00_percentile_latency_ns",
        "result_97.00_percentile_latency_ns",
        "result_99.00_percentile_latency_ns",
        "result_99.90_percentile_latency_ns",
    ],
};

/// Query latency (MultiStream).
pub const QUERY_LATENCY: DistributionKeys = DistributionKeys {
    min: "result_min_query_latency_ns",
    max: "result_max_query_latency_ns",
    mean: "result_mean_query_latency_ns",
    percentiles: [
        "result_50.00_percentile_per_query_latency_ns",
        "result_90.00_percentile_per_query_latency_ns",
        "result_95.00_percentile_per_query_latency_ns",
        "result_97.00_percentile_per_query_latency_ns",
        "result_99.00_percentile_per_query_latency_ns",
        "result_99.90_percentile_per_query_latency_ns",
    ],
};

/// Time to first token.
pub const TTFT: DistributionKeys = DistributionKeys {
    min: "result_first_token_min_latency_ns",
    max: "result_first_token_max_latency_ns",
    mean: "result_first_token_mean_latency_ns",
    percentiles: [
        "result_first_token_50.00_percentile_latency_ns",
        "result_first_token_90.00_percentile_latency_ns",
        "result_first_token_95.00_percentile_latency_ns",
        "result_first_token_97.00_percentile_latency_ns",
        "result_first_token_99.00_percentile_latency_ns",
        "result_first_token_99.90_percentile_latency_ns",
    ],
};

/// Time per output token.
pub const TPOT: DistributionKeys = DistributionKeys {
    min: "result_time_to_output_token_min",
    max: "result_time_to_output_token_max",
    mean: "result_time_to_output_token_mean",
    percentiles: [
        "result_time_per_output_token_50.00_percentile_ns",
        "result_time_per_output_token_90.00_percentile_ns",
        "result_time_per_output_token_95.00_percentile_ns",
        "result_time_per_output_token_97.00_percentile_ns",
        "result_time_per_output_token_99.00_percentile_ns",
        "result_time_per_output_token_99.90_percentile_ns",
    ],
};

/// Labels of the percentiles in the summary, as `stats::REPORTED_PERCENTILES`.
pub const PERCENTILE_LABELS: [&str; 6] = ["50.00", "90.00", "95.00", "97.00", "99.00", "99.90"];

/// Wording of a recommendation.
#[must_use]
pub fn recommendation(of: Recommendation) -> &'static str {
    match of {
        Recommendation::ReduceTargetQps => "Reduce target QPS to improve latency.",
        Recommendation::ReduceTargetQpsForTtft => {
            "TTFT constrain not met: Reduce target QPS to improve latency."
        }
        Recommendation::ReduceTargetQpsForTpot => {
            "TPOT constrain not met: Reduce target QPS to improve latency."
        }
        Recommendation::DecreaseExpectedLatency => {
            "Decrease the expected latency so the loadgen pre-generates more queries."
        }
        Recommendation::IncreaseTargetQps => {
            "Increase the target QPS so the loadgen pre-generates more queries."
        }
        Recommendation::IncreaseExpectedQps => {
            "Increase expected QPS so the loadgen pre-generates a larger (coalesced) query."
        }
        Recommendation::ExitedEarly => "The test exited early, before enough queries were issued.",
    }
}

/// Second summary line of [`Recommendation::ExitedEarly`].
pub const SEE_DETAILED_LOG: &str = "   See the detailed log for why this may have occurred.";

/// Last lines of a summary whose run used `sample_concatenate_permutation`.
pub const CONCATENATE_WARNING: &str = "\
WARNING: sample_concatenate_permutation was set to true. 
Generated samples per query might be different as the one in the setting.
Check the generated_samples_per_query line in the detailed log for the real
samples_per_query value
";
