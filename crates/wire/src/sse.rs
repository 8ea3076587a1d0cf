//! Server-sent events: writing them, and reading them from bytes cut anywhere.
//!
//! The encoder appends to a buffer the caller owns. The decoder takes whatever a socket read
//! returned and calls back once per complete event; a field, a line end or a UTF-8 character
//! may be cut at any byte. Ids and retry times are read over: neither end reconnects.
//!
//! Source: WHATWG HTML Living Standard, § 9.2.6 "Interpreting an event stream".

use std::fmt;

use serde::Serialize;

/// The last event of an OpenAI stream, as it stands on the wire.
pub const DONE: &[u8] = b"data: [DONE]\n\n";

/// The data of that last event; it is not JSON.
pub const DONE_DATA: &[u8] = b"[DONE]";

/// Appends one event whose data is `value` as JSON.
///
/// # Errors
/// Whatever `value`'s serialiser reports; the types of this crate never fail.
pub fn encode_json<T: Serialize>(out: &mut Vec<u8>, value: &T) -> serde_json::Result<()> {
    // Compact JSON escapes every line end, so one `data:` line always holds it.
    out.extend_from_slice(b"data: ");
    serde_json::to_writer(&mut *out, value)?;
    out.extend_from_slice(b"\n\n");
    Ok(())
}

/// Appends one event with any text, one `data:` line for each of its lines.
///
/// A CR or CRLF inside `data` arrives as LF: the format has no way to carry it.
pub fn encode(out: &mut Vec<u8>, event: Option<&str>, data: &str) {
    if let Some(event) = event {
        debug_assert!(!event.contains(['\r', '\n']), "an event name is one line");
        out.extend_from_slice(b"event: ");
        out.extend_from_slice(event.as_bytes());
        out.push(b'\n');
    }
    let mut rest = data;
    loop {
        let end = rest.find(['\r', '\n']).unwrap_or(rest.len());
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(&rest.as_bytes()[..end]);
        out.push(b'\n');
        if end == rest.len() {
            break;
        }
        let line_end = if rest[end..].starts_with("\r\n") {
            2
        } else {
            1
        };
        rest = &rest[end + line_end..];
    }
    out.push(b'\n');
}

/// One event, borrowed from the decoder for the length of the callback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event<'a> {
    /// The `event:` field; empty when there was none (the standard calls that `message`).
    pub name: &'a [u8],
    /// The data, its lines joined by LF. Not checked to be UTF-8; a JSON parser does that.
    pub data: &'a [u8],
}

impl Event<'_> {
    /// Whether this is the `[DONE]` that ends an OpenAI stream.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.data == DONE_DATA
    }
}

/// An event that would need more memory than the decoder was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventTooLarge {
    /// The limit in bytes.
    pub max_event_bytes: usize,
}

impl fmt::Display for EventTooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "server-sent event: larger than {} bytes",
            self.max_event_bytes
        )
    }
}

impl std::error::Error for EventTooLarge {}

/// Incremental reader of an event stream.
///
/// ```
/// let mut decoder = prony_wire::sse::Decoder::new(1 << 20);
/// let mut seen = Vec::new();
/// for piece in ["dat", "a: 1\r", "\n\r\nda"] {
///     decoder.push(piece.as_bytes(), |event| seen.push(event.data.to_vec())).unwrap();
/// }
/// assert_eq!(seen, [b"1"]);
/// assert!(decoder.is_mid_event());
/// ```
#[derive(Debug)]
pub struct Decoder {
    max_event_bytes: usize,
    /// Start of a line whose end has not arrived.
    line: Vec<u8>,
    /// Data lines of the event under way, each followed by LF.
    data: Vec<u8>,
    name: Vec<u8>,
    /// The last byte was CR: an LF right after it belongs to the same line end.
    after_cr: bool,
    /// No line has been completed yet, so a byte order mark may still stand at its start.
    first_line: bool,
}

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

impl Decoder {
    /// A decoder that refuses events (fields and comments together) over `max_event_bytes`.
    #[must_use]
    pub fn new(max_event_bytes: usize) -> Self {
        Decoder {
            max_event_bytes,
            line: Vec::new(),
            data: Vec::new(),
            name: Vec::new(),
            after_cr: false,
            first_line: true,
        }
    }

    /// Reads `bytes` and calls `on_event` for every event they complete, in order.
    ///
    /// # Errors
    /// [`EventTooLarge`]; the events before it have been delivered, and the decoder is of no
    /// further use.
    pub fn push<F>(&mut self, bytes: &[u8], mut on_event: F) -> Result<(), EventTooLarge>
    where
        F: FnMut(Event<'_>),
    {
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.after_cr {
                self.after_cr = false;
                if rest[0] == b'\n' {
                    rest = &rest[1..];
                    continue;
                }
            }
            let Some(end) = rest.iter().position(|&b| b == b'\n' || b == b'\r') else {
                self.check_size(self.line.len() + rest.len())?;
                self.line.extend_from_slice(rest);
                break;
            };
            self.check_size(self.line.len() + end)?;
            if self.line.is_empty() {
                self.take_line(&rest[..end], &mut on_event);
            } else {
                let mut line = std::mem::take(&mut self.line);
                line.extend_from_slice(&rest[..end]);
                self.take_line(&line, &mut on_event);
                line.clear();
                self.line = line;
            }
            self.after_cr = rest[end] == b'\r';
            rest = &rest[end + 1..];
        }
        Ok(())
    }

    /// Whether the stream, if it ended here, would have been cut inside an event.
    #[must_use]
    pub fn is_mid_event(&self) -> bool {
        !self.line.is_empty() || !self.data.is_empty() || !self.name.is_empty()
    }

    /// The check depends only on the bytes since the last event, never on how they were cut.
    fn check_size(&self, line_len: usize) -> Result<(), EventTooLarge> {
        if self.data.len() + self.name.len() + line_len > self.max_event_bytes {
            return Err(EventTooLarge {
                max_event_bytes: self.max_event_bytes,
            });
        }
        Ok(())
    }

    fn take_line<F: FnMut(Event<'_>)>(&mut self, mut line: &[u8], on_event: &mut F) {
        if self.first_line {
            self.first_line = false;
            line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
        }
        if line.is_empty() {
            // A data field, even an empty one, has left at least its LF here.
            if let Some(data) = self.data.strip_suffix(b"\n") {
                on_event(Event {
                    name: &self.name,
                    data,
                });
            }
            self.data.clear();
            self.name.clear();
            return;
        }
        let (field, value) = match line.iter().position(|&b| b == b':') {
            // A comment: servers send them to keep the connection open.
            Some(0) => return,
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &b""[..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => {
                self.data.extend_from_slice(value);
                self.data.push(b'\n');
            }
            b"event" => {
                self.name.clear();
                self.name.extend_from_slice(value);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
