//! Every way an answer can be wrong: recorded, counted, reported, never waited for.

use expect_test::{Expect, expect};
use prony_loadgen::clock::Nanos;
use prony_loadgen::incident::{FailureKind, Incident};
use prony_loadgen::recorder::SampleStatus;
use prony_loadgen::scenario::{Mode, Scenario};
use prony_loadgen::settings::TestSettings;
use prony_loadgen::testing::{Fault, VirtualClock};

use crate::world::{Finished, finish, one_ms, options, settings, simulate};

/// Five queries, the third of which meets `fault`.
fn short(scenario: Scenario) -> TestSettings {
    TestSettings {
        min_duration_ms: 0,
        min_query_count: 5,
        ..settings(scenario)
    }
}

fn run_with(settings: TestSettings, fault: Fault) -> Finished {
    simulate(settings, |clock| {
        let sut = one_ms(clock).with_fault(2, fault);
        if fault_needs_tokens(fault) {
            sut.with_tokens(Nanos::from_us(200), 5)
        } else {
            sut
        }
    })
}

fn fault_needs_tokens(fault: Fault) -> bool {
    matches!(
        fault,
        Fault::FirstTokenTwice | Fault::FirstTokenLate | Fault::NoFirstToken | Fault::Tokens(_)
    )
}

fn check(scenario: Scenario, fault: Fault, expected: Expect) {
    expected.assert_eq(&run_with(short(scenario), fault).text());
}

fn check_tokens(fault: Fault, expected: Expect) {
    let settings = TestSettings {
        use_token_latencies: true,
        ..short(Scenario::SingleStream)
    };
    expected.assert_eq(&run_with(settings, fault).text());
}

