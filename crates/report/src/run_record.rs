//! The record of one run: a versioned JSON that holds what is needed to explain the run and to do
//! it again. Schema: `docs/schema/run_record.schema.json`.
//!
//! Plain data. `prony` fills it in, everything else in this crate reads it. Units are in the
//! names; what was not measured is absent, never 0.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::environment::Environment;
use crate::number::short;

/// Version of the record's form; raised when a field changes its meaning or goes.
pub const SCHEMA_VERSION: u32 = 1;

/// One run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunRecord {
    /// [`SCHEMA_VERSION`] of the writer.
    pub schema_version: u32,
    /// Short name of the scenario file.
    pub name: String,
    /// What the scenario file says it is for.
    pub description: String,
    /// `SingleStream`, `MultiStream`, `Server` or `Offline`.
    pub scenario: String,
    /// `PerformanceOnly`, `AccuracyOnly` or `SubmissionRun`.
    pub mode: String,
    /// When the first phase began, ms since 1970 UTC.
    pub started_unix_ms: i64,
    /// From the first query to the last answer.
    pub duration_s: f64,
    /// The command line, word for word.
    pub command_line: Vec<String>,
    /// Why this can never be an official result; empty if it could be one.
    pub unofficial_because: Vec<String>,
    /// What the run came to.
    pub verdict: Verdict,
    /// The figure the scenario is about.
    pub headline: Headline,
    /// Everything measured.
    pub figures: Figures,
    /// Failures by kind, commonest first.
    pub failures: Vec<FailureCount>,
    /// What the client did and cost.
    pub client: Client,
    /// The endpoint.
    pub endpoint: Endpoint,
    /// What was asked for.
    pub config: Config,
    /// Machine and build of the client.
    pub environment: Environment,
    /// Points for the plots.
    pub series: Series,
}

/// The verdict and its reasons.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Verdict {
    /// Ours: the reference's conditions, and no error, failure or lost sample beyond the allowed.
    pub valid: bool,
    /// What the reference LoadGen would say.
    pub official_valid: bool,
    /// The load asked for is not the load that was sent.
    pub client_limited: bool,
    /// Called off before its end.
    pub canceled: bool,
    /// Why the run is not valid, one sentence each.
    pub reasons: Vec<String>,
    /// What to change.
    pub advice: Vec<String>,
    /// What the user asserted, and what came of it.
    pub assertions: Vec<Assertion>,
}

/// One `--assert`, judged.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Assertion {
    /// As it was written.
    pub text: String,
    /// Whether it holds; a figure that was not measured satisfies nothing.
    pub holds: bool,
    /// The figure it is about; absent if it was not measured.
    pub actual: Option<f64>,
    /// Unit of `actual`: `ms` for times, empty for rates and counts.
    pub unit: String,
}

impl Assertion {
    /// One sentence: the assertion, whether it holds, and the figure.
    #[must_use]
    pub fn sentence(&self) -> String {
        let word = if self.holds { "holds" } else { "FAILS" };
        let actual = match self.actual {
            Some(actual) => format!("{} {}", short(actual), self.unit),
            None => "not measured".to_owned(),
        };
        format!("{}: {word} ({})", self.text, actual.trim_end())
    }
}

impl Verdict {
    /// One word: `VALID`, `INVALID`, `CLIENT-LIMITED` or `CANCELED`.
    #[must_use]
    pub fn word(&self) -> &'static str {
        if self.canceled {
            "CANCELED"
        } else if self.client_limited {
            "CLIENT-LIMITED"
        } else if self.valid {
            "VALID"
        } else {
            "INVALID"
        }
    }
}

/// The figure a scenario is judged by.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Headline {
    /// What it is.
    pub name: String,
    /// Its value; absent if the run gave none.
    pub value: Option<f64>,
    /// Its unit.
    pub unit: String,
}

/// All figures. Latencies run from the due time unless the name says otherwise, and are those of
/// answered samples only; failures have a block of their own.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Figures {
    /// Samples handed to the client.
    pub n_issued: u64,
    /// Samples answered.
    pub n_completed: u64,
    /// Samples that failed.
    pub n_failed: u64,
    /// Samples never answered.
    pub n_lost: u64,
    /// Samples open when the run was called off.
    pub n_canceled: u64,
    /// Output tokens of the answered samples.
    pub n_output_tokens: Option<u64>,
    /// Rate asked for: Server only.
    pub requested_per_s: Option<f64>,
    /// Rate the drawn arrivals have: Server only.
    pub scheduled_per_s: Option<f64>,
    /// Rate at which requests went out.
    pub sent_per_s: Option<f64>,
    /// Answered samples over the run's length.
    pub completed_per_s: Option<f64>,
    /// Output tokens over the run's length.
    pub output_tokens_per_s: Option<f64>,
    /// Done − due.
    pub latency_ms: Option<Distribution>,
    /// Done − sent.
    pub service_time_ms: Option<Distribution>,
    /// First token − due.
    pub ttft_ms: Option<Distribution>,
    /// (Done − first token) / (tokens − 1).
    pub tpot_ms: Option<Distribution>,
    /// Gaps between consecutive outputs of an answer.
    pub itl_ms: Option<Distribution>,
    /// Sent − due: how late the client itself was.
    pub send_lag_ms: Option<Distribution>,
    /// Percentile the settings judge by, as a fraction of 1.
    pub target_percentile: Option<f64>,
}

/// A distribution; the unit stands in the name of the field that holds it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// Number of values.
    pub n: u64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Smallest.
    pub min: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile, and so on.
    pub p90: f64,
    /// 95th.
    pub p95: f64,
    /// 99th.
    pub p99: f64,
    /// 99.9th.
    pub p99_9: f64,
    /// Largest.
    pub max: f64,
}

