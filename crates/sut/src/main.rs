//! The binary: reads the command line, serves or inspects, and turns the outcome into an exit code.

use std::process::ExitCode;

use clap::Parser as _;
use prony_sut::config::{Args, Cli, Command, InspectArgs};
use prony_sut::error::SutError;
use prony_sut::{serve, telemetry};

fn main() -> ExitCode {
    let ended = match Cli::parse().command {
        Command::Serve(args) => serve(*args),
        Command::Inspect(args) => inspect(&args),
    };
    match ended {
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

fn serve(args: Args) -> Result<(), SutError> {
    telemetry::init(args.log_format);
    args.validate().and_then(serve::serve)
}

#[cfg(feature = "torch")]
fn inspect(args: &InspectArgs) -> Result<(), SutError> {
    serve::print(&prony_sut::inspect::report(args)?)
}

#[cfg(not(feature = "torch"))]
fn inspect(args: &InspectArgs) -> Result<(), SutError> {
    Err(SutError::Flag {
        flag: "inspect",
        value: args.model.clone(),
        problem: "this prony-sut was built without LibTorch".to_owned(),
    })
}
