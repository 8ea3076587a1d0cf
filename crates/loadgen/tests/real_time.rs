//! Short runs on the machine's clock, with answers from other threads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use prony_loadgen::clock::{Clock, MonotonicClock, Nanos, WaitPolicy};
use prony_loadgen::incident::Incident;
use prony_loadgen::recorder::SampleStatus;
use prony_loadgen::sample::{QuerySample, QuerySampleLibrary, SampleId, SampleIndex};
use prony_loadgen::scenario::Scenario;
use prony_loadgen::settings::TestSettings;
use prony_loadgen::sut::{Responder, SystemUnderTest};
use prony_loadgen::{Outcome, RunOptions, run};

struct Numbers;

impl QuerySampleLibrary for Numbers {
    fn name(&self) -> &str {
        "Numbers"
    }
    fn total_sample_count(&self) -> usize {
        64
    }
    fn performance_sample_count(&self) -> usize {
        64
    }
    fn load_samples(&mut self, _samples: &[SampleIndex]) {}
    fn unload_samples(&mut self, _samples: &[SampleIndex]) {}
}

type Job = (QuerySample, Responder);

/// Several threads that each answer every sample: all but the first answer are doubles.
struct Racing {
    threads: Vec<(SyncSender<Job>, JoinHandle<()>)>,
    flushed: AtomicBool,
}

impl Racing {
    fn with_threads(n: usize) -> Self {
        let start = |_| {
            let (jobs, inbox) = sync_channel::<Job>(1 << 16);
            let work = move || {
                for (sample, responder) in inbox {
                    responder.complete(sample.id, responder.now(), &[], 0);
                }
            };
            (jobs, std::thread::spawn(work))
        };
        Self {
            threads: (0..n).map(start).collect(),
            flushed: AtomicBool::new(false),
        }
    }

    fn join(self) {
        for (jobs, thread) in self.threads {
            drop(jobs);
            thread.join().expect("no panics");
        }
    }
}

impl SystemUnderTest for Racing {
    fn name(&self) -> &str {
        "Racing"
    }
    fn issue(&self, samples: &[QuerySample], responder: &Responder) {
        for sample in samples {
            for (jobs, _) in &self.threads {
                jobs.send((*sample, responder.clone()))
                    .expect("the threads outlive the run");
            }
        }
    }
    fn flush(&self) {
        self.flushed.store(true, Ordering::Relaxed);
    }
}

fn run_racing(scenario: Scenario, n_threads: usize, wait: WaitPolicy) -> Outcome {
    let sut = Racing::with_threads(n_threads);
    let mut options = RunOptions::new(TestSettings {
        scenario,
        min_duration_ms: 0,
        min_query_count: 500,
        server_target_qps: 20_000.0,
        ..TestSettings::default()
    });
    options.wait = wait;
    let outcome = run(&options, &mut Numbers, &sut, &MonotonicClock::start()).expect("sound");
    assert!(sut.flushed.load(Ordering::Relaxed));
    sut.join();
    outcome
}

/// Every sample is answered exactly once, however many threads answer it and however the
/// issuing thread waits.
#[test]
fn one_answer_wins() {
    let policies = [
        WaitPolicy::SLEEP_ONLY,
        WaitPolicy::spin_last(Nanos::from_us(50)),
    ];
    for scenario in Scenario::ALL {
        for wait in policies {
            let outcome = run_racing(scenario, 3, wait);
            let phase = &outcome.phases[0];
            let completed = |status: &SampleStatus| *status == SampleStatus::Completed;
            assert!(phase.columns.status.iter().all(completed), "{scenario}");
            assert!(phase.lost.is_empty(), "{scenario}");
            // Of three answers two are doubles; some come after the phase was read.
            let doubles = phase.incidents.incidents[Incident::CompletedTwice as usize];
            let samples = phase.columns.status.len() as u64;
            assert!(doubles <= 2 * samples, "{scenario}");
            let latencies = &phase.performance.sample_latencies_ns;
            assert!(latencies.iter().all(|ns| *ns >= 0), "{scenario}");
        }
    }
}

