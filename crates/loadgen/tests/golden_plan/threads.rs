//! How Server queries are dealt out to registered issuing threads.

use prony_loadgen::rng::StdlibFlavour;
use prony_loadgen::scenario::Phase;
use prony_loadgen::schedule::{PhasePlan, ThreadShare, loadable_sets};
use prony_loadgen::settings::EffectiveSettings;
use serde_json::json;

use crate::data::{golden_json, settings_from};

#[test]
fn every_number_of_threads() {
    let golden = golden_json("multi_thread/server_issue_threads.json");
    let count = |key: &str| golden["settings"][key].as_u64().expect("a count");
    let (total, perf) = (count("qsl_total"), count("qsl_perf"));
    for run in golden["runs"].as_array().expect("a list") {
        let mut settings = settings_from(&golden["settings"]);
        settings.min_query_count = run["min_query_count"].as_u64().expect("a count");
        settings.max_query_count = run["max_query_count"].as_u64().expect("a count");
        let (eff, _) = EffectiveSettings::derive(&settings, total, perf);
        let set = &loadable_sets(&eff, Phase::Performance, total, StdlibFlavour::Gcc11)[0];
        let plan = PhasePlan::generate(&eff, Phase::Performance, set, StdlibFlavour::Gcc11);
        let n_threads = run["threads"].as_u64().expect("a count") as usize;
        let of_thread = |thread: usize| -> Vec<u32> {
            let share = ThreadShare { thread, n_threads };
            let limit = match eff.max_query_count {
                0 => usize::MAX,
                max => share.of_count(max) as usize,
            };
            let queries = share.queries(plan.n_queries()).take(limit);
            queries.flat_map(|q| plan.samples(q)).map(|s| s.0).collect()
        };
        let got: Vec<Vec<u32>> = (0..n_threads).map(of_thread).collect();
        assert_eq!(
            json!(got),
            run["per_thread_sample_indices"],
            "{n_threads} threads"
        );
    }
}
