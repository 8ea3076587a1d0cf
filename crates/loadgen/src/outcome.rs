//! What a run leaves behind: plain data, phase by phase, for verdicts, logs, plots and records.

use crate::clock::Nanos;
use crate::find_peak::TrialResult;
use crate::incident::IncidentReport;
use crate::issue::EndReason;
use crate::metrics::{MAX_REPLAYED, Metrics, PerformanceData};
use crate::recorder::{KeptAnswer, NEVER, Recorded, SampleStatus};
use crate::report::LogPaths;
use crate::sample::{SampleId, SampleIndex};
use crate::scenario::{Phase, Scenario};
use crate::settings::EffectiveSettings;
use crate::verdict::Verdict;

/// Result of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// In the order they ran; an accuracy run has one per loadable set.
    pub phases: Vec<PhaseOutcome>,
    /// Which phase is the result; none for accuracy runs.
    pub reported: Option<usize>,
    /// What the warm-up queries ran into.
    pub warmup: IncidentReport,
    /// Text of the summary file.
    pub summary: String,
    /// The log files, if any were written.
    pub log_paths: Option<LogPaths>,
    /// Errors in the detail log.
    pub n_errors: u64,
    /// Warnings in the detail log.
    pub n_warnings: u64,
}

impl Outcome {
    /// The phase whose figures are the run's result; none for accuracy runs.
    #[must_use]
    pub fn result(&self) -> Option<&PhaseOutcome> {
        self.reported.map(|phase| &self.phases[phase])
    }

    /// The run as a trial of a peak search: passed if our verdict is VALID.
    #[must_use]
    pub fn trial(&self, took: Nanos) -> TrialResult {
        let judged = self.result().and_then(|phase| phase.judged.as_ref());
        judged.map_or_else(
            || TrialResult {
                passed: false,
                completed_qps: 0.0,
                reasons: vec!["no result".to_owned()],
                took,
            },
            |judged| TrialResult {
                passed: judged.verdict.validity.is_valid(),
                completed_qps: judged.metrics.rates.completed_per_s,
                reasons: judged.verdict.reasons.clone(),
                took,
            },
        )
    }
}

/// Figures and verdict of a performance phase.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    /// The figures.
    pub metrics: Metrics,
    /// What they mean.
    pub verdict: Verdict,
}

/// A piece of work around a phase, for the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PhaseSpan {
    /// The reference's name for it.
    pub name: &'static str,
    /// When it began, on the run's clock.
    pub start: Nanos,
    /// How long it took.
    pub lasted: Nanos,
}

/// A sample that was never answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostSample {
    /// As it was handed to the SUT.
    pub id: SampleId,
    /// Its sequence number in the logs.
    pub seq: u64,
    /// Which item of the data set it asked for.
    pub index: SampleIndex,
    /// Which query of the phase it belonged to, from 0.
    pub query: usize,
}

/// Token reports that the reference calls errors, counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TokenFaults {
    /// Answers that came without a first token (never in Offline).
    pub missing_first_token: u64,
    /// `n_tokens` 0, or not given.
    pub zero: u64,
    /// `n_tokens` 1.
    pub one: u64,
    /// `n_tokens` below 0.
    pub negative: u64,
}

