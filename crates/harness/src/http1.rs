//! The receiving half of HTTP/1.1: bytes cut anywhere in, pieces of one response's body out.
//!
//! Hand-written because the client must stamp the socket read before anything is parsed and must
//! not copy or allocate per piece; the head itself is parsed by `httparse`. It opens no socket,
//! follows no redirect and retries nothing.
//!
//! Source: RFC 9112, sections 2 to 7.

use crate::error::ResponseError;

/// Heads over this size are refused: a server that streams headers without end must not fill the
/// memory of the machine that measures it.
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// More header lines than any of the servers we know sends.
const MAX_HEADERS: usize = 64;

/// What the next piece of input turned out to be.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// All input is used up; the response goes on.
    NeedMore,
    /// The next bytes of the body.
    Body(&'a [u8]),
    /// The response is complete; what is left of the input belongs to nobody.
    End,
}

/// Reads one response after another from one connection.
#[derive(Debug)]
pub struct ResponseReader {
    state: State,
    /// Start of a head or of a chunk-size line whose end has not arrived.
    pending: Vec<u8>,
    head: Head,
}

/// What the client needs to know of a response's head.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Head {
    /// Status code; 0 before the head was read.
    pub status: u16,
    /// Whether the body is `text/event-stream`.
    pub is_event_stream: bool,
    /// Whether the connection may carry another request.
    pub keep_alive: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Head,
    /// Body of known length; this many bytes are missing.
    Length(u64),
    ChunkSize,
    ChunkData(u64),
    /// The line end after a chunk's data.
    ChunkEnd,
    Trailer,
    UntilClose,
    Done,
}

impl Default for ResponseReader {
    fn default() -> Self {
        Self {
            state: State::Head,
            pending: Vec::new(),
            head: Head::default(),
        }
    }
}

impl ResponseReader {
    /// Gets ready for the next response on the same connection.
    pub fn reset(&mut self) {
        self.state = State::Head;
        self.pending.clear();
        self.head = Head::default();
    }

    /// The head of the response under way.
    #[must_use]
    pub fn head(&self) -> Head {
        self.head
    }

    /// Whether no byte of a response has been seen since the last reset.
    #[must_use]
    pub fn is_fresh(&self) -> bool {
        self.state == State::Head && self.pending.is_empty()
    }

    /// Whether the response is complete now that the peer has closed.
    ///
    /// A body without length or chunks ends that way; anything else was cut off.
    #[must_use]
    pub fn is_complete_at_close(&self) -> bool {
        matches!(self.state, State::UntilClose | State::Done)
    }

