//! Sets, order, arrivals, effective settings and log sampling against 80 runs of the reference.

use prony_loadgen::plan::RunPlan;
use prony_loadgen::plan::json::write_json;
use prony_loadgen::rng::StdlibFlavour;
use prony_loadgen::sample::SampleIndex;
use prony_loadgen::scenario::{Mode, Phase};
use prony_loadgen::schedule::{AccuracyLogSampling, PhasePlan, loadable_sets};
use prony_loadgen::settings::{EffectiveSettings, TestSettings, validate};
use serde_json::{Value, json};

use crate::data::{assert_list, golden_json, golden_path, settings_from};

const FLAVOUR: StdlibFlavour = StdlibFlavour::Gcc11;

/// The phases of a test with their loaded sets, planned one by one.
struct Planned {
    sets: Vec<Vec<SampleIndex>>,
    plans: Vec<PhasePlan>,
    phases: Vec<Phase>,
}

fn plan(eff: &EffectiveSettings, qsl_total: u64) -> Planned {
    let phases: &[Phase] = match eff.mode {
        Mode::SubmissionRun => &[Phase::Accuracy, Phase::Performance],
        Mode::AccuracyOnly => &[Phase::Accuracy],
        Mode::PerformanceOnly | Mode::FindPeakPerformance => &[Phase::Performance],
    };
    let mut planned = Planned {
        sets: Vec::new(),
        plans: Vec::new(),
        phases: Vec::new(),
    };
    for &phase in phases {
        let mut sets = loadable_sets(eff, phase, qsl_total, FLAVOUR);
        if phase == Phase::Performance {
            sets.truncate(1);
        }
        for set in sets {
            planned
                .plans
                .push(PhasePlan::generate(eff, phase, &set, FLAVOUR));
            planned.sets.push(set);
            planned.phases.push(phase);
        }
    }
    planned
}

fn check_case(file: &str, case: &Value) {
    let settings = settings_from(&case["settings"]);
    let count = |key: &str| {
        case[key]
            .as_u64()
            .unwrap_or_else(|| panic!("{file}: {key}"))
    };
    let (total, perf) = (count("qsl_total"), count("qsl_perf"));
    validate(&settings, total, perf).unwrap_or_else(|e| panic!("{file}: {e}"));
    let (eff, notes) = EffectiveSettings::derive(&settings, total, perf);
    assert_eq!(notes, [], "{file}");
    check_effective(file, case, &eff);
    let planned = plan(&eff, total);
    check_generated(file, case, &planned);
    check_order(file, case, &planned);
    check_due_times(file, case, &planned);
    check_logged(file, case, &eff, &planned);
    check_json(file, &settings, (total, perf), &planned);
}

fn check_effective(file: &str, case: &Value, eff: &EffectiveSettings) {
    let got = json!({
        "effective_samples_per_query": eff.samples_per_query,
        "effective_target_qps": eff.target_qps,
        "effective_min_query_count": eff.min_query_count,
        "effective_min_sample_count": eff.min_sample_count,
        "effective_performance_sample_count": eff.performance_sample_count,
        "effective_accuracy_sample_count": eff.accuracy_sample_count,
        "effective_target_duration_ms": eff.target_duration_ms,
        "effective_target_latency_percentile": eff.target_latency_percentile,
        "effective_max_async_queries": eff.max_async_queries,
    });
    for (key, value) in got.as_object().expect("an object") {
        assert_eq!(value.as_f64(), case[key].as_f64(), "{file}: {key}");
    }
}

fn check_generated(file: &str, case: &Value, planned: &Planned) {
    let golden_sets = case["loaded_sets"].as_array().expect("loaded sets");
    assert_eq!(
        planned.sets.len(),
        golden_sets.len(),
        "{file}: number of sets"
    );
    for (set, golden) in planned.sets.iter().zip(golden_sets) {
        let indices: Vec<u32> = set.iter().map(|s| s.0).collect();
        assert_list(&format!("{file}: loaded set"), &indices, golden);
    }
    let of_each = |f: fn(&PhasePlan) -> i64| -> Vec<i64> { planned.plans.iter().map(f).collect() };
    let counts = of_each(|p| p.n_queries() as i64);
    assert_eq!(json!(counts), case["generated_query_count"], "{file}");
    let sizes = of_each(|p| p.samples_per_query() as i64);
    assert_eq!(json!(sizes), case["generated_samples_per_query"], "{file}");
    let ends = of_each(|p| p.generated_duration().0);
    assert_eq!(json!(ends), case["generated_query_duration_ns"], "{file}");
}

