//! `prony suite`, and calling runs off, with the real binary.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::fake_server::{FakeServer, Script, Trouble};
use crate::real_prony::{SCENARIO, path, prony};

fn write(folder: &Path, name: &str, text: &str) -> String {
    let file = folder.join(name);
    std::fs::write(&file, text).expect("written");
    path(&file).to_owned()
}

#[test]
fn a_suite_has_one_table_one_page_and_the_worst_exit_code() {
    let dir = tempfile::tempdir().expect("a folder");
    write(dir.path(), "a.toml", SCENARIO);
    let allowed = SCENARIO.replace("[client]", "[client]\nmax_failed_fraction = 0.5");
    write(
        dir.path(),
        "b.toml",
        &allowed.replace("\"test\"", "\"other\""),
    );
    let list = "scenarios = [\"a.toml\", \"b.toml\", \"a.toml\"]";
    let suite = write(dir.path(), "suite.toml", list);
    let out = dir.path().join("out");
    // Of 12 requests a run, every 12th fails: one each.
    let server = FakeServer::start(Script {
        trouble: Trouble::Status503,
        every: 12,
        ..Script::default()
    });
    let url = server.url();
    let args = ["suite", &suite, "--endpoint", &url, "--out", path(&out)];
    let output = prony(&[&args[..], &["--assert", "n_failed < 2"]].concat());
    assert_eq!(output.status.code(), Some(3));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let n_judged = text.matches("assertion n_failed < 2: holds (1.00)").count();
    assert_eq!(n_judged, 3, "{text}");
    assert!(
        text.contains("other: VALID") && text.contains("test: INVALID"),
        "{text}"
    );
    for file in [
        "test/run.json",
        "other/run.json",
        "test-2/run.json",
        "test/report.html",
    ] {
        assert!(out.join(file).is_file(), "{file}");
    }
    let page = std::fs::read_to_string(out.join("report.html")).expect("a page");
    assert!(page.contains("3 runs") && page.contains("other"));
    assert_eq!(
        prony(&args).status.code(),
        Some(2),
        "earlier results are kept"
    );
}

#[test]
fn nothing_runs_if_any_scenario_of_a_suite_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    write(dir.path(), "a.toml", SCENARIO);
    write(
        dir.path(),
        "b.toml",
        &SCENARIO.replace("scenario =", "scenaro ="),
    );
    let suite = write(
        dir.path(),
        "suite.toml",
        "scenarios = [\"a.toml\", \"b.toml\"]",
    );
    let out = dir.path().join("out");
    let server = FakeServer::start(Script::default());
    let output = prony(&[
        "suite",
        &suite,
        "--endpoint",
        &server.url(),
        "--out",
        path(&out),
    ]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!((server.n_answers(), out.exists()), (0, false));
}

#[test]
fn ctrl_c_reports_what_was_measured() {
    let dir = tempfile::tempdir().expect("a folder");
    // A minute of queries, each of which takes 20 ms.
    let text = SCENARIO
        .replace("\"0s\"", "\"60s\"")
        .replace("max_query_count = 12", "");
    let file = write(dir.path(), "a.toml", &text);
    let out = dir.path().join("out");
    let server = FakeServer::start(Script {
        ttft: Duration::from_millis(20),
        ..Script::default()
    });
    let child = Command::new(env!("CARGO_BIN_EXE_prony"))
        .args([
            "run",
            &file,
            "--endpoint",
            &server.url(),
            "--out",
            path(&out),
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("prony starts");
    server.wait_for_answers(5);
    let pid = child.id().to_string();
    let killed = Command::new("kill")
        .args(["-INT", &pid])
        .status()
        .expect("kill runs");
    assert!(killed.success());
    let output = child.wait_with_output().expect("prony ends");
    assert_eq!(
        output.status.code(),
        Some(1),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("test: CANCELED"), "{text}");
    let record = std::fs::read_to_string(out.join("run.json")).expect("a record");
    let record: serde_json::Value = serde_json::from_str(&record).expect("JSON");
    assert!(
        record["figures"]["n_completed"].as_u64() >= Some(4),
        "{record}"
    );
}
