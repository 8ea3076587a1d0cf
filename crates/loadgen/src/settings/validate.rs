//! What no run can honour: every refused setting at once, each with what would be accepted.
//!
//! The reference lets most of these through, to hang, crash or divide by zero later. Settings that
//! merely make a run INVALID are not refused: an INVALID run is a result.

use std::fmt;

use crate::error::{LoadgenError, RefusedSetting};
use crate::scenario::{Mode, Phase, Scenario};
use crate::settings::quota::{Quota, longest_set_len, shortest_set_len};
use crate::settings::{EffectiveSettings, TestSettings};

/// Bytes kept per planned query where arrivals are drawn: due time and sample.
pub const DRAWN_QUERY_BYTES: u64 = 12;
/// Bytes kept per listed sample or start position.
pub const LISTED_SAMPLE_BYTES: u64 = 4;
/// Bytes per loaded sample: the set is listed four times, for the library, the plan, the outcome
/// and the detail log.
const SET_BYTES_PER_SAMPLE: u64 = 16;
/// Bytes per query: issued in the recorder; due and issued in the results.
const RECORD_BYTES_PER_QUERY: u64 = 8 + 16;
/// In MultiStream also the query's latency, and a copy of it to be ranked; in Server the due time
/// for the advice.
const RECORD_BYTES_PER_RANKED_QUERY: u64 = 16;
/// Bytes per sample: sent, done, status in the recorder, the same and the index in the results,
/// the latency, and a copy of it to be ranked.
const RECORD_BYTES_PER_SAMPLE: u64 = 17 + 21 + 16;
/// In token mode also first token and count in both, TTFT, TPOT and count, and two to be ranked.
const RECORD_BYTES_PER_TOKEN_SAMPLE: u64 = 16 + 16 + 24 + 16;
/// More threads than the reference can log from.
const MAX_ISSUE_THREADS: u64 = 1024;
/// No schedule longer than this: sums of times must stay within 63 bits of nanoseconds.
const MAX_SCHEDULE_NS: f64 = (i64::MAX / 4) as f64;

/// What a phase would keep in memory, answers kept for the accuracy log not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryNeed {
    /// Queries to be planned (in Server the expected number).
    pub queries: u64,
    /// Samples in all of them.
    pub samples: u64,
    /// Bytes of plan.
    pub plan_bytes: u64,
    /// Bytes of records, and of the results that are made from them.
    pub record_bytes: u64,
    /// Bytes of the loaded set beside the plan.
    pub set_bytes: u64,
}

impl MemoryNeed {
    /// The need of one phase.
    #[must_use]
    pub fn of(eff: &EffectiveSettings, phase: Phase, qsl_total: u64) -> Self {
        let set_len = longest_set_len(eff, phase, qsl_total);
        let quota = Quota::of(eff, phase, set_len);
        let queries = quota.evenly_spaced_queries();
        let samples = queries.saturating_mul(quota.samples_per_query);
        let equal_issue = eff.requested.sample_concatenate_permutation;
        let per_phase = match eff.scenario {
            Scenario::Server => queries.saturating_mul(DRAWN_QUERY_BYTES),
            Scenario::Offline if !equal_issue => 0,
            Scenario::Offline => samples.saturating_mul(LISTED_SAMPLE_BYTES),
            Scenario::SingleStream | Scenario::MultiStream => {
                queries.saturating_mul(LISTED_SAMPLE_BYTES)
            }
        };
        Self {
            queries,
            samples,
            plan_bytes: per_phase.saturating_add(set_len.saturating_mul(LISTED_SAMPLE_BYTES)),
            record_bytes: record_bytes(eff, queries, samples),
            set_bytes: set_bytes(set_len),
        }
    }

    /// All of it, at the moment when the results are made from the records.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        let on_top = self.record_bytes.saturating_add(self.set_bytes);
        self.plan_bytes.saturating_add(on_top)
    }
}

