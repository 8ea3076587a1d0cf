//! `prony plan`: what a run would do, without running it.

use prony_loadgen::plan::RunPlan;
use prony_loadgen::plan::json::write_json;
use prony_loadgen::plan::text::write_text;

use crate::error::HarnessError;
use crate::exit::ExitStatus;
use crate::settings_args::SettingsArgs;
use crate::terminal;

/// Options of `prony plan`.
#[derive(Debug, clap::Args)]
pub struct PlanArgs {
    #[command(flatten)]
    settings: SettingsArgs,
    /// Print the whole plan as JSON: every loaded set, every query with its samples and due time
    #[arg(long)]
    json: bool,
}

/// Prints the plan.
///
/// # Errors
/// Settings no run can honour, bad configuration files, an output that cannot be written.
pub fn run(args: &PlanArgs) -> Result<ExitStatus, HarnessError> {
    let configured = args.settings.configure()?;
    for note in &configured.notes {
        terminal::note(&format!("note: {}", note.text));
    }
    let (total, perf) = (args.settings.qsl_total, args.settings.qsl_perf());
    let plan = RunPlan::new(&configured.settings, total, perf, args.settings.stdlib())?;
    let written = if args.json {
        terminal::stream(|out| write_json(&plan, out))
    } else {
        terminal::stream(|out| write_text(&plan, out))
    };
    written.map_err(HarnessError::io("standard output"))?;
    Ok(ExitStatus::Valid)
}
