//! `prony info`: the machine and the build as a run would record them.

use std::fmt::Write as _;

use prony_report::environment::Environment;

use crate::environment;
use crate::error::HarnessError;
use crate::exit::ExitStatus;
use crate::terminal;

/// Options of `prony info`.
#[derive(Debug, clap::Args)]
pub struct InfoArgs {
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
}

/// Prints the environment.
///
/// # Errors
/// None today; the signature is every verb's.
pub fn run(args: &InfoArgs) -> Result<ExitStatus, HarnessError> {
    let environment = environment::read();
    let text = if args.json {
        serde_json::to_string_pretty(&environment).expect("plain data always serializes")
    } else {
        listing(&environment)
    };
    terminal::result_line(&text);
    Ok(ExitStatus::Valid)
}

fn listing(environment: &Environment) -> String {
    let value = serde_json::to_value(environment).expect("plain data always serializes");
    let mut text = String::new();
    for (name, value) in value.as_object().into_iter().flatten() {
        let shown = match value {
            serde_json::Value::Null => "unknown".to_owned(),
            serde_json::Value::String(s) => s.clone(),
            other => other.to_string(),
        };
        let _ = writeln!(text, "{name:<16} {shown}");
    }
    text.trim_end().to_owned()
}