/// Bytes of records and results for as many queries and samples.
#[must_use]
pub fn record_bytes(eff: &EffectiveSettings, queries: u64, samples: u64) -> u64 {
    let per_sample = if eff.requested.use_token_latencies {
        RECORD_BYTES_PER_SAMPLE + RECORD_BYTES_PER_TOKEN_SAMPLE
    } else {
        RECORD_BYTES_PER_SAMPLE
    };
    let per_query = match eff.scenario {
        Scenario::MultiStream | Scenario::Server => {
            RECORD_BYTES_PER_QUERY + RECORD_BYTES_PER_RANKED_QUERY
        }
        Scenario::SingleStream | Scenario::Offline => RECORD_BYTES_PER_QUERY,
    };
    let for_queries = queries.saturating_mul(per_query);
    for_queries.saturating_add(samples.saturating_mul(per_sample))
}

/// Bytes of a loaded set beside the plan.
#[must_use]
pub fn set_bytes(set_len: u64) -> u64 {
    set_len.saturating_mul(SET_BYTES_PER_SAMPLE)
}

/// Checks the settings against each other, the data set and this machine's memory.
///
/// # Errors
/// [`LoadgenError::RefusedSettings`] with every problem found.
pub fn validate(
    settings: &TestSettings,
    qsl_total: u64,
    qsl_perf: u64,
) -> Result<(), LoadgenError> {
    let memory = machine_memory_bytes().unwrap_or(i64::MAX as u64);
    validate_within(settings, qsl_total, qsl_perf, memory)
}

/// [`validate`] for a machine with `memory` bytes.
///
/// # Errors
/// As [`validate`].
pub fn validate_within(
    settings: &TestSettings,
    qsl_total: u64,
    qsl_perf: u64,
    memory: u64,
) -> Result<(), LoadgenError> {
    let (eff, _) = EffectiveSettings::derive(settings, qsl_total, qsl_perf);
    let mut refusals = Refusals::of(&eff, qsl_total);
    // Sizes computed from refused numbers would only repeat the refusal in other words.
    if refusals.0.is_empty() {
        let library = Library {
            qsl_total,
            qsl_perf,
            memory,
        };
        refusals.check_size(settings, library);
    }
    if refusals.0.is_empty() {
        Ok(())
    } else {
        Err(LoadgenError::RefusedSettings(refusals.0))
    }
}

/// What no data set could make right: every range and every contradiction among the settings.
#[must_use]
pub fn refused_whatever_the_data(settings: &TestSettings) -> Vec<RefusedSetting> {
    let most = u64::from(u32::MAX);
    let (eff, _) = EffectiveSettings::derive(settings, most, most);
    Refusals::of(&eff, most).0
}

#[derive(Default)]
struct Refusals(Vec<RefusedSetting>);

impl Refusals {
    /// Everything but sizes.
    fn of(eff: &EffectiveSettings, qsl_total: u64) -> Self {
        let mut refusals = Self::default();
        refusals.check_data_set(eff, qsl_total);
        refusals.check_pace(eff);
        refusals.check_percentile(eff);
        refusals.check_sample_choice(eff, qsl_total);
        refusals.check_counts(eff);
        refusals.check_find_peak(eff);
        refusals
    }

    fn refuse(&mut self, name: &str, value: impl fmt::Display, allowed: impl Into<String>) {
        self.0.push(RefusedSetting {
            name: name.to_owned(),
            value: value.to_string(),
            allowed: allowed.into(),
        });
    }

    fn check_data_set(&mut self, eff: &EffectiveSettings, qsl_total: u64) {
        if qsl_total == 0 || qsl_total > u64::from(u32::MAX) {
            self.refuse(
                "total sample count",
                qsl_total,
                "from 1 to 4294967295 samples",
            );
        }
        if eff.performance_sample_count == 0 {
            self.refuse(
                "performance sample count",
                0,
                "at least 1 sample in memory at once",
            );
        }
    }

