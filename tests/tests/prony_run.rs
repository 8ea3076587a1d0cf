//! `prony run` against `prony-sut --backend echo`, both real: results, verdicts, exit codes.

use std::fs;
use std::path::Path;
use std::time::Duration;

use e2e::process::{self, Server};
use serde_json::Value;

const DEADLINE: Duration = Duration::from_secs(90);

/// Runs `prony run SCENARIO --endpoint URL --out DIR ARGS…`; returns exit code, stdout, stderr.
fn prony_run(scenario: &str, url: &str, out: &Path, args: &[&str]) -> (i32, String, String) {
    let out = out.to_string_lossy();
    let mut all = vec!["run", scenario, "--endpoint", url, "--out", &out, "--quiet"];
    all.extend_from_slice(args);
    let output = process::run("prony", &all, DEADLINE);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let code = output.status.code().expect("prony was not killed");
    (code, text(&output.stdout), text(&output.stderr))
}

fn record(folder: &Path) -> Value {
    let text = fs::read_to_string(folder.join("run.json")).expect("run.json was written");
    serde_json::from_str(&text).expect("run.json is JSON")
}

/// Value of a key of the detail log, as its first line has it.
fn detail(folder: &Path, key: &str) -> Value {
    let log = fs::read_to_string(folder.join("mlperf_log_detail.txt")).expect("detail log");
    let lines = log
        .lines()
        .map(|l| l.strip_prefix(":::MLLOG ").expect("the marker"));
    let mut entries = lines.map(|l| serde_json::from_str::<Value>(l).expect("strict JSON"));
    let entry = entries.find(|e| e["key"] == key);
    entry.unwrap_or_else(|| panic!("no {key} in the detail log"))["value"].clone()
}

#[test]
fn every_scenario_ends_valid_with_all_its_files() {
    let server = Server::echo(&[]);
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["singlestream", "server", "offline"] {
        let out = folder.path().join(name);
        let file = format!("scenarios/echo-{name}.toml");
        let (code, stdout, stderr) = prony_run(&file, &server.url, &out, &["--quick"]);
        // 4 = client-limited: allowed on a machine whose cores are taken by other tests.
        assert!(code == 0 || code == 4, "{name}: {code}\n{stdout}\n{stderr}");
        for file in [
            "mlperf_log_summary.txt",
            "mlperf_log_detail.txt",
            "mlperf_log_accuracy.json",
            "mlperf_log_trace.json",
            "run.json",
            "report.html",
        ] {
            assert!(out.join(file).exists(), "{name}: no {file}");
        }
        assert_eq!(detail(&out, "num_errors"), 0, "{name}");
        let page = fs::read_to_string(out.join("report.html")).expect("the page");
        let outside = ["http://cdn", "https://cdn", "src=\"http", "href=\"http"];
        assert!(
            outside.iter().all(|o| !page.contains(o)),
            "{name}: the page needs a network"
        );
        assert!(
            record(&out).to_string().contains("quick"),
            "{name}: --quick is not marked"
        );
    }
}

#[test]
fn an_earlier_result_is_only_overwritten_with_force() {
    let server = Server::echo(&[]);
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("r");
    let scenario = "scenarios/echo-singlestream.toml";
    let first = prony_run(scenario, &server.url, &out, &["--quick"]);
    assert!(first.0 == 0 || first.0 == 4, "{first:?}");
    let before = fs::read(out.join("run.json")).expect("run.json");
    let (code, _, stderr) = prony_run(scenario, &server.url, &out, &["--quick"]);
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("--force"), "{stderr}");
    assert_eq!(fs::read(out.join("run.json")).expect("run.json"), before);
    let forced = prony_run(scenario, &server.url, &out, &["--quick", "--force"]);
    assert!(forced.0 == 0 || forced.0 == 4, "{forced:?}");
}

#[test]
fn a_limit_that_does_not_hold_is_invalid_with_its_reason() {
    let server = Server::echo(&["--echo-ttft", "40ms"]);
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("r");
    let limits = [
        "--quick",
        "--set",
        "use_token_latencies=true",
        "--set",
        "server_ttft_latency=5ms",
        "--set",
        "server_target_qps=40",
    ];
    let (code, stdout, stderr) =
        prony_run("scenarios/echo-server.toml", &server.url, &out, &limits);
    // 4 where other tests took the client's cores: then that is said first.
    assert!(code == 1 || code == 4, "{code}: {stdout}\n{stderr}");
    assert_eq!(detail(&out, "result_validity"), "INVALID");
    let reasons = record(&out)["verdict"]["reasons"].to_string();
    assert!(reasons.contains("time to first token"), "{reasons}");
    assert!(reasons.contains("limit 5000000 ns"), "{reasons}");
}

#[test]
fn an_absent_endpoint_is_one_line_and_exit_code_3() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("r");
    // Port 9 is discard: nothing listens there on a machine that runs tests.
    let url = "http://127.0.0.1:9";
    let (code, _, stderr) = prony_run("scenarios/echo-server.toml", url, &out, &[]);
    assert_eq!(code, 3, "{stderr}");
    assert!(stderr.contains("127.0.0.1:9"), "{stderr}");
    assert_eq!(stderr.trim().lines().count(), 1, "{stderr}");
    assert!(!out.join("run.json").exists());
}

#[test]
fn a_bad_scenario_file_names_key_line_and_value_and_is_exit_code_2() {
    let folder = tempfile::tempdir().expect("a folder");
    let good = fs::read_to_string(e2e::source::root().join("scenarios/echo-server.toml"))
        .expect("a scenario");
    let cases = [
        (
            good.replace("server_target_qps", "server_target_qsp"),
            "server_target_qsp",
        ),
        (
            good.replace("[settings]", "[settings]\nmax_duration = \"10 parsecs\""),
            "parsecs",
        ),
        (good.replace("[dataset]", "[datasset]"), "datasset"),
        (format!("{good}\nthis is no TOML"), "expected"),
    ];
    for (text, needle) in cases {
        let file = folder.path().join("bad.toml");
        fs::write(&file, text).expect("written");
        let out = folder.path().join("r");
        let (code, _, stderr) = prony_run(&file.to_string_lossy(), "http://127.0.0.1:9", &out, &[]);
        assert_eq!(code, 2, "{needle}: {stderr}");
        assert!(
            stderr.contains(needle) && stderr.contains("bad.toml"),
            "{needle}: {stderr}"
        );
        assert!(!out.exists(), "{needle}: a results folder was made");
    }
}
