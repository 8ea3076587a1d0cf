//! Which key of a configuration file sets which field, how it is read, and in which kind of file.
//!
//! The reference is not uniform here: some switches are on for 1 only, others for anything but 0;
//! some latencies may have fractions of a millisecond, others are cut to whole ones.

use crate::scenario::Scenario;

/// Where configuration comes from; the numbers are the reference's `conf_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ConfKind {
    /// The rules of the round, compiled in: 0.
    Mlperf,
    /// The submitter's `user.conf`: 1.
    User,
    /// A compliance test's `audit.config`: 2.
    Audit,
}

/// How the text of a value becomes the field's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// Unsigned integer.
    Count,
    /// Unsigned integer, of which the low 32 bits act, as a signed number.
    Count32,
    /// Real number.
    Real,
    /// Percent; the field is a fraction.
    Percent,
    /// Milliseconds with fractions; the field is nanoseconds as a real number.
    RealMs,
    /// Whole milliseconds; the field is whole nanoseconds.
    WholeMs,
    /// On unless 0.
    NotZero,
    /// On if 1, off for anything else.
    One,
    /// 0 SubmissionRun, 1 AccuracyOnly, 2 PerformanceOnly, 3 FindPeakPerformance.
    Mode,
}

/// One key.
#[derive(Debug, Clone, Copy)]
pub struct KeyRule {
    /// Last part of `model.scenario.key`.
    pub key: &'static str,
    /// Field of `TestSettings` it sets.
    pub field: &'static str,
    /// The scenario it is always looked up under; else the run's.
    pub under: Option<Scenario>,
    /// How the value is read.
    pub reading: Reading,
    /// Read from the round's rules only.
    pub mlperf_only: bool,
    /// The switch that must be on already for this key to be read.
    pub only_if: Option<&'static str>,
}

const fn any(key: &'static str, field: &'static str, reading: Reading) -> KeyRule {
    KeyRule {
        key,
        field,
        under: None,
        reading,
        mlperf_only: false,
        only_if: None,
    }
}

const fn same(key: &'static str, reading: Reading) -> KeyRule {
    any(key, key, reading)
}

const fn under(
    scenario: Scenario,
    key: &'static str,
    field: &'static str,
    reading: Reading,
) -> KeyRule {
    let rule = any(key, field, reading);
    KeyRule {
        under: Some(scenario),
        ..rule
    }
}

const fn seed(key: &'static str) -> KeyRule {
    let rule = same(key, Count);
    KeyRule {
        mlperf_only: true,
        ..rule
    }
}

const fn rules_only(rule: KeyRule) -> KeyRule {
    KeyRule {
        mlperf_only: true,
        ..rule
    }
}

const fn if_on(switch: &'static str, rule: KeyRule) -> KeyRule {
    KeyRule {
        only_if: Some(switch),
        ..rule
    }
}

use Reading::{Count, Count32, NotZero, One, Percent, Real, RealMs, WholeMs};
use Scenario::{MultiStream, Offline, Server, SingleStream};

/// Every key, in the order they are applied: a switch before the keys it guards.
pub const KEY_RULES: &[KeyRule] = &[
    same("mode", Reading::Mode),
    under(
        SingleStream,
        "target_latency",
        "single_stream_expected_latency_ns",
        RealMs,
    ),
    under(
        SingleStream,
        "target_latency_percentile",
        "single_stream_target_latency_percentile",
        Percent,
    ),
    under(
        MultiStream,
        "target_latency",
        "multi_stream_expected_latency_ns",
        RealMs,
    ),
    under(
        MultiStream,
        "target_latency_percentile",
        "multi_stream_target_latency_percentile",
        Percent,
    ),
    under(
        MultiStream,
        "samples_per_query",
        "multi_stream_samples_per_query",
        Count,
    ),
    under(Server, "target_qps", "server_target_qps", Real),
    under(
        Server,
        "target_latency",
        "server_target_latency_ns",
        WholeMs,
    ),
    under(
        Server,
        "target_latency_percentile",
        "server_target_latency_percentile",
        Percent,
    ),
    under(
        Server,
        "coalesce_queries",
        "server_coalesce_queries",
        NotZero,
    ),
    under(
        Server,
        "max_async_queries",
        "server_max_async_queries",
        Count32,
    ),
    under(Offline, "target_qps", "offline_expected_qps", Real),
    same("sample_concatenate_permutation", One),
    any("min_duration", "min_duration_ms", Count),
    any("max_duration", "max_duration_ms", Count),
    same("min_query_count", Count),
    same("max_query_count", Count),
    seed("qsl_rng_seed"),
    seed("sample_index_rng_seed"),
    seed("schedule_rng_seed"),
    same("accuracy_log_rng_seed", Count),
    rules_only(same("accuracy_log_probability", Percent)),
    same("accuracy_log_sampling_target", Count),
    rules_only(same("test05", One)),
    seed("test05_qsl_rng_seed"),
    seed("test05_sample_index_rng_seed"),
    seed("test05_schedule_rng_seed"),
    same("print_timestamps", NotZero),
    same("performance_issue_unique", NotZero),
    same("performance_issue_same", NotZero),
    same("performance_issue_same_index", Count),
    same("performance_sample_count_override", Count),
    same("accuracy_sample_count_override", Count),
    same("use_token_latencies", One),
    if_on(
        "use_token_latencies",
        under(Server, "ttft_latency", "server_ttft_latency", WholeMs),
    ),
    if_on(
        "use_token_latencies",
        under(Server, "tpot_latency", "server_tpot_latency", WholeMs),
    ),
    same("infer_token_latencies", One),
    if_on(
        "infer_token_latencies",
        same("token_latency_scaling_factor", Count),
    ),
];

/// Keys the reference's own mlperf.conf has but nothing reads.
pub const KEYS_READ_BY_NOTHING: [&str; 1] = ["target_duration"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::fields::field;

    #[test]
    fn every_rule_names_a_field() {
        for rule in KEY_RULES {
            assert!(field(rule.field).is_some(), "{}", rule.field);
            assert!(
                rule.only_if.is_none_or(|switch| field(switch).is_some()),
                "{}",
                rule.key
            );
        }
    }
}