    fn check_pace(&mut self, eff: &EffectiveSettings) {
        let r = &eff.requested;
        match r.scenario {
            Scenario::SingleStream => self.check_period(
                "single_stream_expected_latency_ns",
                r.single_stream_expected_latency_ns,
            ),
            Scenario::MultiStream => self.check_period(
                "multi_stream_expected_latency_ns",
                r.multi_stream_expected_latency_ns,
            ),
            Scenario::Server => self.check_rate("server_target_qps", r.server_target_qps),
            Scenario::Offline => self.check_rate("offline_expected_qps", r.offline_expected_qps),
        }
    }

    fn check_period(&mut self, name: &str, ns: f64) {
        // Below 1 ns the planned period would be cut to 0 and planning would never end.
        if !(1.0..MAX_SCHEDULE_NS).contains(&ns) {
            self.refuse(name, ns, "at least 1 ns, finite");
        }
    }

    fn check_rate(&mut self, name: &str, qps: f64) {
        if !(qps > 0.0 && qps <= 1e9) {
            self.refuse(name, qps, "above 0, at most 1e9 per second");
        }
    }

    fn check_percentile(&mut self, eff: &EffectiveSettings) {
        let name = match eff.scenario {
            Scenario::SingleStream => "single_stream_target_latency_percentile",
            Scenario::MultiStream => "multi_stream_target_latency_percentile",
            Scenario::Server => "server_target_latency_percentile",
            Scenario::Offline => return,
        };
        let p = eff.target_latency_percentile;
        if !(p > 0.0 && p < 1.0) {
            self.refuse(name, p, "above 0 and below 1 (0.99 is the 99th percentile)");
        }
    }

    fn check_sample_choice(&mut self, eff: &EffectiveSettings, qsl_total: u64) {
        let r = &eff.requested;
        if r.performance_issue_unique && r.performance_issue_same {
            self.refuse(
                "performance_issue_unique",
                "true",
                "false while performance_issue_same is true",
            );
        }
        // Passes are counted in samples, start positions in queries: they would run out, which the
        // reference dies of, and going round would issue samples twice.
        let (several, passes) = (eff.samples_per_query > 1, r.sample_concatenate_permutation);
        let multi_stream = r.scenario == Scenario::MultiStream && eff.measures_performance();
        if multi_stream && several && passes && r.performance_issue_unique {
            self.refuse(
                "sample_concatenate_permutation",
                "true",
                "false in MultiStream with unique samples",
            );
        }
        let shortest = |phase: &Phase| shortest_set_len(eff, *phase, qsl_total);
        let count = phases(eff.mode).iter().map(shortest).min().unwrap_or(0);
        let index = r.performance_issue_same_index;
        if r.performance_issue_same && index >= count {
            let allowed = format!("below {count}, the samples in memory");
            self.refuse("performance_issue_same_index", index, allowed);
        }
        let p = r.accuracy_log_probability;
        if !(p >= 0.0 && p.is_finite()) {
            self.refuse("accuracy_log_probability", p, "0 or more, finite");
        }
    }

    fn check_counts(&mut self, eff: &EffectiveSettings) {
        let r = &eff.requested;
        if r.scenario == Scenario::MultiStream && r.multi_stream_samples_per_query == 0 {
            self.refuse("multi_stream_samples_per_query", 0, "at least 1");
        }
        if let Some(allowed) = no_count_is_not_enough(eff) {
            self.refuse("min_query_count", r.min_query_count, allowed);
        }
        let threads = r.server_num_issue_query_threads;
        if threads > MAX_ISSUE_THREADS {
            let allowed = format!("at most {MAX_ISSUE_THREADS}");
            self.refuse("server_num_issue_query_threads", threads, allowed);
        }
    }

