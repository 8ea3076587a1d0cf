//! `prony plan` and `prony explain` as a shell sees them: output, exit code, messages.

use std::process::{Command, Output};

use prony_loadgen::settings::{FIELDS, TestSettings};
use serde_json::Value;

fn prony(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_prony"))
        .args(args)
        .output()
        .expect("prony starts")
}

fn json_of(output: &Output) -> Value {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn refusal(args: &[&str]) -> String {
    let output = prony(args);
    assert_eq!(output.status.code(), Some(2), "{args:?}");
    assert_eq!(output.stdout, b"", "{args:?}");
    String::from_utf8(output.stderr).expect("UTF-8")
}

/// First queries of golden sequence `sv_n10_q300_qps1000__official`.
#[test]
fn plan_as_json() {
    let plan = json_of(&prony(&[
        "plan",
        "--json",
        "--scenario=Server",
        "--qsl-total=10",
        "--qsl-perf=10",
        "--set=min_query_count=300",
        "--set=min_duration_ms=0",
        "--set=server_target_qps=1000",
        "--set=qsl_rng_seed=2085463073848966840",
        "--set=sample_index_rng_seed=2747215439041700203",
        "--set=schedule_rng_seed=16159082839903944936",
    ]));
    let queries = plan["queries"].as_array().expect("queries");
    assert_eq!(queries.len(), 300);
    let due: Vec<&Value> = queries.iter().take(3).map(|q| &q["scheduled_ns"]).collect();
    assert_eq!(due, [0, 1_843_654, 2_301_577]);
    assert_eq!(plan["loaded_sets"][0].as_array().expect("a set").len(), 10);
    assert_eq!(plan["effective"]["target_qps"], 1000.0);
    assert_eq!(plan["phases"][0]["generated_query_count"], 300);
}

/// Every field can be set to what it is anyway, by all its names.
#[test]
fn every_field_can_be_set() {
    let settings = TestSettings::default();
    let mut args = vec![
        "explain".to_owned(),
        "--json".to_owned(),
        "--all".to_owned(),
    ];
    for field in FIELDS {
        for name in [Some(field.name), field.python_name].into_iter().flatten() {
            args.push(format!("--set={name}={}", field.get(&settings)));
        }
    }
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let explained = json_of(&prony(&args));
    let lines = explained["settings"].as_array().expect("settings");
    assert_eq!(lines.len(), FIELDS.len());
    for line in lines {
        assert_eq!(
            line["origin"], "given by the caller (--set, --scenario)",
            "{line}"
        );
    }
}

#[test]
fn refusals_name_everything_and_exit_with_2() {
    let text = refusal(&["plan", "--set=min_query_cuont=1", "--set=test05=2"]);
    let expected = "prony: min_query_cuont = 1: no such setting; did you mean min_query_count?\n\
                    test05 = 2: true, false, 1 or 0\n";
    assert_eq!(text, expected);
    let text = refusal(&[
        "plan",
        "--scenario=Server",
        "--set=server_target_qps=0",
        "--qsl-total=0",
    ]);
    assert!(text.contains("total sample count = 0") && text.contains("server_target_qps = 0"));
    // One value that is no number does not hide the numbers that are out of range.
    let text = refusal(&[
        "plan",
        "--scenario=Server",
        "--set=min_duration_ms=-5",
        "--set=server_target_qps=-1",
    ]);
    assert!(text.contains("min_duration_ms = -5") && text.contains("server_target_qps = -1"));
    let text = refusal(&["plan", "--user-conf=no/such/user.conf"]);
    assert!(text.starts_with("prony: no/such/user.conf: "), "{text}");
}

#[test]
fn strict_configuration() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("user.conf");
    std::fs::write(&path, "*.*.min_query_count=7\n").expect("written");
    let file = path.to_str().expect("UTF-8");
    let args = ["explain", "--json", "--model=resnet50", "--user-conf", file];
    assert_eq!(json_of(&prony(&args))["notes"], Value::Array(Vec::new()));
    let text = refusal(&[&args[..], &["--strict"]].concat());
    assert_eq!(text, format!("prony: {file}:1:20: put spaces around =\n"));
}

#[test]
fn rounds_differ_in_their_seeds() {
    let seed = |round: &str| {
        let explained = json_of(&prony(&["explain", "--json", "--round", round]));
        let lines = explained["settings"].as_array().expect("settings").clone();
        let line = lines
            .into_iter()
            .find(|l| l["name"] == "qsl_rng_seed")
            .expect("a seed");
        (
            line["value"].as_u64().expect("a number"),
            line["origin"].as_str().map(str::to_owned),
        )
    };
    let origin = |round, seed| Some(format!("mlperf.conf {round}: *.*.qsl_rng_seed = {seed}"));
    for (round, expected) in [
        ("v5.0", 6_023_615_788_873_153_749),
        ("v5.1", 1_780_908_523_862_526_354),
        ("v6.0", 2_465_351_861_681_999_779),
        ("v6.1", 2_085_463_073_848_966_840),
    ] {
        assert_eq!(seed(round), (expected, origin(round, expected)));
    }
}

#[test]
fn a_model_without_rules_is_told_apart_from_one_with() {
    let stderr = |model: &str| {
        let output = prony(&["explain", "--model", model, "--scenario", "Server"]);
        assert!(output.status.success());
        String::from_utf8(output.stderr).expect("UTF-8")
    };
    assert_eq!(stderr("bert"), "");
    let note = stderr("brt");
    assert!(
        note.starts_with("note: model brt: MLPerf has no rules"),
        "{note}"
    );
    assert!(note.contains("bert"), "{note}");
}
