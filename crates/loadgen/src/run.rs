//! One run from settings to outcome: validate, derive, load, warm up, phases, logs.
//!
//! The phases of a mode follow each other here. How a phase runs is `run/phase.rs`, how it issues
//! `issue.rs`; the log files are written between phases and at the end.

mod errors;

mod logbook;

mod phase;

mod peak;

use std::num::NonZeroU64;
use std::sync::Arc;

use crate::clock::{Bell, Clock};
use crate::error::LoadgenError;
use crate::incident::{IncidentReport, Incidents};
use crate::options::RunOptions;
use crate::outcome::{Outcome, PhaseOutcome};
use crate::report::keys::message;
use crate::sample::{QuerySampleLibrary, SampleIndex};
use crate::scenario::{Mode, Phase};
use crate::schedule::{AccuracyLogSampling, loadable_sets};
use crate::settings::derive::{NoteKind, SettingsNote};
use crate::settings::{EffectiveSettings, TestSettings, validate};
use crate::sut::SystemUnderTest;

use logbook::Logbook;

/// Runs the test that `options.settings` describe and returns everything that happened.
///
/// An INVALID result, failed samples and lost samples are outcomes, not errors.
///
/// # Errors
/// Settings that no run can honour (all of them at once), an output folder that holds results
/// (unless forced), and log files that cannot be written.
pub fn run(
    options: &RunOptions,
    qsl: &mut dyn QuerySampleLibrary,
    sut: &dyn SystemUnderTest,
    clock: &dyn Clock,
) -> Result<Outcome, LoadgenError> {
    let settings = with_test05_seeds(&options.settings);
    let (total, in_memory) = (
        qsl.total_sample_count() as u64,
        qsl.performance_sample_count() as u64,
    );
    validate(&settings, total, in_memory)?;
    let (effective, notes) = EffectiveSettings::derive(&settings, total, in_memory);
    let mut log = Logbook::open(options, qsl, sut, clock)?;
    log.notes(&options.notes);
    // Who configured the settings may have noted it already, in its place among the others.
    let noted = options
        .notes
        .iter()
        .any(|note| note.text == message::TEST05);
    if settings.test05 && !noted {
        log.notes(&[test05_note()]);
    }
    log.notes(&notes);
    log.settings(&effective);
    let bell = Arc::new(Bell::for_this_thread());
    let _rings = options.cancel.rings(&bell);
    let mut run = Run {
        options,
        sampling: AccuracyLogSampling::new(&effective),
        effective,
        sut,
        clock,
        log,
        bell,
        incidents: Arc::default(),
        next_id: NonZeroU64::MIN,
        next_query_seq: 0,
        warmup: None,
        phases: Vec::new(),
    };
    let reported = run.modes(qsl)?;
    run.finish(reported)
}

/// What all phases of a run share.
struct Run<'a> {
    options: &'a RunOptions,
    effective: EffectiveSettings,
    sut: &'a dyn SystemUnderTest,
    clock: &'a dyn Clock,
    log: Logbook<'a>,
    bell: Arc<Bell>,
    incidents: Arc<Incidents>,
    /// Ids count on through all phases, so that an answer to an earlier phase is recognised.
    next_id: NonZeroU64,
    next_query_seq: u64,
    warmup: Option<IncidentReport>,
    sampling: AccuracyLogSampling,
    phases: Vec<PhaseOutcome>,
}

impl Run<'_> {
    /// Runs the mode's phases; which of them is the result, if any is.
    fn modes(&mut self, qsl: &mut dyn QuerySampleLibrary) -> Result<Option<usize>, LoadgenError> {
        let mode = self.effective.mode;
        if matches!(mode, Mode::AccuracyOnly | Mode::SubmissionRun) {
            self.accuracy(qsl)?;
        }
        match mode {
            Mode::AccuracyOnly => Ok(None),
            Mode::SubmissionRun | Mode::PerformanceOnly => self.performance(qsl),
            Mode::FindPeakPerformance => self.find_peak(qsl),
        }
    }

    /// Every loadable set, one after the other.
    fn accuracy(&mut self, qsl: &mut dyn QuerySampleLibrary) -> Result<(), LoadgenError> {
        self.log.starting(Phase::Accuracy, self.effective.mode);
        let effective = self.effective.clone();
        for set in self.loadable_sets(Phase::Accuracy, qsl) {
            if self.options.cancel.is_canceled() {
                break;
            }
            self.load(qsl, &set);
            let outcome = self.phase(Phase::Accuracy, &effective, &set);
            qsl.unload_samples(&set);
            self.log.records(&outcome)?;
            self.phases.push(outcome);
        }
        Ok(())
    }

    /// The timed run over the first loadable set.
    fn performance(
        &mut self,
        qsl: &mut dyn QuerySampleLibrary,
    ) -> Result<Option<usize>, LoadgenError> {
        if self.options.cancel.is_canceled() {
            return Ok(None);
        }
        self.log.starting(Phase::Performance, self.effective.mode);
        let effective = self.effective.clone();
        let set = self.loadable_sets(Phase::Performance, qsl).swap_remove(0);
        self.load(qsl, &set);
        let outcome = self.phase(Phase::Performance, &effective, &set);
        self.log.results(&outcome);
        qsl.unload_samples(&set);
        self.log.records(&outcome)?;
        self.phases.push(outcome);
        Ok(Some(self.phases.len() - 1))
    }

    fn loadable_sets(&self, phase: Phase, qsl: &dyn QuerySampleLibrary) -> Vec<Vec<SampleIndex>> {
        let total = qsl.total_sample_count() as u64;
        loadable_sets(&self.effective, phase, total, self.options.stdlib)
    }

    /// Brings a set into memory and, the first time, sends the untimed queries.
    fn load(&mut self, qsl: &mut dyn QuerySampleLibrary, set: &[SampleIndex]) {
        self.log.loaded_set(set);
        qsl.load_samples(set);
        if self.warmup.is_none() {
            self.warmup = Some(self.warm_up(set));
        }
    }

    fn finish(self, reported: Option<usize>) -> Result<Outcome, LoadgenError> {
        let (n_errors, n_warnings) = (self.log.detail.n_errors(), self.log.detail.n_warnings());
        let phase = reported.map(|phase| &self.phases[phase]);
        let (summary, log_paths) = self.log.finish(phase)?;
        Ok(Outcome {
            phases: self.phases,
            reported,
            warmup: self.warmup.unwrap_or_default(),
            summary,
            log_paths,
            n_errors,
            n_warnings,
        })
    }
}

/// TEST05 replaces the seeds and times a performance run, whatever else was asked for.
fn with_test05_seeds(requested: &TestSettings) -> TestSettings {
    let mut settings = requested.clone();
    if settings.test05 {
        settings.mode = Mode::PerformanceOnly;
        settings.qsl_rng_seed = settings.test05_qsl_rng_seed;
        settings.sample_index_rng_seed = settings.test05_sample_index_rng_seed;
        settings.schedule_rng_seed = settings.test05_schedule_rng_seed;
    }
    settings
}

fn test05_note() -> SettingsNote {
    SettingsNote {
        kind: NoteKind::Warning,
        key: crate::report::keys::detail::WARNING_GENERIC_MESSAGE,
        text: message::TEST05.to_owned(),
    }
}
