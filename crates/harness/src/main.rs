//! `prony`: parse the command line, run the verb, turn its outcome into an exit code.

use std::process::ExitCode;

use clap::Parser;
use prony_harness::{args::Cli, commands, terminal};

fn main() -> ExitCode {
    let cli = Cli::parse();
    match commands::dispatch(cli.command) {
        Ok(status) => status.into(),
        Err(error) => {
            terminal::note(&format!("prony: {error}"));
            error.exit_status().into()
        }
    }
}