    /// Takes the next piece off the front of `input`. Call until it says `NeedMore` or `End`.
    ///
    /// # Errors
    /// If the bytes are not an HTTP/1 response; the connection is of no further use.
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Piece<'a>, ResponseError> {
        loop {
            match self.state {
                State::Done => return Ok(Piece::End),
                _ if input.is_empty() => return Ok(Piece::NeedMore),
                State::Head => self.take_head(input)?,
                State::Length(missing) => {
                    let body = take(input, missing);
                    self.state = match missing - body.len() as u64 {
                        0 => State::Done,
                        rest => State::Length(rest),
                    };
                    return Ok(Piece::Body(body));
                }
                State::UntilClose => return Ok(Piece::Body(std::mem::take(input))),
                State::ChunkSize => self.take_chunk_size(input)?,
                State::ChunkData(missing) => {
                    let body = take(input, missing);
                    self.state = match missing - body.len() as u64 {
                        0 => State::ChunkEnd,
                        rest => State::ChunkData(rest),
                    };
                    return Ok(Piece::Body(body));
                }
                State::ChunkEnd => self.take_chunk_end(input)?,
                State::Trailer => self.take_trailer(input)?,
            }
        }
    }

    fn take_head(&mut self, input: &mut &[u8]) -> Result<(), ResponseError> {
        // The whole head nearly always arrives in one read and is then parsed where it lies.
        let used = if self.pending.is_empty() {
            self.parse_head(input)?
        } else {
            let before = self.pending.len();
            let mut pending = std::mem::take(&mut self.pending);
            pending.extend_from_slice(input);
            let used = self.parse_head(&pending);
            self.pending = pending;
            used?.map(|used| used - before)
        };
        match used {
            Some(used) => {
                *input = &input[used..];
                self.pending.clear();
            }
            None => {
                if self.pending.is_empty() {
                    self.pending.extend_from_slice(input);
                }
                *input = &[];
                if self.pending.len() > MAX_HEAD_BYTES {
                    return Err(ResponseError::HeadTooLarge {
                        max_bytes: MAX_HEAD_BYTES,
                    });
                }
            }
        }
        Ok(())
    }

    /// Parses a whole head and enters the body's state; `None` if the head is not all there.
    fn parse_head(&mut self, bytes: &[u8]) -> Result<Option<usize>, ResponseError> {
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut response = httparse::Response::new(&mut headers);
        let used = match response.parse(bytes).map_err(ResponseError::NotHttp)? {
            httparse::Status::Complete(used) => used,
            httparse::Status::Partial => return Ok(None),
        };
        let status = response.code.unwrap_or(0);
        if (100..200).contains(&status) {
            // Interim: the real head follows.
            return Ok(Some(used));
        }
        let is_http_1_1 = response.version == Some(1);
        let facts = HeaderFacts::of(response.headers, is_http_1_1)?;
        self.head = Head {
            status,
            is_event_stream: facts.is_event_stream,
            keep_alive: facts.keep_alive,
        };
        self.state = if status == 204 || status == 304 {
            State::Done
        } else if facts.chunked {
            State::ChunkSize
        } else {
            match facts.content_length {
                Some(0) => State::Done,
                Some(length) => State::Length(length),
                None => {
                    self.head.keep_alive = false;
                    State::UntilClose
                }
            }
        };
        Ok(Some(used))
    }

    fn take_chunk_size(&mut self, input: &mut &[u8]) -> Result<(), ResponseError> {
        let Some(size) = self.take_line(input, parse_chunk_size)? else {
            return Ok(());
        };
        let size = size?;
        self.state = if size == 0 {
            State::Trailer
        } else {
            State::ChunkData(size)
        };
        Ok(())
    }

    fn take_chunk_end(&mut self, input: &mut &[u8]) -> Result<(), ResponseError> {
        match self.take_line(input, <[u8]>::is_empty)? {
            Some(true) => self.state = State::ChunkSize,
            Some(false) => return Err(ResponseError::BadChunk),
            None => {}
        }
        Ok(())
    }

    fn take_trailer(&mut self, input: &mut &[u8]) -> Result<(), ResponseError> {
        if self.take_line(input, <[u8]>::is_empty)? == Some(true) {
            self.state = State::Done;
        }
        Ok(())
    }

    /// Reads one line, without its end, through `read`; `None` if its end has not arrived.
    fn take_line<T>(
        &mut self,
        input: &mut &[u8],
        read: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>, ResponseError> {
        let Some(end) = input.iter().position(|&byte| byte == b'\n') else {
            self.pending.extend_from_slice(input);
            *input = &[];
            if self.pending.len() > MAX_HEAD_BYTES {
                return Err(ResponseError::HeadTooLarge {
                    max_bytes: MAX_HEAD_BYTES,
                });
            }
            return Ok(None);
        };
        let (line, rest) = (&input[..end], &input[end + 1..]);
        *input = rest;
        if self.pending.is_empty() {
            return Ok(Some(read(without_cr(line))));
        }
        self.pending.extend_from_slice(line);
        let value = read(without_cr(&self.pending));
        self.pending.clear();
        Ok(Some(value))
    }
}

struct HeaderFacts {
    content_length: Option<u64>,
    chunked: bool,
    keep_alive: bool,
    is_event_stream: bool,
}

