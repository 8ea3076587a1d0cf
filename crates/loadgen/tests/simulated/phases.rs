//! Phases in a row: ids and sequence numbers count on, warm-up leaves no trace, bytes repeat.

use prony_loadgen::clock::Nanos;
use prony_loadgen::options::Warmup;
use prony_loadgen::rng::DEFAULT_SEED;
use prony_loadgen::scenario::{Mode, Scenario};
use prony_loadgen::settings::TestSettings;
use prony_loadgen::testing::{Service, SimulatedSut, VirtualClock};
use prony_loadgen::{LoadgenError, RunOptions, run};

use crate::world::{Numbers, finish, one_ms, options, settings, simulate};

const LOGS: [&str; 4] = [
    "mlperf_log_summary.txt",
    "mlperf_log_detail.txt",
    "mlperf_log_accuracy.json",
    "mlperf_log_trace.json",
];

fn queueing(clock: &VirtualClock) -> SimulatedSut {
    let service = Service::Queueing {
        servers: 2,
        per_sample: Nanos::from_us(1_700),
    };
    SimulatedSut::new(clock, service).with_tokens(Nanos::from_us(300), 9)
}

#[test]
fn same_seed_same_bytes_of_all_four_logs() {
    for scenario in Scenario::ALL {
        let settings = |seed: u64| TestSettings {
            mode: Mode::SubmissionRun,
            use_token_latencies: true,
            schedule_rng_seed: seed,
            sample_index_rng_seed: seed,
            qsl_rng_seed: seed,
            accuracy_log_probability: 0.3,
            ..settings(scenario)
        };
        let (first, again) = (
            simulate(settings(7), queueing),
            simulate(settings(7), queueing),
        );
        let other = simulate(settings(DEFAULT_SEED), queueing);
        for file in LOGS {
            assert_eq!(first.file(file), again.file(file), "{scenario} {file}");
            assert!(!first.file(file).is_empty(), "{scenario} {file}");
        }
        assert_ne!(first.file(LOGS[1]), other.file(LOGS[1]), "{scenario}");
        assert_eq!(first.outcome.phases, again.outcome.phases, "{scenario}");
    }
}

#[test]
fn numbers_count_on_through_the_phases() {
    let clock = VirtualClock::new();
    let sut = one_ms(&clock);
    let options = options(TestSettings {
        mode: Mode::SubmissionRun,
        ..settings(Scenario::SingleStream)
    });
    let outcome = run(&options, &mut Numbers::new(20, 8, &sut), &sut, &clock).expect("sound");
    let firsts: Vec<u64> = outcome.phases.iter().map(|p| p.first_sample_seq).collect();
    assert_eq!(firsts, [0, 8, 16, 20]);
    let ids: Vec<u64> = sut.issued().concat().iter().map(|s| s.id.0.get()).collect();
    let all: Vec<u64> = (1..=ids.len() as u64).collect();
    assert_eq!(ids, all);
}

/// Warm-up goes to the SUT and nowhere else: logs and ids are those of a run without it.
#[test]
fn warm_up_leaves_the_logs_alone() {
    let clock = VirtualClock::new();
    let sut = one_ms(&clock);
    let cold = finish(options(settings(Scenario::Server)), &clock, &sut);
    let warm_clock = VirtualClock::new();
    let warm_sut = one_ms(&warm_clock);
    let mut warm_options = options(settings(Scenario::Server));
    warm_options.warmup = Warmup {
        queries: 10,
        in_flight: 4,
    };
    let warm = finish(warm_options, &warm_clock, &warm_sut);
    let (cold_sut, warm_sut) = (sut.issued(), warm_sut.issued());
    assert_eq!(warm_sut.len(), cold_sut.len() + 3);
    assert_eq!(warm_sut[3..], cold_sut);
    let mut ids: Vec<_> = warm_sut.concat().iter().map(|s| s.id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(
        ids.len(),
        warm_sut.concat().len(),
        "ids are unique in a run"
    );
    let columns = |finished: &crate::world::Finished| finished.outcome.phases[0].columns.clone();
    assert_eq!(columns(&warm), columns(&cold));
    assert_eq!(warm.file(LOGS[0]), cold.file(LOGS[0]));
}

#[test]
fn refused_settings_and_kept_results() {
    let clock = VirtualClock::new();
    let sut = one_ms(&clock);
    let mut options = RunOptions::new(TestSettings {
        server_target_qps: f64::NAN,
        performance_issue_same: true,
        performance_issue_unique: true,
        ..settings(Scenario::Server)
    });
    let refused = run(&options, &mut Numbers::new(8, 8, &sut), &sut, &clock);
    let Err(LoadgenError::RefusedSettings(refused)) = refused else {
        panic!("settings no run can honour were accepted");
    };
    assert!(refused.len() >= 2, "{refused:?}");

    let done = finish(
        crate::world::options(settings(Scenario::Offline)),
        &clock,
        &sut,
    );
    options = crate::world::options(settings(Scenario::Offline));
    options.log = Some(prony_loadgen::report::LogSettings {
        outdir: done.folder.path().to_owned(),
        ..Default::default()
    });
    let issued = sut.issued().len();
    let kept = run(&options, &mut Numbers::new(8, 8, &sut), &sut, &clock);
    assert!(matches!(kept, Err(LoadgenError::WouldOverwrite(_))));
    assert_eq!(sut.issued().len(), issued, "refused before the first query");
}
