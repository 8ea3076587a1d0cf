//! The robust peak search: bracket, bisect, repeat near the edge, confirm, say how sure it is.
//!
//! A rate passes if the whole run is VALID (latency or token limits, early stopping, counts,
//! duration, no errors), not merely its percentile. Far from the edge one run decides; near it
//! the majority of several does, so that one noisy run neither ends a branch nor wins one.

use std::fmt::Write as _;

use crate::clock::Nanos;
use crate::find_peak::confidence::pass_probability_at_least;

/// How to search.
#[derive(Debug, Clone, PartialEq)]
pub struct PeakSearch {
    /// First rate tried.
    pub start_qps: f64,
    /// Rates are never tried outside these.
    pub min_qps: f64,
    /// See `min_qps`.
    pub max_qps: f64,
    /// Relative width of the final bracket, such as 0.02.
    pub precision: f64,
    /// Runs that decide near the edge; odd, the majority counts.
    pub repeats: u32,
    /// Passing runs wanted at the peak itself.
    pub confirmations: u32,
    /// No trial starts that is expected to end after this; `None` searches to the end.
    pub budget: Option<Nanos>,
    /// Shortest a trial takes, for the time estimate: `min_duration_ms`.
    pub trial_duration: Nanos,
    /// Fewest queries of a trial, for the time estimate.
    pub trial_queries: u64,
}

/// What one run at one rate showed.
#[derive(Debug, Clone, PartialEq)]
pub struct TrialResult {
    /// Whether the run was VALID.
    pub passed: bool,
    /// Rate completed, as the run measured it.
    pub completed_qps: f64,
    /// Why not, if it did not.
    pub reasons: Vec<String>,
    /// Time the trial took, all in.
    pub took: Nanos,
}

/// One run of the search.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    /// Rate asked for.
    pub qps: f64,
    /// What came of it.
    pub result: TrialResult,
}

/// Why the search stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// The bracket is as narrow as asked and the peak confirmed.
    Converged,
    /// The next trial would not have fitted the time budget.
    OutOfTime,
    /// The highest rate allowed passes.
    AtMaximum,
    /// The lowest rate allowed fails.
    BelowMinimum,
    /// Called off.
    Canceled,
    /// The next trial could not be run.
    CannotRun,
}

/// The outcome of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct PeakReport {
    /// Highest rate that passed by the majority of its runs, if any.
    pub peak_qps: Option<f64>,
    /// Lowest rate above it that failed, if any was found.
    pub fails_at_qps: Option<f64>,
    /// Every run, in order.
    pub trials: Vec<Trial>,
    /// Why it ended.
    pub stopped: Stopped,
    /// Time all trials took.
    pub took: Nanos,
}

/// The closure's word for "no trial".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoTrial {
    /// The search was called off.
    CalledOff,
    /// This one cannot be run: too many queries for the memory, an endpoint that is gone.
    CannotRun,
}

/// Finest [`PeakSearch::precision`]: no run tells rates apart that are closer, and a bracket
/// cannot be narrower than the numbers it is made of.
pub const FINEST_PRECISION: f64 = 1e-4;

/// Bisecting with single runs ends here, in multiples of the precision.
const EDGE: f64 = 4.0;
/// Widening factor of the bracket.
const WIDEN: f64 = 2.0;

