//! A run takes as much memory as was estimated before it: the whole of it, figures included.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use prony_loadgen::clock::{MonotonicClock, Nanos};
use prony_loadgen::report::LogSettings;
use prony_loadgen::sample::{QuerySample, QuerySampleLibrary, SampleIndex};
use prony_loadgen::scenario::{Mode, Phase, Scenario};
use prony_loadgen::settings::{EffectiveSettings, MemoryNeed, TestSettings};
use prony_loadgen::sut::{Responder, SystemUnderTest};
use prony_loadgen::{RunOptions, run};

/// Counts the bytes that are allocated now, and their highest number.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call is passed on unchanged to the system allocator.
#[allow(unsafe_code, reason = "an allocator that counts has to be one")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(live, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Answers at once, or stamps its answers an hour late in every second phase after the third.
#[derive(Default)]
struct Inline {
    wavers: bool,
    phases: AtomicUsize,
}

impl SystemUnderTest for Inline {
    fn name(&self) -> &str {
        "Inline"
    }
    fn issue(&self, samples: &[QuerySample], responder: &Responder) {
        let phase = self.phases.load(Ordering::Relaxed);
        let late = self.wavers && phase > 3 && phase.is_multiple_of(2);
        let now = responder.now() + Nanos::from_secs(if late { 3600 } else { 0 });
        for sample in samples {
            responder.complete(sample.id, now, b"", 3);
        }
    }
    fn flush(&self) {
        self.phases.fetch_add(1, Ordering::Relaxed);
    }
}

struct Numbers(usize);

impl QuerySampleLibrary for Numbers {
    fn name(&self) -> &str {
        "Numbers"
    }
    fn total_sample_count(&self) -> usize {
        self.0
    }
    fn performance_sample_count(&self) -> usize {
        self.0
    }
    fn load_samples(&mut self, _samples: &[SampleIndex]) {}
    fn unload_samples(&mut self, _samples: &[SampleIndex]) {}
}

/// Bytes a run took at its peak, and what was estimated.
fn taken(settings: &TestSettings, n_samples: usize, sut: &Inline) -> (f64, f64) {
    let n = n_samples as u64;
    let (eff, _) = EffectiveSettings::derive(settings, n, n);
    let estimated = MemoryNeed::of(&eff, Phase::Performance, n).total_bytes();
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let folder = tempfile::tempdir().expect("a folder");
    let mut options = RunOptions::new(settings.clone());
    options.log = Some(LogSettings {
        outdir: folder.path().to_owned(),
        ..LogSettings::default()
    });
    let mut library = Numbers(n_samples);
    run(&options, &mut library, sut, &MonotonicClock::start()).expect("sound settings");
    let peak = PEAK.load(Ordering::Relaxed) - before;
    (peak as f64, estimated as f64)
}

#[test]
fn a_run_takes_what_was_estimated() {
    estimates_hold();
    a_search_keeps_two_trials();
}

fn estimates_hold() {
    for scenario in Scenario::ALL {
        for (token_mode, n_samples, n_queries) in [
            (false, 64, 300_000),
            (true, 64, 300_000),
            (false, 300_000, 1_000),
        ] {
            let settings = TestSettings {
                scenario,
                min_duration_ms: 0,
                min_query_count: n_queries,
                server_target_qps: 1e9,
                use_token_latencies: token_mode,
                ..TestSettings::default()
            };
            let (taken, estimated) = taken(&settings, n_samples, &Inline::default());
            let case = format!("{scenario}, token mode {token_mode}, {n_samples} samples");
            let share = taken / estimated;
            assert!(
                (0.75..=1.02).contains(&share),
                "{case}: {taken} of {estimated}"
            );
        }
    }
}

/// A search of some thirty trials kept the records of them all until it was over.
fn a_search_keeps_two_trials() {
    let settings = TestSettings {
        scenario: Scenario::Server,
        mode: Mode::FindPeakPerformance,
        min_duration_ms: 0,
        min_query_count: 20_000,
        server_target_qps: 1e6,
        server_find_peak_qps_decimals_of_precision: 0,
        ..TestSettings::default()
    };
    let sut = Inline {
        wavers: true,
        ..Inline::default()
    };
    let (taken, one_trial) = taken(&settings, 64, &sut);
    let n_trials = sut.phases.load(Ordering::Relaxed);
    assert!(n_trials > 15, "{n_trials}");
    assert!(
        taken < 2.5 * one_trial,
        "{n_trials} trials: {:.1}",
        taken / one_trial
    );
}
