//! One scenario from file to record: find the endpoint, open the data, run, judge, write.
//!
//! The verbs `run` and `suite` both come here; what they print and how they end is their affair.

use std::path::Path;
use std::sync::Arc;

use prony_loadgen::clock::{Clock, MonotonicClock, Nanos, WaitPolicy};
use prony_loadgen::options::Warmup;
use prony_loadgen::progress::{Cancel, Progress};
use prony_loadgen::report::LogSettings;
use prony_loadgen::settings::validate;
use prony_loadgen::{Outcome, RunOptions};
use prony_report::run_record::{Endpoint, RunRecord};

use crate::assertion::Assertion;
use crate::conn::AnswerForm;
use crate::datasets;
use crate::environment;
use crate::error::{EndpointError, HarnessError};
use crate::exit::ExitStatus;
use crate::http_sut::{ClientOptions, HttpSut};
use crate::library::{RequestForm, RequestLibrary};
use crate::progress::{Goal, ProgressDisplay};
use crate::readiness::{self, Ready};
use crate::record::{self, Ran};
use crate::results_folder;
use crate::scenario_file::ScenarioFile;
use crate::stream_stats::StreamStats;

/// What the command line says about a run beside its scenario.
#[derive(Debug, Clone)]
pub struct RunPlan {
    /// How long to wait for the endpoint.
    pub wait_ready: Nanos,
    /// Overwrite earlier results.
    pub force: bool,
    /// Show no progress.
    pub quiet: bool,
    /// What the run must come to.
    pub assertions: Vec<Assertion>,
    /// Calls the run off.
    pub cancel: Cancel,
}

/// Runs a scenario; its logs and its record are then in `folder`.
///
/// # Errors
/// Whatever keeps the run from having a result. An INVALID run has one.
pub fn execute(
    file: &ScenarioFile,
    folder: &Path,
    plan: &RunPlan,
) -> Result<RunRecord, HarnessError> {
    let dataset = datasets::open(&file.dataset)?;
    let api = file.endpoint.api;
    if dataset.has_token_ids() && !api.api().takes_token_ids() {
        let dataset = dataset.name().to_owned();
        return Err(HarnessError::TokenIdsNotTaken {
            dataset,
            api: api.name(),
        });
    }
    let n_samples = dataset.len() as u64;
    validate(&file.settings, n_samples, n_samples)?;
    results_folder::prepare(folder, plan.force)?;
    let ready = readiness::wait(&file.endpoint.url, &file.endpoint.headers, plan.wait_ready)?;
    let environment = environment::read();
    let endpoint = endpoint(file, &ready);
    let waiting = Waiting::choose(&endpoint, environment.n_cpus);
    let clock = MonotonicClock::start();
    let origin_unix_ns = clock.unix_ns() - clock.now().0;
    let (outcome, stats) = drive(
        file,
        folder,
        plan,
        &Prepared {
            ready,
            endpoint: &endpoint,
            waiting,
            clock,
        },
    )?;
    let mut record = record::record(
        &outcome,
        &Ran {
            file,
            dataset: dataset.as_ref(),
            stats,
            endpoint,
            environment,
            wait_policy: waiting.word(),
            canceled: plan.cancel.is_canceled(),
            origin_unix_ns,
        },
    );
    let judged = plan.assertions.iter().map(|a| a.judge(&record.figures));
    record.verdict.assertions = judged.collect();
    results_folder::write(folder, results_folder::RECORD_FILE, &record.to_json())?;
    Ok(record)
}

/// What is known when the run begins.
struct Prepared<'a> {
    ready: Ready,
    endpoint: &'a Endpoint,
    waiting: Waiting,
    clock: MonotonicClock,
}

fn drive(
    file: &ScenarioFile,
    folder: &Path,
    plan: &RunPlan,
    prepared: &Prepared<'_>,
) -> Result<(Outcome, StreamStats), HarnessError> {
    let clock = prepared.clock;
    let form = RequestForm {
        url: file.endpoint.url.clone(),
        api: file.endpoint.api.api(),
        model: prepared.endpoint.model.clone(),
        headers: file.endpoint.headers.clone(),
        generation: file.generation.clone(),
    };
    let mut library = RequestLibrary::new(datasets::open(&file.dataset)?, None, form);
    let client = ClientOptions {
        name: format!("{} at {}", file.endpoint.api.name(), file.endpoint.url),
        address: prepared.ready.address,
        n_connections: file.n_connections() as usize,
        max_in_flight: file.client.max_in_flight as usize,
        timeout: file.client.timeout,
        spin: false,
    };
    let answers = AnswerForm {
        api: file.endpoint.api.api(),
        streamed: file.generation.stream,
    };
    let sut =
        HttpSut::start(&client, answers, library.requests(), clock.source()).map_err(|source| {
            EndpointError::Connect {
                url: file.endpoint.url.to_string(),
                source,
            }
        })?;
    let options = options(file, folder, plan, prepared.waiting);
    let goal = Goal::of(&file.settings);
    let progress = Arc::clone(&options.progress);
    let display = ProgressDisplay::start(&file.name, goal, progress, clock.source(), plan.quiet);
    let outcome = prony_loadgen::run(&options, &mut library, &sut, &clock);
    drop(display);
    let stats = sut.finish();
    Ok((outcome?, stats))
}

