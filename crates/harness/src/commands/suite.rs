//! `prony suite SUITE.toml`: several runs, one table, one page.
//!
//! All scenario files and folders are checked before the first run. Each run has a folder of its
//! own below the suite's; the suite's own page shows them together.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use prony_loadgen::clock::{Clock, MonotonicClock};
use prony_loadgen::progress::Cancel;
use prony_report::run_record::RunRecord;
use prony_report::{html, table};

use super::options::{AssertArgs, CommonArgs};
use crate::error::HarnessError;
use crate::exit::ExitStatus;
use crate::interrupt::Interrupt;
use crate::results_folder::{self, PAGE_FILE, file_name};
use crate::runner::{self, RunPlan, exit_status};
use crate::scenario_file::ScenarioFile;
use crate::suite_file::SuiteFile;
use crate::terminal;

/// Options of `prony suite`.
#[derive(Debug, clap::Args)]
pub struct SuiteArgs {
    /// The suite file
    suite: PathBuf,
    #[command(flatten)]
    common: CommonArgs,
    #[command(flatten)]
    assert: AssertArgs,
}

/// Runs the suite; its exit code is that of its worst run.
///
/// # Errors
/// Whatever keeps a run from having a result; the runs before it are reported all the same.
pub fn run(args: &SuiteArgs) -> Result<ExitStatus, HarnessError> {
    let common = &args.common;
    let suite = SuiteFile::load(&args.suite)?;
    let overrides = common.overrides();
    let files = suite
        .scenarios
        .iter()
        .map(|path| ScenarioFile::load(path, &overrides));
    let files = files.collect::<Result<Vec<_>, _>>()?;
    let unix_ns = MonotonicClock::start().unix_ns();
    let folder = common.out.clone();
    let folder = folder.unwrap_or_else(|| results_folder::default_folder(&suite.name, unix_ns));
    results_folder::prepare(&folder, common.force)?;
    let folders = run_folders(&folder, &files);
    for folder in &folders {
        results_folder::prepare(folder, common.force)?;
    }
    let cancel = Cancel::new();
    let _interrupt = Interrupt::listen(cancel.clone())?;
    let mut plan = common.plan(cancel);
    plan.assertions.clone_from(&args.assert.assertions);
    let mut records = Vec::new();
    let mut worst = ExitStatus::Valid;
    let mut stopped = None;
    for (file, folder) in files.iter().zip(&folders) {
        if plan.cancel.is_canceled() {
            break;
        }
        match one(file, folder, &plan) {
            Ok(record) => {
                worst = worse(worst, exit_status(&record, file.client.max_failed_fraction));
                records.push(record);
            }
            Err(error) => {
                stopped = Some(error);
                break;
            }
        }
    }
    show(&records, &folder, common.json)?;
    stopped.map_or(Ok(worst), Err)
}

fn one(file: &ScenarioFile, folder: &Path, plan: &RunPlan) -> Result<RunRecord, HarnessError> {
    let record = runner::execute(file, folder, plan)?;
    let page = html::page(std::slice::from_ref(&record));
    results_folder::write(folder, PAGE_FILE, &page)?;
    Ok(record)
}

fn show(records: &[RunRecord], folder: &Path, json: bool) -> Result<(), HarnessError> {
    if records.is_empty() {
        return Ok(());
    }
    let page = results_folder::write(folder, PAGE_FILE, &html::page(records))?;
    if json {
        let list: Vec<String> = records.iter().map(RunRecord::to_json).collect();
        terminal::result_line(&format!("[{}]", list.join(",")));
    } else {
        terminal::result_line(table::text(records).trim_end());
    }
    terminal::note(&format!("page: {}", page.display()));
    Ok(())
}

/// One folder a run, told apart by number where names are equal.
fn run_folders(folder: &Path, files: &[ScenarioFile]) -> Vec<PathBuf> {
    let mut taken = BTreeSet::new();
    let unique = |file: &ScenarioFile| {
        let name = file_name(&file.name);
        let numbered = (2..).map(|number| format!("{name}-{number}"));
        let mut names = std::iter::once(name.clone()).chain(numbered);
        names
            .find(|name| taken.insert(name.clone()))
            .unwrap_or(name)
    };
    files
        .iter()
        .map(unique)
        .map(|name| folder.join(name))
        .collect()
}

/// A broken endpoint outweighs a bad result, and a bad result one that the client spoiled.
fn worse(a: ExitStatus, b: ExitStatus) -> ExitStatus {
    let weight = |status: ExitStatus| match status {
        ExitStatus::Valid => 0,
        ExitStatus::ClientLimited => 1,
        ExitStatus::Invalid => 2,
        ExitStatus::SutFailed => 3,
        ExitStatus::Usage => 4,
    };
    if weight(b) > weight(a) { b } else { a }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_run_decides() {
        use ExitStatus::{ClientLimited, Invalid, SutFailed, Valid};
        assert_eq!(worse(Valid, ClientLimited), ClientLimited);
        assert_eq!(worse(Invalid, ClientLimited), Invalid);
        assert_eq!(worse(Invalid, SutFailed), SutFailed);
    }
}
