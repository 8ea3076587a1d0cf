//! `prony find-peak SCENARIO.toml`: the highest rate an endpoint serves within its limits.
//!
//! Each trial is a whole run with its own folder. The decisions are `loadgen::find_peak`'s; this
//! file runs the trials, keeps time, and tells the result.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use prony_loadgen::LoadgenError;
use prony_loadgen::clock::{Clock, MonotonicClock, Nanos};
use prony_loadgen::error::RefusedSetting;
use prony_loadgen::find_peak::robust::{FINEST_PRECISION, NoTrial, Stopped};
use prony_loadgen::find_peak::{PeakReport, PeakSearch, TrialResult};
use prony_loadgen::progress::Cancel;
use prony_loadgen::scenario::{Mode, Scenario};
use prony_report::run_record::RunRecord;
use prony_report::table;
use serde_json::json;

use super::options::CommonArgs;
use crate::duration;
use crate::error::HarnessError;
use crate::exit::ExitStatus;
use crate::interrupt::Interrupt;
use crate::results_folder;
use crate::runner::{self, RunPlan, exit_status};
use crate::scenario_file::ScenarioFile;
use crate::terminal;

/// The search's result, beside the trials' folders.
const RESULT_FILE: &str = "find_peak.json";

/// How to search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Method {
    /// Whole verdict, repeated runs near the edge, a confidence statement
    Robust,
    /// The reference LoadGen's own search: latency limits only, one run a rate
    Loadgen,
}

/// Options of `prony find-peak`.
#[derive(Debug, clap::Args)]
pub struct FindPeakArgs {
    /// The scenario file; its scenario must be Server
    scenario: PathBuf,
    #[command(flatten)]
    common: CommonArgs,
    /// How to search
    #[arg(long, value_enum, default_value = "robust")]
    method: Method,
    /// First rate to try [default: the scenario's server_target_qps]
    #[arg(long, value_name = "QPS", value_parser = positive)]
    start: Option<f64>,
    /// Lowest rate to try [default: start / 1024]
    #[arg(long, value_name = "QPS", value_parser = positive)]
    min: Option<f64>,
    /// Highest rate to try [default: start * 1024]
    #[arg(long, value_name = "QPS", value_parser = positive)]
    max: Option<f64>,
    /// Relative width of the final bracket
    #[arg(long, value_name = "SHARE", default_value = "0.02", value_parser = positive)]
    precision: f64,
    /// Runs that decide near the edge; the majority counts
    #[arg(long, value_name = "N", default_value = "3", value_parser = at_least_one)]
    repeats: u32,
    /// Valid runs wanted at the peak
    #[arg(long, value_name = "N", default_value = "3", value_parser = at_least_one)]
    confirmations: u32,
    /// Start no trial that would end later than this, such as 2h
    #[arg(long, value_name = "TIME", value_parser = duration::parse_arg)]
    budget: Option<Nanos>,
}

/// Searches.
///
/// # Errors
/// If the scenario is not Server, or a trial cannot be run at all.
pub fn run(args: &FindPeakArgs) -> Result<ExitStatus, HarnessError> {
    let file = ScenarioFile::load(&args.scenario, &args.common.overrides())?;
    if file.settings.scenario != Scenario::Server {
        return Err(HarnessError::NotServer(file.settings.scenario));
    }
    let unix_ns = MonotonicClock::start().unix_ns();
    let folder = args.common.out.clone();
    let folder = folder.unwrap_or_else(|| results_folder::default_folder(&file.name, unix_ns));
    let cancel = Cancel::new();
    let _interrupt = Interrupt::listen(cancel.clone())?;
    let plan = args.common.plan(cancel);
    match args.method {
        Method::Loadgen => loadgen(args, file, &folder, &plan),
        Method::Robust => robust(args, &file, &folder, &plan),
    }
}