/// Queries never go out before they are due.
#[test]
fn server_is_never_early() {
    let outcome = run_racing(Scenario::Server, 1, WaitPolicy::default());
    let columns = &outcome.phases[0].columns;
    let mut pairs = columns.issued_ns.iter().zip(&columns.due_ns);
    assert!(pairs.all(|(issued, due)| issued >= due));
}

/// Answers with whatever stamp it was given, inside the call but for the second sample, which a
/// thread of its own answers; never answers sample `lost`.
struct Stamping {
    at: Nanos,
    lost: Option<u64>,
}

impl Stamping {
    fn answer(&self, id: SampleId, responder: &Responder) {
        // Where one is lost, only the late answer's stamp makes no sense.
        let sound = self.lost.is_some() && id.0.get() != 2;
        let at = if sound { responder.now() } else { self.at };
        responder.sent(id, at);
        responder.first_token(id, responder.now(), &[]);
        let responder = responder.clone();
        let complete = move || responder.complete(id, at, &[], i64::MAX);
        if id.0.get() == 2 {
            std::thread::spawn(complete);
        } else {
            complete();
        }
    }
}

impl SystemUnderTest for Stamping {
    fn name(&self) -> &str {
        "Stamping"
    }
    fn issue(&self, samples: &[QuerySample], responder: &Responder) {
        for sample in samples {
            if Some(sample.id.0.get()) != self.lost {
                self.answer(sample.id, responder);
            }
        }
    }
    fn flush(&self) {}
}

fn run_stamping(scenario: Scenario, sut: &Stamping) -> Outcome {
    let mut options = RunOptions::new(TestSettings {
        scenario,
        min_duration_ms: 0,
        min_query_count: 20,
        server_target_qps: 20_000.0,
        use_token_latencies: true,
        ..TestSettings::default()
    });
    options.lost_sample_timeout = Some(Nanos::from_ms(200));
    options.phase_time_limit = Some(Nanos(i64::MAX));
    run(&options, &mut Numbers, sut, &MonotonicClock::start()).expect("sound")
}

/// Stamps at the ends of the range, sums of token counts and limits beyond it: none overflows.
#[test]
fn stamps_and_limits_without_sense_are_survived() {
    for scenario in Scenario::ALL {
        for at in [i64::MIN, -1, i64::MAX] {
            let sut = Stamping {
                at: Nanos(at),
                lost: None,
            };
            let outcome = run_stamping(scenario, &sut);
            let phase = outcome.result().expect("a result");
            let statuses = &phase.columns.status;
            let completed = |status: &SampleStatus| *status == SampleStatus::Completed;
            assert!(statuses.iter().all(completed), "{scenario} {at}");
        }
    }
}

/// An answer stamped centuries ahead counted as heard of in the meantime: the sample lost after it
/// was waited for until then.
#[test]
fn a_stamp_that_lies_ahead_does_not_put_off_the_time_out() {
    for scenario in Scenario::ALL {
        let sut = Stamping {
            at: Nanos(i64::MAX),
            lost: Some(3),
        };
        let outcome = run_stamping(scenario, &sut);
        assert_eq!(outcome.phases[0].lost.len(), 1, "{scenario}");
    }
}

#[test]
fn monotonic_time_does_not_run_backwards() {
    let clock = MonotonicClock::start();
    let stamps: Vec<Nanos> = (0..10_000).map(|_| clock.now()).collect();
    assert!(stamps.is_sorted());
    assert!(stamps[0] >= Nanos::ZERO);
    // Later than 2024 and no farther than 2100.
    assert!((1_704_067_200_000_000_000..4_102_444_800_000_000_000).contains(&clock.unix_ns()));
}
