//! The verbs of `prony`, one a file.
//!
//! To add a verb: a file here with its `clap::Args` and a `run(args) -> Result<ExitStatus, _>`,
//! one variant of [`Command`] and one arm of [`dispatch`].

pub mod info;

pub mod plan;

pub mod explain;

pub mod options;

pub mod run;

pub mod suite;

pub mod find_peak;

use crate::error::HarnessError;
use crate::exit::ExitStatus;

/// What `prony` is asked to do.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Run one scenario against an endpoint
    Run(run::RunArgs),
    /// Run several scenarios, with one table and one page
    Suite(suite::SuiteArgs),
    /// Find the highest rate an endpoint serves within its limits
    FindPeak(find_peak::FindPeakArgs),
    /// Show the machine and the build as a run would record them
    Info(info::InfoArgs),
    /// Show what a run would do, query by query, without running it
    Plan(plan::PlanArgs),
    /// Show every effective setting and where its value came from
    Explain(explain::ExplainArgs),
}

/// Runs the verb.
///
/// # Errors
/// Whatever keeps the verb from having a result.
pub fn dispatch(command: Command) -> Result<ExitStatus, HarnessError> {
    match command {
        Command::Run(args) => run::run(&args),
        Command::Suite(args) => suite::run(&args),
        Command::FindPeak(args) => find_peak::run(&args),
        Command::Info(args) => info::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Explain(args) => explain::run(&args),
    }
}
