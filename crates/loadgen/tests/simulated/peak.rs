//! Peak searches over whole simulated runs: the reference's inside a run, ours around runs.

use prony_loadgen::RunOptions;
use prony_loadgen::clock::Nanos;
use prony_loadgen::find_peak::PeakSearch;
use prony_loadgen::find_peak::robust::Stopped;
use prony_loadgen::run;
use prony_loadgen::scenario::{Mode, Scenario};
use prony_loadgen::settings::TestSettings;
use prony_loadgen::testing::{Service, SimulatedSut, VirtualClock};

use crate::world::{Numbers, finish, options, settings};

/// Four servers of 2 ms: 2000 queries/s at most, fewer within a latency limit.
fn four_servers(clock: &VirtualClock) -> SimulatedSut {
    let service = Service::Queueing {
        servers: 4,
        per_sample: Nanos::from_ms(2),
    };
    SimulatedSut::new(clock, service)
}

fn server() -> TestSettings {
    TestSettings {
        min_duration_ms: 2_000,
        min_query_count: 500,
        server_target_qps: 100.0,
        server_target_latency_ns: 10_000_000,
        ..settings(Scenario::Server)
    }
}

#[test]
fn the_references_search_inside_a_run() {
    let clock = VirtualClock::new();
    let sut = four_servers(&clock);
    let finished = finish(
        options(TestSettings {
            mode: Mode::FindPeakPerformance,
            ..server()
        }),
        &clock,
        &sut,
    );
    let peak = finished.outcome.result().expect("a peak");
    let qps = peak.effective.target_qps;
    assert!((1000.0..2000.0).contains(&qps), "{qps}");
    assert!(
        finished
            .file("mlperf_log_summary.txt")
            .contains("Mode     : FindPeakPerformance")
    );
    let forgotten = finished
        .outcome
        .phases
        .iter()
        .filter(|p| p.columns.index.is_empty());
    assert_eq!(forgotten.count(), finished.outcome.phases.len() - 1);
    assert_eq!(finished.outcome.n_errors, 0);
}

/// A SUT without a limit: the plan outgrows memory and the search ends with what passed.
#[test]
fn a_sut_that_never_fails_ends_the_search() {
    let clock = VirtualClock::new();
    let sut = SimulatedSut::new(&clock, Service::Immediate);
    let mut settings = TestSettings {
        mode: Mode::FindPeakPerformance,
        server_find_peak_qps_boundary_step_size: 1e15,
        ..server()
    };
    settings.min_duration_ms = 100;
    let finished = finish(options(settings), &clock, &sut);
    let peak = finished.outcome.result().expect("the base rate passed");
    assert_eq!(peak.effective.target_qps, 100.0);
    assert!(finished.text().contains("FindPeakPerformance: no further"));
}

/// The log said "Initial lower bound does not satisfy performance constraints" of a base trial that
/// was called off.
#[test]
fn a_base_trial_called_off_is_not_said_to_be_too_slow() {
    let clock = VirtualClock::new();
    let sut = four_servers(&clock);
    let options = options(TestSettings {
        mode: Mode::FindPeakPerformance,
        ..server()
    });
    let cancel = options.cancel.clone();
    clock.at(Nanos::from_ms(500), move || cancel.cancel());
    let finished = finish(options, &clock, &sut);
    let text = finished.text();
    assert!(
        text.contains("Ending early: The run was canceled."),
        "{text}"
    );
    assert!(!text.contains("does not satisfy"), "{text}");
    assert!(text.contains("official INVALID, ours INVALID"), "{text}");
}

#[test]
fn the_robust_search_around_runs() {
    let search = PeakSearch {
        trial_duration: Nanos::from_secs(2),
        ..PeakSearch::new(100.0)
    };
    let mut seed = 0;
    let report = search.run(|qps| {
        seed += 1;
        let clock = VirtualClock::new();
        let sut = four_servers(&clock);
        let options: RunOptions = options(TestSettings {
            server_target_qps: qps,
            schedule_rng_seed: seed,
            ..server()
        });
        let mut library = Numbers::new(64, 64, &sut);
        let outcome = run(&options, &mut library, &sut, &clock).expect("sound");
        Ok(outcome.trial(Nanos::from_secs(2)))
    });
    assert_eq!(report.stopped, Stopped::Converged);
    let peak = report.peak_qps.expect("a rate passes");
    assert!((1000.0..2000.0).contains(&peak), "{peak}");
    assert!(report.trials.len() < 40, "{}", report.trials.len());
    let failed = report
        .trials
        .iter()
        .find(|trial| !trial.result.passed)
        .expect("one fails");
    assert!(!failed.result.reasons.is_empty());
}