fn options(file: &ScenarioFile, folder: &Path, plan: &RunPlan, waiting: Waiting) -> RunOptions {
    let mut options = RunOptions::new(file.settings.clone());
    options.log = Some(LogSettings {
        outdir: folder.to_owned(),
        enable_trace: true,
        force: plan.force,
        ..LogSettings::default()
    });
    options.cancel = plan.cancel.clone();
    options.progress = Arc::new(Progress::default());
    options.warmup = Warmup {
        queries: u64::from(file.client.warmup_queries),
        in_flight: 1,
    };
    options.wait = waiting.policy();
    options.max_failed_fraction = file.client.max_failed_fraction;
    options.record_tokens = true;
    // A request that times out has failed by then; what is still silent after that is lost.
    options.lost_sample_timeout = Some(file.client.timeout + file.client.timeout);
    options
}

fn endpoint(file: &ScenarioFile, ready: &Ready) -> Endpoint {
    Endpoint {
        url: file.endpoint.url.to_string(),
        api: file.endpoint.api.name().to_owned(),
        model: file
            .endpoint
            .model
            .clone()
            .or_else(|| ready.models.first().cloned()),
        shares_machine: file.endpoint.url.is_loopback(),
        facts: ready.facts.clone(),
    }
}

/// Whether the issuing thread may spin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waiting {
    Sleep,
    SpinLast,
}

impl Waiting {
    /// Spins only where a core is free for it: on a machine of its own with two cores or more, or
    /// beside a server that says how many threads it computes with and leaves two cores.
    fn choose(endpoint: &Endpoint, n_cpus: Option<u32>) -> Self {
        let n_cpus = n_cpus.unwrap_or(1);
        let threads_of_server = if endpoint.shares_machine {
            let told = endpoint
                .facts
                .iter()
                .find(|(name, _)| name.ends_with("threads"));
            told.and_then(|(_, value)| value.parse().ok())
                .unwrap_or(n_cpus)
        } else {
            0
        };
        if n_cpus >= threads_of_server.saturating_add(2) {
            Self::SpinLast
        } else {
            Self::Sleep
        }
    }

    fn policy(self) -> WaitPolicy {
        match self {
            Self::Sleep => WaitPolicy::SLEEP_ONLY,
            Self::SpinLast => WaitPolicy::spin_last(Nanos::from_us(100)),
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Sleep => "slept",
            Self::SpinLast => "spun",
        }
    }
}

/// The exit code a record leads to.
#[must_use]
pub fn exit_status(record: &RunRecord, max_failed_fraction: f64) -> ExitStatus {
    let figures = &record.figures;
    let n_bad = (figures.n_failed + figures.n_lost) as f64;
    if n_bad > max_failed_fraction * figures.n_issued as f64 {
        ExitStatus::SutFailed
    } else if record.verdict.canceled {
        ExitStatus::Invalid
    } else if record.verdict.client_limited {
        ExitStatus::ClientLimited
    } else if record.verdict.valid && record.verdict.assertions.iter().all(|a| a.holds) {
        ExitStatus::Valid
    } else {
        ExitStatus::Invalid
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(shares_machine: bool, threads: Option<u32>, n_cpus: u32) -> Waiting {
        let facts = threads.map(|n| ("engine.threads".to_owned(), n.to_string()));
        let facts = facts.into_iter().collect();
        let endpoint = Endpoint {
            shares_machine,
            facts,
            ..Endpoint::default()
        };
        Waiting::choose(&endpoint, Some(n_cpus))
    }

    #[test]
    fn spins_only_where_a_core_is_free() {
        assert_eq!(waiting(true, None, 64), Waiting::Sleep);
        assert_eq!(waiting(true, Some(2), 2), Waiting::Sleep);
        assert_eq!(waiting(true, Some(2), 4), Waiting::SpinLast);
        assert_eq!(waiting(false, None, 2), Waiting::SpinLast);
        assert_eq!(waiting(false, None, 1), Waiting::Sleep);
    }

    #[test]
    fn failures_weigh_more_than_lateness() {
        let mut record = RunRecord::default();
        record.figures.n_issued = 10;
        record.verdict.client_limited = true;
        assert_eq!(exit_status(&record, 0.0), ExitStatus::ClientLimited);
        record.figures.n_failed = 1;
        assert_eq!(exit_status(&record, 0.0), ExitStatus::SutFailed);
        assert_eq!(exit_status(&record, 0.1), ExitStatus::ClientLimited);
        record.verdict.client_limited = false;
        assert_eq!(exit_status(&record, 0.1), ExitStatus::Invalid);
        record.verdict.valid = true;
        assert_eq!(exit_status(&record, 0.1), ExitStatus::Valid);
        record.verdict.assertions = vec![prony_report::run_record::Assertion::default()];
        assert_eq!(exit_status(&record, 0.1), ExitStatus::Invalid);
    }
}
