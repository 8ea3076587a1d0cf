//! The command line as typed ([`Args`]), and the validated [`Config`] made of it once.
//!
//! Inner code takes only `Config`. What needs the model to be loaded first (how long a sequence
//! may be, say) is not decided here.

use std::path::Path;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};

use crate::error::SutError;

mod edge;
mod model;
mod plan;
mod schedule;

pub use edge::{EdgeArgs, EdgeConfig, EdgeLimits};
pub use model::{DtypeName, InspectArgs, ModelArgs, QuantName, TorchConfig};
pub use schedule::{Limits, Schedule, ScheduleArgs};

const EXIT_CODES: &str = "\
Exit codes: 0 ended by SIGTERM or SIGINT · 1 the engine or the system failed, or a second signal \
cut the drain short · 2 usage or configuration, address in use · 3 the model or its device could \
not be loaded.

Threads: one engine thread computes, with a LibTorch team of --threads; --http-threads more serve \
the network. All of them sleep when there is nothing to do.";

/// More than any machine we know has cores; the system refuses far larger teams by a crash.
const MAX_THREADS: usize = 1024;

/// Far above any memory's worth of cache, far below where counting blocks or bytes overflows.
const MAX_KV_TOKENS: usize = 1 << 30;

/// Times are added up; a year each leaves every sum within the clock's range.
const MAX_DURATION: Duration = Duration::from_hours(365 * 24);

/// An inference server with continuous batching.
#[derive(Debug, Parser)]
#[command(name = "prony-sut", version, after_help = EXIT_CODES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The verbs of `prony-sut`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Load a model and serve it over HTTP
    #[command(after_help = EXIT_CODES)]
    Serve(Box<Args>),
    /// Say what a model will cost in memory and operations, without reading its weights
    #[command(after_help = EXIT_CODES)]
    Inspect(InspectArgs),
}

/// What computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BackendName {
    /// A model on LibTorch.
    Torch,
    /// No model: repeats the prompt at a set pace.
    Echo,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// The flags of `prony-sut serve`, not yet checked against each other.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Model folder, GGUF file, or org/name@revision on the Hub
    #[arg(long)]
    pub model: Option<String>,
    /// What computes
    #[arg(long, value_enum, default_value = "torch")]
    pub backend: BackendName,
    /// Address to listen on; the default can only be reached from this machine
    #[arg(long, default_value = "127.0.0.1")]
    pub host: String,
    /// Port to listen on; 0 picks a free one and prints it
    #[arg(long, default_value_t = 8000)]
    pub port: u16,
    /// Name clients put into "model" [default: last part of --model]
    #[arg(long)]
    pub served_model_name: Option<String>,
    /// How the model computes.
    #[command(flatten)]
    pub how: ModelArgs,
    /// Load the model even where its memory looks too small
    #[arg(long)]
    pub force: bool,
    /// Threads that serve HTTP
    #[arg(long, default_value_t = 1)]
    pub http_threads: usize,
    /// Batches, cache and queue.
    #[command(flatten)]
    pub schedule: ScheduleArgs,
    /// How long running requests may finish after SIGTERM, such as 30s
    #[arg(long, default_value = "30s", value_parser = duration)]
    pub drain_timeout: Duration,
    /// Connections, keys, TLS
    #[command(flatten)]
    pub edge: EdgeArgs,
    /// echo: time from a sequence's start to its first token, such as 20ms
    #[arg(long, default_value = "0ms", value_parser = duration)]
    pub echo_ttft: Duration,
    /// echo: time between two tokens of a sequence, such as 5ms
    #[arg(long, default_value = "0ms", value_parser = duration)]
    pub echo_itl: Duration,
    /// echo: tokens before the end-of-text token [default: as many as the prompt has]
    #[arg(long)]
    pub echo_tokens: Option<usize>,
    /// How log lines look; RUST_LOG chooses which there are
    #[arg(long, value_enum, default_value = "text")]
    pub log_format: LogFormat,
    /// Print the limits and thread counts this command line leads to, and exit
    #[arg(long)]
    pub print_plan: bool,
}

/// A configuration that can be honoured as far as the command line alone tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// What computes.
    pub backend: BackendConfig,
    /// Name clients put into `model`.
    pub served_model_name: String,
    /// Where to listen.
    pub host: String,
    /// Where to listen; 0 picks a free port.
    pub port: u16,
    /// Threads of the HTTP runtime.
    pub http_threads: usize,
    /// Bounds of batches, cache and queue.
    pub limits: Limits,
    /// How sequences are scheduled.
    pub schedule: Schedule,
    /// How long running requests may finish after SIGTERM.
    pub drain_timeout: Duration,
    /// Connections, keys, TLS.
    pub edge: EdgeConfig,
    /// Print the plan and exit.
    pub print_plan: bool,
}

