//! From requested to effective settings: what each scenario makes of the numbers it is given.
//!
//! Computed once per test, without judging; `validate` says what is refused before this.

use crate::scenario::{Mode, Scenario};
use crate::settings::{EffectiveSettings, TestSettings};

/// How the reference files a remark about the settings in its detail log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoteKind {
    /// Counted as an error.
    Error,
    /// Counted as a warning.
    Warning,
}

/// A line the reference logs about the settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingsNote {
    /// Error or warning.
    pub kind: NoteKind,
    /// Log key, such as `error_invalid_test_settings`.
    pub key: &'static str,
    /// The value logged under it.
    pub text: String,
}

impl SettingsNote {
    fn invalid(text: String) -> Self {
        Self {
            kind: NoteKind::Error,
            key: "error_invalid_test_settings",
            text,
        }
    }
}

/// Offline asks for this much more than the expected rate would need, so that the run lasts long
/// enough when the guess is low. Source: spec of effective settings, Offline.
const OFFLINE_SLACK: f64 = 1.1;
/// Like it, for SingleStream that must end on a whole permutation.
const EQUAL_ISSUE_SLACK: f64 = 2.0;

impl EffectiveSettings {
    /// What a run with these settings does on a data set of `qsl_total` samples, of which
    /// `qsl_perf` fit in memory; and what the reference would log about it.
    ///
    /// `requested` must already carry the audit and test05 overrides.
    ///
    /// Example: Offline, 100 samples/s expected, 1 s minimum: trunc(1.1·1·100) = 110 samples in
    /// the one query, if that is above `min_query_count`.
    #[must_use]
    pub fn derive(
        requested: &TestSettings,
        qsl_total: u64,
        qsl_perf: u64,
    ) -> (Self, Vec<SettingsNote>) {
        let mut notes = Vec::new();
        let r = requested;
        let mut eff = Self {
            scenario: r.scenario,
            mode: r.mode,
            samples_per_query: 1,
            target_qps: target_qps(r, &mut notes),
            target_latency_ns: 0,
            target_latency_percentile: 0.99,
            max_async_queries: 1,
            target_duration_ms: r.min_duration_ms,
            min_duration_ms: r.min_duration_ms,
            max_duration_ms: r.max_duration_ms,
            min_query_count: r.min_query_count,
            max_query_count: r.max_query_count,
            min_sample_count: 0,
            performance_sample_count: or_else(r.performance_sample_count_override, qsl_perf),
            accuracy_sample_count: or_else(r.accuracy_sample_count_override, qsl_total),
            requested: r.clone(),
        };
        match r.scenario {
            Scenario::SingleStream => {
                eff.target_latency_percentile = r.single_stream_target_latency_percentile;
                if r.sample_concatenate_permutation {
                    eff.end_on_whole_permutation(qsl_perf);
                }
            }
            Scenario::MultiStream => {
                eff.target_latency_percentile = r.multi_stream_target_latency_percentile;
                eff.samples_per_query = r.multi_stream_samples_per_query;
            }
            Scenario::Server => {
                eff.target_latency_ns = r.server_target_latency_ns;
                eff.target_latency_percentile = r.server_target_latency_percentile;
                eff.max_async_queries = r.server_max_async_queries;
            }
            Scenario::Offline => eff.put_all_in_one_query(),
        }
        eff.min_sample_count = eff.min_query_count.saturating_mul(eff.samples_per_query);
        note_contradictions(&eff, &mut notes);
        (eff, notes)
    }

    /// The reference pads by the data set's own count, not the override, and by a whole set more
    /// when nothing was missing: 30 queries of 10 samples become 40.
    fn end_on_whole_permutation(&mut self, qsl_perf: u64) {
        let wanted = EQUAL_ISSUE_SLACK * seconds(self.min_duration_ms) * self.target_qps;
        let count = self.min_query_count.max(wanted as u64);
        if let Some(rest) = count.checked_rem(qsl_perf) {
            self.min_query_count = count.saturating_add(qsl_perf - rest);
        }
    }

