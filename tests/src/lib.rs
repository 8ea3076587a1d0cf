//! Shared machinery of the end-to-end tests: the source tree, the real binaries, raw HTTP.
//!
//! Nothing here knows what the programs do; the tests say what they expect.

pub mod source;

pub mod process;

pub mod raw_http;
