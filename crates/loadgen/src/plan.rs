//! What a run would do, without running it: settings in, the plan out as text or JSON.
//!
//! Pure. `estimate` says how long the run would take and what ends it, `json` and `text` write the
//! plan query by query without holding it, `explain` says where every value came from.

pub mod estimate;

pub mod json;

pub mod text;

pub mod explain;

use crate::error::LoadgenError;
use crate::rng::StdlibFlavour;
use crate::sample::SampleIndex;
use crate::scenario::{Mode, Phase};
use crate::schedule::{PhasePlan, loadable_sets};
use crate::settings::{EffectiveSettings, SettingsNote, TestSettings, validate};

/// The plan of a run: what it follows from; queries are made when they are written.
#[derive(Debug, Clone)]
pub struct RunPlan {
    /// What the run would do.
    pub effective: EffectiveSettings,
    /// What the reference would log about the settings.
    pub notes: Vec<SettingsNote>,
    /// Samples of the data set.
    pub qsl_total: u64,
    /// How integers are drawn.
    pub flavour: StdlibFlavour,
}

/// One set loaded in one phase.
#[derive(Debug, Clone)]
pub struct PlannedSet {
    /// The phase.
    pub phase: Phase,
    /// The samples, in the order they are loaded.
    pub samples: Vec<SampleIndex>,
}

impl RunPlan {
    /// The plan for a data set of `qsl_total` samples, `qsl_perf` of them in memory at once.
    ///
    /// # Errors
    /// Everything no run could honour.
    pub fn new(
        settings: &TestSettings,
        qsl_total: u64,
        qsl_perf: u64,
        flavour: StdlibFlavour,
    ) -> Result<Self, LoadgenError> {
        validate(settings, qsl_total, qsl_perf)?;
        let (effective, notes) = EffectiveSettings::derive(settings, qsl_total, qsl_perf);
        Ok(Self {
            effective,
            notes,
            qsl_total,
            flavour,
        })
    }

    /// The phases of the run's mode, in order.
    #[must_use]
    pub fn phases(&self) -> &'static [Phase] {
        match self.effective.mode {
            Mode::SubmissionRun => &[Phase::Accuracy, Phase::Performance],
            Mode::AccuracyOnly => &[Phase::Accuracy],
            Mode::PerformanceOnly | Mode::FindPeakPerformance => &[Phase::Performance],
        }
    }

    /// The sets in the order they are loaded.
    #[must_use]
    pub fn sets(&self) -> Vec<PlannedSet> {
        let mut planned = Vec::new();
        for &phase in self.phases() {
            let sets = loadable_sets(&self.effective, phase, self.qsl_total, self.flavour);
            let used = match phase {
                Phase::Accuracy => sets.len(),
                Phase::Performance => 1,
            };
            let used = sets.into_iter().take(used);
            planned.extend(used.map(|samples| PlannedSet { phase, samples }));
        }
        planned
    }

    /// The queries over one of [`sets`](Self::sets).
    #[must_use]
    pub fn queries(&self, set: &PlannedSet) -> PhasePlan {
        PhasePlan::generate(&self.effective, set.phase, &set.samples, self.flavour)
    }
}
