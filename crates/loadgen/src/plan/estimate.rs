//! How long a planned phase would take, what would end it, and what it would keep in memory.

use crate::scenario::{Mode, Phase, Scenario};
use crate::schedule::PhasePlan;
use crate::settings::validate::{record_bytes, set_bytes};
use crate::settings::{EffectiveSettings, SettingsNote};

/// What to expect of one planned set.
#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    /// Queries that would be issued, if the SUT is as fast as expected.
    pub issued_queries: u64,
    /// Time from the first query to the last answer, if the SUT is as fast as expected.
    pub run_time_s: f64,
    /// Bytes of plan.
    pub plan_bytes: u64,
    /// Bytes of records and results, and of the set they are about.
    pub record_bytes: u64,
    /// What ends it.
    pub end_rule: String,
}

/// The estimate for `plan`, the queries of a set of `phase`.
#[must_use]
pub fn estimate(eff: &EffectiveSettings, phase: Phase, plan: &PhasePlan) -> Estimate {
    let issued = issued_queries(eff, phase, plan.n_queries() as u64);
    let records = record_bytes(eff, plan.n_queries() as u64, plan.n_samples() as u64);
    Estimate {
        issued_queries: issued,
        run_time_s: run_time_s(eff, plan, issued),
        plan_bytes: plan.heap_bytes() as u64,
        record_bytes: records + set_bytes(plan.set_len() as u64),
        end_rule: end_rule(eff, phase, plan.n_queries() as u64),
    }
}

/// Closed loops stop once count and time are met; the plan has twice that.
fn issued_queries(eff: &EffectiveSettings, phase: Phase, planned: u64) -> u64 {
    let needed = match (phase, eff.scenario) {
        (Phase::Performance, Scenario::SingleStream | Scenario::MultiStream) => {
            let by_time = (eff.target_duration_ms as f64 / 1000.0 * eff.target_qps).ceil() + 1.0;
            eff.min_query_count.max(by_time as u64)
        }
        _ => planned,
    };
    let limit = match (phase, eff.max_query_count) {
        (Phase::Accuracy, _) | (Phase::Performance, 0) => u64::MAX,
        (Phase::Performance, max) => max,
    };
    planned.min(needed).min(limit)
}

fn run_time_s(eff: &EffectiveSettings, plan: &PhasePlan, issued: u64) -> f64 {
    match eff.scenario {
        Scenario::SingleStream | Scenario::MultiStream => issued as f64 / eff.target_qps,
        Scenario::Offline => plan.n_samples() as f64 / eff.target_qps,
        Scenario::Server => match issued.checked_sub(1) {
            Some(last) => plan.due(last as usize).as_secs_f64(),
            None => 0.0,
        },
    }
}

fn end_rule(eff: &EffectiveSettings, phase: Phase, planned: u64) -> String {
    if phase == Phase::Accuracy {
        return format!("all {planned} queries are answered");
    }
    let mut rule = match eff.scenario {
        Scenario::Offline => "the one query is answered".to_owned(),
        Scenario::Server => format!("all {planned} queries are issued and answered"),
        Scenario::SingleStream | Scenario::MultiStream => format!(
            "at least {} queries are issued, the last of them {} ms or more after the first",
            eff.min_query_count, eff.target_duration_ms
        ),
    };
    if eff.scenario != Scenario::Offline {
        if eff.max_query_count > 0 {
            rule += &format!(
                "; or {} queries, which makes it INVALID",
                eff.max_query_count
            );
        }
        if eff.max_duration_ms > 0 {
            rule += &format!("; or {} ms, which makes it INVALID", eff.max_duration_ms);
        }
    }
    rule
}

/// Remarks a person should see before such a run, besides the reference's own.
#[must_use]
pub fn remarks(eff: &EffectiveSettings, notes: &[SettingsNote]) -> Vec<String> {
    let mut remarks: Vec<String> = notes.iter().map(|note| note.text.clone()).collect();
    let r = &eff.requested;
    if eff.mode == Mode::FindPeakPerformance {
        remarks.push(match eff.scenario {
            Scenario::Server => "this is the first trial; later ones differ in rate".to_owned(),
            Scenario::SingleStream | Scenario::MultiStream | Scenario::Offline => {
                "FindPeakPerformance exists in Server only: nothing would be issued".to_owned()
            }
        });
    }
    if r.max_duration_ms > 0 && r.max_duration_ms < r.min_duration_ms {
        remarks
            .push("max_duration_ms is below min_duration_ms: the run will be INVALID".to_owned());
    }
    if r.max_query_count > 0 && r.max_query_count < r.min_query_count {
        remarks
            .push("max_query_count is below min_query_count: the run will be INVALID".to_owned());
    }
    remarks
}
