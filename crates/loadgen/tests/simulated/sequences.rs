//! What the SUT and the data set really see, against the reference: all golden sequences, run.

use std::collections::BTreeMap;
use std::sync::Mutex;

use prony_loadgen::clock::{MonotonicClock, Nanos};
use prony_loadgen::run;
use prony_loadgen::sample::QuerySample;
use prony_loadgen::scenario::Scenario;
use prony_loadgen::settings::TestSettings;
use prony_loadgen::sut::{Responder, SystemUnderTest};
use prony_loadgen::testing::{Service, SimulatedSut, VirtualClock};
use serde_json::{Value, json};

use crate::data::{assert_list, golden_json, golden_path, settings_from};
use crate::world::{Numbers, one_ms, options};

fn check_case(file: &str, case: &Value) {
    let settings = settings_from(&case["settings"]);
    let count = |key: &str| {
        case[key]
            .as_u64()
            .unwrap_or_else(|| panic!("{file}: {key}")) as usize
    };
    let clock = VirtualClock::new();
    // A stream with a duration needs answers that take some of it.
    let service = if settings.min_duration_ms > 0 && settings.scenario == Scenario::SingleStream {
        Service::Fixed(Nanos(settings.single_stream_expected_latency_ns as i64))
    } else {
        Service::Immediate
    };
    let sut = SimulatedSut::new(&clock, service);
    let mut library = Numbers::new(count("qsl_total"), count("qsl_perf"), &sut);
    let outcome = run(&options(settings.clone()), &mut library, &sut, &clock)
        .unwrap_or_else(|e| panic!("{file}: {e}"));
    // How far a timed stream gets depends on the machine; all others are exact.
    let timed = settings.min_duration_ms > 0 && settings.scenario == Scenario::SingleStream;
    let mut issued: Vec<Vec<u32>> = sut.issued().iter().map(|query| indices(query)).collect();
    if timed {
        issued.truncate(count("query_count_issued"));
    } else {
        assert_eq!(json!(library.events), case["events"], "{file}");
        assert_eq!(
            json!(sut.flushed_after()),
            case["flush_after_query"],
            "{file}"
        );
    }
    assert_eq!(issued.len(), count("query_count_issued"), "{file}");
    check_issued(file, case, &issued);
    if let Some(golden) = case.get("schedule_ns_relative_to_first") {
        let golden = golden.as_array().expect("a list a phase");
        assert_eq!(outcome.phases.len(), golden.len(), "{file}");
        for (phase, golden) in outcome.phases.iter().zip(golden) {
            assert_list(&format!("{file}: due"), &phase.columns.due_ns, golden);
            // Virtual time issues to the nanosecond.
            assert_eq!(phase.columns.issued_ns, phase.columns.due_ns, "{file}");
        }
    }
    if let Some(golden) = case.get("logged_seq_ids") {
        let kept = &outcome.phases[0].kept;
        let seqs: Vec<u64> = kept.iter().map(|answer| answer.slot as u64).collect();
        assert_list(&format!("{file}: logged"), &seqs, golden);
    }
}

fn indices(query: &[QuerySample]) -> Vec<u32> {
    query.iter().map(|sample| sample.index.0).collect()
}

fn check_issued(file: &str, case: &Value, issued: &[Vec<u32>]) {
    let Some(golden) = case.get("issued_queries") else {
        let golden = &case["issued_one_sample_each"];
        return assert_list(&format!("{file}: order"), &issued.concat(), golden);
    };
    for (got, golden) in issued.iter().zip(golden.as_array().expect("queries")) {
        assert_list(&format!("{file}: query"), got, golden);
    }
}

#[test]
fn every_sequence_file_run() {
    let mut n = 0;
    for entry in std::fs::read_dir(golden_path("sequences")).expect("the golden folder") {
        let name = entry.expect("an entry").file_name();
        let name = name.to_str().expect("a plain name");
        check_case(name, &golden_json(&format!("sequences/{name}")));
        n += 1;
    }
    assert_eq!(n, 80);
}

/// Answers at once and remembers which thread asked for what.
#[derive(Default)]
struct ByThread {
    seen: Mutex<BTreeMap<String, Vec<u32>>>,
}

impl SystemUnderTest for ByThread {
    fn name(&self) -> &str {
        "ByThread"
    }
    fn issue(&self, samples: &[QuerySample], responder: &Responder) {
        let thread = format!("{:?}", std::thread::current().id());
        let mut seen = self.seen.lock().expect("no panics");
        seen.entry(thread).or_default().extend(indices(samples));
        let now = responder.now();
        for sample in samples {
            responder.complete(sample.id, now, &[], 0);
        }
    }
    fn flush(&self) {}
}

fn threads_settings(golden: &Value, case: &Value) -> TestSettings {
    let count = |key: &str| case[key].as_u64().expect("a count");
    let mut settings = settings_from(&golden["settings"]);
    settings.min_query_count = count("min_query_count");
    settings.max_query_count = count("max_query_count");
    settings.server_num_issue_query_threads = count("threads");
    settings
}

/// Real threads, twice in the same process: the reference can do it once.
#[test]
fn issuing_threads_share_the_queries_again_and_again() {
    let golden = golden_json("multi_thread/server_issue_threads.json");
    for case in golden["runs"].as_array().expect("runs") {
        for _ in 0..2 {
            let clock = VirtualClock::new();
            let unused = one_ms(&clock);
            let sut = ByThread::default();
            let options = options(threads_settings(&golden, case));
            let mut library = Numbers::new(64, 64, &unused);
            run(&options, &mut library, &sut, &MonotonicClock::start()).expect("sound");
            let seen = sut.seen.lock().expect("no panics");
            let mut got: Vec<&Vec<u32>> = seen.values().collect();
            got.sort();
            let mut expected: Vec<Vec<u32>> = case["per_thread_sample_indices"]
                .as_array()
                .expect("a list a thread")
                .iter()
                .map(|list| serde_json::from_value(list.clone()).expect("numbers"))
                .collect();
            expected.sort();
            assert_eq!(got, expected.iter().collect::<Vec<_>>(), "{case}");
        }
    }
}

/// On virtual time the threads' work is done in the order of the schedule, with the same shares.
#[test]
fn issuing_threads_on_virtual_time() {
    let golden = golden_json("multi_thread/server_issue_threads.json");
    for case in golden["runs"].as_array().expect("runs") {
        let clock = VirtualClock::new();
        let sut = one_ms(&clock);
        let options = options(threads_settings(&golden, case));
        let mut library = Numbers::new(64, 64, &sut);
        let outcome = run(&options, &mut library, &sut, &clock).expect("sound");
        let lists = case["per_thread_sample_indices"].as_array().expect("lists");
        let count: usize = lists
            .iter()
            .map(|list| list.as_array().expect("a list").len())
            .sum();
        assert_eq!(outcome.phases[0].columns.index.len(), count, "{case}");
        assert_eq!(outcome.phases[0].ends.len(), lists.len(), "{case}");
    }
}
