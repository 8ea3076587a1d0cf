//! `mlperf_log_summary.txt`, byte for byte as the reference writes it.
//!
//! Only lays out what metrics and verdict hold. Rates that are undefined (one query) show as
//! `-nan`, as in the reference: this file is text, not JSON, and compared byte for byte.

use crate::early_stopping::{Check, SECOND_PERCENTILE, TailEstimate};
use crate::metrics::{Metrics, TokenRates};
use crate::scenario::Scenario;
use crate::settings::EffectiveSettings;
use crate::stats::Distribution;
use crate::verdict::{Recommendation, Verdict};

use super::format::{fixed2, general};
use super::keys;

/// What the results part of a summary shows.
#[derive(Debug, Clone, Copy)]
pub struct PhaseResult<'a> {
    /// Name the SUT gave.
    pub sut_name: &'a str,
    /// Settings the phase ran with (FindPeakPerformance: those of the reported trial).
    pub eff: &'a EffectiveSettings,
    /// Figures of the phase.
    pub metrics: &'a Metrics,
    /// Verdict on the phase.
    pub verdict: &'a Verdict,
    /// Queries issued.
    pub queries_issued: u64,
}

/// The whole summary: results, if a performance phase was run, then warning and error counts.
#[must_use]
pub fn summary_text(result: Option<&PhaseResult<'_>>, n_warnings: u64, n_errors: u64) -> String {
    let mut text = result.map_or_else(String::new, results_text);
    text.push_str(&closing_text(n_warnings, n_errors));
    text
}

/// The last lines: how many warnings and errors the detail log holds.
#[must_use]
pub fn closing_text(n_warnings: u64, n_errors: u64) -> String {
    let warnings = match n_warnings {
        0 => "No warnings encountered during test.".to_owned(),
        1 => "1 warning encountered. See detailed log.".to_owned(),
        n => format!("{n} warnings encountered. See detailed log."),
    };
    let errors = match n_errors {
        0 => "No errors encountered during test.".to_owned(),
        1 => "1 ERROR encountered. See detailed log.".to_owned(),
        n => format!("{n} ERRORS encountered. See detailed log."),
    };
    format!("\n{warnings}\n\n{errors}\n")
}

/// Everything above the closing lines.
#[must_use]
pub fn results_text(result: &PhaseResult<'_>) -> String {
    let PhaseResult {
        sut_name,
        eff,
        metrics,
        verdict,
        ..
    } = *result;
    let mut lines = Lines::default();
    lines.title("MLPerf Results Summary");
    lines.add("SUT name : ", sut_name);
    lines.add("Scenario : ", &eff.scenario.to_string());
    lines.add("Mode     : ", &eff.mode.to_string());
    headline(&mut lines, metrics, eff);
    conditions(&mut lines, verdict);
    early_stopping(&mut lines, metrics, eff);
    lines.add("", "");
    lines.title("Additional Stats");
    statistics(&mut lines, metrics, eff.scenario);
    lines.add("", "");
    lines.title("Test Parameters Used");
    parameters(&mut lines, eff);
    lines.text
}

#[derive(Default)]
struct Lines {
    text: String,
}

impl Lines {
    fn add(&mut self, label: &str, value: &str) {
        self.text.push_str(label);
        self.text.push_str(value);
        self.text.push('\n');
    }

    fn number(&mut self, label: &str, value: impl ToString) {
        self.add(label, &value.to_string());
    }

    fn title(&mut self, title: &str) {
        for line in [keys::BAR, title, keys::BAR] {
            self.add(line, "");
        }
    }
}

/// The result itself.
fn headline(lines: &mut Lines, metrics: &Metrics, eff: &EffectiveSettings) {
    let rates = &metrics.rates;
    match eff.scenario {
        Scenario::SingleStream | Scenario::MultiStream => {
            let percentile = percentile_label(eff.target_latency_percentile);
            let latency = metrics
                .query_latency
                .as_ref()
                .unwrap_or(&metrics.sample_latency);
            lines.number(
                &format!("{percentile}th percentile latency (ns) : "),
                latency.at_target,
            );
            if let Some(ttft) = &metrics.ttft {
                let label = format!("{percentile}th first token percentile latency (ns) : ");
                lines.number(&label, ttft.at_target);
            }
        }
        Scenario::Server => {
            lines.add(
                "Completed samples per second    : ",
                &fixed2(rates.completed_per_s),
            );
            if let Some(tokens) = &metrics.tokens {
                lines.add(
                    "Completed tokens per second: ",
                    &fixed2(tokens.completed_per_s),
                );
            }
            if let Some(inferred) = metrics.inferred_tokens_per_s {
                lines.add(
                    "Completed tokens per second (inferred): ",
                    &fixed2(inferred),
                );
            }
        }
        Scenario::Offline => {
            lines.add("Samples per second: ", &general(rates.offline_per_s));
            if let Some(tokens) = &metrics.tokens {
                lines.add("Tokens per second: ", &general(tokens.offline_per_s));
            }
            if let Some(inferred) = metrics.inferred_tokens_per_s {
                lines.add("Tokens per second (inferred): ", &general(inferred));
            }
        }
    }
}

