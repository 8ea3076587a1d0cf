//! `prony run` as a user runs it: the real binary against a server that tells the truth, one test
//! per trap that load generators fall into.

use std::time::Duration;

use crate::fake_server::{FakeServer, Script, Trouble};
use crate::real_prony::{SCENARIO, failures, path, prony, run, run_with, trouble};

#[test]
fn a_good_run_is_valid_and_leaves_everything_behind() {
    let server = FakeServer::start(Script::default());
    let ran = run_with(SCENARIO, &server, &[]);
    assert_eq!(ran.code(), 0, "{}\n{}", ran.stdout(), ran.stderr());
    assert!(ran.stdout().contains("test: VALID"), "{}", ran.stdout());
    for file in [
        "run.json",
        "report.html",
        "mlperf_log_summary.txt",
        "mlperf_log_detail.txt",
    ] {
        let size = std::fs::metadata(ran.folder.join(file)).map_or(0, |meta| meta.len());
        assert!(size > 0, "{file} is missing or empty");
    }
    let record = ran.record();
    assert_eq!(record["figures"]["n_completed"], 12);
    assert_eq!(record["figures"]["n_output_tokens"], 60);
    assert_eq!(record["endpoint"]["model"], "fake");
    assert_eq!(server.n_answers(), 12);
}

#[test]
fn every_scenario_runs() {
    for (scenario, settings) in [
        ("MultiStream", "multi_stream_samples_per_query = 4"),
        ("Offline", "offline_expected_qps = 100"),
        (
            "Server",
            "server_target_qps = 200\nserver_target_latency = \"5s\"",
        ),
    ] {
        let text = SCENARIO
            .replace("\"SingleStream\"", &format!("\"{scenario}\""))
            .replace("max_query_count = 12", settings)
            .replace("single_stream_target_latency_percentile = 0.5", "");
        let server = FakeServer::start(Script::default());
        let ran = run_with(&text, &server, &["--set", "min_query_count=12"]);
        let completed = ran.figure("/figures/n_completed");
        assert!(completed >= 12.0, "{scenario}: {}", ran.stdout());
        assert_eq!(ran.figure("/figures/n_failed"), 0.0, "{scenario}");
        assert_eq!(server.n_answers() as f64, completed, "{scenario}");
    }
}

#[test]
fn a_role_only_chunk_does_not_stop_the_ttft_clock() {
    let ttft = Duration::from_millis(40);
    let ran = run(Script {
        role_chunk: true,
        ttft,
        ..Script::default()
    });
    assert!(
        ran.figure("/figures/ttft_ms/min") >= 40.0,
        "{}",
        ran.stdout()
    );
}

#[test]
fn several_tokens_an_event_leave_tpot_right() {
    // 9 tokens in 3 events, 60 ms apart: 120 ms for the 8 tokens after the first is 15 ms each.
    // Counted by events it would be 60 ms. The bounds leave room for a busy machine.
    let gap = Duration::from_millis(60);
    let ran = run(Script {
        tokens: 9,
        tokens_per_event: 3,
        gap,
        ..Script::default()
    });
    let tpot = ran.figure("/figures/tpot_ms/p50");
    assert!((10.0..30.0).contains(&tpot), "{tpot}");
    let itl = ran.figure("/figures/itl_ms/p50");
    assert!((40.0..120.0).contains(&itl), "{itl}");
    assert_eq!(ran.figure("/figures/n_output_tokens"), 108.0);
}

#[test]
fn valid_event_streams_are_read_however_they_are_written() {
    for script in [
        Script {
            crlf: true,
            ..Script::default()
        },
        Script {
            comment: true,
            ..Script::default()
        },
        Script {
            split: true,
            crlf: true,
            ..Script::default()
        },
    ] {
        let ran = run(script.clone());
        assert_eq!(ran.code(), 0, "{script:?}: {}", ran.stdout());
        assert_eq!(ran.figure("/figures/n_output_tokens"), 60.0, "{script:?}");
    }
}

#[test]
fn without_usage_events_are_counted_and_the_record_says_so() {
    let ran = run(Script {
        usage: false,
        ..Script::default()
    });
    assert_eq!(ran.figure("/figures/n_output_tokens"), 60.0);
    assert_eq!(ran.figure("/client/n_counted_by_events"), 12.0);
}