    fn check_find_peak(&mut self, eff: &EffectiveSettings) {
        let r = &eff.requested;
        if r.mode != Mode::FindPeakPerformance || r.scenario != Scenario::Server {
            return;
        }
        let step = r.server_find_peak_qps_boundary_step_size;
        if !(step > 0.0 && step.is_finite()) {
            // With step 0 the search for an upper bound repeats the same rate for ever.
            let name = "server_find_peak_qps_boundary_step_size";
            self.refuse(name, step, "above 0, finite");
        }
        let decimals = r.server_find_peak_qps_decimals_of_precision;
        if !(0..=9).contains(&decimals) {
            let name = "server_find_peak_qps_decimals_of_precision";
            self.refuse(name, decimals, "from 0 to 9");
        }
    }

    /// Blames the count if that alone asks for too much, else the duration.
    fn check_size(&mut self, settings: &TestSettings, library: Library) {
        let Some(why) = size_problem(settings, library) else {
            return;
        };
        let counted = TestSettings {
            min_duration_ms: 0,
            ..settings.clone()
        };
        if size_problem(&counted, library).is_some() {
            self.refuse("min_query_count", settings.min_query_count, why);
        } else {
            self.refuse("min_duration_ms", settings.min_duration_ms, why);
        }
    }
}

/// Why a performance phase cannot do with a `min_query_count` of 0, if it cannot.
fn no_count_is_not_enough(eff: &EffectiveSettings) -> Option<&'static str> {
    let r = &eff.requested;
    if r.min_query_count > 0 || !eff.measures_performance() {
        return None;
    }
    // As many permutations are made as the count asks for; the reference goes on with none.
    let permutations = r.sample_concatenate_permutation && eff.min_query_count == 0;
    if r.min_duration_ms == 0 {
        Some("at least 1 when min_duration_ms is 0")
    } else if eff.scenario == Scenario::Offline && eff.samples_per_query == 0 {
        Some("at least 1 when rate and duration give no sample")
    } else if permutations && eff.scenario != Scenario::MultiStream {
        Some("at least 1 with sample_concatenate_permutation")
    } else {
        None
    }
}

/// The data set's counts, and the memory its samples' records must fit in.
#[derive(Clone, Copy)]
struct Library {
    qsl_total: u64,
    qsl_perf: u64,
    memory: u64,
}

fn phases(mode: Mode) -> &'static [Phase] {
    match mode {
        Mode::SubmissionRun => &[Phase::Accuracy, Phase::Performance],
        Mode::AccuracyOnly => &[Phase::Accuracy],
        Mode::PerformanceOnly | Mode::FindPeakPerformance => &[Phase::Performance],
    }
}

fn size_problem(settings: &TestSettings, library: Library) -> Option<String> {
    let Library {
        qsl_total,
        qsl_perf,
        memory,
    } = library;
    let (eff, _) = EffectiveSettings::derive(settings, qsl_total, qsl_perf);
    phases(eff.mode).iter().find_map(|&phase| {
        let need = MemoryNeed::of(&eff, phase, qsl_total);
        let gap_ns = Quota::of(&eff, phase, longest_set_len(&eff, phase, qsl_total)).gap_ns;
        let schedule_ns = need.queries as f64 * gap_ns as f64;
        if need.total_bytes() > memory {
            Some(too_large(&need, memory))
        } else if schedule_ns > MAX_SCHEDULE_NS {
            Some(format!(
                "a schedule of {:.0} years is too long",
                schedule_ns / 3.156e16
            ))
        } else {
            None
        }
    })
}

fn too_large(need: &MemoryNeed, memory: u64) -> String {
    let (needed, there) = (gibibytes(need.total_bytes()), gibibytes(memory));
    format!(
        "{} samples need {needed}, this machine has {there}",
        need.samples
    )
}

fn gibibytes(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / (1_u64 << 30) as f64)
}

/// Physical memory, where the system tells.
fn machine_memory_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}
