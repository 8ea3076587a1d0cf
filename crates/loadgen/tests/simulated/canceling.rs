//! Calling a run off, in every scenario and phase, on virtual and on real time.

use prony_loadgen::clock::{MonotonicClock, Nanos};
use prony_loadgen::issue::EndReason;
use prony_loadgen::progress::Cancel;
use prony_loadgen::recorder::SampleStatus;
use prony_loadgen::run;
use prony_loadgen::sample::QuerySample;
use prony_loadgen::scenario::{Mode, Scenario};
use prony_loadgen::settings::TestSettings;
use prony_loadgen::sut::{Responder, SystemUnderTest};
use prony_loadgen::testing::{Service, SimulatedSut, VirtualClock};

use crate::world::{Numbers, finish, one_ms, options, settings};

/// Called off 20 ms into 100 ms.
#[test]
fn every_scenario_stops_at_once() {
    for scenario in Scenario::ALL {
        let clock = VirtualClock::new();
        let sut = SimulatedSut::new(&clock, Service::Fixed(Nanos::from_ms(3)));
        let options = options(TestSettings {
            // Offline would be answered before.
            server_target_qps: 500.0,
            ..settings(scenario)
        });
        let at = Nanos::from_ms(if scenario == Scenario::Offline { 2 } else { 20 });
        let cancel = options.cancel.clone();
        clock.at(at, move || cancel.cancel());
        let finished = finish(options, &clock, &sut);
        let phase = &finished.outcome.phases[0];
        assert_eq!(phase.ends.last(), Some(&EndReason::Canceled), "{scenario}");
        let done_ns = &phase.columns.done_ns;
        assert!(done_ns.iter().all(|done| *done <= at.0), "{scenario}");
        let canceled = |status: &&SampleStatus| **status == SampleStatus::Canceled;
        let n_canceled = phase.columns.status.iter().filter(canceled).count();
        assert_eq!(n_canceled, phase.lost.len(), "{scenario}");
        assert!(n_canceled > 0, "{scenario}");
        let verdict = &phase.judged.as_ref().expect("a verdict").verdict;
        assert_eq!(verdict.validity.to_string(), "INVALID", "{scenario}");
        assert_eq!(sut.flushed_after().len(), 1, "{scenario}");
    }
}

#[test]
fn later_phases_do_not_start() {
    let clock = VirtualClock::new();
    let sut = one_ms(&clock);
    let options = options(TestSettings {
        mode: Mode::SubmissionRun,
        ..settings(Scenario::SingleStream)
    });
    let cancel = options.cancel.clone();
    clock.at(Nanos::from_ms(3), move || cancel.cancel());
    let outcome = run(&options, &mut Numbers::new(20, 8, &sut), &sut, &clock).expect("sound");
    assert_eq!(outcome.phases.len(), 1);
    assert!(outcome.result().is_none());
}

#[test]
fn a_run_called_off_before_it_begins_issues_nothing() {
    for scenario in Scenario::ALL {
        let clock = VirtualClock::new();
        let sut = one_ms(&clock);
        let options = options(settings(scenario));
        options.cancel.cancel();
        let outcome = run(&options, &mut Numbers::new(8, 8, &sut), &sut, &clock).expect("sound");
        assert_eq!(
            (sut.issued().len(), outcome.phases.len()),
            (0, 0),
            "{scenario}"
        );
    }
}

/// Never answers; calls the run off from another thread at the first query.
struct Silent(Cancel);

impl SystemUnderTest for Silent {
    fn name(&self) -> &str {
        "Silent"
    }
    fn issue(&self, _samples: &[QuerySample], _responder: &Responder) {
        let cancel = self.0.clone();
        std::thread::spawn(move || cancel.cancel());
    }
    fn flush(&self) {}
}

/// Real time: the next Server query is due in hours, and no answer ever comes.
#[test]
fn real_waits_are_woken() {
    for (scenario, threads) in [
        (Scenario::SingleStream, 0),
        (Scenario::MultiStream, 0),
        (Scenario::Server, 0),
        (Scenario::Server, 3),
        (Scenario::Offline, 0),
    ] {
        let clock = VirtualClock::new();
        let unused = one_ms(&clock);
        let mut options = options(TestSettings {
            server_target_qps: 0.0001,
            server_num_issue_query_threads: threads,
            min_duration_ms: 0,
            ..settings(scenario)
        });
        options.lost_sample_timeout = None;
        let sut = Silent(options.cancel.clone());
        let mut library = Numbers::new(8, 8, &unused);
        let outcome = run(&options, &mut library, &sut, &MonotonicClock::start()).expect("sound");
        let ends = &outcome.phases[0].ends;
        assert_eq!(
            ends.last(),
            Some(&EndReason::Canceled),
            "{scenario} {ends:?}"
        );
    }
}
