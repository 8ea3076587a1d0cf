//! Records of a performance phase in, figures out: latency, TTFT, TPOT, rates, tokens.
//!
//! One function per figure, with its formula, source and a worked example. Judges nothing: what
//! the figures mean for the run is `verdict.rs`.

use crate::early_stopping::{Check, SECOND_PERCENTILE, TailEstimate};
use crate::scenario::Scenario;
use crate::settings::EffectiveSettings;
use crate::stats::{Distribution, Ranked};

/// Samples whose due times are kept for the estimate of how far the target could rise: enough for
/// any percentile, and 8 MiB at most.
pub const MAX_REPLAYED: usize = 1 << 20;

/// Everything the figures and the verdict are computed from, for one performance phase.
///
/// Times are nanoseconds; latencies run from the scheduled time (invariant 1).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PerformanceData {
    /// Queries handed to the SUT.
    pub queries_issued: u64,
    /// Completion − scheduled, one per sample, in issue order.
    pub sample_latencies_ns: Vec<i64>,
    /// Which of them are no answers: failed, lost, called off. Ascending; no rate counts them.
    pub unanswered: Vec<usize>,
    /// Scheduled time of the first [`MAX_REPLAYED`] samples, from the start; Server only.
    pub due_ns: Vec<i64>,
    /// Last completion of the query − scheduled; MultiStream only, else empty.
    pub query_latencies_ns: Vec<i64>,
    /// First token − scheduled; token mode only, else empty.
    pub ttft_ns: Vec<i64>,
    /// (latency − TTFT) / (n_tokens − 1); token mode only, else empty.
    pub tpot_ns: Vec<i64>,
    /// Output tokens a sample; token mode only, else empty.
    pub n_tokens: Vec<i64>,
    /// Largest sample latency.
    pub max_latency_ns: i64,
    /// Scheduled time of the last issued query, from the start of the phase.
    pub final_query_scheduled_ns: i64,
    /// Issue time of the last issued query, from the start of the phase.
    pub final_query_issued_ns: i64,
    /// When the last issued query (not the latest completion) was wholly answered.
    pub final_query_all_samples_done_ns: i64,
}

/// Every figure of one performance phase. Rates are per second and may be infinite or undefined
/// (NaN) when the phase was a single instant; the log writers know how to print those.
#[derive(Debug, Clone, PartialEq)]
pub struct Metrics {
    /// Per sample.
    pub sample_latency: Distribution,
    /// Per query; MultiStream only.
    pub query_latency: Option<Distribution>,
    /// First token; token mode except Offline.
    pub ttft: Option<Distribution>,
    /// Per output token after the first; token mode except Offline.
    pub tpot: Option<Distribution>,
    /// Rates of samples.
    pub rates: Rates,
    /// Rates of tokens; token mode only.
    pub tokens: Option<TokenRates>,
    /// Tokens per second from an assumed length; `infer_token_latencies` only.
    pub inferred_tokens_per_s: Option<f64>,
    /// Samples whose latency is over the Server target, in token mode too.
    pub n_over_latency: u64,
    /// Early stopping on latency; without tokens.
    pub early_latency: Check,
    /// Early stopping on first-token latency; with tokens, and only if TPOT passed.
    pub early_ttft: Check,
    /// Early stopping on time per output token; with tokens.
    pub early_tpot: Check,
}

/// How fast samples were asked for and answered.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// What the settings asked for.
    pub requested_per_s: f64,
    /// See [`scheduled_per_s`]: the rate the arrival draw really had.
    pub scheduled_per_s: f64,
    /// See [`completed_per_s`].
    pub completed_per_s: f64,
    /// See [`offline_per_s`].
    pub offline_per_s: f64,
    /// See [`with_overhead_per_s`].
    pub with_overhead_per_s: f64,
    /// See [`without_overhead_per_s`].
    pub without_overhead_per_s: f64,
    /// See [`goodput_per_s`].
    pub goodput_per_s: f64,
}