#[test]
fn an_unstreamed_answer_has_no_first_token() {
    let text = SCENARIO.replace("max_tokens = 5", "max_tokens = 5\nstream = false");
    let server = FakeServer::start(Script {
        stream: false,
        ..Script::default()
    });
    let ran = run_with(&text, &server, &[]);
    assert_eq!(ran.code(), 0, "{}", ran.stdout());
    assert_eq!(ran.figure("/figures/n_output_tokens"), 60.0);
    assert!(ran.record()["figures"]["ttft_ms"].is_null());
}

#[test]
fn refusals_are_failures_and_do_not_flatter_the_latencies() {
    let ran = trouble(Trouble::Status503, 3);
    assert_eq!(ran.code(), 3);
    let expected = (
        "status".to_owned(),
        4,
        "HTTP 503: come back later".to_owned(),
    );
    assert_eq!(failures(&ran), [expected]);
    assert_eq!(ran.figure("/figures/latency_ms/n"), 8.0);
    assert!(ran.stdout().contains("test: INVALID"), "{}", ran.stdout());
}

#[test]
fn an_allowed_share_of_failures_leaves_the_run_valid() {
    let server = FakeServer::start(Script {
        trouble: Trouble::Status503,
        every: 6,
        ..Script::default()
    });
    let ran = run_with(
        SCENARIO,
        &server,
        &["--set", "client.max_failed_fraction=0.2"],
    );
    assert_eq!(ran.code(), 0, "{}", ran.stdout());
}

#[test]
fn a_stream_that_ends_early_is_truncated() {
    let ran = trouble(Trouble::Truncate, 4);
    assert_eq!(ran.code(), 3);
    let text = "the stream ended after 1 events".to_owned();
    assert_eq!(failures(&ran), [("truncated".to_owned(), 3, text)]);
    let ran = trouble(Trouble::CloseMidway, 4);
    assert_eq!(failures(&ran)[0].0, "truncated");
}

#[test]
fn a_reset_is_a_failure() {
    let ran = trouble(Trouble::Reset, 4);
    assert_eq!(ran.code(), 3);
    let found = failures(&ran);
    let n: u64 = found.iter().map(|(_, count, _)| count).sum();
    assert_eq!(n, 3, "{found:?}");
    let is_expected = |kind: &str| kind == "connection" || kind == "truncated";
    assert!(
        found.iter().all(|(kind, ..)| is_expected(kind)),
        "{found:?}"
    );
}

#[test]
fn an_error_event_is_a_failure() {
    let ran = trouble(Trouble::ErrorEvent, 6);
    assert_eq!(
        failures(&ran),
        [("error event".to_owned(), 2, "engine died".to_owned())]
    );
}

#[test]
fn what_is_not_an_answer_is_malformed() {
    let found = failures(&trouble(Trouble::Html, 6));
    assert_eq!((found[0].0.as_str(), found[0].1), ("malformed", 2));
    assert!(found[0].2.contains("<html>Welcome</html>"), "{found:?}");
    let found = failures(&trouble(Trouble::BadJson, 6));
    assert_eq!((found[0].0.as_str(), found[0].1), ("malformed", 2));
}

#[test]
fn a_server_that_never_answers_ends_in_a_timeout() {
    let server = FakeServer::start(Script {
        trouble: Trouble::Silence,
        every: 12,
        ..Script::default()
    });
    let ran = run_with(SCENARIO, &server, &["--set", "client.timeout=300ms"]);
    assert_eq!(ran.code(), 3);
    let text = "no whole answer within 0.3 s".to_owned();
    assert_eq!(failures(&ran), [("timeout".to_owned(), 1, text)]);
}

#[test]
fn the_first_refusal_is_shown_with_its_body() {
    let ran = trouble(Trouble::NoSuchModel, 1);
    assert_eq!(ran.code(), 3);
    assert!(
        ran.stdout().contains("The model `x` does not exist"),
        "{}",
        ran.stdout()
    );
}