/// Everything known about one phase.
#[derive(Debug, Clone, PartialEq)]
pub struct PhaseOutcome {
    /// What it was for.
    pub phase: Phase,
    /// What it ran with.
    pub effective: EffectiveSettings,
    /// The samples that were in memory, in the order they were loaded.
    pub loaded: Vec<SampleIndex>,
    /// Queries planned.
    pub planned_queries: u64,
    /// Sequence number of the phase's first sample in the logs.
    pub first_sample_seq: u64,
    /// Sequence number of the phase's first query in the logs.
    pub first_query_seq: u64,
    /// Start on the run's clock; all columns are relative to it.
    pub start: Nanos,
    /// Why issuing stopped, one per issuing thread; a cut-short wait for answers comes last.
    pub ends: Vec<EndReason>,
    /// The figures the metrics are made of.
    pub performance: PerformanceData,
    /// Figures and verdict; performance phases in which anything was issued.
    pub judged: Option<Judged>,
    /// Failures and answers that fit no sample.
    pub incidents: IncidentReport,
    /// Bad token reports; all 0 outside token mode.
    pub token_faults: TokenFaults,
    /// Samples never answered.
    pub lost: Vec<LostSample>,
    /// One entry per sample or query.
    pub columns: Columns,
    /// Answers for the accuracy log, in order of completion.
    pub kept: Vec<KeptAnswer>,
    /// What the time around the phase went into.
    pub spans: Vec<PhaseSpan>,
}

/// Per-query and per-sample times in ns from the start of the phase; a time that was never
/// stamped is [`NEVER`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Columns {
    /// Samples a query; sample `s` belongs to query `s / samples_per_query`.
    pub samples_per_query: usize,
    /// When each query was due. Latency starts here.
    pub due_ns: Vec<i64>,
    /// When each query was handed to the SUT. Service time starts here.
    pub issued_ns: Vec<i64>,
    /// Which item each sample asked for.
    pub index: Vec<SampleIndex>,
    /// When each sample's request went out, if the SUT says so.
    pub sent_ns: Vec<i64>,
    /// First token of each sample; empty unless tokens are recorded.
    pub first_token_ns: Vec<i64>,
    /// Answer, failure or giving up.
    pub done_ns: Vec<i64>,
    /// Output tokens as reported; empty unless tokens are recorded.
    pub n_tokens: Vec<i64>,
    /// What became of each sample.
    pub status: Vec<SampleStatus>,
}

impl PhaseOutcome {
    /// Lets go of everything that is as long as the phase; figures and verdict stay.
    pub(crate) fn forget_samples(&mut self) {
        self.columns = Columns::default();
        self.kept = Vec::new();
        self.performance = PerformanceData {
            queries_issued: self.performance.queries_issued,
            max_latency_ns: self.performance.max_latency_ns,
            final_query_scheduled_ns: self.performance.final_query_scheduled_ns,
            final_query_issued_ns: self.performance.final_query_issued_ns,
            final_query_all_samples_done_ns: self.performance.final_query_all_samples_done_ns,
            ..PerformanceData::default()
        };
    }
}

impl Columns {
    pub(crate) fn new(
        recorded: Recorded,
        due_ns: Vec<i64>,
        index: Vec<SampleIndex>,
        samples_per_query: usize,
    ) -> Self {
        Self {
            samples_per_query,
            due_ns,
            issued_ns: recorded.issued_ns,
            index,
            sent_ns: recorded.sent_ns,
            first_token_ns: recorded.first_token_ns,
            done_ns: recorded.done_ns,
            n_tokens: recorded.n_tokens,
            status: recorded.status,
        }
    }

    /// Drops queries that were never issued between others that were: with several issuing
    /// threads one can stop before the others.
    pub(crate) fn without_unissued(mut self) -> Self {
        if !self.issued_ns.contains(&NEVER) {
            return self;
        }
        let query: Vec<bool> = self.issued_ns.iter().map(|at| *at != NEVER).collect();
        let spq = self.samples_per_query;
        let sample: Vec<bool> = (0..self.index.len()).map(|s| query[s / spq]).collect();
        keep(&mut self.due_ns, &query);
        keep(&mut self.issued_ns, &query);
        keep(&mut self.index, &sample);
        keep(&mut self.sent_ns, &sample);
        keep(&mut self.first_token_ns, &sample);
        keep(&mut self.done_ns, &sample);
        keep(&mut self.n_tokens, &sample);
        keep(&mut self.status, &sample);
        self
    }

