//! The result lines of the detail log, in the order other tools expect.
//!
//! Only names and orders what metrics and verdict hold.

use crate::clock::Nanos;
use crate::metrics::Metrics;
use crate::scenario::Scenario;
use crate::stats::Distribution;
use crate::verdict::{Recommendation, Verdict};

use super::detail::DetailLog;
use super::entries::push_all;
use super::keys::{self, DistributionKeys, detail as key};
use super::summary::{PhaseResult, early_stopping_text};

/// The results of a performance phase.
pub fn results(log: &mut DetailLog, at: Nanos, result: &PhaseResult<'_>) {
    let PhaseResult {
        eff,
        metrics,
        verdict,
        ..
    } = *result;
    judgment(log, at, verdict);
    if eff.requested.use_token_latencies {
        let (ttft, tpot) = (&metrics.early_ttft, &metrics.early_tpot);
        log.push(
            at,
            key::EARLY_STOPPING_TTFT_RESULT,
            one_line(&early_stopping_text(ttft)),
        );
        log.push(
            at,
            key::EARLY_STOPPING_TPOT_RESULT,
            one_line(&early_stopping_text(tpot)),
        );
    } else {
        let text = early_stopping_text(&metrics.early_latency);
        log.push(at, key::EARLY_STOPPING_RESULT, one_line(&text));
    }
    log.push(at, key::RESULT_QUERY_COUNT, result.queries_issued);
    scenario_results(log, at, metrics, eff.scenario);
    min_max_mean(log, at, &metrics.sample_latency, &keys::SAMPLE_LATENCY);
    percentiles(log, at, &metrics.sample_latency, &keys::SAMPLE_LATENCY);
    token_results(log, at, metrics, eff.scenario);
    log.push(at, key::NUM_ERRORS, log.n_errors());
}

fn judgment(log: &mut DetailLog, at: Nanos, verdict: &Verdict) {
    let conditions = &verdict.conditions;
    log.push(
        at,
        key::RESULT_VALIDITY,
        verdict.official_validity.to_string(),
    );
    if let Some(met) = conditions.performance_constraints {
        log.push(at, key::RESULT_PERF_CONSTRAINTS_MET, met);
    }
    log.push(at, key::RESULT_MIN_DURATION_MET, conditions.min_duration);
    log.push(at, key::RESULT_MIN_QUERIES_MET, conditions.min_queries);
    log.push(at, key::EARLY_STOPPING_MET, conditions.early_stopping);
    if !verdict.official_validity.is_valid() {
        log.push(
            at,
            key::RESULT_INVALID_REASON,
            invalid_reason(&verdict.recommendations),
        );
    }
}

/// Recommendations as one text: each but the last kind is followed by a space, and the reference
/// keeps its list mark between the two token limits.
fn invalid_reason(recommendations: &[Recommendation]) -> String {
    let both = recommendations.contains(&Recommendation::ReduceTargetQpsForTpot);
    let mut text = String::new();
    for &recommendation in recommendations {
        text.push_str(keys::recommendation(recommendation));
        text.push_str(match recommendation {
            Recommendation::ReduceTargetQpsForTtft if both => "  * ",
            Recommendation::ExitedEarly => "",
            _ => " ",
        });
    }
    text
}

/// Line breaks become spaces, as the reference writes them into JSON strings.
fn one_line(text: &str) -> String {
    text.replace('\n', " ")
}

fn scenario_results(log: &mut DetailLog, at: Nanos, metrics: &Metrics, scenario: Scenario) {
    let rates = &metrics.rates;
    match scenario {
        Scenario::SingleStream => {
            log.push(at, key::QPS_WITH_OVERHEAD, rates.with_overhead_per_s);
            log.push(at, key::QPS_WITHOUT_OVERHEAD, rates.without_overhead_per_s);
            log.push(
                at,
                key::EARLY_STOPPING_LATENCY_SS,
                metrics.early_stopping_latency_ss(),
            );
            log.push(
                at,
                key::EARLY_STOPPING_LATENCY_MS,
                metrics.early_stopping_latency_ms(),
            );
        }
        Scenario::MultiStream => {
            if let Some(queries) = &metrics.query_latency {
                min_max_mean(log, at, queries, &keys::QUERY_LATENCY);
                percentiles(log, at, queries, &keys::QUERY_LATENCY);
            }
            log.push(
                at,
                key::EARLY_STOPPING_LATENCY_MS,
                metrics.early_stopping_latency_ms(),
            );
        }
        Scenario::Server => {
            log.push(at, key::OVERLATENCY_QUERY_COUNT, metrics.n_over_latency);
            log.push(at, key::SCHEDULED_SAMPLES_PER_SEC, rates.scheduled_per_s);
            log.push(at, key::COMPLETED_SAMPLES_PER_SEC, rates.completed_per_s);
        }
        Scenario::Offline => log.push(at, key::SAMPLES_PER_SECOND, rates.offline_per_s),
    }
}

fn token_results(log: &mut DetailLog, at: Nanos, metrics: &Metrics, scenario: Scenario) {
    let offline = scenario == Scenario::Offline;
    if let (Some(ttft), Some(tpot), Some(tokens)) = (&metrics.ttft, &metrics.tpot, &metrics.tokens)
    {
        min_max_mean(log, at, ttft, &keys::TTFT);
        percentiles(log, at, ttft, &keys::TTFT);
        log.push(
            at,
            key::TOKEN_THROUGHPUT_WITH_OVERHEAD,
            tokens.with_overhead_per_s,
        );
        log.push(at, key::TOKEN_THROUGHPUT, tokens.without_overhead_per_s);
        percentiles(log, at, tpot, &keys::TPOT);
        min_max_mean(log, at, tpot, &keys::TPOT);
        log.push(at, key::COMPLETED_TOKENS_PER_SECOND, tokens.completed_per_s);
    } else if let Some(tokens) = &metrics.tokens {
        log.push(at, key::TOKENS_PER_SECOND, tokens.offline_per_s);
    }
    if let Some(inferred) = metrics.inferred_tokens_per_s {
        let key = if offline {
            key::INFERRED_TOKENS_PER_SECOND
        } else {
            key::INFERRED_COMPLETED_TOKENS_PER_SECOND
        };
        log.push(at, key, inferred);
    }
}

fn min_max_mean(log: &mut DetailLog, at: Nanos, of: &Distribution, keys: &DistributionKeys) {
    log.push(at, keys.min, of.min);
    log.push(at, keys.max, of.max);
    log.push(at, keys.mean, of.mean);
}

fn percentiles(log: &mut DetailLog, at: Nanos, of: &Distribution, keys: &DistributionKeys) {
    for (key, value) in keys.percentiles.iter().zip(of.percentiles) {
        log.push(at, key, value);
    }
}

/// What the reference does not report, under names of our own; off unless asked for.
pub fn own_results(log: &mut DetailLog, at: Nanos, result: &PhaseResult<'_>) {
    let (rates, verdict) = (&result.metrics.rates, result.verdict);
    let values = [
        verdict.validity.to_string().into(),
        verdict.reasons.join("; ").into(),
        verdict.advice.join("; ").into(),
        rates.requested_per_s.into(),
        rates.goodput_per_s.into(),
    ];
    push_all(log, at, key::OWN_RESULTS, values);
}
