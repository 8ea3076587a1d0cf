//! How many queries a phase is to have: by count, by time, and in whole passes where asked for.
//!
//! Arithmetic only. `schedule` makes the queries; `validate` and `plan` ask here what it will cost.

use crate::scenario::{Phase, Scenario};
use crate::settings::EffectiveSettings;

/// SingleStream, MultiStream and Offline plan for twice the time, because a SUT faster than
/// expected must not run out of queries. Server cannot be outrun.
const CLOSED_LOOP_TIME_FACTOR: i64 = 2;

/// What a phase must have generated before it may stop generating.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quota {
    /// Samples in each query.
    pub samples_per_query: u64,
    /// The count before rounding up to whole passes; the sample lists are drawn for this one.
    pub list_queries: u64,
    /// Queries there must be.
    pub min_queries: u64,
    /// The last query must be due at or after this.
    pub duration_ns: i64,
    /// Queries added at once when the count is met and the time is not: a whole pass where every
    /// sample is to be issued equally often, else 1.
    pub step: u64,
    /// Time between queries; on average in Server, always elsewhere.
    pub gap_ns: i64,
}

impl Quota {
    /// The quota of `phase` over a loaded set of `set_len` samples, padding included.
    #[must_use]
    pub fn of(eff: &EffectiveSettings, phase: Phase, set_len: u64) -> Self {
        let offline = eff.scenario == Scenario::Offline;
        let timed = phase == Phase::Performance && !eff.requested.performance_issue_unique;
        let samples_per_query = match (eff.scenario, phase) {
            (Scenario::Offline, Phase::Accuracy) => set_len,
            _ => eff.samples_per_query,
        };
        let list_queries = if timed {
            eff.min_query_count
        } else {
            set_len.checked_div(samples_per_query).unwrap_or(0)
        };
        let mut quota = Self {
            samples_per_query,
            list_queries,
            min_queries: list_queries,
            duration_ns: if timed { planned_duration_ns(eff) } else { 0 },
            step: 1,
            gap_ns: (1.0 / eff.target_qps * 1e9) as i64,
        };
        let equal_issue = eff.requested.sample_concatenate_permutation;
        if phase == Phase::Performance && equal_issue && set_len > 0 {
            if offline {
                quota.samples_per_query = round_up(samples_per_query, set_len);
            } else {
                quota.min_queries = round_up(list_queries, set_len);
                quota.step = set_len;
            }
        }
        quota
    }

    /// The number of queries when they come `gap_ns` apart: exact everywhere but in Server, where
    /// it is the expected one.
    ///
    /// Example: 2 s at 125 ms apart: the 17th query is the first due at or after 2 s.
    #[must_use]
    pub fn evenly_spaced_queries(&self) -> u64 {
        if self.duration_ns <= 0 {
            return self.min_queries;
        }
        let gap = self.gap_ns.max(1);
        let by_time = (self.duration_ns as u64)
            .div_ceil(gap as u64)
            .saturating_add(1);
        let missing = by_time.saturating_sub(self.min_queries);
        let added = missing.div_ceil(self.step).saturating_mul(self.step);
        self.min_queries.saturating_add(added)
    }
}

fn planned_duration_ns(eff: &EffectiveSettings) -> i64 {
    let target = i64::try_from(eff.target_duration_ms).unwrap_or(i64::MAX);
    let factor = match eff.scenario {
        Scenario::Server => 1,
        Scenario::SingleStream | Scenario::MultiStream | Scenario::Offline => {
            CLOSED_LOOP_TIME_FACTOR
        }
    };
    target.saturating_mul(1_000_000).saturating_mul(factor)
}

fn round_up(n: u64, step: u64) -> u64 {
    n.div_ceil(step).saturating_mul(step)
}

/// Samples that the sets of `phase` hold together.
fn samples_in(eff: &EffectiveSettings, phase: Phase, qsl_total: u64) -> u64 {
    match phase {
        Phase::Accuracy => eff.accuracy_sample_count,
        Phase::Performance => eff.performance_sample_count,
    }
    .min(qsl_total)
}

/// Samples the last set of `phase` holds, padding left out; no set holds fewer.
///
/// Example: 25 samples, 10 in memory at once: sets of 10, 10 and 5.
#[must_use]
pub fn shortest_set_len(eff: &EffectiveSettings, phase: Phase, qsl_total: u64) -> u64 {
    let in_phase = samples_in(eff, phase, qsl_total);
    match in_phase.checked_rem(eff.performance_sample_count) {
        None => in_phase,
        Some(0) => in_phase.min(eff.performance_sample_count),
        Some(rest) => rest,
    }
}

/// Samples a set of `phase` holds, the longest one, padding included.
#[must_use]
pub fn longest_set_len(eff: &EffectiveSettings, phase: Phase, qsl_total: u64) -> u64 {
    let in_phase = samples_in(eff, phase, qsl_total);
    let cut = match eff.performance_sample_count {
        0 => in_phase,
        per_set => in_phase.min(per_set),
    };
    if cut == 0 {
        0
    } else {
        cut.saturating_add(padding(eff))
    }
}

/// Samples repeated at the end of each set so that a MultiStream query never runs off it.
#[must_use]
pub fn padding(eff: &EffectiveSettings) -> u64 {
    match eff.scenario {
        Scenario::MultiStream => eff.samples_per_query.saturating_sub(1),
        Scenario::SingleStream | Scenario::Server | Scenario::Offline => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_adds_whole_steps() {
        let quota = |min_queries, duration_ns, step| Quota {
            samples_per_query: 1,
            list_queries: min_queries,
            min_queries,
            duration_ns,
            step,
            gap_ns: 10,
        };
        for (min_queries, duration_ns, step, expected) in [
            (5, 0, 1, 5),    // count alone
            (5, 100, 1, 11), // the 11th is due at 100
            (5, 101, 1, 12), // at 100 it is not yet
            (20, 100, 1, 20),
            (8, 100, 8, 16), // 11 rounded up to passes of 8
            (0, 0, 1, 0),
        ] {
            let got = quota(min_queries, duration_ns, step).evenly_spaced_queries();
            assert_eq!(got, expected, "{min_queries} {duration_ns} {step}");
        }
    }
}