#[test]
fn an_absent_endpoint_is_one_line_and_exit_code_3() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("test.toml");
    std::fs::write(&file, SCENARIO).expect("written");
    let folder = dir.path().join("out");
    let output = prony(&["run", path(&file), "--out", path(&folder)]);
    assert_eq!(output.status.code(), Some(3));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(
        text.contains("http://127.0.0.1:1: Connection refused"),
        "{text}"
    );
}

#[test]
fn scenario_files_are_refused_with_place_and_key() {
    let server = FakeServer::start(Script::default());
    for (from, to, expected) in [
        (
            "max_tokens",
            "max_token",
            "7:1: generation.max_token: unknown key; did you mean",
        ),
        (
            "\"0s\"",
            "5",
            "12:1: settings.min_duration = 5: expected a duration with its unit",
        ),
        ("[client]", "[client", "8:"),
    ] {
        let ran = run_with(&SCENARIO.replace(from, to), &server, &[]);
        assert_eq!(ran.code(), 2, "{}", ran.stderr());
        assert!(
            ran.stderr().contains(&format!("test.toml:{expected}")),
            "{}",
            ran.stderr()
        );
        assert!(!ran.folder.exists(), "nothing was made");
    }
    assert_eq!(server.n_answers(), 0);
}

#[test]
fn earlier_results_are_not_overwritten_without_force() {
    let server = FakeServer::start(Script::default());
    let ran = run_with(SCENARIO, &server, &[]);
    let before = std::fs::read_to_string(ran.folder.join("run.json")).expect("a record");
    let file = ran.folder.with_file_name("test.toml");
    let url = server.url();
    let args = [
        "run",
        path(&file),
        "--endpoint",
        &url,
        "--out",
        path(&ran.folder),
    ];
    let refused = prony(&args);
    assert_eq!(refused.status.code(), Some(2));
    let after = std::fs::read_to_string(ran.folder.join("run.json")).expect("a record");
    assert_eq!(before, after);
    let forced = prony(&[&args[..], &["--force"]].concat());
    assert_eq!(
        forced.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&forced.stderr)
    );
}

#[test]
fn a_quick_run_says_so_everywhere() {
    let server = FakeServer::start(Script::default());
    let ran = run_with(SCENARIO, &server, &["--quick"]);
    assert!(
        ran.stdout().contains("not official: --quick"),
        "{}",
        ran.stdout()
    );
    let record = ran.record();
    assert_eq!(record["unofficial_because"][0], "--quick shortened the run");
    let page = std::fs::read_to_string(ran.folder.join("report.html")).expect("a page");
    assert!(page.contains("--quick shortened the run"));
}

#[test]
fn assertions_decide_the_exit_code_and_are_in_the_record() {
    let server = FakeServer::start(Script {
        ttft: Duration::from_millis(20),
        ..Script::default()
    });
    let holds = ["--assert", "ttft.min >= 20ms", "--assert", "n_failed <= 0"];
    let ran = run_with(SCENARIO, &server, &holds);
    assert_eq!(ran.code(), 0, "{}", ran.stdout());
    let fails = [&holds[..], &["--assert", "latency.p99 < 20ms"]].concat();
    let ran = run_with(SCENARIO, &server, &fails);
    assert_eq!(ran.code(), 1, "{}", ran.stdout());
    assert!(
        ran.stdout()
            .contains("assertion latency.p99 < 20ms: FAILS ("),
        "{}",
        ran.stdout()
    );
    let record = ran.record();
    let judged = record["verdict"]["assertions"].as_array().expect("a list");
    let holds: Vec<_> = judged.iter().map(|a| a["holds"].as_bool()).collect();
    assert_eq!(holds, [Some(true), Some(true), Some(false)]);
    let page = std::fs::read_to_string(ran.folder.join("report.html")).expect("a page");
    assert!(page.contains("assertion latency.p99 &lt; 20ms: FAILS ("));
    let n_before = server.n_answers();
    let ran = run_with(SCENARIO, &server, &["--assert", "ttft.p98 < 1s"]);
    assert_eq!(ran.code(), 2, "{}", ran.stderr());
    assert!(ran.stderr().contains("ttft.p98: write FIGURE.STATISTIC"));
    assert_eq!(server.n_answers(), n_before);
}
