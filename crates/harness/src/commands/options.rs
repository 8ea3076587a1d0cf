//! Options that the verbs which run something share.

use std::path::PathBuf;

use prony_loadgen::clock::Nanos;
use prony_loadgen::progress::Cancel;

use crate::assertion::Assertion;
use crate::duration;
use crate::runner::RunPlan;
use crate::scenario_file::Overrides;
use crate::toml_tree::Value;

/// What is overridden, and how a run behaves.
#[derive(Debug, Clone, clap::Args)]
pub struct CommonArgs {
    /// Base URL of the endpoint, such as http://127.0.0.1:8000
    #[arg(long, value_name = "URL", env = "PRONY_ENDPOINT")]
    endpoint: Option<String>,
    /// Model to ask for [default: the first one the endpoint lists]
    #[arg(long, value_name = "NAME", env = "PRONY_MODEL")]
    model: Option<String>,
    /// API to speak: openai-completions or openai-chat
    #[arg(long, value_name = "API")]
    api: Option<String>,
    /// Most tokens of an answer
    #[arg(long, value_name = "N")]
    max_tokens: Option<u32>,
    /// Override any key, such as --set server_target_qps=3 or --set client.timeout=30s
    #[arg(long = "set", value_name = "KEY=VALUE")]
    assignments: Vec<String>,
    /// Shorten the run to a few seconds; its result is never official
    #[arg(long)]
    quick: bool,
    /// How long to wait for the endpoint to answer, such as 60s
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = duration::parse_arg)]
    wait_ready: Nanos,
    /// Folder for the results [default: results/NAME-TIME]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Overwrite earlier results in that folder
    #[arg(long)]
    pub force: bool,
    /// Print the record as JSON on stdout instead of the table
    #[arg(long)]
    pub json: bool,
    /// Show no progress
    #[arg(long, short)]
    quiet: bool,
}

impl CommonArgs {
    /// What these options change in a scenario file.
    #[must_use]
    pub fn overrides(&self) -> Overrides {
        let text = |key, option: &str, value: &Option<String>| {
            value
                .as_ref()
                .map(|v| (key, Value::Text(v.clone()), format!("--{option} {v}")))
        };
        let max_tokens = self.max_tokens.map(|n| {
            let option = format!("--max-tokens {n}");
            (
                "generation.max_tokens",
                Value::Integer(i128::from(n)),
                option,
            )
        });
        let values = [
            text("endpoint.url", "endpoint", &self.endpoint),
            text("endpoint.model", "model", &self.model),
            text("endpoint.api", "api", &self.api),
            max_tokens,
        ];
        Overrides {
            values: values.into_iter().flatten().collect(),
            assignments: self.assignments.clone(),
            quick: self.quick,
        }
    }

    /// How a run is to behave.
    #[must_use]
    pub fn plan(&self, cancel: Cancel) -> RunPlan {
        RunPlan {
            wait_ready: self.wait_ready,
            force: self.force,
            quiet: self.quiet,
            assertions: Vec::new(),
            cancel,
        }
    }
}

/// What runs must come to, for the verbs that judge whole runs.
#[derive(Debug, Clone, clap::Args)]
pub struct AssertArgs {
    /// What a run must come to, such as --assert 'ttft.p99 < 200ms'; may be repeated
    #[arg(long = "assert", value_name = "ASSERTION", value_parser = Assertion::parse)]
    pub assertions: Vec<Assertion>,
}