/// The reference may stop before the plan is used up, so its list is a head of ours.
fn check_order(file: &str, case: &Value, planned: &Planned) {
    let mut queries: Vec<Vec<u32>> = Vec::new();
    for plan in &planned.plans {
        queries.extend((0..plan.n_queries()).map(|q| plan.samples(q).map(|s| s.0).collect()));
    }
    let issued = case["query_count_issued"].as_u64().expect("count") as usize;
    assert!(
        issued <= queries.len(),
        "{file}: {issued} issued of {}",
        queries.len()
    );
    queries.truncate(issued);
    if let Some(golden) = case.get("issued_queries") {
        let golden = golden.as_array().expect("a list of queries");
        assert_eq!(queries.len(), golden.len(), "{file}: queries");
        for (got, golden) in queries.iter().zip(golden) {
            assert_list(&format!("{file}: query"), got, golden);
        }
    } else {
        let got: Vec<u32> = queries.concat();
        assert_list(
            &format!("{file}: order"),
            &got,
            &case["issued_one_sample_each"],
        );
    }
}

fn check_due_times(file: &str, case: &Value, planned: &Planned) {
    let Some(golden) = case.get("schedule_ns_relative_to_first") else {
        assert_ne!(
            case["settings"]["scenario"], "Server",
            "{file}: no schedule to compare"
        );
        return;
    };
    let golden = golden.as_array().expect("a list per phase");
    assert_eq!(
        planned.plans.len(),
        golden.len(),
        "{file}: phases with a schedule"
    );
    for (plan, golden) in planned.plans.iter().zip(golden) {
        let due: Vec<i64> = (0..plan.n_queries()).map(|q| plan.due(q).0).collect();
        assert_list(&format!("{file}: due times"), &due, golden);
    }
}

fn check_logged(file: &str, case: &Value, eff: &EffectiveSettings, planned: &Planned) {
    if let Some(golden) = case.get("accuracy_log_seq_and_qsl") {
        let samples = planned
            .plans
            .iter()
            .flat_map(|p| (0..p.n_queries()).flat_map(|q| p.samples(q)));
        let accuracy: usize = (planned.plans.iter().zip(&planned.phases))
            .filter(|(_, phase)| **phase == Phase::Accuracy)
            .map(|(plan, _)| plan.n_samples())
            .sum();
        let logged: Vec<(usize, u32)> = samples.map(|s| s.0).enumerate().take(accuracy).collect();
        assert_eq!(json!(logged), *golden, "{file}: accuracy log");
    }
    let Some(golden) = case.get("logged_seq_ids") else {
        return;
    };
    let [plan] = planned.plans.as_slice() else {
        panic!("{file}: one phase expected")
    };
    let mut sampling = AccuracyLogSampling::new(eff);
    let samples = (0..plan.n_queries()).flat_map(|q| plan.samples(q));
    let logged: Vec<(u64, u32)> = (0_u64..)
        .zip(samples.map(|s| s.0))
        .filter(|(seq, _)| sampling.is_logged(*seq))
        .collect();
    let seqs: Vec<u64> = logged.iter().map(|(seq, _)| *seq).collect();
    let indices: Vec<u32> = logged.iter().map(|(_, index)| *index).collect();
    assert_list(&format!("{file}: logged numbers"), &seqs, golden);
    assert_list(
        &format!("{file}: logged indices"),
        &indices,
        &case["logged_qsl_idx"],
    );
}

/// `prony plan --json` says what was just compared with the reference.
fn check_json(file: &str, settings: &TestSettings, (total, perf): (u64, u64), planned: &Planned) {
    let plan = RunPlan::new(settings, total, perf, FLAVOUR).expect("validated before");
    let mut text = Vec::new();
    write_json(&plan, &mut text).expect("memory takes everything");
    let got: Value = serde_json::from_slice(&text).unwrap_or_else(|e| panic!("{file}: {e}"));
    let sets: Vec<Vec<u32>> = planned
        .sets
        .iter()
        .map(|set| set.iter().map(|s| s.0).collect())
        .collect();
    assert_eq!(got["loaded_sets"], json!(sets), "{file}");
    let mut queries = Vec::new();
    for plan in &planned.plans {
        queries.extend((0..plan.n_queries()).map(|q| {
            let samples: Vec<u32> = plan.samples(q).map(|s| s.0).collect();
            json!({ "samples": samples, "scheduled_ns": plan.due(q).0 })
        }));
    }
    assert_eq!(got["queries"], json!(queries), "{file}");
    assert_eq!(
        got["effective"]["scenario"],
        settings.scenario.conf_name(),
        "{file}"
    );
}

#[test]
fn every_sequence_file() {
    let mut files: Vec<String> = std::fs::read_dir(golden_path("sequences"))
        .expect("golden folder")
        .map(|entry| {
            entry
                .expect("entry")
                .file_name()
                .into_string()
                .expect("a plain name")
        })
        .collect();
    files.sort();
    assert_eq!(files.len(), 80, "a golden file is missing");
    for file in files {
        check_case(&file, &golden_json(&format!("sequences/{file}")));
    }
}