/// A time to the digits that matter to somebody who waits.
fn for_people(seconds: f64) -> String {
    match seconds {
        ..120.0 => format!("{seconds:.0} s"),
        120.0..7200.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

impl PeakSearch {
    /// Defaults for a first rate: 2 % precision, best of 3 near the edge, 3 confirmations.
    #[must_use]
    pub fn new(start_qps: f64) -> Self {
        Self {
            start_qps,
            min_qps: start_qps / 1024.0,
            max_qps: start_qps * 1024.0,
            precision: 0.02,
            repeats: 3,
            confirmations: 3,
            budget: None,
            trial_duration: Nanos::ZERO,
            trial_queries: 0,
        }
    }

    /// How long a trial at this rate is expected to take at least.
    ///
    /// Example: 600 s minimum and 270 336 queries at 100/s: 2703.36 s.
    #[must_use]
    pub fn expected_trial(&self, qps: f64) -> Nanos {
        let by_count = Nanos((self.trial_queries as f64 / qps * 1e9) as i64);
        self.trial_duration.max(by_count)
    }

    /// What the search will cost, for printing before it starts: about how many trials, and the
    /// time they take at the first rate. Longer if that is more than a factor of 32 off the peak.
    #[must_use]
    pub fn budget_text(&self) -> String {
        // Bisecting halves the logarithm of the bracket: first from a factor of 2 to the edge by
        // single runs, then to the precision by majorities.
        let halvings = |from: f64, to: f64| (from.ln_1p() / to.ln_1p()).log2().ceil().max(0.0);
        let edge = EDGE * self.precision;
        let (coarse, fine) = (halvings(1.0, edge), halvings(edge, self.precision));
        let (repeats, confirmations) = (f64::from(self.repeats), f64::from(self.confirmations));
        let majority = f64::from(self.repeats / 2 + 1);
        let least = 2.0 + coarse + fine * majority + confirmations;
        let most = 6.0 + coarse + fine * repeats + confirmations + repeats;
        let trial_s = self.expected_trial(self.start_qps).as_secs_f64();
        let mut text = format!(
            "about {least:.0} to {most:.0} trials of at least {}: {} to {}",
            for_people(trial_s),
            for_people(least * trial_s),
            for_people(most * trial_s)
        );
        if let Some(budget) = self.budget {
            let budget = for_people(budget.as_secs_f64());
            let _ = write!(text, "; no trial starts that would end after {budget}");
        }
        text
    }

    /// Searches; `trial` runs the test at a rate.
    pub fn run(&self, trial: impl FnMut(f64) -> Result<TrialResult, NoTrial>) -> PeakReport {
        let mut search = Search {
            plan: self,
            trial,
            trials: Vec::new(),
            took: Nanos::ZERO,
            lower: None,
            upper: None,
        };
        let stopped = match search.find() {
            Ok(stopped) | Err(stopped) => stopped,
        };
        PeakReport {
            peak_qps: search.lower,
            fails_at_qps: search.upper,
            trials: search.trials,
            stopped,
            took: search.took,
        }
    }
}

struct Search<'a, T> {
    plan: &'a PeakSearch,
    trial: T,
    trials: Vec<Trial>,
    took: Nanos,
    /// Highest rate that passed.
    lower: Option<f64>,
    /// Lowest rate that failed.
    upper: Option<f64>,
}

impl<T: FnMut(f64) -> Result<TrialResult, NoTrial>> Search<'_, T> {
    fn find(&mut self) -> Result<Stopped, Stopped> {
        loop {
            if let Some(end) = self.bracket()? {
                return Ok(end);
            }
            self.bisect(EDGE * self.plan.precision, 1)?;
            self.bisect(self.plan.precision, self.plan.repeats)?;
            // Single runs placed the bounds; before they count, each is held to its majority.
            if self.confirm_peak()? && self.confirm_failure()? {
                return Ok(Stopped::Converged);
            }
        }
    }

    /// Doubles or halves until one rate passes and one above it fails.
    fn bracket(&mut self) -> Result<Option<Stopped>, Stopped> {
        loop {
            let qps = match (self.lower, self.upper) {
                (Some(_), Some(_)) => return Ok(None),
                (None, None) => self.plan.start_qps,
                (Some(lower), None) if lower >= self.plan.max_qps => {
                    return Ok(Some(Stopped::AtMaximum));
                }
                (Some(lower), None) => (lower * WIDEN).min(self.plan.max_qps),
                (None, Some(upper)) if upper <= self.plan.min_qps => {
                    return Ok(Some(Stopped::BelowMinimum));
                }
                (None, Some(upper)) => (upper / WIDEN).max(self.plan.min_qps),
            };
            self.decide(qps, 1)?;
        }
    }

    /// Halves the bracket (its ratio) until it is no wider than `width`, relatively.
    fn bisect(&mut self, width: f64, runs: u32) -> Result<(), Stopped> {
        while let (Some(lower), Some(upper)) = (self.lower, self.upper)
            && upper / lower > 1.0 + width
        {
            self.decide((lower * upper).sqrt(), runs)?;
        }
        Ok(())
    }

    /// Runs the peak until it has passed often enough; if it fails by majority, it was luck and
    /// becomes the upper bound.
    fn confirm_peak(&mut self) -> Result<bool, Stopped> {
        let Some(peak) = self.lower else {
            return Ok(false);
        };
        loop {
            let (passed, failed) = self.tally(peak);
            if passed >= self.plan.confirmations && passed > failed {
                return Ok(true);
            }
            if failed > passed {
                self.upper = Some(peak);
                self.lower = self
                    .passing()
                    .filter(|qps| *qps < peak)
                    .max_by(f64::total_cmp);
                return Ok(false);
            }
            self.run(peak)?;
        }
    }

    /// Runs the upper bound until most of its runs agree; if it passes, its failure was bad luck
    /// and it becomes the lower bound.
    fn confirm_failure(&mut self) -> Result<bool, Stopped> {
        let Some(upper) = self.upper else {
            return Ok(false);
        };
        let majority = self.plan.repeats / 2 + 1;
        loop {
            let (passed, failed) = self.tally(upper);
            if failed >= majority && failed > passed {
                return Ok(true);
            }
            if passed >= majority && passed > failed {
                self.lower = Some(upper);
                self.upper = self
                    .failing()
                    .filter(|qps| *qps > upper)
                    .min_by(f64::total_cmp);
                return Ok(false);
            }
            self.run(upper)?;
        }
    }

    /// Moves a bound to `qps` by the majority of at most `runs` runs.
    fn decide(&mut self, qps: f64, runs: u32) -> Result<(), Stopped> {
        let majority = runs / 2 + 1;
        loop {
            let (passed, failed) = self.tally(qps);
            if passed >= majority {
                self.lower = Some(qps);
                return Ok(());
            }
            if failed >= majority {
                self.upper = Some(qps);
                return Ok(());
            }
            self.run(qps)?;
        }
    }

    fn run(&mut self, qps: f64) -> Result<(), Stopped> {
        let ends_at = self.took + self.plan.expected_trial(qps);
        if self.plan.budget.is_some_and(|budget| ends_at > budget) {
            return Err(Stopped::OutOfTime);
        }
        let result = (self.trial)(qps).map_err(|no_trial| match no_trial {
            NoTrial::CalledOff => Stopped::Canceled,
            NoTrial::CannotRun => Stopped::CannotRun,
        })?;
        self.took += result.took;
        self.trials.push(Trial { qps, result });
        Ok(())
    }

    fn tally(&self, qps: f64) -> (u32, u32) {
        tally(&self.trials, qps)
    }

    /// Rates that passed by majority.
    fn passing(&self) -> impl Iterator<Item = f64> + '_ {
        self.trials.iter().map(|trial| trial.qps).filter(|qps| {
            let (passed, failed) = self.tally(*qps);
            passed > failed
        })
    }

    /// Rates that failed by majority.
    fn failing(&self) -> impl Iterator<Item = f64> + '_ {
        self.trials.iter().map(|trial| trial.qps).filter(|qps| {
            let (passed, failed) = self.tally(*qps);
            failed > passed
        })
    }
}