#[test]
fn lost_in_server() {
    check(
        Scenario::Server,
        Fault::Lose,
        expect![[r#"
            Performance: [AllIssued, Lost], issued 5, lost 1
            official INVALID, ours INVALID
            Starting performance mode
            Ending early: No answer came within the time-out.
            Encountered incomplete samples at the end of a series of queries.
              count: 1 (seq_id 2 qsl_idx 45)
        "#]],
    );
}

/// SingleStream waits for each answer, so what comes after the lost one is never issued.
#[test]
fn lost_in_single_stream() {
    check(
        Scenario::SingleStream,
        Fault::Lose,
        expect![[r#"
            Performance: [Lost], issued 3, lost 1
            official INVALID, ours INVALID
            Starting performance mode
            Ending early: No answer came within the time-out.
            Encountered incomplete samples at the end of a series of queries.
              count: 1 (seq_id 2 qsl_idx 45)
        "#]],
    );
}

#[test]
fn lost_in_multi_stream() {
    check(
        Scenario::MultiStream,
        Fault::Lose,
        expect![[r#"
            Performance: [Lost], issued 1, lost 1
            official INVALID, ours INVALID
            Starting performance mode
            Ending early: No answer came within the time-out.
            Encountered incomplete samples at the end of a series of queries.
              count: 1 (seq_id 2 qsl_idx 40)
        "#]],
    );
}

#[test]
fn lost_in_offline() {
    check(
        Scenario::Offline,
        Fault::Lose,
        expect![[r#"
            Performance: [Natural, Lost], issued 1, lost 1
            official INVALID, ours INVALID
            Starting performance mode
            Ending naturally: Minimum query count and test duration met.
            Ending early: No answer came within the time-out.
            Encountered incomplete samples at the end of a series of queries.
              count: 1 (seq_id 2 qsl_idx 57)
        "#]],
    );
}

/// The report names the sample, the columns count the time waited.
#[test]
fn a_lost_sample_is_named_and_timed() {
    let finished = run_with(short(Scenario::Offline), Fault::Lose);
    let phase = &finished.outcome.phases[0];
    let lost = phase.lost[0];
    assert_eq!((lost.seq, lost.query), (2, 0));
    assert_eq!(lost.index, phase.columns.index[2]);
    assert_eq!(phase.columns.status[2], SampleStatus::Lost);
    // The last answer came at 1 ms, a second of silence followed.
    assert_eq!(phase.columns.done_ns[2], 1_001_000_000);
}

/// Without a time-out a virtual run knows that nothing can come any more.
#[test]
fn a_virtual_run_never_hangs() {
    let clock = VirtualClock::new();
    let sut = one_ms(&clock).with_fault(2, Fault::Lose);
    let mut options = options(short(Scenario::Offline));
    options.lost_sample_timeout = None;
    let finished = finish(options, &clock, &sut);
    assert_eq!(finished.outcome.phases[0].lost.len(), 1);
}

#[test]
fn answered_twice() {
    check(
        Scenario::Server,
        Fault::Double,
        expect![[r#"
        Performance: [AllIssued], issued 5, lost 0
        official INVALID, ours INVALID
        Starting performance mode
        Attempted to complete a sample twice.
    "#]],
    );
}

#[test]
fn an_answer_nobody_asked_for() {
    check(
        Scenario::Server,
        Fault::Unknown,
        expect![[r#"
        Performance: [AllIssued], issued 5, lost 0
        official INVALID, ours INVALID
        Starting performance mode
        Received SequenceId that was too large.
    "#]],
    );
}

/// The answer to a sample given up comes while the next phase runs: ignored, but an error there.
#[test]
fn late_answer_in_the_next_phase() {
    let settings = TestSettings {
        mode: Mode::SubmissionRun,
        min_duration_ms: 200,
        ..short(Scenario::Server)
    };
    // Given up after a second of silence, answered 0.1 s later, when the performance run is on.
    let finished = run_with(settings, Fault::Delay(Nanos::from_ms(1_150)));
    let [accuracy, performance] = finished.outcome.phases.as_slice() else {
        panic!("two phases");
    };
    assert_eq!((accuracy.lost.len(), performance.lost.len()), (1, 0));
    assert_eq!(accuracy.columns.status[2], SampleStatus::Lost);
    let late = performance.incidents.incidents[Incident::LateSample as usize];
    assert_eq!(late, 1);
    expect![[r#"
        Accuracy: [AllIssued, Lost], issued 64, lost 1
        Performance: [AllIssued], issued 190, lost 0
        official INVALID, ours INVALID
        Starting accuracy mode
        Ending early: No answer came within the time-out.
        Encountered incomplete samples at the end of a series of queries.
          count: 1 (seq_id 2 qsl_idx 1)
        Starting performance mode
        Received completion for a sample that was given up.
    "#]]
    .assert_eq(&finished.text());
}

#[test]
fn slow_answers_are_waited_for() {
    let fault = Fault::Delay(Nanos::from_ms(900));
    check(
        Scenario::Server,
        fault,
        expect![[r#"
        Performance: [AllIssued], issued 5, lost 0
        official INVALID, ours INVALID
        Starting performance mode
    "#]],
    );
}

#[test]
fn failed() {
    let fault = Fault::Fail(FailureKind::Timeout);
    check(
        Scenario::Server,
        fault,
        expect![[r#"
        Performance: [AllIssued], issued 5, lost 0
        official INVALID, ours INVALID
        Starting performance mode
        Sample failed: timeout: simulated
    "#]],
    );
}

/// A failure within the allowed share leaves our verdict alone; the official log still shows it.
#[test]
fn failures_within_the_allowed_share() {
    for (allowed, expected) in [(0.0, "INVALID"), (0.000_9, "INVALID"), (0.001, "VALID")] {
        let clock = VirtualClock::new();
        let sut = one_ms(&clock).with_fault(2, Fault::Fail(FailureKind::Status));
        let mut options = options(TestSettings {
            min_query_count: 1000,
            ..short(Scenario::Server)
        });
        options.max_failed_fraction = allowed;
        let finished = finish(options, &clock, &sut);
        let phase = &finished.outcome.phases[0];
        assert_eq!(phase.incidents.failed(), 1);
        let verdict = &phase.judged.as_ref().expect("a verdict").verdict;
        assert_eq!(verdict.validity.to_string(), expected, "{allowed}");
        assert_eq!(verdict.official_validity.to_string(), "VALID", "{allowed}");
        assert_eq!(finished.outcome.n_errors, 1);
    }
}

#[test]
fn first_token_twice() {
    check_tokens(
        Fault::FirstTokenTwice,
        expect![[r#"
        Performance: [Natural], issued 5, lost 0
        official INVALID, ours INVALID
        Starting performance mode
        Attempted to complete a sample twice.
        Ending naturally: Minimum query count and test duration met.
    "#]],
    );
}

#[test]
fn first_token_after_the_answer() {
    check_tokens(
        Fault::FirstTokenLate,
        expect![[r#"
        Performance: [Natural], issued 5, lost 0
        official INVALID, ours INVALID
        Starting performance mode
        Attempted to record a sample latency before it's first token latency
        Attempted to record token latency after sample was completed
        Ending naturally: Minimum query count and test duration met.
    "#]],
    );
}

#[test]
fn no_first_token() {
    check_tokens(
        Fault::NoFirstToken,
        expect![[r#"
        Performance: [Natural], issued 5, lost 0
        official INVALID, ours INVALID
        Starting performance mode
        Attempted to record a sample latency before it's first token latency
        Ending naturally: Minimum query count and test duration met.
    "#]],
    );
}

/// Without a first token the whole latency counts as the time to it.
#[test]
fn a_missing_first_token_counts_as_the_answer() {
    let settings = TestSettings {
        use_token_latencies: true,
        ..short(Scenario::SingleStream)
    };
    let finished = run_with(settings, Fault::NoFirstToken);
    let data = &finished.outcome.phases[0].performance;
    assert_eq!(
        data.ttft_ns,
        [200_000, 200_000, 1_000_000, 200_000, 200_000]
    );
    assert_eq!(data.tpot_ns[2], 0);
}

#[test]
fn token_counts_of_zero_one_and_below() {
    for (n, message) in [
        (
            0,
            "n_tokens argument missing or attempted to record 0 as number of tokens",
        ),
        (1, "Number of tokens need to be greater than 1"),
        (-3, "Attempted to record a negative number of tokens"),
    ] {
        let settings = TestSettings {
            use_token_latencies: true,
            ..short(Scenario::SingleStream)
        };
        let finished = run_with(settings, Fault::Tokens(n));
        let text = finished.text();
        assert!(text.contains(message), "{n}: {text}");
        let phase = &finished.outcome.phases[0];
        let faults = phase.token_faults;
        assert_eq!(faults.zero + faults.one + faults.negative, 1, "{n}");
        // The divisor is −1: latency 1 ms, first token at 0.2 ms.
        assert_eq!(phase.performance.tpot_ns[2], -800_000, "{n}");
        assert_eq!(phase.performance.tpot_ns[1], 200_000, "{n}");
        assert_eq!(phase.columns.n_tokens[2], n);
    }
}

/// A thousand double answers are a thousand errors and ten lines.
#[test]
fn repeated_errors_are_counted_and_bounded() {
    let settings = TestSettings {
        use_token_latencies: true,
        min_query_count: 1000,
        ..short(Scenario::SingleStream)
    };
    let finished = simulate(settings, |clock| {
        one_ms(clock).with_tokens(Nanos::from_us(200), 0)
    });
    assert_eq!(finished.outcome.n_errors, 1000);
    assert_eq!(finished.outcome.phases[0].token_faults.zero, 1000);
    let detail = finished.file("mlperf_log_detail.txt");
    assert_eq!(detail.matches("\"is_error\": true").count(), 10);
    assert!(detail.contains("990 more times"));
}