    /// The figures the metrics are made of. `token_mode` adds TTFT and TPOT by the reference's
    /// rules: a first token that is missing counts as the answer's time, and token counts below 2
    /// count as 0, which makes the divisor −1.
    #[must_use]
    pub(crate) fn performance(&self, token_mode: bool, scenario: Scenario) -> PerformanceData {
        let spq = self.samples_per_query;
        let due = |sample: usize| self.due_ns[sample / spq];
        let latency = |(sample, done): (usize, &i64)| done - due(sample);
        let sample_latencies_ns: Vec<i64> = self.done_ns.iter().enumerate().map(latency).collect();
        let mut data = PerformanceData {
            queries_issued: self.issued_ns.len() as u64,
            max_latency_ns: sample_latencies_ns.iter().copied().max().unwrap_or(0),
            unanswered: self.unanswered(),
            ..PerformanceData::default()
        };
        if let (Some(due_ns), Some(issued_ns)) = (self.due_ns.last(), self.issued_ns.last()) {
            data.final_query_scheduled_ns = *due_ns;
            data.final_query_issued_ns = *issued_ns;
            let last = &self.done_ns[self.done_ns.len() - spq..];
            data.final_query_all_samples_done_ns = last.iter().copied().max().unwrap_or(0);
        }
        if scenario == Scenario::Server {
            data.due_ns = self.due_ns.iter().copied().take(MAX_REPLAYED).collect();
        }
        if scenario == Scenario::MultiStream {
            let slowest = |query: &[i64]| query.iter().copied().max().unwrap_or(0);
            data.query_latencies_ns = sample_latencies_ns.chunks(spq).map(slowest).collect();
        }
        if token_mode {
            self.add_tokens(&mut data, &sample_latencies_ns);
        }
        data.sample_latencies_ns = sample_latencies_ns;
        data
    }

    fn unanswered(&self) -> Vec<usize> {
        let status = self.status.iter().enumerate();
        let none = status.filter(|(_, status)| **status != SampleStatus::Completed);
        none.map(|(sample, _)| sample).collect()
    }

    fn add_tokens(&self, data: &mut PerformanceData, latencies_ns: &[i64]) {
        let spq = self.samples_per_query;
        for column in [&mut data.ttft_ns, &mut data.tpot_ns, &mut data.n_tokens] {
            column.reserve_exact(latencies_ns.len());
        }
        for (sample, latency_ns) in latencies_ns.iter().enumerate() {
            let ttft_ns = match self.first_token_ns[sample] {
                NEVER => *latency_ns,
                at => at - self.due_ns[sample / spq],
            };
            let counted = match self.n_tokens[sample] {
                n if n > 1 => n,
                _ => 0,
            };
            data.ttft_ns.push(ttft_ns);
            data.tpot_ns.push((latency_ns - ttft_ns) / (counted - 1));
            data.n_tokens.push(counted);
        }
    }

    /// Counts the token reports that the reference calls errors.
    pub(crate) fn token_faults(&self, token_mode: bool, scenario: Scenario) -> TokenFaults {
        let mut faults = TokenFaults::default();
        if !token_mode {
            return faults;
        }
        let first_token_needed = scenario != Scenario::Offline;
        for (sample, status) in self.status.iter().enumerate() {
            if *status != SampleStatus::Completed {
                continue;
            }
            let first_token_ns = self.first_token_ns[sample];
            if first_token_needed && first_token_ns == NEVER {
                faults.missing_first_token += 1;
            }
            match self.n_tokens[sample] {
                0 => faults.zero += 1,
                1 => faults.one += 1,
                n if n < 0 => faults.negative += 1,
                _ => {}
            }
        }
        faults
    }
}

/// Keeps the entries of a column whose mask is set; an empty column stays empty.
fn keep<T>(column: &mut Vec<T>, mask: &[bool]) {
    let mut mask = mask.iter();
    column.retain(|_| mask.next().copied().unwrap_or(false));
}