/// How fast tokens came.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TokenRates {
    /// Tokens of all samples.
    pub n_tokens: i64,
    /// Σ tokens / completion of the last issued query.
    pub completed_per_s: f64,
    /// Σ tokens / largest latency.
    pub offline_per_s: f64,
    /// Σ tokens / issue time of the last query.
    pub with_overhead_per_s: f64,
    /// Σ tokens / Σ latencies (mean · n).
    pub without_overhead_per_s: f64,
}

impl Metrics {
    /// Computes every figure; each list of latencies is copied once and partitioned, not sorted.
    #[must_use]
    pub fn compute(data: &PerformanceData, eff: &EffectiveSettings) -> Self {
        let target = eff.target_latency_percentile;
        let with_tokens = eff.requested.use_token_latencies;
        let streamed_tokens = with_tokens && eff.scenario != Scenario::Offline;
        let mut samples = Ranked::new(&data.sample_latencies_ns);
        let mut queries = Ranked::new(&data.query_latencies_ns);
        let mut ttft = Ranked::new(&data.ttft_ns);
        let mut tpot = Ranked::new(&data.tpot_ns);
        let sample_latency = Distribution::of(&mut samples, target);
        let (early_latency, early_ttft, early_tpot) = early_checks(EarlyInputs {
            n_queries: data.queries_issued,
            samples: &mut samples,
            queries: &mut queries,
            ttft: &mut ttft,
            tpot: &mut tpot,
            eff,
        });
        let multi_stream = eff.scenario == Scenario::MultiStream;
        Self {
            query_latency: multi_stream.then(|| Distribution::of(&mut queries, target)),
            ttft: streamed_tokens.then(|| Distribution::of(&mut ttft, target)),
            tpot: streamed_tokens.then(|| Distribution::of(&mut tpot, target)),
            rates: rates(data, eff, &sample_latency),
            tokens: with_tokens.then(|| token_rates(data, &sample_latency)),
            inferred_tokens_per_s: inferred_tokens_per_s(data, eff),
            n_over_latency: samples.n_over(limit(eff.target_latency_ns)),
            sample_latency,
            early_latency,
            early_ttft,
            early_tpot,
        }
    }

    /// `early_stopping_latency_ss`: the estimate of the last check made, 0 if none was.
    ///
    /// With tokens that is first-token latency, as in the reference (spec 19, row 11).
    #[must_use]
    pub fn early_stopping_latency_ss(&self) -> i64 {
        self.last_estimate(|first, _| Some(first))
    }

    /// `early_stopping_latency_ms`: MultiStream's own estimate, SingleStream's second one.
    #[must_use]
    pub fn early_stopping_latency_ms(&self) -> i64 {
        let multi_stream = self.query_latency.is_some();
        self.last_estimate(|first, second| if multi_stream { Some(first) } else { second })
    }

    fn last_estimate<'a>(
        &'a self,
        pick: impl Fn(&'a TailEstimate, Option<&'a TailEstimate>) -> Option<&'a TailEstimate>,
    ) -> i64 {
        let checks = [&self.early_latency, &self.early_ttft, &self.early_tpot];
        let made = checks.into_iter().find_map(|check| match check {
            Check::Estimate { first, second, .. } => Some((first, second.as_ref())),
            Check::Skipped | Check::Limit { .. } => None,
        });
        made.and_then(|(first, second)| pick(first, second))
            .map_or(0, TailEstimate::latency_ns)
    }
}

struct EarlyInputs<'a> {
    n_queries: u64,
    samples: &'a mut Ranked,
    queries: &'a mut Ranked,
    ttft: &'a mut Ranked,
    tpot: &'a mut Ranked,
    eff: &'a EffectiveSettings,
}

