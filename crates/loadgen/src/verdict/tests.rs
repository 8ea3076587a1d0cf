//! Verdicts, reasons and advice, as text.

use super::*;
use crate::scenario::Mode;
use crate::settings::TestSettings;
use expect_test::{Expect, expect};

fn settings(scenario: Scenario) -> EffectiveSettings {
    EffectiveSettings {
        scenario,
        mode: Mode::PerformanceOnly,
        samples_per_query: 1,
        target_qps: 100.0,
        target_latency_ns: 10_000_000,
        target_latency_percentile: 0.9,
        max_async_queries: 0,
        target_duration_ms: 0,
        min_duration_ms: 1000,
        max_duration_ms: 0,
        min_query_count: 100,
        max_query_count: 0,
        min_sample_count: 100,
        performance_sample_count: 64,
        accuracy_sample_count: 64,
        requested: TestSettings {
            scenario,
            ..TestSettings::default()
        },
    }
}

/// 100 samples over `seconds`, `n_slow` of them at 20 ms, the others at 5 ms.
fn run_of(seconds: i64, n_slow: usize) -> PerformanceData {
    let latency = |i| if i < n_slow { 20_000_000 } else { 5_000_000 };
    PerformanceData {
        queries_issued: 100,
        sample_latencies_ns: (0..100).map(latency).collect(),
        due_ns: (0..100).map(|i| i * seconds * 10_101_010).collect(),
        max_latency_ns: 20_000_000,
        final_query_scheduled_ns: seconds * 1_000_000_000,
        final_query_issued_ns: seconds * 1_000_000_000,
        final_query_all_samples_done_ns: seconds * 1_000_000_000,
        ..PerformanceData::default()
    }
}

fn check(eff: &EffectiveSettings, data: &PerformanceData, counts: OutcomeCounts, expected: Expect) {
    let verdict = Verdict::judge(&Metrics::compute(data, eff), data, eff, counts);
    let (official, ours) = (verdict.official_validity, verdict.validity);
    let mut text = format!("official {official}, ours {ours}\n");
    for reason in &verdict.reasons {
        text.push_str(&format!("because {reason}\n"));
    }
    for recommendation in &verdict.recommendations {
        text.push_str(&format!("{recommendation:?}\n"));
    }
    for advice in &verdict.advice {
        text.push_str(&wrapped(&format!("advice: {advice}")));
    }
    expected.assert_eq(&text);
}

/// Broken before the word that would pass column 76; the rest indented.
fn wrapped(text: &str) -> String {
    let mut lines = String::new();
    let mut column = 0;
    for word in text.split(' ') {
        if column + word.len() > 76 {
            lines.push_str("\n   ");
            column = 3;
        }
        lines.push_str(if column == 0 { "" } else { " " });
        lines.push_str(word);
        column += word.len() + 1;
    }
    lines + "\n"
}

const CLEAN: OutcomeCounts = OutcomeCounts {
    n_errors: 0,
    n_failed: 0,
    n_lost: 0,
};

