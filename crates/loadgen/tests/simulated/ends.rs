//! Every rule by which issuing stops.

use expect_test::{Expect, expect};
use prony_loadgen::clock::Nanos;
use prony_loadgen::scenario::{Mode, Scenario};
use prony_loadgen::settings::TestSettings;
use prony_loadgen::testing::{Service, SimulatedSut, VirtualClock};

use crate::world::{finish, one_ms, options, settings, simulate};

fn check(settings: TestSettings, expected: Expect) {
    expected.assert_eq(&simulate(settings, one_ms).text());
}

/// 101 queries of 1 ms in 100 ms: the duration is that of the last issue.
#[test]
fn single_stream_goes_one_query_past_the_minimum() {
    check(
        settings(Scenario::SingleStream),
        expect![[r#"
        Performance: [Natural], issued 101, lost 0
        official VALID, ours VALID
        Starting performance mode
        Ending naturally: Minimum query count and test duration met.
    "#]],
    );
}

#[test]
fn multi_stream_counts_queries() {
    check(
        settings(Scenario::MultiStream),
        expect![[r#"
        Performance: [Natural], issued 101, lost 0
        official INVALID, ours INVALID
        Starting performance mode
        Ending naturally: Minimum query count and test duration met.
    "#]],
    );
}

#[test]
fn server_issues_all_it_planned() {
    check(
        settings(Scenario::Server),
        expect![[r#"
        Performance: [AllIssued], issued 93, lost 0
        official INVALID, ours INVALID
        Starting performance mode
    "#]],
    );
}

#[test]
fn offline_is_one_query() {
    check(
        settings(Scenario::Offline),
        expect![[r#"
        Performance: [Natural], issued 1, lost 0
        official INVALID, ours INVALID
        Starting performance mode
        Ending naturally: Minimum query count and test duration met.
    "#]],
    );
}

#[test]
fn minimum_count_outlasts_the_duration() {
    let settings = TestSettings {
        min_query_count: 200,
        ..settings(Scenario::SingleStream)
    };
    check(
        settings,
        expect![[r#"
        Performance: [Natural], issued 200, lost 0
        official VALID, ours VALID
        Starting performance mode
        Ending naturally: Minimum query count and test duration met.
    "#]],
    );
}

/// Planned for 1 ms a query, answered in no time: 200 queries do not fill 100 ms.
#[test]
fn running_out_of_queries() {
    let immediate = |clock: &VirtualClock| SimulatedSut::new(clock, Service::Immediate);
    let finished = simulate(settings(Scenario::SingleStream), immediate);
    expect![[r#"
        Performance: [RanOut], issued 201, lost 0
        official INVALID, ours INVALID
        Starting performance mode
        Ending early: Ran out of generated queries to issue before the minimum
          query count and test duration were reached. Please update the relevant
          expected latency or target qps in the TestSettings so they are more
          accurate.
    "#]]
    .assert_eq(&finished.text());
}

#[test]
fn maximum_count() {
    let settings = TestSettings {
        max_query_count: 20,
        ..settings(Scenario::SingleStream)
    };
    check(
        settings,
        expect![[r#"
            Performance: [MaxQueryCount { issued: 20 }], issued 20, lost 0
            official INVALID, ours INVALID
            Starting performance mode
            IssueQueryThread 0 Ending early: Max query count reached. query_count
              20
        "#]],
    );
}

#[test]
fn maximum_duration() {
    let settings = TestSettings {
        max_duration_ms: 50,
        ..settings(Scenario::Server)
    };
    check(
        settings,
        expect![[r#"
            Performance: [MaxDuration { duration: Nanos(52219093) }], issued 54, lost 0
            official INVALID, ours INVALID
            Starting performance mode
            IssueQueryThread 0 Ending early: Max test duration reached.
              duration_ns 52219093
        "#]],
    );
}

/// Both limits met by the same query: the count is looked at first, and the natural end before it.
#[test]
fn rules_are_looked_at_in_the_references_order() {
    let both = TestSettings {
        max_duration_ms: 100,
        max_query_count: 101,
        ..settings(Scenario::SingleStream)
    };
    check(
        both.clone(),
        expect![[r#"
        Performance: [Natural], issued 101, lost 0
        official VALID, ours VALID
        Starting performance mode
        Ending naturally: Minimum query count and test duration met.
    "#]],
    );
    let unreachable = TestSettings {
        min_query_count: 150,
        max_duration_ms: 99,
        ..both
    };
    check(
        unreachable,
        expect![[r#"
            Performance: [MaxQueryCount { issued: 101 }], issued 101, lost 0
            official INVALID, ours INVALID
            Starting performance mode
            IssueQueryThread 0 Ending early: Max query count reached. query_count
              101
        "#]],
    );
}

#[test]
fn too_many_outstanding() {
    let slow = |clock: &VirtualClock| {
        let service = Service::Queueing {
            servers: 1,
            per_sample: Nanos::from_ms(5),
        };
        SimulatedSut::new(clock, service)
    };
    let settings = TestSettings {
        server_max_async_queries: 5,
        ..settings(Scenario::Server)
    };
    expect![[r#"
        Performance: [TooManyOutstanding { issued: 7, outstanding: 6 }], issued 7, lost 0
        official INVALID, ours INVALID
        Starting performance mode
        IssueQueryThread 0 Ending early: Too many outstanding queries. issued
          7 outstanding 6
    "#]]
    .assert_eq(&simulate(settings, slow).text());
}

/// Accuracy runs look at no limit and give no verdict.
#[test]
fn accuracy_issues_everything() {
    for scenario in Scenario::ALL {
        let settings = TestSettings {
            mode: Mode::AccuracyOnly,
            max_query_count: 3,
            max_duration_ms: 1,
            ..settings(scenario)
        };
        let finished = simulate(settings, one_ms);
        let samples = finished.outcome.phases[0].columns.index.len();
        assert_eq!(samples, 64, "{scenario}");
        assert!(finished.outcome.result().is_none());
        assert_eq!(finished.outcome.n_errors, 0);
    }
}

/// Queries that fell due while the issuing thread was held up go out in one call.
#[test]
fn coalescing_joins_what_is_overdue() {
    let clock = VirtualClock::new();
    let sut = one_ms(&clock);
    let settings = TestSettings {
        server_coalesce_queries: true,
        server_target_qps: 1e9,
        min_duration_ms: 0,
        min_query_count: 100,
        ..settings(Scenario::Server)
    };
    let finished = finish(options(settings), &clock, &sut);
    let sizes: Vec<usize> = sut.issued().iter().map(Vec::len).collect();
    assert_eq!(sizes.iter().sum::<usize>(), 100);
    // At 1 ns a query, several share their nanosecond.
    assert!(sizes.len() < 100, "{sizes:?}");
    let columns = &finished.outcome.phases[0].columns;
    assert_eq!(columns.due_ns, columns.issued_ns);
    assert_eq!(finished.outcome.phases[0].performance.queries_issued, 100);
}

/// Ours: a limit on the whole phase, waiting for answers included, in every scenario.
#[test]
fn time_limit_ends_every_scenario() {
    for scenario in Scenario::ALL {
        let clock = VirtualClock::new();
        let sut = SimulatedSut::new(&clock, Service::Fixed(Nanos::from_secs(10)));
        let mut options = options(settings(scenario));
        options.lost_sample_timeout = None;
        options.phase_time_limit = Some(Nanos::from_secs(5));
        let finished = finish(options, &clock, &sut);
        let text = finished.text();
        assert!(text.contains("TimeLimit"), "{scenario}: {text}");
        assert!(text.contains("ours INVALID"), "{scenario}: {text}");
        let done_ns = &finished.outcome.phases[0].columns.done_ns;
        assert!(done_ns.iter().all(|at| *at == 5_000_000_000), "{scenario}");
    }
}
