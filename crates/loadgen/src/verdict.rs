//! Figures and settings in, VALID or INVALID out, with every reason and what to do about it.
//!
//! Two verdicts stand side by side: the reference's, which overlooks logged errors, and ours,
//! which does not. Prints nothing; the wording of the logs is in `report`.

use std::fmt;

use crate::advice::advice;
use crate::metrics::{Metrics, PerformanceData};
use crate::scenario::Scenario;
use crate::settings::EffectiveSettings;

/// Whether a run counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Validity {
    /// All conditions hold.
    Valid,
    /// At least one does not; a result all the same.
    Invalid,
}

impl Validity {
    /// Valid if `all_met`.
    #[must_use]
    pub fn from_met(all_met: bool) -> Self {
        if all_met { Self::Valid } else { Self::Invalid }
    }

    /// Whether the run counts.
    #[must_use]
    pub fn is_valid(self) -> bool {
        self == Self::Valid
    }
}

impl fmt::Display for Validity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Valid => "VALID",
            Self::Invalid => "INVALID",
        })
    }
}

/// What went wrong besides the figures; all of it counts in our verdict, none in the reference's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OutcomeCounts {
    /// Errors logged, as the summary counts them.
    pub n_errors: u64,
    /// Samples answered with a failure.
    pub n_failed: u64,
    /// Samples never answered.
    pub n_lost: u64,
}

/// The reference's conditions, each met or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conditions {
    /// Latency limits at the target percentile; Server only.
    pub performance_constraints: Option<bool>,
    /// The run lasted as long as asked.
    pub min_duration: bool,
    /// Enough queries and samples were issued.
    pub min_queries: bool,
    /// The run was long enough to trust its tail.
    pub early_stopping: bool,
}

impl Conditions {
    /// Whether every condition holds.
    #[must_use]
    pub fn all_met(&self) -> bool {
        self.performance_constraints != Some(false)
            && self.min_duration
            && self.min_queries
            && self.early_stopping
    }
}

/// What the reference recommends to whoever failed a condition; worded in `report::keys`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Recommendation {
    /// Server latency over its limit.
    ReduceTargetQps,
    /// First-token latency over its limit.
    ReduceTargetQpsForTtft,
    /// Time per output token over its limit.
    ReduceTargetQpsForTpot,
    /// SingleStream, MultiStream: ran out before the minimum duration.
    DecreaseExpectedLatency,
    /// Server: ran out before the minimum duration.
    IncreaseTargetQps,
    /// Offline: ran out before the minimum duration.
    IncreaseExpectedQps,
    /// Too few queries were issued.
    ExitedEarly,
}

/// The verdict on one performance phase.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// Exactly as the reference judges.
    pub official_validity: Validity,
    /// The same conditions, and no error, failure or lost sample.
    pub validity: Validity,
    /// The reference's conditions one by one.
    pub conditions: Conditions,
    /// The reference's recommendations, in its order.
    pub recommendations: Vec<Recommendation>,
    /// Why `validity` is INVALID, one line each; empty if it is VALID.
    pub reasons: Vec<String>,
    /// What to change, and by how much, as far as the figures tell.
    pub advice: Vec<String>,
}

impl Verdict {
    /// Judges one performance phase.
    #[must_use]
    pub fn judge(
        metrics: &Metrics,
        data: &PerformanceData,
        eff: &EffectiveSettings,
        counts: OutcomeCounts,
    ) -> Self {
        let limits = limits(metrics, eff);
        let conditions = conditions(metrics, data, eff, &limits);
        let mut reasons = unmet(&conditions, &limits, data, eff);
        reasons.extend(mishaps(counts));
        Self {
            official_validity: Validity::from_met(conditions.all_met()),
            validity: Validity::from_met(reasons.is_empty()),
            recommendations: recommendations(&conditions, &limits, eff.scenario),
            advice: advice(metrics, data, eff),
            reasons,
            conditions,
        }
    }
}

/// One latency limit of the Server scenario and how the run stands to it.
struct Limit {
    name: &'static str,
    value_ns: i64,
    limit_ns: u64,
    recommendation: Recommendation,
}

impl Limit {
    fn met(&self) -> bool {
        i128::from(self.value_ns) <= i128::from(self.limit_ns)
    }
}