/// `90.0` from 0.9.
fn percentile_label(percentile: f64) -> String {
    format!("{:.1}", percentile * 100.0)
}

/// The official verdict with its conditions and recommendations.
fn conditions(lines: &mut Lines, verdict: &Verdict) {
    let met = |met: bool| if met { "Yes" } else { "NO" };
    let conditions = &verdict.conditions;
    lines.number("Result is : ", verdict.official_validity);
    if let Some(constraints) = conditions.performance_constraints {
        lines.add("  Performance constraints satisfied : ", met(constraints));
    }
    lines.add("  Min duration satisfied : ", met(conditions.min_duration));
    lines.add("  Min queries satisfied : ", met(conditions.min_queries));
    // No space before this colon in the reference.
    lines.add(
        "  Early stopping satisfied: ",
        met(conditions.early_stopping),
    );
    if verdict.official_validity.is_valid() {
        return;
    }
    lines.add("Recommendations:", "");
    for &recommendation in &verdict.recommendations {
        lines.add(" * ", keys::recommendation(recommendation));
        if recommendation == Recommendation::ExitedEarly {
            lines.add(keys::SEE_DETAILED_LOG, "");
        }
    }
}

fn early_stopping(lines: &mut Lines, metrics: &Metrics, eff: &EffectiveSettings) {
    if eff.scenario == Scenario::Offline {
        return;
    }
    if !eff.requested.use_token_latencies {
        lines.add(
            "Early Stopping Result:\n",
            &early_stopping_text(&metrics.early_latency),
        );
        return;
    }
    lines.add(
        "TTFT Early Stopping Result:\n",
        &early_stopping_text(&metrics.early_ttft),
    );
    lines.add(
        "TPOT Early Stopping Result:\n",
        &early_stopping_text(&metrics.early_tpot),
    );
}

/// What an early-stopping check says, over several lines without a last line break; empty for a
/// check that was not made.
#[must_use]
pub fn early_stopping_text(check: &Check) -> String {
    match check {
        Check::Skipped => String::new(),
        Check::Limit { .. } if check.met() => " * Run successful.".to_owned(),
        Check::Limit {
            n_queries,
            n_needed,
            ..
        } => {
            // A percentile of 1 asks for infinitely many; the reference has no words for it.
            let more = n_needed.map_or(u64::MAX, |needed| needed - n_queries);
            format!(
                " * Run unsuccessful.\n * Processed {n_queries} queries.\n \
                 * Would need to run at least {more} more queries,\n \
                 with the run being successful if every additional\n \
                 query were under latency."
            )
        }
        Check::Estimate {
            n_queries,
            first,
            second,
        } => estimate_text(*n_queries, first, second.as_ref()),
    }
}

fn estimate_text(n_queries: u64, first: &TailEstimate, second: Option<&TailEstimate>) -> String {
    let needed = |estimate: &TailEstimate| estimate.n_needed.unwrap_or(u64::MAX);
    let Some(found) = first.found else {
        return format!(
            " * Only processed {n_queries} queries.\n \
             * Need to process at least {} queries for early stopping.",
            needed(first)
        );
    };
    let estimate_line = |estimate: &TailEstimate| {
        let percentile = percentile_label(estimate.percentile);
        let latency = estimate.latency_ns();
        format!(" * Early stopping {percentile}th percentile estimate: {latency}")
    };
    let mut text = format!(
        " * Processed at least {} queries ({n_queries}).\n \
         * Would discard {} highest latency queries.\n{}",
        needed(first),
        found.n_discarded,
        estimate_line(first)
    );
    if let Some(second) = second {
        text.push('\n');
        if second.found.is_some() {
            text.push_str(&estimate_line(second));
        } else {
            text.push_str(&format!(
                " * Not enough queries processed for {}th percentile\n \
                 early stopping estimate (would need to process at\n \
                 least {} total queries).",
                percentile_label(SECOND_PERCENTILE),
                needed(second)
            ));
        }
    }
    text
}