/// One run in the reference's FindPeakPerformance mode.
fn loadgen(
    args: &FindPeakArgs,
    mut file: ScenarioFile,
    folder: &Path,
    plan: &RunPlan,
) -> Result<ExitStatus, HarnessError> {
    file.settings.mode = Mode::FindPeakPerformance;
    file.settings.server_target_qps = args.start.unwrap_or(file.settings.server_target_qps);
    let record = runner::execute(&file, folder, plan)?;
    if args.common.json {
        terminal::result_line(record.to_json().trim_end());
    } else {
        let rate = record.figures.requested_per_s.unwrap_or(0.0);
        terminal::result_line(&format!("peak by LoadGen's search: {rate:.6} queries/s"));
        terminal::result_line(table::text(std::slice::from_ref(&record)).trim_end());
    }
    terminal::note(&format!("results in {}", folder.display()));
    Ok(exit_status(&record, file.client.max_failed_fraction))
}

fn robust(
    args: &FindPeakArgs,
    file: &ScenarioFile,
    folder: &Path,
    plan: &RunPlan,
) -> Result<ExitStatus, HarnessError> {
    let search = search(args, file);
    check(&search)?;
    if folder.join(RESULT_FILE).exists() && !plan.force {
        return Err(LoadgenError::WouldOverwrite(folder.to_owned()).into());
    }
    results_folder::prepare(folder, plan.force)?;
    terminal::note(&search.budget_text());
    let mut trials = Trials {
        file,
        folder,
        plan,
        clock: MonotonicClock::start(),
        client_limited: Vec::new(),
        failure: None,
    };
    let report = search.run(|qps| trials.run(qps));
    let failure = what_remains(&report, trials.failure)?;
    let json = to_json(&report);
    results_folder::write(folder, RESULT_FILE, &json)?;
    if args.common.json {
        terminal::result_line(json.trim_end());
    } else {
        terminal::result_line(to_text(&report).trim_end());
    }
    let limited_by_client = edge_is_the_clients(&report, &trials.client_limited);
    if limited_by_client {
        terminal::note("the client could not send more: the endpoint's own peak may be higher");
    }
    terminal::note(&format!("results in {}", folder.display()));
    match failure {
        Some(error) => Err(error),
        None => Ok(status(&report, limited_by_client)),
    }
}

fn search(args: &FindPeakArgs, file: &ScenarioFile) -> PeakSearch {
    let settings = &file.settings;
    let start_qps = args.start.unwrap_or(settings.server_target_qps);
    let defaults = PeakSearch::new(start_qps);
    PeakSearch {
        min_qps: args.min.unwrap_or(defaults.min_qps),
        max_qps: args.max.unwrap_or(defaults.max_qps),
        precision: args.precision,
        repeats: args.repeats,
        confirmations: args.confirmations,
        budget: args.budget,
        trial_duration: Nanos::from_ms(i64::try_from(settings.min_duration_ms).unwrap_or(0)),
        trial_queries: settings.min_query_count,
        ..defaults
    }
}

/// Hours of trials are not thrown away for one that could not be run: they are reported first.
/// A rate that is too high to be planned only ends the search.
fn what_remains(
    report: &PeakReport,
    failure: Option<HarnessError>,
) -> Result<Option<HarnessError>, HarnessError> {
    match failure {
        Some(error) if report.trials.is_empty() => Err(error),
        Some(HarnessError::Loadgen(error @ LoadgenError::RefusedSettings(_))) => {
            terminal::note(&format!("no higher rate can be run: {error}"));
            Ok(None)
        }
        other => Ok(other),
    }
}

/// Every option that contradicts another, at once.
fn check(search: &PeakSearch) -> Result<(), LoadgenError> {
    let PeakSearch {
        start_qps,
        min_qps,
        max_qps,
        precision,
        ..
    } = *search;
    let mut refused = Vec::new();
    let mut refuse = |name: &str, value: f64, allowed: String| {
        refused.push(RefusedSetting {
            name: name.to_owned(),
            value: value.to_string(),
            allowed,
        });
    };
    if !(min_qps..=max_qps).contains(&start_qps) {
        let allowed = format!("from --min {min_qps} to --max {max_qps}");
        refuse("--start", start_qps, allowed);
    }
    if precision < FINEST_PRECISION {
        refuse(
            "--precision",
            precision,
            format!("at least {FINEST_PRECISION}"),
        );
    }
    if refused.is_empty() {
        Ok(())
    } else {
        Err(LoadgenError::RefusedSettings(refused))
    }
}