impl Distribution {
    /// Whether `n` values are enough for a percentile to be told from the largest one.
    ///
    /// Example: the 99th of 50 values is the largest; it takes 100 to leave one above it.
    #[must_use]
    pub fn is_resolved(&self, percentile: f64) -> bool {
        self.n as f64 * (1.0 - percentile) >= 1.0 - 1e-9
    }
}

/// How often something went wrong, and the first time it did.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FailureCount {
    /// Kind, such as `status` or `truncated`.
    pub kind: String,
    /// How often.
    pub count: u64,
    /// What was said the first time, server's text included.
    pub first_detail: String,
}

/// What the client did and cost.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Client {
    /// Connections opened before the run.
    pub n_connections_ahead: u64,
    /// Connections opened while it was on: their connect time is in the latencies.
    pub n_connections_late: u64,
    /// Most requests in flight that were allowed.
    pub max_in_flight_allowed: u64,
    /// Most requests that were in flight.
    pub max_in_flight_seen: u64,
    /// Requests that had to wait for the limit.
    pub n_held_back: u64,
    /// Answers whose tokens were counted by events, for lack of a count by the server.
    pub n_counted_by_events: u64,
    /// Untimed queries before the run.
    pub n_warmup_queries: u64,
    /// Failures among them.
    pub n_warmup_failures: u64,
    /// Whether the client spun or slept while it waited.
    pub wait_policy: String,
    /// Processor time of the client's process, all threads.
    pub cpu_s: Option<f64>,
    /// Largest resident memory of the client's process.
    pub max_rss_bytes: Option<u64>,
}

/// The endpoint as it was measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Endpoint {
    /// Base URL.
    pub url: String,
    /// API spoken.
    pub api: String,
    /// Model asked for.
    pub model: Option<String>,
    /// Whether it runs on the client's machine.
    pub shares_machine: bool,
    /// What it says about itself, as far as it says anything.
    pub facts: BTreeMap<String, String>,
}

/// What was asked for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Config {
    /// The scenario file.
    pub path: String,
    /// Digest over everything in this block but paths: equal digests, same question.
    pub sha256: String,
    /// Name of the data set.
    pub dataset: String,
    /// Its items.
    pub n_dataset_samples: u64,
    /// Digest over its items.
    pub dataset_sha256: String,
    /// Every key with its value, defaults included, units in the names.
    pub requested: BTreeMap<String, String>,
    /// What the scenario's rules made of it.
    pub effective: BTreeMap<String, String>,
}

/// Points for the plots; at most a few thousand, however long the run was.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Series {
    /// Latencies at evenly spaced shares of the answered samples, ascending: a CDF.
    pub latency_ms_quantiles: Vec<f64>,
    /// The same of service times.
    pub service_time_ms_quantiles: Vec<f64>,
    /// Answered samples in order of their due times, thinned evenly.
    pub samples: Vec<SamplePoint>,
    /// Length of a bin of the next two.
    pub bin_s: f64,
    /// Samples answered in each bin.
    pub completed_per_bin: Vec<u64>,
    /// Output tokens of the samples answered in each bin.
    pub tokens_per_bin: Vec<u64>,
}

/// One answered sample.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SamplePoint {
    /// When it was due, from the start.
    pub due_s: f64,
    /// Done − due.
    pub latency_ms: f64,
    /// First token − due.
    pub ttft_ms: Option<f64>,
    /// Per output token after the first.
    pub tpot_ms: Option<f64>,
}

impl RunRecord {
    /// Reads a record.
    ///
    /// # Errors
    /// If the text is no record, or one of a newer form.
    pub fn from_json(text: &str) -> Result<Self, crate::ReportError> {
        let record: Self =
            serde_json::from_str(text).map_err(|source| crate::ReportError::NotARecord {
                reason: source.to_string(),
            })?;
        match record.schema_version {
            1..=SCHEMA_VERSION => Ok(record),
            found => Err(crate::ReportError::Version {
                found,
                known: SCHEMA_VERSION,
            }),
        }
    }

    /// Writes the record.
    ///
    /// # Panics
    /// Never: the record is plain data.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("plain data always serializes");
        text.push('\n');
        text
    }

    /// Who shared the client's machine, in a sentence; `None` if the endpoint was elsewhere.
    #[must_use]
    pub fn sharing(&self) -> Option<String> {
        self.endpoint.shares_machine.then(|| {
            let cores = match self.environment.n_cpus {
                Some(1) => "the one core".to_owned(),
                Some(n) => format!("the {n} cores"),
                None => "the cores".to_owned(),
            };
            format!(
                "client and server shared {cores} of one machine; the client {} while waiting",
                self.client.wait_policy
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_json() {
        let record = RunRecord {
            schema_version: SCHEMA_VERSION,
            name: "a".to_owned(),
            figures: Figures {
                n_issued: 3,
                ..Figures::default()
            },
            ..RunRecord::default()
        };
        assert_eq!(RunRecord::from_json(&record.to_json()).unwrap(), record);
    }

    #[test]
    fn other_versions_and_other_texts_are_refused() {
        let shown = |text| RunRecord::from_json(text).unwrap_err().to_string();
        assert_eq!(
            shown("{}"),
            "run record: version 0, this program reads up to 1"
        );
        assert!(shown("[]x").starts_with("not a run record: "));
    }

    #[test]
    fn a_percentile_needs_enough_values() {
        let of = |n| Distribution {
            n,
            ..Distribution::default()
        };
        assert!(!of(99).is_resolved(0.99));
        assert!(of(100).is_resolved(0.99));
        assert!(of(10).is_resolved(0.9));
    }
}
