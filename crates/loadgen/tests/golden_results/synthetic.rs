//! The 34 synthetic runs: latencies made by a rule, results known to the byte.

use prony_loadgen::clock::Nanos;
use prony_loadgen::metrics::{Metrics, PerformanceData};
use prony_loadgen::report::detail::DetailLog;
use prony_loadgen::report::results::results;
use prony_loadgen::report::summary::{PhaseResult, summary_text};
use prony_loadgen::settings::{EffectiveSettings, TestSettings};
use prony_loadgen::verdict::{OutcomeCounts, Verdict};
use serde_json::{Map, Value};

use crate::data::{golden_json, golden_path, settings_from};

/// `inputs` that describe the run rather than its settings.
const RUN_INPUTS: [&str; 5] = [
    "queries_issued",
    "max_latency_s",
    "final_query_scheduled_time_s",
    "final_query_issued_time_s",
    "final_query_all_samples_done_time_s",
];

#[test]
fn every_synthetic_result_to_the_byte() {
    let folder = std::fs::read_dir(golden_path("results")).expect("golden folder");
    let names = folder.map(|entry| entry.expect("entry").file_name());
    let mut n_compared = 0;
    for name in names {
        compare(&format!("results/{}", name.to_str().expect("ASCII name")));
        n_compared += 1;
    }
    assert_eq!(n_compared, 34);
}

fn compare(file: &str) {
    let golden = golden_json(file);
    let inputs = golden["inputs"].as_object().expect("inputs");
    let is_setting = |(name, _): &(&String, &Value)| !RUN_INPUTS.contains(&name.as_str());
    let settings = inputs
        .iter()
        .filter(is_setting)
        .map(|(k, v)| (k.clone(), v.clone()));
    let settings: TestSettings = settings_from(&Value::Object(settings.collect::<Map<_, _>>()));
    let count = |key: &str| golden[key].as_u64().expect("a count");
    let (eff, _) = EffectiveSettings::derive(&settings, count("qsl_total"), count("qsl_perf"));

    let data = performance_data(inputs, &golden["arrays_affine"]);
    let metrics = Metrics::compute(&data, &eff);
    let verdict = Verdict::judge(&metrics, &data, &eff, OutcomeCounts::default());
    let result = PhaseResult {
        sut_name: golden["sut_name"].as_str().expect("a name"),
        eff: &eff,
        metrics: &metrics,
        verdict: &verdict,
        queries_issued: data.queries_issued,
    };
    let summary = summary_text(Some(&result), 0, 0);
    assert_eq!(
        summary,
        golden["summary_text"].as_str().expect("text"),
        "{file}"
    );

    let mut log = DetailLog::new(1, 1);
    results(&mut log, Nanos::ZERO, &result);
    let ours: Vec<_> = log.lines().collect();
    let theirs = golden["detail_key_and_raw_json_value"]
        .as_array()
        .expect("pairs");
    for (our, their) in ours.iter().zip(theirs) {
        let key = their[0].as_str().expect("key");
        let value = corrected(key, their[1].as_str().expect("value"));
        assert_eq!((our.0, our.1.as_str()), (key, value.as_str()), "{file}");
    }
    assert_eq!(ours.len(), theirs.len(), "{file}");
}

/// The two values in which we differ on purpose: a number that is none is `null`, and
/// `result_token_throughput` is per second where the reference divides by nanoseconds.
fn corrected(key: &str, theirs: &str) -> String {
    match (key, theirs) {
        (_, "-nan") => "null".to_owned(),
        ("result_token_throughput", digits) => per_second(digits),
        _ => theirs.to_owned(),
    }
}

/// `2.71938e-06` per nanosecond is `2719.38` per second: the same digits, the point moved.
pub(crate) fn per_second(per_ns: &str) -> String {
    let (mantissa, exponent) = per_ns.split_once('e').expect("a tiny number");
    let places = 9 + exponent.parse::<i32>().expect("an exponent");
    let digits = mantissa.replace('.', "");
    let (whole, rest) = digits.split_at(1 + places as usize);
    format!("{whole}.{rest}")
}

fn performance_data(inputs: &Map<String, Value>, arrays: &Value) -> PerformanceData {
    let ns = |key: &str| {
        let seconds = inputs
            .get(key)
            .map_or(0.0, |v| v.as_f64().expect("seconds"));
        (seconds * 1e9).round() as i64
    };
    let data = PerformanceData {
        queries_issued: inputs["queries_issued"].as_u64().expect("a count"),
        sample_latencies_ns: affine(&arrays["sample_latencies"]),
        unanswered: Vec::new(),
        due_ns: Vec::new(),
        query_latencies_ns: affine(&arrays["query_latencies"]),
        ttft_ns: affine(&arrays["first_token_latencies"]),
        tpot_ns: affine(&arrays["time_per_output_token"]),
        n_tokens: affine(&arrays["tokens_per_sample"]),
        max_latency_ns: ns("max_latency_s"),
        final_query_scheduled_ns: ns("final_query_scheduled_time_s"),
        final_query_issued_ns: ns("final_query_issued_time_s"),
        final_query_all_samples_done_ns: ns("final_query_all_samples_done_time_s"),
    };
    assert!(!data.sample_latencies_ns.is_empty());
    data
}

/// x\[i\] = base + ((i·mul) mod mod)·step, with the defaults the golden files name.
fn affine(rule: &Value) -> Vec<i64> {
    let term =
        |key: &str, default: i64| rule.get(key).map_or(default, |v| v.as_i64().expect("int"));
    let (base, step) = (term("base", 1_000_000), term("step", 1000));
    let (mul, modulus) = (term("mul", 7919), term("mod", 10_007));
    (0..term("n", 0))
        .map(|i| base + (i * mul % modulus) * step)
        .collect()
}
