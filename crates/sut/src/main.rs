//! The binary: reads the command line, serves, and turns the outcome into an exit code.

use std::process::ExitCode;

use clap::Parser as _;
use prony_sut::config::{Cli, Command};
use prony_sut::{serve, telemetry};

fn main() -> ExitCode {
    let Command::Serve(args) = Cli::parse().command;
    telemetry::init(args.log_format);
    match args.validate().and_then(serve::serve) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            #[expect(clippy::print_stderr, reason = "the one line that says why it ended")]
            {
                eprintln!("prony-sut: {error}");
            }
            error.exit_code()
        }
    }
}