/// The limits that are consulted: latency, or with tokens TTFT and TPOT instead.
fn limits(metrics: &Metrics, eff: &EffectiveSettings) -> Vec<Limit> {
    if eff.scenario != Scenario::Server {
        return Vec::new();
    }
    let (Some(ttft), Some(tpot)) = (&metrics.ttft, &metrics.tpot) else {
        return vec![Limit {
            name: "latency",
            value_ns: metrics.sample_latency.at_target,
            limit_ns: eff.target_latency_ns,
            recommendation: Recommendation::ReduceTargetQps,
        }];
    };
    vec![
        Limit {
            name: "time to first token",
            value_ns: ttft.at_target,
            limit_ns: eff.requested.server_ttft_latency,
            recommendation: Recommendation::ReduceTargetQpsForTtft,
        },
        Limit {
            name: "time per output token",
            value_ns: tpot.at_target,
            limit_ns: eff.requested.server_tpot_latency,
            recommendation: Recommendation::ReduceTargetQpsForTpot,
        },
    ]
}

fn conditions(
    metrics: &Metrics,
    data: &PerformanceData,
    eff: &EffectiveSettings,
    limits: &[Limit],
) -> Conditions {
    let n_samples = data.sample_latencies_ns.len() as u64;
    Conditions {
        performance_constraints: (eff.scenario == Scenario::Server)
            .then(|| limits.iter().all(Limit::met)),
        min_duration: measured_duration_ns(data, eff)
            >= i128::from(eff.min_duration_ms) * 1_000_000,
        min_queries: data.queries_issued >= eff.min_query_count
            && n_samples >= eff.min_sample_count,
        early_stopping: [
            &metrics.early_latency,
            &metrics.early_ttft,
            &metrics.early_tpot,
        ]
        .iter()
        .all(|check| check.met()),
    }
}

/// What is held against the minimum duration.
///
/// SingleStream and MultiStream: issue time of the last query; Server: its scheduled time;
/// Offline: the largest latency. Source: spec 12.
fn measured_duration_ns(data: &PerformanceData, eff: &EffectiveSettings) -> i128 {
    i128::from(match eff.scenario {
        Scenario::SingleStream | Scenario::MultiStream => data.final_query_issued_ns,
        Scenario::Server => data.final_query_scheduled_ns,
        Scenario::Offline => data.max_latency_ns,
    })
}

fn recommendations(
    conditions: &Conditions,
    limits: &[Limit],
    scenario: Scenario,
) -> Vec<Recommendation> {
    let over = limits.iter().filter(|limit| !limit.met());
    let mut found: Vec<_> = over.map(|limit| limit.recommendation).collect();
    if !conditions.min_duration {
        found.push(match scenario {
            Scenario::SingleStream | Scenario::MultiStream => {
                Recommendation::DecreaseExpectedLatency
            }
            Scenario::Server => Recommendation::IncreaseTargetQps,
            Scenario::Offline => Recommendation::IncreaseExpectedQps,
        });
    }
    if !conditions.min_queries {
        found.push(Recommendation::ExitedEarly);
    }
    found
}

/// Every condition that was not met, with the numbers on both sides.
fn unmet(
    conditions: &Conditions,
    limits: &[Limit],
    data: &PerformanceData,
    eff: &EffectiveSettings,
) -> Vec<String> {
    let mut reasons = Vec::new();
    for limit in limits.iter().filter(|limit| !limit.met()) {
        reasons.push(format!(
            "{} {} ns at percentile {}, limit {} ns",
            limit.name,
            limit.value_ns,
            eff.target_latency_percentile * 100.0,
            limit.limit_ns
        ));
    }
    if !conditions.min_duration {
        let seconds = measured_duration_ns(data, eff) as f64 / 1e9;
        let asked = eff.min_duration_ms as f64 / 1e3;
        reasons.push(format!("lasted {seconds} s, min_duration {asked} s"));
    }
    if !conditions.min_queries {
        reasons.push(format!(
            "{} queries with {} samples, at least {} with {} asked",
            data.queries_issued,
            data.sample_latencies_ns.len(),
            eff.min_query_count,
            eff.min_sample_count
        ));
    }
    if !conditions.early_stopping {
        reasons.push(format!(
            "{} queries are too few to trust the tail",
            data.queries_issued
        ));
    }
    reasons
}

fn mishaps(counts: OutcomeCounts) -> impl Iterator<Item = String> {
    let kinds = [
        (counts.n_errors, "error logged", "errors logged"),
        (counts.n_failed, "sample failed", "samples failed"),
        (
            counts.n_lost,
            "sample never answered",
            "samples never answered",
        ),
    ];
    kinds
        .into_iter()
        .filter(|&(n, ..)| n > 0)
        .map(|(n, one, many)| format!("{n} {}", if n == 1 { one } else { many }))
}

#[cfg(test)]
mod tests;
