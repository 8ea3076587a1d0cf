//! The command line as typed: options every verb knows, then the verb.

use clap::Parser;

use crate::commands::Command;

/// Measures inference endpoints the way MLPerf does.
#[derive(Debug, Parser)]
#[command(name = "prony", version, about, arg_required_else_help = true)]
#[command(
    after_help = "exit codes: 0 valid · 1 INVALID or an assertion failed · 2 usage or \
    configuration · 3 endpoint unreachable or failing beyond the allowed rate · 4 client-limited"
)]
pub struct Cli {
    /// The verb.
    #[command(subcommand)]
    pub command: Command,
}
