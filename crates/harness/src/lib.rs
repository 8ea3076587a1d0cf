//! The command line `prony`: reads a scenario file, drives an endpoint with the load generator,
//! and hands the record of the run to `report`.
//!
//! Modules stand in reading order; each uses only the ones above it.

pub mod exit;

pub mod error;

pub mod terminal;

pub mod environment;

pub mod settings_args;

pub mod commands;

pub mod args;

pub use error::HarnessError;
