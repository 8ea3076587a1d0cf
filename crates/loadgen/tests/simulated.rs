//! Whole runs on virtual time: every way a run can end, and every way an answer can be wrong.

use prony_loadgen::clock::{Nanos, WaitPolicy};
use prony_loadgen::issue::EndReason;
use prony_loadgen::sample::{QuerySampleLibrary, SampleIndex};
use prony_loadgen::scenario::Scenario;
use prony_loadgen::settings::TestSettings;
use prony_loadgen::testing::{Service, SimulatedSut, VirtualClock};
use prony_loadgen::{Outcome, RunOptions, run};

/// A data set of numbers.
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

fn settings(scenario: Scenario) -> TestSettings {
    TestSettings {
        scenario,
        min_duration_ms: 100,
        min_query_count: 10,
        server_target_qps: 1000.0,
        offline_expected_qps: 1000.0,
        ..TestSettings::default()
    }
}

fn simulate(settings: TestSettings, sut: impl Fn(&VirtualClock) -> SimulatedSut) -> Outcome {
    let clock = VirtualClock::new();
    let sut = sut(&clock);
    let mut options = RunOptions::new(settings);
    options.wait = WaitPolicy::SLEEP_ONLY;
    run(&options, &mut Numbers(64), &sut, &clock).expect("settings are sound")
}

fn fixed_ms(ms: i64) -> impl Fn(&VirtualClock) -> SimulatedSut {
    move |clock| SimulatedSut::new(clock, Service::Fixed(Nanos::from_ms(ms)))
}

#[test]
fn each_scenario_ends_as_the_reference_does() {
    let cases = [
        (Scenario::SingleStream, EndReason::Natural, 101),
        (Scenario::MultiStream, EndReason::Natural, 101 * 8),
        (Scenario::Server, EndReason::AllIssued, 93),
        (Scenario::Offline, EndReason::Natural, 110),
    ];
    for (scenario, end, samples) in cases {
        let outcome = simulate(
            TestSettings {
                multi_stream_expected_latency_ns: 1e6,
                ..settings(scenario)
            },
            fixed_ms(1),
        );
        let phase = &outcome.phases[0];
        assert_eq!(phase.ends, [end], "{scenario}");
        assert_eq!(
            phase.performance.sample_latencies_ns,
            vec![1_000_000; samples]
        );
    }
}