    fn put_all_in_one_query(&mut self) {
        let wanted = OFFLINE_SLACK * seconds(self.min_duration_ms) * self.target_qps;
        self.samples_per_query = if self.requested.performance_issue_unique {
            self.performance_sample_count
        } else {
            self.min_query_count.max(wanted as u64)
        };
        self.min_query_count = 1;
        self.target_duration_ms = 0;
    }

    /// Whether the test has a performance phase.
    #[must_use]
    pub fn measures_performance(&self) -> bool {
        self.mode != Mode::AccuracyOnly
    }
}

fn or_else(override_count: u64, count: u64) -> u64 {
    if override_count == 0 {
        count
    } else {
        override_count
    }
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}

fn target_qps(r: &TestSettings, notes: &mut Vec<SettingsNote>) -> f64 {
    match r.scenario {
        Scenario::SingleStream => 1e9 / r.single_stream_expected_latency_ns,
        Scenario::MultiStream => 1e9 / r.multi_stream_expected_latency_ns,
        Scenario::Server => not_negative("server_target_qps", r.server_target_qps, notes),
        Scenario::Offline => not_negative("offline_expected_qps", r.offline_expected_qps, notes),
    }
}

fn not_negative(name: &str, qps: f64, notes: &mut Vec<SettingsNote>) -> f64 {
    if qps < 0.0 {
        notes.push(SettingsNote::invalid(format!(
            "Invalid value for {name} requested. requested: {qps} using: 1"
        )));
        return 1.0;
    }
    qps
}

fn note_contradictions(eff: &EffectiveSettings, notes: &mut Vec<SettingsNote>) {
    let r = &eff.requested;
    let (index, count) = (r.performance_issue_same_index, eff.performance_sample_count);
    if r.performance_issue_same && index >= count {
        notes.push(SettingsNote::invalid(format!(
            "Sample Idx to be repeated in performance_issue_same mode cannot be greater than \
             loaded performance_sample_count. performance_issue_same_index: {index} \
             performance_sample_count: {count}"
        )));
    }
    if r.performance_issue_unique && r.performance_issue_same {
        notes.push(SettingsNote::invalid(
            "Performance_issue_unique and performance_issue_same, both cannot be true at the same \
             time. performance_issue_unique: 1 performance_issue_same: 1"
                .to_owned(),
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn derive(change: impl Fn(&mut TestSettings)) -> (EffectiveSettings, Vec<SettingsNote>) {
        let mut settings = TestSettings {
            min_duration_ms: 0,
            ..TestSettings::default()
        };
        change(&mut settings);
        EffectiveSettings::derive(&settings, 64, 10)
    }

    #[test]
    fn negative_rate_becomes_one_and_is_noted() {
        let (eff, notes) = derive(|s| {
            s.scenario = Scenario::Server;
            s.server_target_qps = -5.0;
        });
        assert_eq!(eff.target_qps, 1.0);
        let expected = "Invalid value for server_target_qps requested. requested: -5 using: 1";
        assert_eq!(notes[0].text, expected);
    }

    #[test]
    fn offline_asks_for_ten_percent_more() {
        let (eff, _) = derive(|s| {
            s.scenario = Scenario::Offline;
            s.offline_expected_qps = 100.0;
            s.min_duration_ms = 1000;
            s.min_query_count = 5;
        });
        assert_eq!((eff.samples_per_query, eff.min_query_count), (110, 1));
        assert_eq!((eff.min_sample_count, eff.target_duration_ms), (110, 0));
    }

    #[test]
    fn whole_permutation_pads_even_a_multiple() {
        for (min_query_count, expected) in [(25, 30), (30, 40)] {
            let (eff, _) = derive(|s| {
                s.sample_concatenate_permutation = true;
                s.min_query_count = min_query_count;
            });
            assert_eq!(eff.min_query_count, expected, "{min_query_count}");
        }
    }
}
