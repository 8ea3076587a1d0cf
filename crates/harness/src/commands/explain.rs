//! `prony explain`: every effective setting and where its value came from.

use prony_loadgen::plan::explain::{to_json, write_text};
use prony_loadgen::settings::EffectiveSettings;

use crate::error::HarnessError;
use crate::exit::ExitStatus;
use crate::settings_args::SettingsArgs;
use crate::terminal;

/// Options of `prony explain`.
#[derive(Debug, clap::Args)]
pub struct ExplainArgs {
    #[command(flatten)]
    settings: SettingsArgs,
    /// Show the settings nobody set, too
    #[arg(long)]
    all: bool,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// Prints the explanation, also of settings that would be refused.
///
/// # Errors
/// Bad configuration files, bad `--set`, an output that cannot be written.
pub fn run(args: &ExplainArgs) -> Result<ExitStatus, HarnessError> {
    let mut configured = args.settings.configure()?;
    let (total, perf) = (args.settings.qsl_total, args.settings.qsl_perf());
    let (eff, notes) = EffectiveSettings::derive(&configured.settings, total, perf);
    configured.notes.extend(notes);
    terminal::stream(|out| {
        if args.json {
            return writeln!(out, "{}", to_json(&configured, &eff));
        }
        write_text(&configured, &eff, args.all, out)
    })
    .map_err(HarnessError::io("standard output"))?;
    Ok(ExitStatus::Valid)
}
