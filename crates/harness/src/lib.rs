//! The command line `prony`: reads a scenario file, drives an endpoint with the load generator,
//! and hands the record of the run to `report`.
//!
//! Modules stand in reading order; each uses only the ones above it.

pub mod exit;

pub mod error;

pub mod terminal;

pub mod environment;

pub mod settings_args;

pub mod url;

pub mod prompt;

pub mod datasets;

pub mod api;

pub mod duration;

pub mod assertion;

pub mod toml_tree;

pub mod section;

pub(crate) mod scenario_settings;

pub mod scenario_file;

pub mod suite_file;

pub mod library;

pub mod http1;

pub mod answer;

pub mod stream_stats;

pub mod conn;

pub(crate) mod client_loop;

pub mod http_sut;

pub mod readiness;

pub mod progress;

pub mod interrupt;

pub mod results_folder;

pub mod figures;

pub mod own_cost;

pub(crate) mod record;

pub mod runner;

pub mod commands;

pub mod args;

pub use error::HarnessError;
