//! The effective settings as a list: key, value, and the rule each value follows.
//!
//! Keys and order are those of the `effective_*` lines of the detail log, which writes them itself;
//! this list is for people and programs that ask what a run would do.

use crate::scenario::Scenario;
use crate::settings::fields::{Value, field};
use crate::settings::{EffectiveSettings, TestSettings};

/// What an effective value follows from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// It is this field's value.
    Field(&'static str),
    /// What the scenario makes of other values, in words.
    Derived(&'static str),
}

/// One effective value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effective {
    /// Log key without `effective_`.
    pub key: &'static str,
    /// The value.
    pub value: Value,
    /// Where it comes from.
    pub rule: Rule,
}

use Rule::{Derived, Field};

/// Every effective value, in the detail log's order, then the token settings.
#[must_use]
pub fn effective_values(eff: &EffectiveSettings) -> Vec<Effective> {
    let mut list = vec![
        passed("scenario", "scenario", &eff.requested),
        passed("test_mode", "mode", &eff.requested),
    ];
    list.extend(paced(eff));
    list.extend(counted(eff));
    for name in [
        "qsl_rng_seed",
        "sample_index_rng_seed",
        "schedule_rng_seed",
        "accuracy_log_rng_seed",
        "accuracy_log_probability",
        "accuracy_log_sampling_target",
        "print_timestamps",
        "performance_issue_unique",
        "performance_issue_same",
        "performance_issue_same_index",
    ] {
        list.push(passed(name, name, &eff.requested));
    }
    list.extend(sampled(eff));
    for name in [
        "sample_concatenate_permutation",
        "use_token_latencies",
        "server_ttft_latency",
        "server_tpot_latency",
    ] {
        list.push(passed(name, name, &eff.requested));
    }
    list
}

fn passed(key: &'static str, name: &'static str, requested: &TestSettings) -> Effective {
    let value = field(name).expect("the name of a field").get(requested);
    Effective {
        key,
        value,
        rule: Field(name),
    }
}

fn entry(key: &'static str, value: Value, rule: Rule) -> Effective {
    Effective { key, value, rule }
}

fn paced(eff: &EffectiveSettings) -> [Effective; 6] {
    let unique = eff.requested.performance_issue_unique;
    let samples_per_query = match eff.scenario {
        Scenario::MultiStream => Field("multi_stream_samples_per_query"),
        Scenario::SingleStream | Scenario::Server => Derived("1 in this scenario"),
        Scenario::Offline if unique => {
            Derived("Offline with performance_issue_unique: performance_sample_count")
        }
        Scenario::Offline => Derived(
            "Offline: the larger of min_query_count and 1.1 * min_duration * offline_expected_qps",
        ),
    };
    let (target_qps, percentile) = match eff.scenario {
        Scenario::SingleStream => (
            Derived("1e9 / single_stream_expected_latency_ns"),
            Field("single_stream_target_latency_percentile"),
        ),
        Scenario::MultiStream => (
            Derived("1e9 / multi_stream_expected_latency_ns"),
            Field("multi_stream_target_latency_percentile"),
        ),
        Scenario::Server => (
            Field("server_target_qps"),
            Field("server_target_latency_percentile"),
        ),
        Scenario::Offline => (
            Field("offline_expected_qps"),
            Derived("fixed in Offline, not used"),
        ),
    };
    let server = eff.scenario == Scenario::Server;
    let if_server = |name| {
        if server {
            Field(name)
        } else {
            Derived("used in Server only")
        }
    };
    let duration = match eff.scenario {
        Scenario::Offline => Derived("Offline sends everything at once"),
        _ => Field("min_duration_ms"),
    };
    let (qps, share) = (
        Value::Real(eff.target_qps),
        Value::Real(eff.target_latency_percentile),
    );
    let latency = Value::Count(eff.target_latency_ns);
    let max_async = Value::Count(eff.max_async_queries);
    let max_async_rule = if_server("server_max_async_queries");
    [
        entry(
            "samples_per_query",
            Value::Count(eff.samples_per_query),
            samples_per_query,
        ),
        entry("target_qps", qps, target_qps),
        entry(
            "target_latency_ns",
            latency,
            if_server("server_target_latency_ns"),
        ),
        entry("target_latency_percentile", share, percentile),
        entry("max_async_queries", max_async, max_async_rule),
        entry(
            "target_duration_ms",
            Value::Count(eff.target_duration_ms),
            duration,
        ),
    ]
}

fn counted(eff: &EffectiveSettings) -> [Effective; 5] {
    let r = &eff.requested;
    let whole_passes = r.sample_concatenate_permutation;
    let min_query_count = match eff.scenario {
        Scenario::Offline => Derived("Offline: one query"),
        Scenario::SingleStream if whole_passes => Derived(
            "the larger of min_query_count and 2 * min_duration / expected latency, \
             padded to whole passes over the data set",
        ),
        _ => Field("min_query_count"),
    };
    [
        entry(
            "min_duration_ms",
            Value::Count(eff.min_duration_ms),
            Field("min_duration_ms"),
        ),
        entry(
            "max_duration_ms",
            Value::Count(eff.max_duration_ms),
            Field("max_duration_ms"),
        ),
        entry(
            "min_query_count",
            Value::Count(eff.min_query_count),
            min_query_count,
        ),
        entry(
            "max_query_count",
            Value::Count(eff.max_query_count),
            Field("max_query_count"),
        ),
        entry(
            "min_sample_count",
            Value::Count(eff.min_sample_count),
            Derived("min_query_count * samples_per_query"),
        ),
    ]
}

fn sampled(eff: &EffectiveSettings) -> [Effective; 2] {
    let or_data_set = |override_count: u64, name: &'static str, data_set: &'static str| {
        if override_count == 0 {
            Derived(data_set)
        } else {
            Field(name)
        }
    };
    let r = &eff.requested;
    let (in_memory, total) = (eff.performance_sample_count, eff.accuracy_sample_count);
    [
        entry(
            "performance_sample_count",
            Value::Count(in_memory),
            or_data_set(
                r.performance_sample_count_override,
                "performance_sample_count_override",
                "samples of the data set that fit in memory",
            ),
        ),
        entry(
            "accuracy_sample_count",
            Value::Count(total),
            or_data_set(
                r.accuracy_sample_count_override,
                "accuracy_sample_count_override",
                "samples of the data set",
            ),
        ),
    ]
}
