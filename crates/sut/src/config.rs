//! The command line as typed ([`Args`]), and the validated [`Config`] made of it once.
//!
//! Inner code takes only `Config`. What needs the model to be loaded first (how long a sequence
//! may be, say) is not decided here.

use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};

use crate::error::SutError;

mod edge;
mod plan;
mod schedule;

pub use edge::{EdgeArgs, EdgeConfig, EdgeLimits};
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
    Serve(Args),
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

/// A number format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DtypeName {
    /// IEEE single precision.
    F32,
    /// bfloat16.
    Bf16,
}

/// How the model's matrices are quantised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum QuantName {
    /// Not at all.
    None,
    /// 8-bit weights, one scale an output; activations keep 16 bits.
    Int8,
    /// 8-bit weights and activations.
    Int8Dynamic,
    /// 4-bit weights in groups of 32, as GGUF's Q4_0 and Q4_1 are; embedding and head 8-bit.
    Int4,
}

impl QuantName {
    /// As typed.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Int8 => "int8",
            Self::Int8Dynamic => "int8-dynamic",
            Self::Int4 => "int4",
        }
    }
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
    /// Number format of the weights
    #[arg(long, value_enum, default_value = "f32")]
    pub dtype: DtypeName,
    /// Number format of the key/value cache [default: that of --dtype]
    #[arg(long, value_enum)]
    pub kv_dtype: Option<DtypeName>,
    /// How the model's matrices are quantised; needs device cpu
    #[arg(long, value_enum, default_value = "none")]
    pub quant: QuantName,
    /// Where to compute: cpu, cuda or cuda:N
    #[arg(long, default_value = "cpu")]
    pub device: String,
    /// Threads LibTorch computes with [default: the machine's cores]
    #[arg(long)]
    pub threads: Option<usize>,
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

/// What to load and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TorchConfig {
    /// Folder, file or `org/name`.
    pub model: String,
    /// Number format of the weights.
    pub dtype: DtypeName,
    /// Number format of the cache.
    pub kv_dtype: DtypeName,
    /// How matrices are quantised.
    pub quant: QuantName,
    /// `cpu`, `cuda` or `cuda:N`.
    pub device: String,
    /// LibTorch's team.
    pub threads: usize,
}

impl Args {
    /// Checks the flags against each other.
    ///
    /// # Errors
    /// [`SutError::Flag`] for the first flag that cannot be honoured.
    pub fn validate(self) -> Result<Config, SutError> {
        within("--http-threads", self.http_threads, MAX_THREADS)?;
        // Checked whatever the backend: a flag that is accepted is a flag that could be honored.
        within("--threads", self.threads.unwrap_or(1), MAX_THREADS)?;
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
                let threads = self.threads.unwrap_or_else(cores);
                let name = last_part(&model);
                let device = self.device.clone();
                let torch = TorchConfig {
                    model,
                    dtype: self.dtype,
                    kv_dtype: self.kv_dtype.unwrap_or(self.dtype),
                    quant: self.quant,
                    device,
                    threads,
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

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
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
