//! FindPeakPerformance as the reference runs it: its search, its messages, its reloading.

use crate::error::LoadgenError;
use crate::find_peak::{ReferenceSearch, Step};
use crate::outcome::PhaseOutcome;
use crate::report::keys::{self, detail as key, message};
use crate::run::Run;
use crate::sample::{QuerySampleLibrary, SampleIndex};
use crate::scenario::{Phase, Scenario};
use crate::settings::{EffectiveSettings, validate};
use crate::verdict::Recommendation;

impl Run<'_> {
    /// Searches the peak rate; the phase to report is the best passing one, or the failing base.
    pub(super) fn find_peak(
        &mut self,
        qsl: &mut dyn QuerySampleLibrary,
    ) -> Result<Option<usize>, LoadgenError> {
        self.log.starting(Phase::Performance, self.effective.mode);
        if self.effective.scenario != Scenario::Server {
            self.log
                .error(key::ERROR_INVALID_CONFIG, message::FIND_PEAK_SERVER_ONLY);
            return Ok(None);
        }
        let requested = &self.effective.requested;
        let search = ReferenceSearch {
            lower: self.effective.target_qps,
            step_size: requested.server_find_peak_qps_boundary_step_size,
            decimals: requested.server_find_peak_qps_decimals_of_precision,
        };
        let set = self.loadable_sets(Phase::Performance, qsl).swap_remove(0);
        let total = qsl.total_sample_count() as u64;
        let in_memory = qsl.performance_sample_count() as u64;
        let first = self.phases.len();
        // Index of the best passing trial.
        let mut best = None;
        let mut stays_loaded = false;
        let mut failure = None;
        let peak = search.run(|step| {
            self.say(step);
            let (qps, reloads) = match step {
                Step::Bounded { .. } => {
                    self.load(qsl, &set);
                    stays_loaded = true;
                    return Some(true);
                }
                Step::Base { qps } | Step::Widen { upper: qps, .. } => (qps, true),
                Step::Bisect { mid, .. } => (mid, false),
            };
            // A SUT that never fails would be asked for ever more: memory ends that.
            if let Err(refused) = validate(&self.at_rate(qps).requested, total, in_memory) {
                self.log
                    .message(format!("FindPeakPerformance: no further, {refused}"));
                return None;
            }
            if reloads {
                self.load(qsl, &set);
            }
            let trial = self.phases.len();
            let passed = self.trial(qps, &set).unwrap_or_else(|error| {
                failure = Some(error);
                None
            });
            if reloads {
                qsl.unload_samples(&set);
            }
            if self.phases.len() > trial {
                best = self.keep_best(trial, passed, best, first);
            }
            passed
        });
        if stays_loaded {
            qsl.unload_samples(&set);
        }
        match failure {
            Some(error) => Err(error),
            None => Ok(self.report_peak(peak, best, first)),
        }
    }

    fn say(&mut self, step: Step) {
        self.log.message(match step {
            Step::Base { qps } => message::find_peak_base(qps),
            Step::Widen { lower, upper } => message::find_peak_widening(lower, upper),
            Step::Bounded { lower, upper } => message::find_peak_bounds(lower, upper),
            Step::Bisect { lower, upper, mid } => message::find_peak_bisecting(lower, upper, mid),
        });
    }

    /// One performance phase at `qps`; whether it met the latency limits, `None` if called off.
    fn trial(&mut self, qps: f64, set: &[SampleIndex]) -> Result<Option<bool>, LoadgenError> {
        if self.options.cancel.is_canceled() {
            return Ok(None);
        }
        let effective = self.at_rate(qps);
        let outcome = self.phase(Phase::Performance, &effective, set);
        let judged = outcome.judged.as_ref();
        let passed = judged.map(|j| j.verdict.conditions.performance_constraints == Some(true));
        let given_up = outcome.ends.iter().any(|end| end.abandons_answers());
        self.log.records(&outcome)?;
        self.phases.push(outcome);
        Ok(passed.filter(|_| !given_up))
    }

    /// The best trial after `trial`, given the one before it. Trials that will not be shown are let
    /// go of at once: there may be dozens, each as long as a run.
    fn keep_best(
        &mut self,
        trial: usize,
        passed: Option<bool>,
        best: Option<usize>,
        base: usize,
    ) -> Option<usize> {
        let (best, not_shown) = match passed {
            Some(true) => (Some(trial), best),
            // The base rate is shown even if it fails.
            _ => (best, (trial != base).then_some(trial)),
        };
        if let Some(phase) = not_shown {
            self.phases[phase].forget_samples();
        }
        best
    }

    /// The settings with another rate, everything else derived as before.
    fn at_rate(&self, qps: f64) -> EffectiveSettings {
        let mut effective = self.effective.clone();
        effective.target_qps = qps;
        effective.requested.server_target_qps = qps;
        effective
    }

    fn report_peak(
        &mut self,
        peak: Option<f64>,
        best: Option<usize>,
        first: usize,
    ) -> Option<usize> {
        let reported = match (peak, best) {
            (Some(qps), Some(best)) => {
                self.log.message(message::find_peak_found(qps));
                best
            }
            _ => {
                let base = self.phases.get(first)?;
                // Called off or without answers, the limits were not judged; the phase's own error
                // line says what happened.
                if !base.ends.iter().any(|end| end.abandons_answers()) {
                    let text = base_fails_text(base);
                    self.log.error(key::ERROR_RUNTIME, text);
                }
                first
            }
        };
        self.log.results(&self.phases[reported]);
        Some(reported)
    }
}

fn base_fails_text(base: &PhaseOutcome) -> String {
    let recommendations = base.judged.iter().flat_map(|j| &j.verdict.recommendations);
    let over_limit = recommendations.filter(|recommendation| {
        matches!(
            recommendation,
            Recommendation::ReduceTargetQps
                | Recommendation::ReduceTargetQpsForTtft
                | Recommendation::ReduceTargetQpsForTpot
        )
    });
    let texts: Vec<&str> = over_limit.map(|r| keys::recommendation(*r)).collect();
    message::find_peak_base_fails(&texts.join(" "))
}