fn statistics(lines: &mut Lines, metrics: &Metrics, scenario: Scenario) {
    let rates = &metrics.rates;
    match scenario {
        Scenario::SingleStream => {
            lines.add(
                "QPS w/ loadgen overhead         : ",
                &fixed2(rates.with_overhead_per_s),
            );
            lines.add(
                "QPS w/o loadgen overhead        : ",
                &fixed2(rates.without_overhead_per_s),
            );
            lines.add("", "");
        }
        Scenario::MultiStream => lines.add("Per-query latency:  ", ""),
        Scenario::Server => {
            lines.add(
                "Scheduled samples per second : ",
                &fixed2(rates.scheduled_per_s),
            );
        }
        Scenario::Offline => {}
    }
    let latency = metrics
        .query_latency
        .as_ref()
        .unwrap_or(&metrics.sample_latency);
    distribution(lines, latency, "latency", "latency");
    if let Some(tokens) = &metrics.tokens {
        token_statistics(lines, metrics, tokens, scenario);
    }
}

fn token_statistics(lines: &mut Lines, metrics: &Metrics, tokens: &TokenRates, scenario: Scenario) {
    lines.add("", "");
    match scenario {
        Scenario::SingleStream => {
            lines.add(
                "TPS w/ loadgen overhead         : ",
                &fixed2(tokens.with_overhead_per_s),
            );
            lines.add(
                "TPS w/o loadgen overhead        : ",
                &fixed2(tokens.without_overhead_per_s),
            );
        }
        Scenario::Server => {
            let label = "Completed tokens per second                 : ";
            lines.add(label, &fixed2(tokens.completed_per_s));
        }
        Scenario::MultiStream | Scenario::Offline => {}
    }
    if let (Some(ttft), Some(tpot)) = (&metrics.ttft, &metrics.tpot) {
        distribution(lines, ttft, "First Token latency", "first token latency");
        lines.add("", "");
        distribution(lines, tpot, "Time per Output Token", "time to output token");
    }
}

/// `of_what` names the latency in the lines of extremes and mean, `of_percentile` in the others.
fn distribution(lines: &mut Lines, of: &Distribution, of_what: &str, of_percentile: &str) {
    for (name, value) in [("Min ", of.min), ("Max ", of.max), ("Mean ", of.mean)] {
        let label = format!("{name}{of_what} (ns)");
        // All colons of the block stand in one column: 16 blanks after the shorter names.
        let width = "Min ".len() + of_what.len() + " (ns)".len() + 16;
        lines.number(&format!("{label:<width$}: "), value);
    }
    for (percentile, value) in keys::PERCENTILE_LABELS.iter().zip(of.percentiles) {
        lines.number(
            &format!("{percentile} percentile {of_percentile} (ns)   : "),
            value,
        );
    }
}

fn parameters(lines: &mut Lines, eff: &EffectiveSettings) {
    let asked = &eff.requested;
    lines.number("samples_per_query : ", eff.samples_per_query);
    lines.add("target_qps : ", &general(eff.target_qps));
    if asked.use_token_latencies {
        lines.number("ttft_latency (ns): ", asked.server_ttft_latency);
        lines.number("tpot_latency (ns): ", asked.server_tpot_latency);
    } else {
        lines.number("target_latency (ns): ", eff.target_latency_ns);
    }
    lines.number("max_async_queries : ", eff.max_async_queries);
    lines.number("min_duration (ms): ", eff.min_duration_ms);
    lines.number("max_duration (ms): ", eff.max_duration_ms);
    lines.number("min_query_count : ", eff.min_query_count);
    lines.number("max_query_count : ", eff.max_query_count);
    lines.number("qsl_rng_seed : ", asked.qsl_rng_seed);
    lines.number("sample_index_rng_seed : ", asked.sample_index_rng_seed);
    lines.number("schedule_rng_seed : ", asked.schedule_rng_seed);
    lines.number("accuracy_log_rng_seed : ", asked.accuracy_log_rng_seed);
    lines.add(
        "accuracy_log_probability : ",
        &general(asked.accuracy_log_probability),
    );
    lines.number(
        "accuracy_log_sampling_target : ",
        asked.accuracy_log_sampling_target,
    );
    lines.number("print_timestamps : ", u8::from(asked.print_timestamps));
    lines.number(
        "performance_issue_unique : ",
        u8::from(asked.performance_issue_unique),
    );
    lines.number(
        "performance_issue_same : ",
        u8::from(asked.performance_issue_same),
    );
    lines.number(
        "performance_issue_same_index : ",
        asked.performance_issue_same_index,
    );
    lines.number("performance_sample_count : ", eff.performance_sample_count);
    lines.number("accuracy_sample_count : ", eff.accuracy_sample_count);
    if asked.sample_concatenate_permutation {
        lines.text.push_str(keys::CONCATENATE_WARNING);
    }
}