/// The early-stopping checks of the scenario: (latency, TTFT, TPOT).
fn early_checks(inputs: EarlyInputs<'_>) -> (Check, Check, Check) {
    let EarlyInputs {
        n_queries,
        samples,
        queries,
        ttft,
        tpot,
        eff,
    } = inputs;
    let percentile = eff.target_latency_percentile;
    let check = |values: &mut Ranked, target_ns: u64| match eff.scenario {
        Scenario::Offline => Check::Skipped,
        Scenario::Server => Check::limit(values.n_over(limit(target_ns)), n_queries, percentile),
        Scenario::SingleStream => {
            let first = TailEstimate::of(values, n_queries, percentile);
            // Without the first the reference stops, though above 0.99 the second could be made.
            let goes_on = first.found.is_some();
            let second = goes_on.then(|| TailEstimate::of(values, n_queries, SECOND_PERCENTILE));
            Check::Estimate {
                n_queries,
                first,
                second,
            }
        }
        Scenario::MultiStream => Check::Estimate {
            n_queries,
            first: TailEstimate::of(values, n_queries, percentile),
            second: None,
        },
    };
    if !eff.requested.use_token_latencies {
        let values = if eff.scenario == Scenario::MultiStream {
            queries
        } else {
            samples
        };
        return (
            check(values, eff.target_latency_ns),
            Check::Skipped,
            Check::Skipped,
        );
    }
    let (ttft_ns, tpot_ns) = (
        eff.requested.server_ttft_latency,
        eff.requested.server_tpot_latency,
    );
    if eff.scenario == Scenario::MultiStream {
        // The reference looks at whole queries both times; a first token has no query figure.
        let both = check(queries, 0);
        let ttft = if both.met() {
            both.clone()
        } else {
            Check::Skipped
        };
        return (Check::Skipped, ttft, both);
    }
    let tpot = check(tpot, tpot_ns);
    let ttft = if tpot.met() {
        check(ttft, ttft_ns)
    } else {
        Check::Skipped
    };
    (Check::Skipped, ttft, tpot)
}

