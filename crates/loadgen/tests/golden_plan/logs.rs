//! What 45 real runs logged about their plan: loaded sets, counts, durations, requested settings.

use prony_loadgen::conf::Configured;
use prony_loadgen::conf::apply::Target;
use prony_loadgen::conf::keys::ConfKind;
use prony_loadgen::conf::mlperf::Round;
use prony_loadgen::plan::RunPlan;
use prony_loadgen::plan::json::{effective_json, value_json};
use prony_loadgen::rng::StdlibFlavour;
use prony_loadgen::scenario::Mode;
use prony_loadgen::settings::{EffectiveSettings, FIELDS};
use serde_json::{Value, json};

use crate::data::{golden_json, golden_path, settings_from};

/// The lines of a detail log as (key, value).
fn detail(folder: &str) -> Vec<(String, Value)> {
    let path = golden_path(&format!("logs/{folder}/mlperf_log_detail.txt"));
    let text = std::fs::read_to_string(&path).expect("a detail log");
    let lines = text.lines().map(|line| {
        let json = line.strip_prefix(":::MLLOG ").expect("the marker");
        // The reference writes bare nan, which is no JSON; those lines are of no interest here.
        let line: Value = serde_json::from_str(json).unwrap_or_default();
        (
            line["key"].as_str().unwrap_or_default().to_owned(),
            line["value"].clone(),
        )
    });
    lines.collect()
}

/// The settings as the run had them when it logged them.
fn configured(folder: &str, case: &Value) -> Configured {
    let settings = settings_from(&case["settings"]);
    let mut configured = Configured::new(settings.scenario);
    configured.settings = settings;
    if let Some(conf) = case["conf"].get(0) {
        let model = conf[1].as_str().expect("a model");
        let target = Target {
            model,
            scenario: configured.settings.scenario,
        };
        let path = golden_path(&format!("logs/{folder}/user.conf"));
        assert_eq!(
            configured.from_config(&path, ConfKind::User, Round::CURRENT, target),
            0
        );
    }
    let audit = golden_path(&format!("logs/{folder}/audit.config"));
    configured.apply_at_start(Some(&audit));
    configured
}

fn check_plan(folder: &str, plan: &RunPlan, logged: &[(String, Value)]) {
    let mut got: Vec<(&str, Value)> = Vec::new();
    for set in plan.sets() {
        let queries = plan.queries(&set);
        let samples: Vec<u32> = set.samples.iter().map(|s| s.0).collect();
        got.push(("loaded_qsl_set", json!(samples)));
        got.push(("generated_query_count", json!(queries.n_queries())));
        got.push((
            "generated_samples_per_query",
            json!(queries.samples_per_query()),
        ));
        got.push((
            "generated_query_duration",
            json!(queries.generated_duration().0),
        ));
    }
    let expected: Vec<(&str, Value)> = logged
        .iter()
        .filter(|(key, _)| key == "loaded_qsl_set" || key.starts_with("generated_"))
        .map(|(key, value)| (key.as_str(), value.clone()))
        .collect();
    if plan.effective.mode == Mode::FindPeakPerformance {
        // Later trials have other rates; an unsupported scenario has none at all.
        assert!(
            expected.is_empty() || expected.starts_with(&got),
            "{folder}: first trial"
        );
        return;
    }
    assert_eq!(got, expected, "{folder}");
}

/// Numbers in the log have six significant digits at most.
fn alike(got: &Value, logged: &Value) -> bool {
    match (got.as_f64(), logged.as_f64()) {
        (Some(a), Some(b)) if got.is_f64() => (a - b).abs() <= 1e-5 * b.abs(),
        _ => got == logged,
    }
}

fn check_settings(folder: &str, configured: &Configured, logged: &[(String, Value)]) {
    for (key, value) in logged {
        let Some(name) = key.strip_prefix("requested_") else {
            continue;
        };
        let name = if name == "test_mode" { "mode" } else { name };
        let field = FIELDS.iter().find(|field| field.name == name);
        let field = field.unwrap_or_else(|| panic!("{folder}: no field {name}"));
        let got = value_json(field.get(&configured.settings));
        assert!(alike(&got, value), "{folder}: {key}: {got} for {value}");
    }
}

fn check_effective(folder: &str, eff: &EffectiveSettings, logged: &[(String, Value)]) {
    let got = effective_json(eff);
    for (key, value) in logged {
        let Some(name) = key.strip_prefix("effective_") else {
            continue;
        };
        let got = got
            .get(name)
            .unwrap_or_else(|| panic!("{folder}: no value {name}"));
        assert!(alike(got, value), "{folder}: {key}: {got} for {value}");
    }
}

#[test]
fn every_log_folder() {
    let mut n_folders = 0;
    for entry in std::fs::read_dir(golden_path("logs")).expect("golden folder") {
        let folder = entry
            .expect("entry")
            .file_name()
            .into_string()
            .expect("a plain name");
        let case = &golden_json(&format!("logs/{folder}/case.json"))["case"];
        let logged = detail(&folder);
        let configured = configured(&folder, case);
        check_settings(&folder, &configured, &logged);
        let count = |key: &str| case["qsl"][key].as_u64().expect("a count");
        let (total, perf) = (count("total"), count("perf"));
        let (eff, notes) = EffectiveSettings::derive(&configured.settings, total, perf);
        check_effective(&folder, &eff, &logged);
        let notes: Vec<(&str, &str)> = notes.iter().map(|n| (n.key, n.text.as_str())).collect();
        let expected: Vec<(&str, &str)> = logged
            .iter()
            .filter(|(key, _)| key == "error_invalid_test_settings")
            .map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
            .collect();
        assert_eq!(notes, expected, "{folder}");
        // Runs the reference lets through with an error are refused here, and have no plan.
        if notes.is_empty() {
            let settings = &configured.settings;
            let plan = RunPlan::new(settings, total, perf, StdlibFlavour::Gcc11);
            check_plan(&folder, &plan.expect("sound settings"), &logged);
        }
        n_folders += 1;
    }
    assert_eq!(n_folders, 45, "a golden folder is missing");
}
