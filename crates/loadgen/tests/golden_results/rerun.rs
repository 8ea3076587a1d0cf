//! Every golden run again, from its settings, with our LoadGen on virtual time.
//!
//! What the clock decides differs (latencies, rates); files, keys, their order, settings, sets,
//! counts, verdicts and messages must not.

use std::sync::Mutex;

use prony_loadgen::clock::{Clock, Nanos, WaitPolicy};
use prony_loadgen::conf::Configured;
use prony_loadgen::conf::apply::Target;
use prony_loadgen::conf::keys::ConfKind;
use prony_loadgen::conf::mlperf::Round;
use prony_loadgen::report::{LogPaths, LogSettings};
use prony_loadgen::sample::{QuerySample, QuerySampleLibrary, SampleIndex};
use prony_loadgen::scenario::{Mode, Scenario};
use prony_loadgen::sut::{Responder, SystemUnderTest};
use prony_loadgen::testing::VirtualClock;
use prony_loadgen::{LoadgenError, RunOptions, run};
use serde_json::Value;

use crate::data::{golden_path, settings_from};
use crate::folder::{Folder, Line, folders};
use crate::replay::is_logger_warning;

struct Library {
    total: u64,
    in_memory: u64,
}

impl QuerySampleLibrary for Library {
    fn name(&self) -> &str {
        "PyQSL"
    }
    fn total_sample_count(&self) -> usize {
        self.total as usize
    }
    fn performance_sample_count(&self) -> usize {
        self.in_memory as usize
    }
    fn load_samples(&mut self, _samples: &[SampleIndex]) {}
    fn unload_samples(&mut self, _samples: &[SampleIndex]) {}
}

/// The SUT the golden runs were made with: threads that take whole queries in turn.
struct Threads {
    clock: VirtualClock,
    case: Value,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    n_queries: usize,
    free_at: Vec<Nanos>,
}

impl Threads {
    fn ms(&self, key: &str) -> Nanos {
        Nanos((self.case[key].as_f64().unwrap_or(0.0) * 1e6) as i64)
    }

    fn n_threads(&self) -> usize {
        self.case["threads"].as_u64().unwrap_or(1) as usize
    }

    /// The sample's index, as often as the case says, or nothing.
    fn payload(&self, sample: QuerySample) -> Vec<u8> {
        if self.case["payload"] != true {
            return Vec::new();
        }
        let n_words = self.case["payload_words"].as_u64().unwrap_or(1);
        sample.index.0.to_le_bytes().repeat(n_words as usize)
    }
}

impl SystemUnderTest for Threads {
    fn name(&self) -> &str {
        "PySUT"
    }

    fn issue(&self, samples: &[QuerySample], responder: &Responder) {
        let mut state = self.state.lock().expect("no panics");
        let thread = state.n_queries % self.n_threads();
        let turn = state.n_queries / self.n_threads();
        state.n_queries += 1;
        state.free_at.resize(self.n_threads(), Nanos::ZERO);
        let immediate = self.case["kind"] == "immediate";
        let free_at = if immediate {
            Nanos::ZERO
        } else {
            state.free_at[thread]
        };
        let start = self.clock.now().max(free_at);
        let n_tokens = self.case["tokens"].as_array().map_or(0, |counts| {
            counts[turn % counts.len()].as_i64().expect("a count")
        });
        let first = start + self.ms("ttft_ms");
        let done = match self.case["kind"].as_str() {
            Some("token") => first + Nanos(self.ms("tpot_ms").0 * (n_tokens.max(1) - 1)),
            Some("thread") => {
                let delays = self.case["delays_ms"].as_array().expect("delays");
                start + Nanos((delays[0].as_f64().expect("ms") * 1e6) as i64)
            }
            // Not 0: a rate of 1/0 has no value to compare.
            _ => start + Nanos(5_000),
        };
        state.free_at[thread] = done;
        for &sample in samples {
            let data = self.payload(sample);
            if self.case["kind"] == "token" && self.case["first_token"] != false {
                let (responder, data) = (responder.clone(), data.clone());
                let answer = move || responder.first_token(sample.id, first, &data);
                self.clock.at(first, answer);
            }
            let responder = responder.clone();
            let answer = move || responder.complete(sample.id, done, &data, n_tokens);
            self.clock.at(done, answer);
        }
    }

    fn flush(&self) {}
}

/// Settings as the golden run was given them, configuration files applied.
fn configured(folder: &Folder) -> Configured {
    let mut configured = Configured::default();
    configured.settings = settings_from(&folder.case["settings"]);
    if folder.case.get("conf").is_some() {
        let target = Target {
            model: "resnet50",
            scenario: configured.settings.scenario,
        };
        let path = golden_path(&format!("logs/{}/user.conf", folder.name));
        let applied = configured.apply_file(&path, ConfKind::User, Round::CURRENT, target);
        applied.expect("a sound file");
    }
    let audit = folder.case.get("audit").is_some();
    let path = golden_path(&format!("logs/{}/audit.config", folder.name));
    configured.apply_at_start(audit.then_some(path.as_path()));
    for note in &mut configured.notes {
        note.text = note
            .text
            .replace(&path.display().to_string(), "audit.config");
    }
    configured
}

fn rerun(folder: &Folder, outdir: &std::path::Path) -> Result<LogPaths, LoadgenError> {
    let configured = configured(folder);
    let clock = VirtualClock::new();
    let sut = Threads {
        clock: clock.clone(),
        case: folder.case["sut"].clone(),
        state: Mutex::default(),
    };
    let mut options = RunOptions::new(configured.settings);
    options.notes = configured.notes;
    options.wait = WaitPolicy::SLEEP_ONLY;
    options.log = Some(LogSettings {
        outdir: outdir.join(&folder.name),
        enable_trace: folder.trace.is_some(),
        ..LogSettings::default()
    });
    let mut library = Library {
        total: folder.qsl("total"),
        in_memory: folder.qsl("perf"),
    };
    let outcome = run(&options, &mut library, &sut, &clock)?;
    Ok(outcome.log_paths.expect("logs were asked for"))
}

