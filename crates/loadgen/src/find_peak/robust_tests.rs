//! The robust search against simulated trials, honest and lying.

use super::*;

/// A trial that passes below `capacity`, except where `noise` (by trial number) says otherwise.
fn simulate(search: &PeakSearch, capacity: f64, noise: &[usize]) -> PeakReport {
    let mut n = 0;
    search.run(|qps| {
        let flipped = noise.contains(&n);
        n += 1;
        Ok(TrialResult {
            passed: (qps < capacity) != flipped,
            completed_qps: qps,
            reasons: Vec::new(),
            took: search.expected_trial(qps),
        })
    })
}

fn search() -> PeakSearch {
    PeakSearch {
        trial_duration: Nanos::from_secs(60),
        ..PeakSearch::new(100.0)
    }
}

fn assert_found(report: &PeakReport, capacity: f64) {
    let peak = report.peak_qps.expect("a rate passes");
    let fails = report.fails_at_qps.expect("a rate fails");
    assert_eq!(report.stopped, Stopped::Converged);
    assert!(peak < capacity && fails >= capacity, "{peak} .. {fails}");
    assert!(fails / peak <= 1.02 + 1e-9, "{peak} .. {fails}");
}

#[test]
fn finds_the_edge_from_below_and_above() {
    for capacity in [0.3, 17.0, 99.0, 101.0, 1234.5, 50_000.0] {
        let report = simulate(&search(), capacity, &[]);
        assert_found(&report, capacity);
        assert_eq!(report.runs_at_peak(), (3, 0));
        assert!(report.trials.len() <= 30, "{}", report.trials.len());
    }
}

/// Whichever single trial lies, the result is within the precision of the truth.
#[test]
fn one_lie_does_not_move_the_peak() {
    let honest = simulate(&search(), 1234.5, &[]);
    for lie in 0..honest.trials.len() {
        let report = simulate(&search(), 1234.5, &[lie]);
        assert_found(&report, 1234.5);
        let (passed, failed) = report.runs_at_peak();
        assert!(passed >= 3 && passed > failed);
    }
}

#[test]
fn keeps_to_its_budget() {
    let budget = Nanos::from_secs(300);
    let limited = PeakSearch {
        budget: Some(budget),
        ..search()
    };
    let report = simulate(&limited, 1234.5, &[]);
    assert_eq!(report.stopped, Stopped::OutOfTime);
    assert_eq!(report.trials.len(), 5);
    assert!(report.took <= budget);
    assert_eq!(report.peak_qps, Some(800.0));
}

#[test]
fn stops_at_the_limits_and_when_called_off() {
    let report = simulate(&search(), f64::INFINITY, &[]);
    assert_eq!(report.stopped, Stopped::AtMaximum);
    assert_eq!(report.peak_qps, Some(102_400.0));
    let report = simulate(&search(), 0.0, &[]);
    assert_eq!(
        (report.stopped, report.peak_qps),
        (Stopped::BelowMinimum, None)
    );
    assert_eq!(report.confidence_text(), "no rate tried was VALID");
    let report = search().run(|_| Err(NoTrial::CalledOff));
    assert_eq!(report.stopped, Stopped::Canceled);
    let mut n = 0;
    let report = search().run(|qps| {
        n += 1;
        match n {
            1 | 2 => Ok(TrialResult {
                passed: true,
                completed_qps: qps,
                reasons: Vec::new(),
                took: Nanos::from_secs(1),
            }),
            _ => Err(NoTrial::CannotRun),
        }
    });
    assert_eq!(
        (report.stopped, report.peak_qps),
        (Stopped::CannotRun, Some(200.0))
    );
}

#[test]
fn says_how_sure_it_is() {
    let report = simulate(&search(), 150.0, &[]);
    let text = report.confidence_text();
    assert!(text.contains("was VALID in 3 of 3 runs"), "{text}");
    assert!(text.contains("at least 37 % of the time"), "{text}");
}

#[test]
fn budget_is_told_before() {
    let text = search().budget_text();
    assert_eq!(
        text,
        "about 13 to 22 trials of at least 60 s: 13 min to 22 min"
    );
}