/// A latency limit as latencies are kept; limits beyond 292 years are none.
fn limit(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

fn seconds(ns: i64) -> f64 {
    ns as f64 / 1e9
}

fn rates(data: &PerformanceData, eff: &EffectiveSettings, latency: &Distribution) -> Rates {
    Rates {
        requested_per_s: eff.target_qps,
        scheduled_per_s: scheduled_per_s(data),
        completed_per_s: completed_per_s(data),
        offline_per_s: offline_per_s(data),
        with_overhead_per_s: with_overhead_per_s(data),
        without_overhead_per_s: without_overhead_per_s(latency),
        goodput_per_s: goodput_per_s(data, eff),
    }
}

/// n − 1: intervals between n answers; the first starts the clock.
fn intervals(data: &PerformanceData) -> f64 {
    n_answered(data).saturating_sub(1) as f64
}

fn n_answered(data: &PerformanceData) -> usize {
    data.sample_latencies_ns.len() - data.unanswered.len()
}

/// (n − 1) / scheduled time of the last query: the rate the arrival draw really had, of all
/// samples, answered or not.
///
/// Example: 1000 samples, last one due at 0.9987654 s → 999 / 0.9987654 = 1000.23 /s.
/// Source: spec 10, `result_scheduled_samples_per_sec`. One query gives 0/0.
#[must_use]
pub fn scheduled_per_s(data: &PerformanceData) -> f64 {
    let intervals = data.sample_latencies_ns.len().saturating_sub(1) as f64;
    intervals / seconds(data.final_query_scheduled_ns)
}

/// (n − 1) / completion of the last issued query: the Server result, of n answers.
///
/// The last *issued* query, not the latest completion: an older straggler does not lengthen it.
/// Example: 1000 samples, last one answered at 1.0042 s → 999 / 1.0042 = 994.82 /s.
/// Source: spec 10, `result_completed_samples_per_sec`.
#[must_use]
pub fn completed_per_s(data: &PerformanceData) -> f64 {
    intervals(data) / seconds(data.final_query_all_samples_done_ns)
}

/// n / largest latency: the Offline result, of n answers.
///
/// Example: 100 samples, slowest 3.3 s → 30.303 /s. Source: spec 10, `result_samples_per_second`.
#[must_use]
pub fn offline_per_s(data: &PerformanceData) -> f64 {
    n_answered(data) as f64 / seconds(data.max_latency_ns)
}

/// (n − 1) / issue time of the last query: SingleStream, gaps between queries included.
///
/// Example: 100 samples, last one issued at 5.5 s → 99 / 5.5 = 18 /s.
/// Source: spec 10, `result_qps_with_loadgen_overhead`. One query gives 0/0.
#[must_use]
pub fn with_overhead_per_s(data: &PerformanceData) -> f64 {
    intervals(data) / seconds(data.final_query_issued_ns)
}

/// 1 / mean latency: SingleStream, as if the next query followed at once.
///
/// Example: mean 55 019 810 ns → 18.1753 /s. Source: spec 10,
/// `result_qps_without_loadgen_overhead`.
#[must_use]
pub fn without_overhead_per_s(latency: &Distribution) -> f64 {
    1.0 / seconds(latency.mean)
}

/// Answers within every limit the run has / completion of the last issued query.
///
/// Limits are those of Server: latency, or TTFT and TPOT in token mode; elsewhere every answer is
/// good. A failure is none, however fast. Example: 10 samples in 2 s, 3 of them late → 3.5 /s.
/// Source: definition of goodput in DistServe (Zhong et al., OSDI 2024).
#[must_use]
pub fn goodput_per_s(data: &PerformanceData, eff: &EffectiveSettings) -> f64 {
    let requested = &eff.requested;
    let latency_limit = limit(eff.target_latency_ns);
    let ttft_limit = limit(requested.server_ttft_latency);
    let tpot_limit = limit(requested.server_tpot_latency);
    let server = eff.scenario == Scenario::Server;
    let is_good = |sample: &usize| match (server, requested.use_token_latencies) {
        (false, _) => true,
        (true, true) => data.ttft_ns[*sample] <= ttft_limit && data.tpot_ns[*sample] <= tpot_limit,
        (true, false) => data.sample_latencies_ns[*sample] <= latency_limit,
    };
    let n_within = (0..data.sample_latencies_ns.len()).filter(is_good).count();
    let n_good = n_within - data.unanswered.iter().filter(|s| is_good(s)).count();
    let span = data
        .final_query_all_samples_done_ns
        .max(data.max_latency_ns);
    n_good as f64 / seconds(span)
}

/// Rates of tokens, all samples counted.
///
/// Examples with Σ = 14 962 tokens of 100 samples: last query done at 5.55 s → 2695.86 /s, last
/// issued at 5.5 s → 2720.36 /s; mean latency 55.01981 ms → 14 962 / 5.501981 s = 2719.38 /s.
/// Source: spec 10. The reference's detail log divides the last by nanoseconds, a factor 1e9 too
/// small; here it has the value its summary shows.
#[must_use]
pub fn token_rates(data: &PerformanceData, latency: &Distribution) -> TokenRates {
    // Saturating: the counts are the SUT's word.
    let n_tokens = data
        .n_tokens
        .iter()
        .fold(0_i64, |sum, n| sum.saturating_add(*n));
    let tokens = n_tokens as f64;
    TokenRates {
        n_tokens,
        completed_per_s: tokens / seconds(data.final_query_all_samples_done_ns),
        offline_per_s: tokens / seconds(data.max_latency_ns),
        with_overhead_per_s: tokens / seconds(data.final_query_issued_ns),
        without_overhead_per_s: tokens / (seconds(latency.mean) * latency.n as f64),
    }
}

/// Samples per second times an assumed number of tokens each; Server and Offline only.
///
/// Example: factor 69, 100 samples in 3.3 s Offline → 6900 / 3.3 = 2090.91 /s. Source: spec 10.
#[must_use]
pub fn inferred_tokens_per_s(data: &PerformanceData, eff: &EffectiveSettings) -> Option<f64> {
    let factor = eff.requested.token_latency_scaling_factor as f64;
    let samples_per_s = match eff.scenario {
        Scenario::Server => completed_per_s(data),
        Scenario::Offline => offline_per_s(data),
        Scenario::SingleStream | Scenario::MultiStream => return None,
    };
    eff.requested
        .infer_token_latencies
        .then_some(factor * samples_per_s)
}

#[cfg(test)]
mod tests;