#[test]
fn clean_server_run_says_how_far_the_target_could_rise() {
    check(
        &settings(Scenario::Server),
        &run_of(1, 0),
        CLEAN,
        expect![[r#"
            official VALID, ours VALID
            advice: samples/s: requested 100.00, drawn 99.00 (-1.00 %), completed 99.00
            advice: target could rise to about 200 samples/s (replay of this run, each
                answer keeping the server busy as long as it did; more if it gains from
                batching)
        "#]],
    );
}

#[test]
fn errors_count_in_our_verdict_only() {
    let counts = OutcomeCounts {
        n_errors: 1,
        n_failed: 2,
        n_lost: 1,
    };
    check(
        &settings(Scenario::Server),
        &run_of(1, 1),
        counts,
        expect![[r#"
            official VALID, ours INVALID
            because 1 error logged
            because 2 samples failed
            because 1 sample never answered
            advice: samples/s: requested 100.00, drawn 99.00 (-1.00 %), completed 99.00
            advice: target could rise to about 161 samples/s (replay of this run, each
                answer keeping the server busy as long as it did; more if it gains from
                batching)
        "#]],
    );
}

#[test]
fn too_many_slow_for_so_few_queries() {
    check(
        &settings(Scenario::Server),
        &run_of(1, 6),
        CLEAN,
        expect![[r#"
            official INVALID, ours INVALID
            because 100 queries are too few to trust the tail
            advice: samples/s: requested 100.00, drawn 99.00 (-1.00 %), completed 99.00
            advice: would pass with 42 more queries if all met the limit; at the share
                over it so far, with about 205 more (about 2 s)
        "#]],
    );
}

#[test]
fn a_latency_at_the_limit_is_within_it() {
    let data = run_of(1, 0);
    let at_limit = EffectiveSettings {
        target_latency_ns: 5_000_000,
        ..settings(Scenario::Server)
    };
    check(
        &at_limit,
        &data,
        CLEAN,
        expect![[r#"
            official VALID, ours VALID
            advice: samples/s: requested 100.00, drawn 99.00 (-1.00 %), completed 99.00
            advice: target could rise to about 200 samples/s (replay of this run, each
                answer keeping the server busy as long as it did; more if it gains from
                batching)
        "#]],
    );
    let below = EffectiveSettings {
        target_latency_ns: 4_999_999,
        ..at_limit
    };
    let metrics = Metrics::compute(&data, &below);
    let verdict = Verdict::judge(&metrics, &data, &below, CLEAN);
    assert_eq!(verdict.conditions.performance_constraints, Some(false));
}

#[test]
fn slow_beyond_repair() {
    check(
        &settings(Scenario::Server),
        &run_of(1, 30),
        CLEAN,
        expect![[r#"
            official INVALID, ours INVALID
            because latency 20000000 ns at percentile 90, limit 10000000 ns
            because 100 queries are too few to trust the tail
            ReduceTargetQps
            advice: samples/s: requested 100.00, drawn 99.00 (-1.00 %), completed 99.00
            advice: would pass with 347 more queries if all met the limit; with 30.000 %
                over it and 10.000 % allowed, a longer run alone will not pass
        "#]],
    );
}

#[test]
fn short_runs_name_the_setting_that_was_off() {
    let data = PerformanceData {
        queries_issued: 60,
        ..run_of(0, 0)
    };
    for (scenario, expected) in [
        (
            Scenario::SingleStream,
            expect![[r#"
                official INVALID, ours INVALID
                because lasted 0 s, min_duration 1 s
                because 60 queries with 100 samples, at least 100 with 100 asked
                because 60 queries are too few to trust the tail
                DecreaseExpectedLatency
                ExitedEarly
                advice: would pass with 4 more queries
                advice: single_stream_expected_latency_ns of about 5000000 would generate
                    enough queries
            "#]],
        ),
        (
            Scenario::Server,
            expect![[r#"
                official INVALID, ours INVALID
                because lasted 0 s, min_duration 1 s
                because 60 queries with 100 samples, at least 100 with 100 asked
                IncreaseTargetQps
                ExitedEarly
            "#]],
        ),
        (
            Scenario::Offline,
            expect![[r#"
                official INVALID, ours INVALID
                because lasted 0.02 s, min_duration 1 s
                because 60 queries with 100 samples, at least 100 with 100 asked
                IncreaseExpectedQps
                ExitedEarly
                advice: offline_expected_qps of about 5000.000000 would make the query long
                    enough
            "#]],
        ),
    ] {
        check(&settings(scenario), &data, CLEAN, expected);
    }
}

#[test]
fn a_growing_queue_is_named() {
    let data = PerformanceData {
        final_query_all_samples_done_ns: 2_000_000_000,
        sample_latencies_ns: (1..=100).map(|i| i * 100_000).collect(),
        ..run_of(1, 0)
    };
    check(
        &settings(Scenario::Server),
        &data,
        CLEAN,
        expect![[r#"
            official VALID, ours VALID
            advice: samples/s: requested 100.00, drawn 99.00 (-1.00 %), completed 49.50
            advice: completed 49.50 samples/s of 99.00 scheduled, the last quarter took
                6.8 times as long as the first: the queue was growing
        "#]],
    );
}
