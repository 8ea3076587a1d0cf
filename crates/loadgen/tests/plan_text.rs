//! Refusals, the plan and the explanation as people read them.

use std::path::Path;

use expect_test::{Expect, expect};
use prony_loadgen::conf::Configured;
use prony_loadgen::conf::apply::Target;
use prony_loadgen::conf::keys::ConfKind;
use prony_loadgen::conf::mlperf::Round;
use prony_loadgen::plan::{RunPlan, explain, text};
use prony_loadgen::rng::StdlibFlavour;
use prony_loadgen::scenario::Scenario;
use prony_loadgen::settings::validate::validate_within;
use prony_loadgen::settings::{EffectiveSettings, TestSettings};

const GIB: u64 = 1 << 30;

fn configured(scenario: Scenario, assignments: &[&str]) -> Configured {
    let mut configured = Configured::new(scenario);
    for assignment in assignments {
        configured.set(assignment).expect("a good assignment");
    }
    configured
}

fn check_refused(assignments: &[&str], (total, perf): (u64, u64), expected: Expect) {
    let settings = configured(Scenario::SingleStream, assignments).settings;
    let got = match validate_within(&settings, total, perf, 4 * GIB) {
        Ok(()) => "accepted".to_owned(),
        Err(error) => error.to_string(),
    };
    expected.assert_eq(&got);
}