/// Runs the trials, each in a folder of its own.
struct Trials<'a> {
    file: &'a ScenarioFile,
    folder: &'a Path,
    plan: &'a RunPlan,
    clock: MonotonicClock,
    /// Of each trial, whether nothing failed but the client, which could not send the load.
    client_limited: Vec<bool>,
    /// What kept a trial from being run; it ends the search.
    failure: Option<HarnessError>,
}

impl Trials<'_> {
    fn run(&mut self, qps: f64) -> Result<TrialResult, NoTrial> {
        let n = self.client_limited.len() + 1;
        let mut file = self.file.clone();
        file.settings.mode = Mode::PerformanceOnly;
        file.settings.server_target_qps = qps;
        let folder = self.folder.join(format!("trial-{n:03}"));
        let start = self.clock.now();
        let record = runner::execute(&file, &folder, self.plan).map_err(|error| {
            self.failure = Some(error);
            NoTrial::CannotRun
        })?;
        if record.verdict.canceled {
            return Err(NoTrial::CalledOff);
        }
        let result = judged(&record, self.clock.now() - start);
        let why = result.reasons.first().map_or("", String::as_str);
        let word = record.verdict.word();
        let verdict = &record.verdict;
        self.client_limited
            .push(verdict.valid && verdict.client_limited);
        terminal::note(&format!("trial {n}: {qps:.6} queries/s: {word} {why}"));
        Ok(result)
    }
}

/// A trial passes if it is valid *and* the load asked for was sent: what the client could not send
/// says nothing for the endpoint.
fn judged(record: &RunRecord, took: Nanos) -> TrialResult {
    TrialResult {
        passed: record.verdict.valid && !record.verdict.client_limited,
        completed_qps: record.figures.completed_per_s.unwrap_or(0.0),
        reasons: record.verdict.reasons.clone(),
        took,
    }
}

fn to_text(report: &PeakReport) -> String {
    let mut text = String::from("      queries/s   completed/s     took  verdict\n");
    for trial in &report.trials {
        let result = &trial.result;
        let _ = writeln!(
            text,
            "{:>15.3} {:>13.3} {:>7.1}s  {}",
            trial.qps,
            result.completed_qps,
            result.took.as_secs_f64(),
            if result.passed {
                "VALID".to_owned()
            } else {
                format!("INVALID: {}", result.reasons.join("; "))
            }
        );
    }
    let took_min = report.took.as_secs_f64() / 60.0;
    let n = report.trials.len();
    let _ = writeln!(
        text,
        "{} after {n} trials, {took_min:.1} min",
        stopped(report.stopped)
    );
    let _ = match report.peak_qps {
        Some(peak) => writeln!(text, "peak: {peak:.6} queries/s"),
        None => writeln!(text, "no peak found"),
    };
    for sentence in report.confidence_text().split("; ") {
        let _ = writeln!(text, "{sentence}");
    }
    text
}

fn to_json(report: &PeakReport) -> String {
    let trials = report.trials.iter().enumerate().map(|(i, trial)| {
        json!({
            "qps": trial.qps,
            "passed": trial.result.passed,
            "completed_qps": trial.result.completed_qps,
            "took_s": trial.result.took.as_secs_f64(),
            "reasons": trial.result.reasons,
            "folder": format!("trial-{:03}", i + 1),
        })
    });
    let report = json!({
        "peak_qps": report.peak_qps,
        "fails_at_qps": report.fails_at_qps,
        "stopped": stopped(report.stopped),
        "took_s": report.took.as_secs_f64(),
        "confidence": report.confidence_text(),
        "trials": trials.collect::<Vec<_>>(),
    });
    format!("{report:#}\n")
}

fn stopped(stopped: Stopped) -> &'static str {
    match stopped {
        Stopped::Converged => "converged",
        Stopped::OutOfTime => "out of time",
        Stopped::AtMaximum => "the highest rate allowed passes",
        Stopped::BelowMinimum => "the lowest rate allowed fails",
        Stopped::Canceled => "canceled",
        Stopped::CannotRun => "the next trial could not be run",
    }
}

/// Whether every failure at the upper bound was the client's, not the endpoint's.
fn edge_is_the_clients(report: &PeakReport, client_limited: &[bool]) -> bool {
    let trials = report.trials.iter().zip(client_limited);
    let failures =
        trials.filter(|(trial, _)| Some(trial.qps) == report.fails_at_qps && !trial.result.passed);
    let mut limited = failures.map(|(_, limited)| *limited).peekable();
    limited.peek().is_some() && limited.all(|limited| limited)
}

