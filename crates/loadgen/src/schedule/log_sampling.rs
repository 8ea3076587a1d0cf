//! Which answers of a performance phase go to the accuracy log.
//!
//! The reference attaches a random value to every planned sample, from one stream that lives
//! through the whole test; which samples are logged thus depends on the sequence number alone.
//! Here the values are drawn when asked for, and not at all when nothing can be logged.

use crate::rng::{DEFAULT_SEED, Mt19937};
use crate::scenario::Scenario;
use crate::settings::EffectiveSettings;

/// Decides sample by sample, in the order of sequence numbers.
#[derive(Debug, Clone)]
pub struct AccuracyLogSampling {
    probability: f64,
    offset: f64,
    /// Values of the samples, two draws each; boxed because an engine is 5 KB.
    values: Box<Mt19937>,
    next_seq: u64,
}

impl AccuracyLogSampling {
    /// The sampling of a test with these settings.
    #[must_use]
    pub fn new(eff: &EffectiveSettings) -> Self {
        Self {
            probability: probability(eff),
            offset: Mt19937::new(eff.requested.accuracy_log_rng_seed).uniform01(),
            values: Box::new(Mt19937::new(DEFAULT_SEED)),
            next_seq: 0,
        }
    }

    /// Whether any sample can be logged; if not, [`is_logged`](Self::is_logged) costs nothing.
    #[must_use]
    pub fn can_log(&self) -> bool {
        self.probability > 0.0
    }

    /// Whether the performance sample with this sequence number is logged.
    ///
    /// Sequence numbers count planned samples over the whole test, accuracy phases included.
    ///
    /// # Panics
    /// If asked for a number at or below one asked for before: the stream cannot go back.
    #[inline]
    pub fn is_logged(&mut self, sample_seq: u64) -> bool {
        if !self.can_log() {
            return false;
        }
        assert!(
            sample_seq >= self.next_seq,
            "sample {sample_seq} was decided on before"
        );
        self.values.skip((sample_seq - self.next_seq) * 2);
        self.next_seq = sample_seq + 1;
        let shifted = self.values.uniform01() + self.offset;
        let fraction = if shifted < 1.0 {
            shifted
        } else {
            shifted - 1.0
        };
        fraction <= self.probability
    }
}

/// The probability, or the one that logs `accuracy_log_sampling_target` of the expected samples.
///
/// Example: 20 wanted, 100 queries of 4 samples planned at least: 20/400 = 0.05.
fn probability(eff: &EffectiveSettings) -> f64 {
    let target = eff.requested.accuracy_log_sampling_target;
    if target == 0 {
        return eff.requested.accuracy_log_probability;
    }
    let by_time = (eff.target_qps * eff.min_duration_ms as f64 / 1000.0) as u64;
    let by_time = match eff.scenario {
        Scenario::Offline => by_time,
        Scenario::SingleStream | Scenario::MultiStream | Scenario::Server => {
            by_time.saturating_mul(eff.samples_per_query)
        }
    };
    target as f64 / by_time.max(eff.min_sample_count) as f64
}
