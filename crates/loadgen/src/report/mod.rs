//! The four `mlperf_log_*` files: summary, detail, accuracy, trace.
//!
//! Writes what other modules found out; computes and judges nothing.

pub mod format;

pub mod messages;

pub mod keys;

pub mod summary;

pub mod detail;

pub mod entries;

pub mod results;

pub mod accuracy;

pub mod trace;

mod files;

pub use files::{LogFiles, LogPaths, LogSettings, write_logs};