#[test]
fn every_golden_case_run_again() {
    let outdir = tempfile::tempdir().expect("a folder");
    let mut refused = Vec::new();
    for folder in folders() {
        match rerun(&folder, outdir.path()) {
            Ok(paths) => compare(&folder, &paths),
            Err(LoadgenError::RefusedSettings(_)) => refused.push(folder.name),
            Err(other) => panic!("{}: {other}", folder.name),
        }
    }
    // The reference logs an error and runs on with settings it makes up; we refuse to.
    assert_eq!(refused, ["err_negative_qps", "err_same_index_and_unique"]);
}

fn compare(folder: &Folder, paths: &LogPaths) {
    let read = |path: &std::path::Path| std::fs::read_to_string(path).expect("a log file");
    let detail = read(&paths.detail);
    let ours: Vec<Line> = detail.lines().map(Line::parse).collect();
    let theirs = folder.lines.iter().filter(|line| !is_logger_warning(line));
    let theirs: Vec<&Line> = theirs.filter(|line| !is_thread_mismatch(line)).collect();
    // How many queries a stream run fits into its duration, and which rates a search tries next,
    // is up to the machine.
    let settings = folder.settings();
    let stream = matches!(
        settings.scenario,
        Scenario::SingleStream | Scenario::MultiStream
    );
    let varies = if settings.mode == Mode::FindPeakPerformance {
        Varies::Rates
    } else if stream && settings.min_duration_ms > 0 {
        Varies::Queries
    } else {
        Varies::Times
    };
    let one_error_less = folder.lines.iter().any(is_thread_mismatch);
    for (our, their) in ours.iter().zip(&theirs) {
        if one_error_less && their.key == "num_errors" {
            assert_eq!(our.count() + 1, their.count());
            continue;
        }
        let name = &folder.name;
        assert_eq!(comparable(our, varies), comparable(their, varies), "{name}");
        for mark in ["is_error", "is_warning"] {
            assert_eq!(
                our.json["metadata"][mark], their.json["metadata"][mark],
                "{name}"
            );
        }
    }
    assert_eq!(ours.len(), theirs.len(), "{}", folder.name);
    compare_summaries(folder, &read(&paths.summary));
    compare_answers(folder, &read(&paths.accuracy));
    let trace = read(&paths.trace);
    assert_eq!(trace.is_empty(), folder.trace.is_none(), "{}", folder.name);
    if !trace.is_empty() {
        serde_json::from_str::<Value>(&trace).expect("strict JSON");
    }
}

/// The same lines, numbers aside; the reference also counts what only it logs.
fn compare_summaries(folder: &Folder, ours: &str) {
    let mut theirs = folder.summary.clone();
    if folder.lines.iter().any(is_logger_warning) {
        theirs = theirs.replace(
            "1 warning encountered. See detailed log.",
            "No warnings encountered during test.",
        );
    }
    if folder.lines.iter().any(is_thread_mismatch) {
        theirs = theirs.replace(
            "1 ERROR encountered. See detailed log.",
            "No errors encountered during test.",
        );
    }
    assert_eq!(
        without_numbers(ours),
        without_numbers(&theirs),
        "{}",
        folder.name
    );
}

/// The same answers; with several SUT threads their order is a race in the reference.
fn compare_answers(folder: &Folder, ours: &str) {
    let entries = |text: &str| {
        let mut entries: Vec<Value> = serde_json::from_str(text).expect("strict JSON");
        entries.sort_by_key(|entry| entry["seq_id"].as_u64());
        entries
    };
    assert_eq!(entries(ours), entries(&folder.accuracy), "{}", folder.name);
    if folder.case["sut"].get("threads").is_none() {
        assert_eq!(ours, folder.accuracy, "{}", folder.name);
    }
}

/// Ours starts as many issuing threads as the setting says; nobody has to register them.
fn is_thread_mismatch(line: &Line) -> bool {
    line.key == "error_runtime"
        && line
            .text()
            .starts_with("Mismatch between settings and number")
}

/// What a faster or slower machine changes in a run; each includes those before it.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Varies {
    Times,
    /// How many queries were issued.
    Queries,
    /// Which rates were tried.
    Rates,
}

/// Key and value; without the value, or the numbers in it, where they depend on the program or
/// on how fast it ran.
fn comparable(line: &Line, varies: Varies) -> (String, String) {
    let key = line.key.as_str();
    let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| key.starts_with(prefix));
    let of_the_program = ["loadgen_", "test_datetime", "get_sut_name", "power_"];
    let measured = starts(&["result_", "early_stopping", "error_"])
        && (key != "result_query_count" || varies >= Varies::Queries);
    let searched = varies == Varies::Rates && starts(&["generated_", "generic_"]);
    let value = if starts(&of_the_program) {
        String::new()
    } else if measured || searched {
        without_numbers(&line.raw)
    } else {
        line.raw.clone()
    };
    (key.to_owned(), value)
}

/// Every number as one `#`.
fn without_numbers(text: &str) -> String {
    let mut masked = String::new();
    let mut in_number = false;
    for c in text.chars() {
        let digit = c.is_ascii_digit() || (in_number && matches!(c, '.' | 'e' | '+' | '-'));
        if digit && !in_number {
            masked.push('#');
        } else if !digit {
            masked.push(c);
        }
        in_number = digit;
    }
    masked.replace("-#", "#")
}
