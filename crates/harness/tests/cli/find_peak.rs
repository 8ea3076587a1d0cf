//! `prony find-peak` as a user runs it.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use crate::fake_server::{FakeServer, Script};
use serde_json::Value;

/// Trials of a tenth of a second.
const SCENARIO: &str = r#"
name = "peak"
[endpoint]
url = "http://127.0.0.1:1"
api = "openai-chat"
[generation]
max_tokens = 5
[client]
timeout = "5s"
[settings]
scenario = "Server"
server_target_qps = 100
server_target_latency = "1s"
server_target_latency_percentile = 0.5
min_duration = "100ms"
min_query_count = 10
"#;

fn find_peak(scenario: &str, script: Script, out: &Path, more: &[&str]) -> Output {
    let server = FakeServer::start(script);
    let file = out.with_extension("toml");
    std::fs::write(&file, scenario).expect("written");
    Command::new(env!("CARGO_BIN_EXE_prony"))
        .args(["find-peak", file.to_str().expect("plain")])
        .args(["--endpoint", &server.url(), "--quiet"])
        .args(["--out", out.to_str().expect("plain")])
        .args(more)
        .output()
        .expect("prony starts")
}

fn result(out: &Path) -> Value {
    let text = std::fs::read_to_string(out.join("find_peak.json")).expect("a result file");
    serde_json::from_str(&text).expect("JSON")
}

fn slow() -> Script {
    Script {
        ttft: Duration::from_millis(30),
        ..Script::default()
    }
}

/// A limit no answer can meet: halves down to the lowest rate and says so.
#[test]
fn an_endpoint_that_is_always_too_slow() {
    let dir = tempfile::tempdir().expect("a folder");
    let out = dir.path().join("out");
    let scenario = SCENARIO.replace("\"1s\"", "\"1ms\"");
    let ran = find_peak(&scenario, slow(), &out, &["--min", "40"]);
    let stderr = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(1), "{stderr}");
    assert!(stderr.starts_with("about 13 to 22 trials"), "{stderr}");
    let result = result(&out);
    assert_eq!(result["stopped"], "the lowest rate allowed fails");
    assert_eq!(result["peak_qps"], Value::Null);
    let rates: Vec<f64> = result["trials"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|trial| trial["qps"].as_f64().expect("a rate"))
        .collect();
    assert_eq!(rates, [100.0, 50.0, 40.0]);
    for trial in ["trial-001", "trial-002", "trial-003"] {
        assert!(out.join(trial).join("run.json").exists(), "{trial}");
        assert!(out.join(trial).join("mlperf_log_summary.txt").exists());
    }
}

/// Whether a rate passes depends on this machine; that the search ends and reports does not.
#[test]
fn a_search_between_two_rates_ends_with_a_report() {
    let dir = tempfile::tempdir().expect("a folder");
    let out = dir.path().join("out");
    let more = ["--min", "50", "--max", "150", "--precision", "0.2"];
    let ran = find_peak(SCENARIO, slow(), &out, &more);
    let stdout = String::from_utf8_lossy(&ran.stdout);
    assert!(matches!(ran.status.code(), Some(0 | 1 | 4)), "{stdout}");
    let result = result(&out);
    let n = result["trials"].as_array().expect("a list").len();
    assert!(n >= 2, "{stdout}");
    let confidence = result["confidence"].as_str().expect("a text");
    assert!(
        confidence.split("; ").all(|part| stdout.contains(part)),
        "{stdout}"
    );

    let again = find_peak(SCENARIO, slow(), &out, &more);
    assert_eq!(again.status.code(), Some(2), "results are not overwritten");
}

/// A start outside the limits was tried all the same, and a bracket finer than the numbers it is
/// made of was halved without end.
#[test]
fn options_that_contradict_each_other_are_refused_at_once() {
    let dir = tempfile::tempdir().expect("a folder");
    let out = dir.path().join("out");
    let more = ["--min", "150", "--max", "120", "--precision", "1e-20"];
    let ran = find_peak(SCENARIO, slow(), &out, &more);
    assert_eq!(ran.status.code(), Some(2));
    assert_eq!(
        String::from_utf8_lossy(&ran.stderr),
        "prony: --start = 100: from --min 150 to --max 120\n\
         --precision = 0.00000000000000000001: at least 0.0001\n"
    );
    assert!(!out.exists());
}

#[test]
fn a_budget_too_small_for_one_trial() {
    let dir = tempfile::tempdir().expect("a folder");
    let out = dir.path().join("out");
    let ran = find_peak(SCENARIO, slow(), &out, &["--budget", "50ms", "--json"]);
    assert_eq!(ran.status.code(), Some(1));
    let printed: Value = serde_json::from_slice(&ran.stdout).expect("JSON on stdout");
    assert_eq!(printed["stopped"], "out of time");
    assert_eq!(printed, result(&out));
}

#[test]
fn the_references_method_is_one_run() {
    let dir = tempfile::tempdir().expect("a folder");
    let out = dir.path().join("out");
    let scenario = SCENARIO.replace("\"1s\"", "\"1ms\"");
    let ran = find_peak(&scenario, slow(), &out, &["--method", "loadgen"]);
    // 1: INVALID; 4 as well if this machine could not send on time.
    assert!(matches!(ran.status.code(), Some(1 | 4)));
    let detail = std::fs::read_to_string(out.join("mlperf_log_detail.txt")).expect("a log");
    assert!(detail.contains("Initial lower bound does not satisfy performance constraints"));
}

#[test]
fn only_server_has_a_rate() {
    let dir = tempfile::tempdir().expect("a folder");
    let scenario = SCENARIO.replace("\"Server\"", "\"Offline\"");
    let ran = find_peak(&scenario, slow(), &dir.path().join("out"), &[]);
    assert_eq!(ran.status.code(), Some(2));
    let stderr = String::from_utf8_lossy(&ran.stderr);
    assert!(
        stderr.contains("find-peak needs a Server scenario, not Offline"),
        "{stderr}"
    );
}