/// Settings of the chosen backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackendConfig {
    /// No model.
    Echo(EchoConfig),
    /// LibTorch.
    Torch(TorchConfig),
}

/// The echo backend's pace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EchoConfig {
    /// Sequence start → first token.
    pub ttft: Duration,
    /// Between two tokens.
    pub itl: Duration,
    /// Tokens before the end-of-text token; `None` gives as many as the prompt has.
    pub n_tokens: Option<usize>,
}

impl Args {
    /// Checks the flags against each other.
    ///
    /// # Errors
    /// [`SutError::Flag`] for the first flag that cannot be honoured.
    pub fn validate(self) -> Result<Config, SutError> {
        within("--http-threads", self.http_threads, MAX_THREADS)?;
        // Checked whatever the backend: a flag that is accepted is a flag that could be honored.
        within("--threads", self.how.threads.unwrap_or(1), MAX_THREADS)?;
        let (limits, schedule) = self.schedule.validate()?;
        let (backend, default_name) = self.backend()?;
        Ok(Config {
            backend,
            served_model_name: self.served_model_name.unwrap_or(default_name),
            host: self.host,
            port: self.port,
            http_threads: self.http_threads,
            limits,
            schedule,
            drain_timeout: self.drain_timeout,
            edge: self.edge.validate()?,
            print_plan: self.print_plan,
        })
    }

    fn backend(&self) -> Result<(BackendConfig, String), SutError> {
        match self.backend {
            BackendName::Echo => {
                if self.echo_tokens == Some(0) {
                    return Err(refused("--echo-tokens", 0, "must be at least 1"));
                }
                let echo = EchoConfig {
                    ttft: self.echo_ttft,
                    itl: self.echo_itl,
                    n_tokens: self.echo_tokens,
                };
                Ok((BackendConfig::Echo(echo), "echo".to_owned()))
            }
            BackendName::Torch if !cfg!(feature = "torch") => Err(refused(
                "--backend",
                "torch",
                "this prony-sut was built without LibTorch; only echo is there",
            )),
            BackendName::Torch => {
                let Some(model) = self.model.clone() else {
                    return Err(refused(
                        "--model",
                        "(none)",
                        "the torch backend needs a model",
                    ));
                };
                let name = last_part(&model);
                let torch = TorchConfig {
                    force: self.force,
                    ..self.how.of(model)
                };
                Ok((BackendConfig::Torch(torch), name))
            }
        }
    }
}

/// Reads `1.5s`, `20ms` or `300us`. A bare number is refused: nobody should have to guess its unit.
///
/// # Errors
/// A message that names the forms that are accepted.
pub fn duration(text: &str) -> Result<Duration, String> {
    let accepted = || format!("{text}: expected a number and a unit, such as 1.5s, 20ms or 300us");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let seconds_per_unit = match &text[digits.len()..] {
        "s" => 1.0,
        "ms" => 1e-3,
        "us" => 1e-6,
        _ => return Err(accepted()),
    };
    let number: f64 = digits.parse().map_err(|_| accepted())?;
    let duration = Duration::try_from_secs_f64(number * seconds_per_unit);
    match duration.map_err(|_| accepted())? {
        duration if duration > MAX_DURATION => Err(format!("{text}: longer than a year")),
        duration => Ok(duration),
    }
}

/// `models/SmolLM2` → `SmolLM2`, `org/name@main` → `name`, `dir/x.gguf` → `x`.
fn last_part(model: &str) -> String {
    let without_revision = model.split_once('@').map_or(model, |(repo, _)| repo);
    let path = Path::new(without_revision);
    let name = match path.extension() {
        Some(extension) if extension == "gguf" => path.file_stem(),
        _ => path.file_name(),
    };
    name.map_or_else(
        || model.to_owned(),
        |name| name.to_string_lossy().into_owned(),
    )
}

fn at_least_one(flag: &'static str, value: usize) -> Result<(), SutError> {
    if value == 0 {
        return Err(refused(flag, value, "must be at least 1"));
    }
    Ok(())
}

fn within(flag: &'static str, value: usize, most: usize) -> Result<(), SutError> {
    at_least_one(flag, value)?;
    if value > most {
        return Err(refused(flag, value, format!("must be at most {most}")));
    }
    Ok(())
}

fn refused(flag: &'static str, value: impl ToString, problem: impl Into<String>) -> SutError {
    SutError::Flag {
        flag,
        value: value.to_string(),
        problem: problem.into(),
    }
}

#[cfg(test)]
mod tests;
