//! What a run is given beside its samples, SUT and clock.

use std::sync::Arc;

use crate::clock::{Nanos, WaitPolicy};
use crate::progress::{Cancel, Progress};
use crate::report::LogSettings;
use crate::report::entries::BuildInfo;
use crate::rng::StdlibFlavour;
use crate::settings::TestSettings;
use crate::settings::derive::SettingsNote;

/// Untimed queries between loading the samples and the first timed query.
///
/// They go to the SUT like any other but are in no result and no log; only their failures are
/// reported. They wake connections, caches and clocks that the first timed queries would pay for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Warmup {
    /// How many queries of one sample; 0 means no warm-up.
    pub queries: u64,
    /// How many are in flight at a time.
    pub in_flight: u64,
}

impl Default for Warmup {
    fn default() -> Self {
        Self {
            queries: 0,
            in_flight: 1,
        }
    }
}

/// Everything about a run that is not the samples, the SUT or the clock.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// What to measure, in the reference's terms.
    pub settings: TestSettings,
    /// Which log files to write, and where; `None` writes none.
    pub log: Option<LogSettings>,
    /// Where this program came from, for the first lines of the detail log.
    pub build: BuildInfo,
    /// What was noted while the settings were read: audit.config, faults in configuration files.
    pub notes: Vec<SettingsNote>,
    /// Silence after which outstanding samples are lost and the phase ends: no answer and no first
    /// token for this long while the run waits for one. `None` waits as long as it takes.
    pub lost_sample_timeout: Option<Nanos>,
    /// Longest a phase may take from its first query; what is outstanding then is canceled.
    /// Unlike `max_duration_ms` it holds in every scenario and ends waiting, too.
    pub phase_time_limit: Option<Nanos>,
    /// Calls the run off.
    pub cancel: Cancel,
    /// Live counters.
    pub progress: Arc<Progress>,
    /// Untimed queries before the first one.
    pub warmup: Warmup,
    /// How the issuing threads wait.
    pub wait: WaitPolicy,
    /// Share of samples that may fail before our verdict is INVALID; 0 allows none.
    pub max_failed_fraction: f64,
    /// Whose integer rule the sample order follows; the current official one by default.
    pub stdlib: StdlibFlavour,
    /// Records first tokens and token counts although the settings are not in token mode.
    pub record_tokens: bool,
}

impl RunOptions {
    /// Options with nothing unusual: no logs, no warm-up, samples lost after ten silent minutes.
    #[must_use]
    pub fn new(settings: TestSettings) -> Self {
        Self {
            settings,
            log: None,
            build: BuildInfo::this_build(),
            notes: Vec::new(),
            lost_sample_timeout: Some(Nanos::from_secs(600)),
            phase_time_limit: None,
            cancel: Cancel::new(),
            progress: Arc::default(),
            warmup: Warmup::default(),
            wait: WaitPolicy::default(),
            max_failed_fraction: 0.0,
            stdlib: StdlibFlavour::default(),
            record_tokens: false,
        }
    }
}
