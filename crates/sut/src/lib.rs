//! `prony-sut`: an inference server. One request's way through it, in reading order:
//!
//! `api` parses the wire → `request` makes it a validated [`request::Generate`] → `tokenize` turns
//! text into ids → `admission` accepts or refuses, the only place that does → `queue` holds it →
//! `batch` plans each step, in chunks that `pace` sizes → `engine`, the one thread that owns the
//! backend, runs it → `detokenize` makes text of ids → `stream` carries it back to the handler.
//!
//! The server never links the load generator that measures it; the two share only the wire types
//! of `prony_wire`, and those stop in `api`.

pub mod clock;

pub mod error;

pub mod api_keys;

pub mod open_files;

pub mod config;

pub mod telemetry;

pub mod metrics;

pub mod request;

pub mod tokenize;

pub mod chat_template;

pub mod detokenize;

pub mod bell;

pub mod stream;

pub mod admission;

pub mod queue;

pub mod pace;

pub mod batch;

pub mod backend;

pub mod status;

pub mod engine;

pub mod engine_thread;

pub mod api;

pub mod guard;

pub mod server;

pub mod tls;

pub mod listen;

pub mod serve;

#[cfg(feature = "torch")]
pub mod inspect;
