//! The machine and the build a run was made with, as plain data.
//!
//! `prony` fills it in (this crate reads no machine); the page and the table print it.

use serde::{Deserialize, Serialize};

/// What ran the load generator, and on what.
///
/// A field is `None` where the machine does not tell; it is never guessed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Environment {
    /// Processor model as the kernel names it.
    pub cpu_model: Option<String>,
    /// Logical processors this process may run on.
    pub n_cpus: Option<u32>,
    /// Processors the container's quota allows, where one is set.
    pub cpu_quota: Option<f64>,
    /// Frequency governor of the first processor.
    pub cpu_governor: Option<String>,
    /// Whether the kernel sees a hypervisor below it.
    pub virtual_machine: Option<bool>,
    /// Physical memory.
    pub memory_bytes: Option<u64>,
    /// Accelerators, one line each; empty where none was found.
    pub gpus: Vec<String>,
    /// Operating system, e.g. `Debian GNU/Linux 13 (trixie)`.
    pub os: Option<String>,
    /// Kernel release.
    pub kernel: Option<String>,
    /// Load average of the last minute when the run began: who else was busy.
    pub load_average_1m: Option<f64>,
    /// Compiler that built `prony`.
    pub rustc: String,
    /// Revision `prony` was built from, with `-dirty` where the tree had changes; empty if unknown.
    pub git_revision: String,
    /// Version of `prony`.
    pub prony_version: String,
    /// `release` or `debug`: a debug build measures itself.
    pub build_profile: String,
}
