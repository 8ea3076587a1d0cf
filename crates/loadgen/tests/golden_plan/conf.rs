//! Defaults, the compiled-in rules of every model, and every parsing case of the reference.

use std::path::Path;

use prony_loadgen::conf::apply::Target;
use prony_loadgen::conf::keys::ConfKind;
use prony_loadgen::conf::mlperf::Round;
use prony_loadgen::conf::{Configured, RC_NOT_FOUND};
use prony_loadgen::scenario::Scenario;
use prony_loadgen::settings::fields::{FIELDS, Field};
use prony_loadgen::settings::{TestSettings, Value as Setting};
use serde_json::{Map, Value, json};

use crate::data::golden_json;

fn scenario(name: &str) -> Scenario {
    Scenario::ALL
        .into_iter()
        .find(|s| s.conf_name() == name)
        .expect("a scenario")
}

fn as_json(value: Setting) -> Value {
    match value {
        Setting::Real(v) => json!(v),
        Setting::Count(v) => json!(v),
        Setting::Signed(v) => json!(v),
        Setting::Flag(v) => json!(v),
        Setting::Scenario(_) | Setting::Mode(_) => json!(value.to_string()),
    }
}

fn python_name(field: &Field) -> &'static str {
    field.python_name.unwrap_or(field.name)
}

/// Fields in which `after` differs from `before`, by their Python names, sorted.
fn changed(before: &TestSettings, after: &TestSettings) -> Value {
    let mut fields: Vec<&Field> = FIELDS
        .iter()
        .filter(|f| f.get(before) != f.get(after) && f.name != "scenario")
        .collect();
    fields.sort_by_key(|f| python_name(f));
    let named = fields
        .iter()
        .map(|f| (python_name(f).to_owned(), as_json(f.get(after))));
    Value::Object(named.collect::<Map<_, _>>())
}

#[test]
fn defaults() {
    let golden = golden_json("conf/defaults.json");
    let golden = golden.as_object().expect("an object");
    let settings = TestSettings::default();
    assert_eq!(golden.len(), FIELDS.len(), "number of fields");
    for field in FIELDS {
        let name = python_name(field);
        if name != "token_latency_scaling_factor" {
            assert_eq!(as_json(field.get(&settings)), golden[name], "{name}");
        }
    }
}

#[test]
fn rules_of_every_model_and_scenario() {
    let golden = golden_json("conf/mlperf_conf_by_model_scenario.json");
    let models = golden.as_object().expect("models");
    assert!(models.len() >= 30, "models are missing");
    for (model, scenarios) in models {
        for (name, expected) in scenarios.as_object().expect("scenarios") {
            let mut configured = Configured::new(scenario(name));
            let before = configured.settings.clone();
            let target = Target {
                model,
                scenario: scenario(name),
            };
            configured.apply_round(Round::CURRENT, target);
            assert_eq!(
                changed(&before, &configured.settings),
                *expected,
                "{model} {name}"
            );
            assert_eq!(configured.notes, [], "{model} {name}");
        }
    }
}

fn check_run(case: &str, text: &str, run: &Value) {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("some.conf");
    std::fs::write(&path, text).expect("written");
    let name = run["scenario"].as_str().expect("a scenario");
    let target = Target {
        model: run["model"].as_str().expect("a model"),
        scenario: scenario(name),
    };
    let mut base = Configured::new(target.scenario);
    let kind = match run["conf_type"].as_u64() {
        Some(1) => {
            base.apply_round(Round::CURRENT, target);
            ConfKind::User
        }
        Some(2) => ConfKind::Audit,
        other => panic!("{case}: conf_type {other:?}"),
    };
    let mut configured = Configured::new(target.scenario);
    let rc = configured.from_config(&path, kind, Round::CURRENT, target);
    let what = format!("{case}, {run}");
    assert_eq!(json!(rc), run["rc"], "{what}");
    assert_eq!(
        changed(&base.settings, &configured.settings),
        run["changed"],
        "{what}"
    );
    let errors: Vec<(&str, &str)> = configured
        .notes
        .iter()
        .map(|note| (note.key, note.text.as_str()))
        .collect();
    assert_eq!(json!(errors), run["errors"], "{what}");
}

#[test]
fn every_parsing_case() {
    let golden = golden_json("conf/parsing_cases.json");
    let cases = golden.as_object().expect("cases");
    let mut n_runs = 0;
    for (name, case) in cases {
        let Some(text) = case.get("text") else {
            continue;
        };
        for run in case["runs"].as_array().expect("runs") {
            check_run(name, text.as_str().expect("text"), run);
            n_runs += 1;
        }
    }
    assert!(n_runs >= 60, "only {n_runs} runs");
}

#[test]
fn missing_file_still_brings_the_rules() {
    let golden = &golden_json("conf/parsing_cases.json")["missing_file"];
    let target = Target {
        model: "resnet50",
        scenario: Scenario::Server,
    };
    let mut configured = Configured::new(Scenario::Server);
    let rc = configured.from_config(
        Path::new("no/such/file"),
        ConfKind::User,
        Round::CURRENT,
        target,
    );
    assert_eq!(rc, RC_NOT_FOUND);
    assert_eq!(json!(rc), golden["rc"]);
    let got = &configured.settings;
    assert_eq!(
        json!(got.server_target_latency_ns),
        golden["server_target_latency_ns"]
    );
    assert_eq!(json!(got.min_duration_ms), golden["min_duration_ms"]);
    assert_eq!(configured.notes[0].text, "can't open file no/such/file");
}

/// The reference counts calls per process; here a second call on the *same* settings is the error,
/// and fresh settings start afresh (see `Configured`).
#[test]
fn second_user_conf_is_an_error_and_brings_no_rules() {
    let golden = &golden_json("conf/parsing_cases.json")["second_call_in_process"];
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("user.conf");
    std::fs::write(&path, "*.*.max_query_count = 8\n").expect("written");
    let target = Target {
        model: "resnet50",
        scenario: Scenario::Server,
    };
    let mut configured = Configured::new(Scenario::Server);
    configured.from_config(&path, ConfKind::User, Round::CURRENT, target);
    let first = configured.settings.server_target_latency_ns;
    assert_eq!(json!(first), golden["first_has_mlperf_conf"]);

    configured.settings = TestSettings::default();
    let rc = configured.from_config(&path, ConfKind::User, Round::CURRENT, target);
    assert_eq!(json!(rc), golden["rc2"]);
    let second = &configured.settings;
    assert_eq!(
        json!(second.server_target_latency_ns),
        golden["second_lacks_it"]
    );
    assert_eq!(
        json!(second.max_query_count),
        golden["second_max_query_count"]
    );
    let expected = "Multiple conf files are used. This is not valid for official submission.";
    assert_eq!(configured.notes[0].text, expected);
}
