//! The only writer to the terminal: results go to stdout, everything else to stderr.
//!
//! A closed pipe (`prony … | head`) is an ordinary case: what can no longer be shown is dropped.

use std::io::{self, BufWriter, ErrorKind, Write};

/// One line of a result, to stdout.
pub fn result_line(text: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{text}");
}

/// A result written piece by piece, to stdout: for what is too long to hold.
///
/// # Errors
/// Whatever keeps it from being written, except that nobody reads on.
pub fn stream(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    match write(&mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// One line of news or trouble, to stderr.
pub fn note(text: &str) {
    let mut err = io::stderr().lock();
    let _ = writeln!(err, "{text}");
}
