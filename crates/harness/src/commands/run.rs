//! `prony run SCENARIO.toml`: one run, its table, its files, its exit code.

use std::path::PathBuf;

use prony_loadgen::clock::{Clock, MonotonicClock};
use prony_loadgen::progress::Cancel;
use prony_report::{html, table};

use super::options::{AssertArgs, CommonArgs};
use crate::error::HarnessError;
use crate::exit::ExitStatus;
use crate::interrupt::Interrupt;
use crate::results_folder::{self, PAGE_FILE};
use crate::runner::{self, exit_status};
use crate::scenario_file::ScenarioFile;
use crate::terminal;

/// Options of `prony run`.
#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// The scenario file
    scenario: PathBuf,
    #[command(flatten)]
    common: CommonArgs,
    #[command(flatten)]
    assert: AssertArgs,
}

/// Runs the scenario.
///
/// # Errors
/// Whatever keeps the run from having a result.
pub fn run(args: &RunArgs) -> Result<ExitStatus, HarnessError> {
    let file = ScenarioFile::load(&args.scenario, &args.common.overrides())?;
    let unix_ns = MonotonicClock::start().unix_ns();
    let folder = args.common.out.clone();
    let folder = folder.unwrap_or_else(|| results_folder::default_folder(&file.name, unix_ns));
    let cancel = Cancel::new();
    let _interrupt = Interrupt::listen(cancel.clone())?;
    let mut plan = args.common.plan(cancel);
    plan.assertions.clone_from(&args.assert.assertions);
    let record = runner::execute(&file, &folder, &plan)?;
    let records = [record];
    results_folder::write(&folder, PAGE_FILE, &html::page(&records))?;
    if args.common.json {
        terminal::result_line(records[0].to_json().trim_end());
    } else {
        terminal::result_line(table::text(&records).trim_end());
    }
    terminal::note(&format!("results in {}", folder.display()));
    Ok(exit_status(&records[0], file.client.max_failed_fraction))
}