/// Passes and failures at exactly this rate.
fn tally(trials: &[Trial], qps: f64) -> (u32, u32) {
    let at = trials.iter().filter(|trial| trial.qps == qps);
    at.fold((0, 0), |(passed, failed), trial| {
        match trial.result.passed {
            true => (passed + 1, failed),
            false => (passed, failed + 1),
        }
    })
}

impl PeakReport {
    /// Passes and failures at the peak.
    #[must_use]
    pub fn runs_at_peak(&self) -> (u32, u32) {
        self.peak_qps.map_or((0, 0), |qps| tally(&self.trials, qps))
    }

    /// What can be said about the peak, in one sentence or two.
    #[must_use]
    pub fn confidence_text(&self) -> String {
        let Some(peak) = self.peak_qps else {
            return "no rate tried was VALID".to_owned();
        };
        let (passed, failed) = self.runs_at_peak();
        let runs = passed + failed;
        let at_least = 100.0 * pass_probability_at_least(passed, runs);
        let mut text = format!(
            "{peak:.6} queries/s was VALID in {passed} of {runs} runs; with 95 % confidence a run \
             at this rate is VALID at least {at_least:.0} % of the time"
        );
        if let Some(upper) = self.fails_at_qps {
            let above = 100.0 * (upper / peak - 1.0);
            let (passed, failed) = tally(&self.trials, upper);
            let runs = passed + failed;
            let _ = write!(
                text,
                "; {upper:.6} queries/s ({above:.1} % more) failed in {failed} of {runs}"
            );
        }
        text
    }
}

#[cfg(test)]
#[path = "robust_tests.rs"]
mod tests;
