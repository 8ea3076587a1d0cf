//! Raw draws, floats, gaps, integers and shuffles against libstdc++'s, new rule and old.

use prony_loadgen::rng::{Mt19937, StdlibFlavour};
use prony_loadgen::scenario::{Phase, Scenario};
use prony_loadgen::schedule::{PhasePlan, loadable_sets};
use prony_loadgen::settings::{EffectiveSettings, TestSettings};
use serde_json::{Value, json};

use crate::data::{assert_list, golden_json, sha256_csv};

fn check_engine(seed: u64, case: &Value) {
    let engine = || Mt19937::new(seed);
    let mut rng = engine();
    let raw: Vec<u32> = (0..10).map(|_| rng.next_u32()).collect();
    assert_eq!(json!(raw), case["raw_first10"], "seed {seed}");
    rng.skip(989);
    assert_eq!(json!(rng.next_u32()), case["raw_1000th"], "seed {seed}");

    let mut rng = engine();
    for golden in case["uniform01_bits"].as_array().expect("a list") {
        assert_eq!(
            format!("{:016x}", rng.uniform01().to_bits()),
            *golden,
            "seed {seed}"
        );
    }
}

fn check_distributions(seed: u64, case: &Value) {
    for (key, golden) in case.as_object().expect("an object") {
        let mut rng = Mt19937::new(seed);
        if let Some(qps) = key.strip_prefix("exp_gap_ns_qps_") {
            let qps: f64 = qps.parse().expect("a rate");
            let golden = golden.as_array().expect("a list");
            let got: Vec<i64> = golden.iter().map(|_| rng.exponential_gap_ns(qps)).collect();
            assert_eq!(json!(got), json!(golden), "seed {seed}: {key}");
        }
        if let Some(n) = key.strip_prefix("uniform_int_") {
            let n: u32 = n.parse().expect("a bound");
            let golden = golden.as_array().expect("a list");
            let got: Vec<u32> = golden
                .iter()
                .map(|_| rng.below(n, StdlibFlavour::Gcc11))
                .collect();
            assert_eq!(json!(got), json!(golden), "seed {seed}: {key}");
        }
    }
}

fn check_shuffles(seed: u64, case: &Value) {
    for (n, golden) in case["shuffle_iota"].as_object().expect("an object") {
        let (list, _) = shuffled(seed, n);
        assert_list(&format!("seed {seed}: shuffle of {n}"), &list, golden);
    }
    for (n, golden) in case["shuffle_iota_fnv1a64_le_u64"]
        .as_object()
        .expect("an object")
    {
        let (list, mut rng) = shuffled(seed, n);
        let hash = format!("{:016x}", fnv1a64(&list));
        let got = json!([list[0], list[1], list[2], hash, rng.next_u32()]);
        assert_eq!(got, *golden, "seed {seed}: shuffle of {n}");
    }
}

fn shuffled(seed: u64, n: &str) -> (Vec<u32>, Mt19937) {
    let mut rng = Mt19937::new(seed);
    let mut list: Vec<u32> = (0..n.parse().expect("a length")).collect();
    rng.shuffle(&mut list, StdlibFlavour::Gcc11);
    (list, rng)
}

/// FNV-1a from the start value the golden program used, 1469598103934665603: the usual offset basis
/// with a digit lost. The start value does not matter, only that both sides use the same.
fn fnv1a64(list: &[u32]) -> u64 {
    let bytes = list.iter().flat_map(|v| u64::from(*v).to_le_bytes());
    bytes.fold(1_469_598_103_934_665_603, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[test]
fn every_seed_of_the_primitives() {
    let golden = golden_json("rng_primitives.json");
    let cases = golden["cases"].as_array().expect("a list");
    assert!(cases.len() > 1, "seeds are missing");
    for case in cases {
        let seed = case["seed"].as_u64().expect("a seed");
        check_engine(seed, case);
        check_distributions(seed, case);
        check_shuffles(seed, case);
    }
}

#[test]
fn old_integer_rule() {
    let golden = golden_json("gcc10_flavour.json");
    let seed = |name: &str| golden["seeds"][name].as_u64().expect("a seed");
    let rows = golden["rows"].as_array().expect("a list");
    assert_eq!(rows.len(), 12, "rows are missing");
    for row in rows {
        let name = row["scenario"].as_str().expect("a name");
        let scenario = Scenario::ALL.into_iter().find(|s| s.conf_name() == name);
        let qsl = row["qsl"].as_u64().expect("a count");
        let settings = TestSettings {
            scenario: scenario.expect("a scenario"),
            min_duration_ms: 0,
            min_query_count: golden["min_query_count"].as_u64().expect("a count"),
            server_target_qps: golden["server_target_qps"].as_f64().expect("a rate"),
            qsl_rng_seed: seed("qsl_rng_seed"),
            sample_index_rng_seed: seed("sample_index_rng_seed"),
            schedule_rng_seed: seed("schedule_rng_seed"),
            ..TestSettings::default()
        };
        check_old_rule(&settings, qsl, row);
    }
}

fn check_old_rule(settings: &TestSettings, qsl: u64, row: &Value) {
    let what = format!("{} of {qsl}", settings.scenario);
    let (eff, _) = EffectiveSettings::derive(settings, qsl, qsl);
    let sets = loadable_sets(&eff, Phase::Performance, qsl, StdlibFlavour::Gcc10);
    let set: Vec<i128> = sets[0].iter().map(|s| s.0.into()).collect();
    assert_eq!(sha256_csv(&set), row["loaded_sha256_csv"], "{what}: set");
    let plan = PhasePlan::generate(&eff, Phase::Performance, &sets[0], StdlibFlavour::Gcc10);
    let order: Vec<u32> = (0..plan.n_queries())
        .flat_map(|q| plan.samples(q))
        .map(|s| s.0)
        .collect();
    assert_eq!(json!(order), row["issued"], "{what}: order");
    if let Some(golden) = row.get("schedule_ns") {
        let due: Vec<i64> = (0..plan.n_queries()).map(|q| plan.due(q).0).collect();
        assert_eq!(json!(due), *golden, "{what}: due times");
    }
}