impl HeaderFacts {
    fn of(headers: &[httparse::Header<'_>], is_http_1_1: bool) -> Result<Self, ResponseError> {
        let mut facts = Self {
            content_length: None,
            chunked: false,
            keep_alive: is_http_1_1,
            is_event_stream: false,
        };
        for header in headers {
            let value = header.value.trim_ascii();
            if header.name.eq_ignore_ascii_case("content-length") {
                let text = str::from_utf8(value).map_err(|_| ResponseError::BadLength)?;
                facts.content_length = Some(text.parse().map_err(|_| ResponseError::BadLength)?);
            } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
                // `chunked` is always the last coding; others before it we never ask for.
                facts.chunked = ends_with_ignore_case(value, b"chunked");
            } else if header.name.eq_ignore_ascii_case("connection") {
                if value.eq_ignore_ascii_case(b"close") {
                    facts.keep_alive = false;
                } else if value.eq_ignore_ascii_case(b"keep-alive") {
                    facts.keep_alive = true;
                }
            } else if header.name.eq_ignore_ascii_case("content-type") {
                let wanted = b"text/event-stream";
                facts.is_event_stream = value.len() >= wanted.len()
                    && value[..wanted.len()].eq_ignore_ascii_case(wanted);
            }
        }
        Ok(facts)
    }
}

fn ends_with_ignore_case(value: &[u8], end: &[u8]) -> bool {
    value.len() >= end.len() && value[value.len() - end.len()..].eq_ignore_ascii_case(end)
}

fn without_cr(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// `1a;extension` → 26. At most 15 digits, so the value always fits.
fn parse_chunk_size(line: &[u8]) -> Result<u64, ResponseError> {
    let digits = line
        .split(|&byte| byte == b';')
        .next()
        .unwrap_or(line)
        .trim_ascii();
    if digits.is_empty() || digits.len() > 15 {
        return Err(ResponseError::BadChunk);
    }
    digits.iter().try_fold(0u64, |size, &byte| {
        let digit = char::from(byte)
            .to_digit(16)
            .ok_or(ResponseError::BadChunk)?;
        Ok(size * 16 + u64::from(digit))
    })
}

/// Takes up to `most` bytes off the front of `input`.
fn take<'a>(input: &mut &'a [u8], most: u64) -> &'a [u8] {
    let n = usize::try_from(most).unwrap_or(usize::MAX).min(input.len());
    let (front, rest) = input.split_at(n);
    *input = rest;
    front
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `bytes` cut every `step` bytes and returns the head, the body and whether it ended.
    fn read(bytes: &[u8], step: usize) -> Result<(Head, Vec<u8>, bool), ResponseError> {
        let mut reader = ResponseReader::default();
        let mut body = Vec::new();
        for mut part in bytes.chunks(step) {
            loop {
                match reader.next(&mut part)? {
                    Piece::NeedMore => break,
                    Piece::Body(piece) => body.extend_from_slice(piece),
                    Piece::End => return Ok((reader.head(), body, true)),
                }
            }
        }
        Ok((reader.head(), body, reader.is_complete_at_close()))
    }

    fn check(response: &str, expected: &str) {
        for step in 1..=response.len() {
            let shown = match read(response.as_bytes(), step) {
                Ok((head, body, ended)) => format!(
                    "{} keep={} sse={} ended={ended} {}",
                    head.status,
                    head.keep_alive,
                    head.is_event_stream,
                    String::from_utf8_lossy(&body)
                ),
                Err(error) => error.to_string(),
            };
            assert_eq!(shown, expected, "cut every {step} bytes");
        }
    }

    #[test]
    fn reads_a_body_of_known_length() {
        check(
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
            "200 keep=true sse=false ended=true hello",
        );
    }

    #[test]
    fn reads_chunks_with_extensions_and_trailers() {
        check(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: \
             text/event-stream; charset=utf-8\r\n\r\n3;x=y\r\nabc\r\n\
             A\r\n0123456789\r\n0\r\nT: 1\r\n\r\n",
            "200 keep=true sse=true ended=true abc0123456789",
        );
    }

    #[test]
    fn skips_interim_responses() {
        check(
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 Busy\r\n\
             connection: close\r\ncontent-length: 2\r\n\r\nno",
            "503 keep=false sse=false ended=true no",
        );
    }

    #[test]
    fn a_body_without_length_ends_with_the_connection() {
        check(
            "HTTP/1.0 200 OK\r\n\r\nall of it",
            "200 keep=false sse=false ended=true all of it",
        );
    }

    #[test]
    fn a_cut_body_is_not_complete() {
        check(
            "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhell",
            "200 keep=true sse=false ended=false hell",
        );
    }

    #[test]
    fn a_chunk_size_that_is_none_is_refused() {
        check(
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
            "malformed chunk in the response body",
        );
    }
}
