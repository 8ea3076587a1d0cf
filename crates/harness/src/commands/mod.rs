//! The verbs of `prony`, one a file.
//!
//! To add a verb: a file here with its `clap::Args` and a `run(args) -> Result<ExitStatus, _>`,
//! one variant of [`Command`] and one arm of [`dispatch`].

pub mod info;

use crate::error::HarnessError;
use crate::exit::ExitStatus;

/// What `prony` is asked to do.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Show the machine and the build as a run would record them
    Info(info::InfoArgs),
}

/// Runs the verb.
///
/// # Errors
/// Whatever keeps the verb from having a result.
pub fn dispatch(command: Command) -> Result<ExitStatus, HarnessError> {
    match command {
        Command::Info(args) => info::run(&args),
    }
}