#[test]
fn every_problem_at_once() {
    check_refused(&[], (10, 10), expect!["accepted"]);
    check_refused(
        &[
            "scenario=Server",
            "server_target_qps=NaN",
            "server_target_latency_percentile=99",
            "performance_issue_same=1",
            "performance_issue_unique=1",
            "performance_issue_same_index=10",
            "accuracy_log_probability=-1",
        ],
        (10, 10),
        expect![[r#"
            server_target_qps = NaN: above 0, at most 1e9 per second
            server_target_latency_percentile = 99: above 0 and below 1 (0.99 is the 99th percentile)
            performance_issue_unique = true: false while performance_issue_same is true
            performance_issue_same_index = 10: below 10, the samples in memory
            accuracy_log_probability = -1: 0 or more, finite"#]],
    );
    check_refused(
        &[
            "scenario=MultiStream",
            "multi_stream_samples_per_query=0",
            "min_query_count=0",
            "min_duration_ms=0",
            "multi_stream_expected_latency_ns=0",
        ],
        (0, 0),
        expect![[r#"
            total sample count = 0: from 1 to 4294967295 samples
            performance sample count = 0: at least 1 sample in memory at once
            multi_stream_expected_latency_ns = 0: at least 1 ns, finite
            multi_stream_samples_per_query = 0: at least 1
            min_query_count = 0: at least 1 when min_duration_ms is 0"#]],
    );
}

/// The index was held against the count that fits in memory, not against what is loaded: a set of
/// an accuracy run can be shorter, and so can the whole data set. Planning panicked.
#[test]
fn an_index_beyond_the_shortest_set() {
    for (mode, (total, perf), expected) in [
        (
            "PerformanceOnly",
            (10, 100),
            expect!["performance_issue_same_index = 10: below 10, the samples in memory"],
        ),
        // Sets of 12, 12 and 1.
        (
            "SubmissionRun",
            (25, 12),
            expect!["performance_issue_same_index = 10: below 1, the samples in memory"],
        ),
        ("PerformanceOnly", (25, 12), expect!["accepted"]),
    ] {
        let mode = format!("mode={mode}");
        let same = [
            "performance_issue_same=1",
            "performance_issue_same_index=10",
        ];
        check_refused(&[&mode, same[0], same[1]], (total, perf), expected);
    }
}

/// The reference ends in an exception; here start positions were gone through again, and samples
/// that were to be unique came twice.
#[test]
fn unique_queries_in_whole_passes() {
    let both = [
        "sample_concatenate_permutation=1",
        "performance_issue_unique=1",
    ];
    let check = |more: [&str; 2], expected| {
        check_refused(&[both[0], both[1], more[0], more[1]], (10, 10), expected);
    };
    check(
        ["scenario=MultiStream", "multi_stream_samples_per_query=2"],
        expect![[r#"
            sample_concatenate_permutation = true: false in MultiStream with unique samples"#]],
    );
    check(
        ["scenario=MultiStream", "multi_stream_samples_per_query=1"],
        expect!["accepted"],
    );
    check(
        ["scenario=SingleStream", "min_query_count=3"],
        expect!["accepted"],
    );
}

/// With no permutation to follow, planning panicked; Offline sent a query of no samples.
#[test]
fn a_count_of_zero_where_the_duration_gives_nothing() {
    let zero = ["min_query_count=0", "min_duration_ms=500"];
    let check = |more: [&str; 2], expected| {
        check_refused(&[zero[0], zero[1], more[0], more[1]], (10, 10), expected);
    };
    check(
        ["scenario=Server", "sample_concatenate_permutation=0"],
        expect!["accepted"],
    );
    check(
        ["scenario=Server", "sample_concatenate_permutation=1"],
        expect!["min_query_count = 0: at least 1 with sample_concatenate_permutation"],
    );
    check(
        ["scenario=Offline", "offline_expected_qps=2"],
        expect!["accepted"],
    );
    check(
        ["scenario=Offline", "offline_expected_qps=1"],
        expect!["min_query_count = 0: at least 1 when rate and duration give no sample"],
    );
}

#[test]
fn rates_that_plan_without_end() {
    for rate in ["0", "-5", "inf", "-inf", "NaN", "2e9"] {
        for (scenario, name) in [
            ("Server", "server_target_qps"),
            ("Offline", "offline_expected_qps"),
        ] {
            let assignments = [format!("scenario={scenario}"), format!("{name}={rate}")];
            let assignments: Vec<&str> = assignments.iter().map(String::as_str).collect();
            let settings = configured(Scenario::SingleStream, &assignments).settings;
            let error = validate_within(&settings, 10, 10, GIB)
                .expect_err(rate)
                .to_string();
            assert!(
                error.starts_with(name) && error.ends_with("at most 1e9 per second"),
                "{error}"
            );
        }
    }
}

#[test]
fn sizes_that_do_not_fit() {
    for (assignments, expected) in [
        (
            &[
                "scenario=Server",
                "server_target_qps=1e6",
                "min_duration_ms=3600000",
            ][..],
            // 3600000001 samples of 12 bytes of plan, 40 + 54 of records and results.
            "min_duration_ms = 3600000: \
             3600000001 samples need 355.4 GiB, this machine has 4.0 GiB",
        ),
        (
            // Of 4 + 24 + 54 bytes.
            &["min_query_count=200000000"],
            "min_query_count = 200000000: \
             200000000 samples need 15.3 GiB, this machine has 4.0 GiB",
        ),
        (
            &["scenario=Server", "server_target_qps=1e-9"],
            "min_query_count = 100: a schedule of 3169 years is too long",
        ),
    ] {
        let settings = configured(Scenario::SingleStream, assignments).settings;
        let error = validate_within(&settings, 10, 10, 4 * GIB).expect_err(expected);
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn plan_of_a_small_server_run() {
    let configured = configured(
        Scenario::Server,
        &[
            "min_query_count=12",
            "min_duration_ms=20",
            "max_query_count=5",
            "server_target_qps=400",
        ],
    );
    let plan = RunPlan::new(&configured.settings, 25, 10, StdlibFlavour::Gcc11).expect("sound");
    let mut out = Vec::new();
    text::write_text(&plan, &mut out).expect("memory takes everything");
    let text = String::from_utf8(out).expect("UTF-8");
    let head = text
        .split_once("effective settings")
        .expect("a list follows")
        .0;
    expect![[r#"
        scenario     Server, PerformanceOnly
        data set     25 samples, 10 in memory at once

        set 1 of 1 (performance)
          loaded     10 samples: 0, 2, 1, 5, 9, 8, 4, 7, …
          queries    12 planned, 5 expected to be issued, samples in each: 1
          ends when  all 12 queries are issued and answered; or 5 queries, which makes it INVALID
          rate       400 queries/s asked for, 396.312 drawn
          takes      0.016 s
          memory     0.0 MiB of plan, 0.0 MiB of records
          query 0    due              0 ns  samples 0
          query 1    due        2246400 ns  samples 3
          query 2    due        6895410 ns  samples 1
          query 3    due       11774273 ns  samples 5
          query 4    due       16471683 ns  samples 9
          query 5    due       18914199 ns  samples 7
          query 6    due       20127019 ns  samples 6
          query 7    due       21009916 ns  samples 8

        expected run time  0.016 s
        expected memory    0.0 MiB

    "#]]
    .assert_eq(head);
}

#[test]
fn explanation_names_file_and_line() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("user.conf");
    std::fs::write(
        &path,
        "# mine\n\nbert.Server.target_qps = 7\n*.*.mode = 9\n",
    )
    .expect("written");
    let target = Target {
        model: "bert",
        scenario: Scenario::Server,
    };
    let mut configured = Configured::new(Scenario::Server);
    configured.from_config(&path, ConfKind::User, Round::CURRENT, target);
    configured.set("ttft_latency=5").expect("a good assignment");
    let (eff, _) = EffectiveSettings::derive(&configured.settings, 10_833, 10_833);
    let mut out = Vec::new();
    explain::write_text(&configured, &eff, false, &mut out).expect("memory takes everything");
    let text = String::from_utf8(out).expect("UTF-8");
    let text = text.replace(&dir.path().display().to_string(), "DIR");
    let wanted = [
        "server_target_qps",
        "target_qps",
        "server_target_latency_ns",
        "min_sample_count",
    ];
    let lines: Vec<String> = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .filter(|line| {
            let name = line.split(' ').next().unwrap_or_default();
            wanted.contains(&name) || line.contains("ttft") || line.starts_with("note")
        })
        .collect();
    expect![[r#"
        server_target_qps 7 queries/s DIR/user.conf:3: bert.Server.target_qps = 7
        server_target_latency_ns 130000000 ns mlperf.conf v6.1: bert.Server.target_latency = 130
        server_ttft_latency 5 ns given by the caller (--set, --scenario)
        target_qps 7 server_target_qps: DIR/user.conf:3: bert.Server.target_qps = 7
        min_sample_count 100 scenario rule: min_query_count * samples_per_query
        server_ttft_latency 5 given by the caller (--set, --scenario)
        note: Invalid value passed to Mode key in config."#]]
    .assert_eq(&lines.join("\n"));
}

/// The seeds are those set before the audit file was read, the mode is performance.
#[test]
fn audit_file_then_test_05() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("audit.config");
    let lines = "*.*.mode = 1\nbert.*.min_query_count = 5\n*.Server.min_duration = 9\n";
    std::fs::write(&path, lines).expect("written");
    let mut configured = configured(
        Scenario::Server,
        &[
            "test05=1",
            "test05_qsl_rng_seed=11",
            "test05_sample_index_rng_seed=12",
            "test05_schedule_rng_seed=13",
        ],
    );
    configured.apply_at_start(Some(&path));
    let got = &configured.settings;
    let expected = TestSettings {
        scenario: Scenario::Server,
        min_duration_ms: 9,
        qsl_rng_seed: 11,
        sample_index_rng_seed: 12,
        schedule_rng_seed: 13,
        test05: true,
        test05_qsl_rng_seed: 11,
        test05_sample_index_rng_seed: 12,
        test05_schedule_rng_seed: 13,
        ..TestSettings::default()
    };
    assert_eq!(*got, expected);
    let notes: Vec<&str> = configured
        .notes
        .iter()
        .map(|note| note.text.as_str())
        .collect();
    let found = format!(
        "Found Audit Config file ({0}). Overriding TestSettings from {0} file.",
        path.display()
    );
    assert_eq!(
        notes,
        [
            found.as_str(),
            "Test05 flag detected Overriding random seeds"
        ]
    );
    assert_eq!(configured.origin("mode").to_string(), "test05 override");
}

/// No audit file, nothing happens: the usual case of a run.
#[test]
fn missing_audit_file_is_no_error() {
    let mut configured = configured(Scenario::Server, &[]);
    configured.apply_at_start(Some(Path::new("no/such/audit.config")));
    assert_eq!(configured.notes, []);
}