/// A peak, even one cut short by the budget, is a result; none is like an INVALID run.
fn status(report: &PeakReport, limited_by_client: bool) -> ExitStatus {
    match (report.peak_qps, report.stopped) {
        _ if limited_by_client => ExitStatus::ClientLimited,
        (None, _) | (_, Stopped::Canceled) => ExitStatus::Invalid,
        (Some(_), _) => ExitStatus::Valid,
    }
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value > 0.0 && value.is_finite() => Ok(value),
        _ => Err("a number above 0".to_owned()),
    }
}

fn at_least_one(text: &str) -> Result<u32, String> {
    match text.parse::<u32>() {
        Ok(value) if value > 0 => Ok(value),
        _ => Err("a whole number above 0".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use prony_loadgen::find_peak::Trial;

    fn trial(qps: f64, passed: bool) -> Trial {
        let reasons = if passed {
            vec![]
        } else {
            vec!["too slow".to_owned()]
        };
        Trial {
            qps,
            result: TrialResult {
                passed,
                completed_qps: qps * 0.99,
                reasons,
                took: Nanos::from_secs(60),
            },
        }
    }

    fn report() -> PeakReport {
        PeakReport {
            peak_qps: Some(100.0),
            fails_at_qps: Some(101.5),
            trials: vec![trial(100.0, true), trial(101.5, false), trial(100.0, true)],
            stopped: Stopped::Converged,
            took: Nanos::from_secs(180),
        }
    }

    #[test]
    fn the_result_as_text() {
        expect![[r#"
                  queries/s   completed/s     took  verdict
                    100.000        99.000    60.0s  VALID
                    101.500       100.485    60.0s  INVALID: too slow
                    100.000        99.000    60.0s  VALID
            converged after 3 trials, 3.0 min
            peak: 100.000000 queries/s
            100.000000 queries/s was VALID in 2 of 2 runs
            with 95 % confidence a run at this rate is VALID at least 22 % of the time
            101.500000 queries/s (1.5 % more) failed in 1 of 1
        "#]]
        .assert_eq(&to_text(&report()));
    }

    #[test]
    fn the_result_as_json() {
        let json: serde_json::Value = serde_json::from_str(&to_json(&report())).expect("JSON");
        assert_eq!(json["peak_qps"], 100.0);
        assert_eq!(json["trials"][1]["reasons"][0], "too slow");
        assert_eq!(json["trials"][2]["folder"], "trial-003");
    }

    #[test]
    fn no_peak_is_an_exit_code_of_1() {
        let mut report = report();
        assert_eq!(status(&report, false), ExitStatus::Valid);
        report.stopped = Stopped::OutOfTime;
        assert_eq!(status(&report, false), ExitStatus::Valid);
        report.peak_qps = None;
        assert_eq!(status(&report, false), ExitStatus::Invalid);
    }

    #[test]
    fn an_edge_of_the_clients_making_is_told_apart() {
        let mut report = report();
        assert!(edge_is_the_clients(&report, &[false, true, false]));
        assert!(!edge_is_the_clients(&report, &[true, false, true]));
        assert_eq!(status(&report, true), ExitStatus::ClientLimited);
        report.fails_at_qps = None;
        assert!(!edge_is_the_clients(&report, &[true, true, true]));
    }

    /// The search went up until a plan did not fit into memory, and the trials before were lost.
    #[test]
    fn a_trial_that_cannot_be_run_does_not_cost_the_others() {
        let refused = || HarnessError::from(LoadgenError::RefusedSettings(Vec::new()));
        let gone = || HarnessError::NotServer(Scenario::Offline);
        let first = PeakReport {
            trials: Vec::new(),
            ..report()
        };
        assert!(what_remains(&first, Some(refused())).is_err());
        assert!(matches!(what_remains(&report(), Some(refused())), Ok(None)));
        assert!(matches!(what_remains(&report(), Some(gone())), Ok(Some(_))));
        assert!(matches!(what_remains(&first, None), Ok(None)));
    }
}
