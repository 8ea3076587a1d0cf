//! A data set, a simulated SUT and a folder for the logs; runs as text.

use std::fmt::Write as _;

use prony_loadgen::clock::{Nanos, WaitPolicy};
use prony_loadgen::options::Warmup;
use prony_loadgen::report::LogSettings;
use prony_loadgen::sample::{QuerySampleLibrary, SampleIndex};
use prony_loadgen::scenario::Scenario;
use prony_loadgen::settings::TestSettings;
use prony_loadgen::testing::{Service, SimulatedSut, VirtualClock};
use prony_loadgen::{Outcome, RunOptions, run};

/// A data set of numbers that remembers when it was asked for what.
pub(crate) struct Numbers<'a> {
    pub(crate) total: usize,
    pub(crate) in_memory: usize,
    pub(crate) sut: &'a SimulatedSut,
    /// What happened, after how many queries.
    pub(crate) events: Vec<(&'static str, usize)>,
    pub(crate) loaded: Vec<Vec<u32>>,
}

impl<'a> Numbers<'a> {
    pub(crate) fn new(total: usize, in_memory: usize, sut: &'a SimulatedSut) -> Self {
        Self {
            total,
            in_memory,
            sut,
            events: Vec::new(),
            loaded: Vec::new(),
        }
    }
}

impl QuerySampleLibrary for Numbers<'_> {
    fn name(&self) -> &str {
        "Numbers"
    }
    fn total_sample_count(&self) -> usize {
        self.total
    }
    fn performance_sample_count(&self) -> usize {
        self.in_memory
    }
    fn load_samples(&mut self, samples: &[SampleIndex]) {
        self.events.push(("load", self.sut.issued().len()));
        self.loaded
            .push(samples.iter().map(|index| index.0).collect());
    }
    fn unload_samples(&mut self, _samples: &[SampleIndex]) {
        self.events.push(("unload", self.sut.issued().len()));
    }
}

/// 100 ms at 1000/s, ten queries at least.
pub(crate) fn settings(scenario: Scenario) -> TestSettings {
    TestSettings {
        scenario,
        min_duration_ms: 100,
        min_query_count: 10,
        server_target_qps: 1000.0,
        offline_expected_qps: 1000.0,
        multi_stream_expected_latency_ns: 1e6,
        multi_stream_samples_per_query: 4,
        ..TestSettings::default()
    }
}

/// Options of a run that is lost after a second of silence.
pub(crate) fn options(settings: TestSettings) -> RunOptions {
    let mut options = RunOptions::new(settings);
    options.wait = WaitPolicy::SLEEP_ONLY;
    options.lost_sample_timeout = Some(Nanos::from_secs(1));
    options.warmup = Warmup::default();
    options
}

/// A SUT that answers each sample after 1 ms.
pub(crate) fn one_ms(clock: &VirtualClock) -> SimulatedSut {
    SimulatedSut::new(clock, Service::Fixed(Nanos::from_ms(1)))
}

/// A finished run with what it logged.
pub(crate) struct Finished {
    pub(crate) outcome: Outcome,
    pub(crate) folder: tempfile::TempDir,
}

impl Finished {
    pub(crate) fn file(&self, name: &str) -> String {
        let path = self.folder.path().join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    /// How it ended, what it counted and what it logged as wrong.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for phase in &self.outcome.phases {
            let issued = phase.performance.queries_issued;
            let lost = phase.lost.len();
            let ends = &phase.ends;
            let _ = writeln!(
                text,
                "{:?}: {ends:?}, issued {issued}, lost {lost}",
                phase.phase
            );
            if let Some(judged) = &phase.judged {
                let verdict = &judged.verdict;
                let _ = writeln!(
                    text,
                    "official {}, ours {}",
                    verdict.official_validity, verdict.validity
                );
            }
        }
        for line in self.file("mlperf_log_detail.txt").lines() {
            let json = line.trim_start_matches(":::MLLOG ");
            let json: serde_json::Value = serde_json::from_str(json).expect("a JSON line");
            let message = json["key"] == "generic_message";
            if json["metadata"]["is_error"] == true || message {
                wrap(&mut text, json["value"].as_str().expect("a text"));
            }
        }
        text
    }
}

/// Adds a message in lines that fit a source file.
fn wrap(text: &mut String, message: &str) {
    let mut width = 0;
    for word in message.split(' ') {
        if width > 0 && width + word.len() > 70 {
            text.push_str("\n ");
            width = 0;
        }
        if width > 0 || text.ends_with("\n ") {
            text.push(' ');
        }
        text.push_str(word);
        width += word.len() + 1;
    }
    text.push('\n');
}

/// Runs with logs and trace in a fresh folder.
pub(crate) fn finish(
    mut options: RunOptions,
    clock: &VirtualClock,
    sut: &SimulatedSut,
) -> Finished {
    let folder = tempfile::tempdir().expect("a folder");
    options.log = Some(LogSettings {
        outdir: folder.path().to_owned(),
        enable_trace: true,
        ..LogSettings::default()
    });
    let mut library = Numbers::new(64, 64, sut);
    let outcome = run(&options, &mut library, sut, clock).expect("settings are sound");
    Finished { outcome, folder }
}

pub(crate) fn simulate(
    settings: TestSettings,
    sut: impl FnOnce(&VirtualClock) -> SimulatedSut,
) -> Finished {
    let clock = VirtualClock::new();
    let sut = sut(&clock);
    finish(options(settings), &clock, &sut)
}
