//! The only writer to the terminal: results go to stdout, everything else to stderr.
//!
//! A closed pipe (`prony … | head`) is an ordinary case: what can no longer be shown is dropped.

use std::io::Write;

/// One line of a result, to stdout.
pub fn result_line(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}");
}

/// One line of news or trouble, to stderr.
pub fn note(text: &str) {
    let mut err = std::io::stderr().lock();
    let _ = writeln!(err, "{text}");
}
