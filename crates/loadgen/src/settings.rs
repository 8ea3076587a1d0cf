//! What a run is asked to do: `TestSettings` with the reference's fields, units and defaults.
//!
//! `fields` reads and writes them by name, `derive` turns them into what the run really does,
//! `validate` says what no run can honour. Where the values come from is the business of `conf`.

pub mod fields;

pub mod effective;

pub mod derive;

pub mod quota;

pub mod validate;

pub use derive::{NoteKind, SettingsNote};
pub use fields::{FIELDS, Field, Value};
pub use validate::{MemoryNeed, validate};

use crate::scenario::{Mode, Scenario};

/// Requested settings of one test, field for field the reference's `TestSettings`.
///
/// Latencies are nanoseconds, durations milliseconds, percentiles fractions of 1, as the field
/// names say. Defaults are the reference's.
#[derive(Debug, Clone, PartialEq)]
#[allow(
    missing_docs,
    reason = "names and meanings are the reference's, see docs/RUNNING.md"
)]
pub struct TestSettings {
    pub scenario: Scenario,
    pub mode: Mode,
    pub single_stream_expected_latency_ns: f64,
    pub single_stream_target_latency_percentile: f64,
    pub multi_stream_expected_latency_ns: f64,
    pub multi_stream_target_latency_percentile: f64,
    pub multi_stream_samples_per_query: u64,
    pub server_target_qps: f64,
    pub server_target_latency_ns: u64,
    pub server_target_latency_percentile: f64,
    pub server_coalesce_queries: bool,
    pub server_find_peak_qps_decimals_of_precision: i32,
    pub server_find_peak_qps_boundary_step_size: f64,
    pub server_max_async_queries: u64,
    pub server_num_issue_query_threads: u64,
    pub offline_expected_qps: f64,
    pub sample_concatenate_permutation: bool,
    pub min_duration_ms: u64,
    pub max_duration_ms: u64,
    pub min_query_count: u64,
    pub max_query_count: u64,
    pub qsl_rng_seed: u64,
    pub sample_index_rng_seed: u64,
    pub schedule_rng_seed: u64,
    pub accuracy_log_rng_seed: u64,
    pub accuracy_log_probability: f64,
    pub accuracy_log_sampling_target: u64,
    pub test05: bool,
    pub test05_qsl_rng_seed: u64,
    pub test05_sample_index_rng_seed: u64,
    pub test05_schedule_rng_seed: u64,
    pub print_timestamps: bool,
    pub performance_issue_unique: bool,
    pub performance_issue_same: bool,
    pub performance_issue_same_index: u64,
    pub performance_sample_count_override: u64,
    pub accuracy_sample_count_override: u64,
    pub use_token_latencies: bool,
    /// `ttft_latency` in the reference's Python interface.
    pub server_ttft_latency: u64,
    /// `tpot_latency` in the reference's Python interface.
    pub server_tpot_latency: u64,
    pub infer_token_latencies: bool,
    /// Uninitialised in the reference; 1 here.
    pub token_latency_scaling_factor: u64,
}

impl Default for TestSettings {
    fn default() -> Self {
        Self {
            scenario: Scenario::SingleStream,
            mode: Mode::PerformanceOnly,
            single_stream_expected_latency_ns: 1e6,
            single_stream_target_latency_percentile: 0.90,
            multi_stream_expected_latency_ns: 8e6,
            multi_stream_target_latency_percentile: 0.99,
            multi_stream_samples_per_query: 8,
            server_target_qps: 1.0,
            server_target_latency_ns: 100_000_000,
            server_target_latency_percentile: 0.99,
            server_coalesce_queries: false,
            server_find_peak_qps_decimals_of_precision: 1,
            server_find_peak_qps_boundary_step_size: 1.0,
            server_max_async_queries: 0,
            server_num_issue_query_threads: 0,
            offline_expected_qps: 1.0,
            sample_concatenate_permutation: false,
            min_duration_ms: 10_000,
            max_duration_ms: 0,
            min_query_count: 100,
            max_query_count: 0,
            qsl_rng_seed: 0,
            sample_index_rng_seed: 0,
            schedule_rng_seed: 0,
            accuracy_log_rng_seed: 0,
            accuracy_log_probability: 0.0,
            accuracy_log_sampling_target: 0,
            test05: false,
            test05_qsl_rng_seed: 0,
            test05_sample_index_rng_seed: 0,
            test05_schedule_rng_seed: 0,
            print_timestamps: false,
            performance_issue_unique: false,
            performance_issue_same: false,
            performance_issue_same_index: 0,
            performance_sample_count_override: 0,
            accuracy_sample_count_override: 0,
            use_token_latencies: false,
            server_ttft_latency: 100_000_000,
            server_tpot_latency: 100_000_000,
            infer_token_latencies: false,
            token_latency_scaling_factor: 1,
        }
    }
}

/// Settings after the rules of the scenario were applied: what the run really does.
///
/// Derived once per test; the `effective_*` lines of the detail log print it.
#[derive(Debug, Clone, PartialEq)]
#[allow(
    missing_docs,
    reason = "names and meanings are the reference's `effective_*` log keys"
)]
pub struct EffectiveSettings {
    pub scenario: Scenario,
    pub mode: Mode,
    pub samples_per_query: u64,
    pub target_qps: f64,
    pub target_latency_ns: u64,
    pub target_latency_percentile: f64,
    pub max_async_queries: u64,
    pub target_duration_ms: u64,
    pub min_duration_ms: u64,
    pub max_duration_ms: u64,
    pub min_query_count: u64,
    pub max_query_count: u64,
    pub min_sample_count: u64,
    pub performance_sample_count: u64,
    pub accuracy_sample_count: u64,
    /// Everything that passes through unchanged (seeds, issue flags, token limits, …), after
    /// audit and test05 overrides.
    pub requested: TestSettings,
}
