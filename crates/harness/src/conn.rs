//! One connection: writes a ready-made request, reads its answer, stamps every read.
//!
//! A state machine over a non-blocking socket; `http_sut` owns the loop that drives it. Nothing
//! is retried: an answer that cannot be had is a failure with its kind.

use std::io::{self, Read, Write};
use std::sync::Arc;

use mio::net::TcpStream;
use prony_loadgen::clock::Nanos;
use prony_loadgen::sample::SampleId;
use prony_loadgen::sut::{FailureKind, Responder};
use prony_wire::sse::Decoder;

use crate::answer::{Answer, Arrival};
use crate::api::Api;
use crate::http1::{Piece, ResponseReader};
use crate::stream_stats::StreamStats;

/// One event larger than this ends the answer: a line without end must not fill the memory.
const MAX_EVENT_BYTES: usize = 16 * 1024 * 1024;

/// Unstreamed answers and error bodies over this size are cut off.
const MAX_BODY_BYTES: usize = 64 * 1024 * 1024;

/// How much of a refusal is shown.
const MAX_SHOWN_BYTES: usize = 600;

/// A request under way.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) id: SampleId,
    pub(crate) responder: Responder,
    pub(crate) request: Arc<[u8]>,
    /// After this the sample has failed.
    pub(crate) deadline: Nanos,
}

/// What the loop must do with a connection after driving it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The answer is still coming, or the request still going out.
    Busy,
    /// Free for the next request.
    Free,
    /// To be dropped.
    Closed,
}

/// How answers of this run are read.
#[derive(Debug, Clone, Copy)]
pub struct AnswerForm {
    /// Who reads them.
    pub api: &'static dyn Api,
    /// Whether a stream of events was asked for.
    pub streamed: bool,
}

/// A connection and what is under way on it.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) stream: TcpStream,
    is_connected: bool,
    in_flight: Option<InFlight>,
    /// Bytes at the end of the request that the socket has not taken yet.
    n_unsent: usize,
    reader: ResponseReader,
    events: Decoder,
    answer: Answer,
    /// Body of an unstreamed answer or of a refusal.
    body: Vec<u8>,
    form: AnswerForm,
}

impl Conn {
    pub(crate) fn new(stream: TcpStream, is_connected: bool, form: AnswerForm) -> Self {
        Self {
            stream,
            is_connected,
            in_flight: None,
            n_unsent: 0,
            reader: ResponseReader::default(),
            events: Decoder::new(MAX_EVENT_BYTES),
            answer: Answer::default(),
            body: Vec::new(),
            form,
        }
    }

    pub(crate) fn deadline(&self) -> Option<Nanos> {
        self.in_flight.as_ref().map(|f| f.deadline)
    }

    /// Takes a request on and sends as much of it as the socket takes.
    pub(crate) fn start(&mut self, in_flight: InFlight) -> Fate {
        self.reader.reset();
        self.answer.reset();
        self.body.clear();
        if self.events.is_mid_event() {
            self.events = Decoder::new(MAX_EVENT_BYTES);
        }
        self.n_unsent = in_flight.request.len();
        self.in_flight = Some(in_flight);
        self.write()
    }

    /// The socket can be written to: the connection stands, or its buffer has room again.
    pub(crate) fn on_writable(&mut self) -> Fate {
        if !self.is_connected {
            match self.stream.take_error() {
                Ok(None) => self.is_connected = self.stream.peer_addr().is_ok(),
                Ok(Some(error)) | Err(error) => return self.broken("connect", &error),
            }
        }
        self.write()
    }

    fn write(&mut self) -> Fate {
        let Some(in_flight) = &self.in_flight else {
            return if self.is_connected {
                Fate::Free
            } else {
                Fate::Busy
            };
        };
        if !self.is_connected {
            return Fate::Busy;
        }
        while self.n_unsent > 0 {
            let request = &in_flight.request;
            if self.n_unsent == request.len() {
                in_flight
                    .responder
                    .sent(in_flight.id, in_flight.responder.now());
            }
            match self.stream.write(&request[request.len() - self.n_unsent..]) {
                Ok(n) => self.n_unsent -= n,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return self.broken("send", &error),
            }
        }
        Fate::Busy
    }

    /// Reads all there is; `buffer` is the loop's, so that idle connections hold no memory.
    ///
    /// `read_closed` says that the peer will send nothing more: its close is then read, too,
    /// because no further event would announce it.
    pub(crate) fn on_readable(
        &mut self,
        buffer: &mut [u8],
        read_closed: bool,
        stats: &mut StreamStats,
    ) -> Fate {
        loop {
            let n = match self.stream.read(buffer) {
                Ok(n) => n,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Fate::Busy,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return self.broken("receive", &error),
            };
            // Stamped before anything is parsed: parsing is the client's time, not the server's.
            let at = self
                .in_flight
                .as_ref()
                .map_or(Nanos::ZERO, |f| f.responder.now());
            if n == 0 {
                return self.on_close(at, stats);
            }
            let fate = self.on_bytes(&buffer[..n], at, stats);
            // A short read has emptied the socket; the next arrival is a new edge.
            if fate != Fate::Busy || (n < buffer.len() && !read_closed) {
                return fate;
            }
        }
    }

    fn on_bytes(&mut self, mut bytes: &[u8], at: Nanos, stats: &mut StreamStats) -> Fate {
        if self.in_flight.is_none() && self.reader.is_fresh() {
            // Bytes nobody asked for: the connection cannot be trusted with a request.
            return Fate::Closed;
        }
        loop {
            match self.reader.next(&mut bytes) {
                Ok(Piece::NeedMore) => return Fate::Busy,
                Ok(Piece::Body(body)) => {
                    if let Some(fate) = self.on_body(body, at, stats) {
                        return fate;
                    }
                }
                Ok(Piece::End) => {
                    self.conclude(at, stats);
                    return self.after_end(bytes.is_empty());
                }
                Err(error) => {
                    self.fail(at, FailureKind::Malformed, &error.to_string());
                    return Fate::Closed;
                }
            }
        }
    }

    /// Takes a piece of the body; a fate only if the answer cannot go on.
    fn on_body(&mut self, body: &[u8], at: Nanos, stats: &mut StreamStats) -> Option<Fate> {
        self.in_flight.as_ref()?;
        let head = self.reader.head();
        let is_ok = (200..300).contains(&head.status);
        if !(is_ok && head.is_event_stream && self.form.streamed) {
            let room = MAX_BODY_BYTES.saturating_sub(self.body.len());
            if body.len() > room {
                let text = format!("answer larger than {MAX_BODY_BYTES} bytes");
                self.fail(at, FailureKind::Malformed, &text);
                return Some(Fate::Closed);
            }
            self.body.extend_from_slice(body);
            return None;
        }
        self.on_events(body, at, stats)
    }

    fn on_events(&mut self, body: &[u8], at: Nanos, stats: &mut StreamStats) -> Option<Fate> {
        let Self {
            events,
            answer,
            in_flight,
            form,
            ..
        } = self;
        let mut unreadable = None;
        let pushed = events.push(body, |event| {
            if unreadable.is_some() {
                return;
            }
            if event.is_done() {
                answer.take_done();
                return;
            }
            let read = form.api.read_event(event.data, answer.text_mut());
            if event.name == b"error" {
                // An error by its name alone: its data need not be what the API promises.
                let told = read.ok().and_then(|delta| delta.error);
                answer.take_error(told.unwrap_or_else(|| shown(event.data)));
                return;
            }
            match read {
                Ok(delta) => match answer.take(delta, at) {
                    Arrival::NoOutput => {}
                    Arrival::First => {
                        if let Some(f) = in_flight {
                            f.responder.first_token(f.id, at, answer.text());
                        }
                    }
                    Arrival::Next(gap) => stats.record_gap(gap),
                },
                Err(error) => {
                    let data = shown(event.data);
                    unreadable = Some(format!("unreadable event: {}: {data}", error.reason));
                }
            }
        });
        if let Err(error) = pushed {
            unreadable = Some(error.to_string());
        }
        if let Some(text) = unreadable {
            self.fail(at, FailureKind::Malformed, &text);
            return Some(Fate::Closed);
        }
        None
    }

    /// What becomes of the connection after a whole response.
    fn after_end(&mut self, nothing_left: bool) -> Fate {
        let keep_alive = self.reader.head().keep_alive;
        self.reader.reset();
        if keep_alive && nothing_left && self.n_unsent == 0 {
            Fate::Free
        } else {
            Fate::Closed
        }
    }

    fn conclude(&mut self, at: Nanos, stats: &mut StreamStats) {
        let head = self.reader.head();
        if !(200..300).contains(&head.status) {
            let text = format!("HTTP {}: {}", head.status, shown(&self.body));
            return self.fail(at, FailureKind::Status, &text);
        }
        let streamed = head.is_event_stream && self.form.streamed;
        if !streamed && let Err((kind, text)) = self.take_whole_answer(at) {
            return self.fail(at, kind, &text);
        }
        match self.answer.shortcoming(streamed) {
            Some((kind, text)) => self.fail(at, kind, &text),
            None => self.complete(at, stats),
        }
    }

    fn take_whole_answer(&mut self, at: Nanos) -> Result<(), (FailureKind, String)> {
        if self.form.streamed {
            let text = format!("asked for a stream of events, got {}", shown(&self.body));
            return Err((FailureKind::Malformed, text));
        }
        let delta = self
            .form
            .api
            .read_answer(&self.body, self.answer.text_mut())
            .map_err(|error| {
                let text = format!("unreadable answer: {}: {}", error.reason, shown(&self.body));
                (FailureKind::Malformed, text)
            })?;
        if self.answer.take(delta, at) == Arrival::First
            && let Some(f) = &self.in_flight
        {
            f.responder.first_token(f.id, at, self.answer.text());
        }
        Ok(())
    }

    fn complete(&mut self, at: Nanos, stats: &mut StreamStats) {
        let Some(f) = self.in_flight.take() else {
            return;
        };
        stats.n_counted_by_events += u64::from(!self.answer.is_counted_by_server());
        // An answer without any output has no last token: it is complete when it is over.
        let done = self.answer.last().unwrap_or(at);
        f.responder
            .complete(f.id, done, self.answer.text(), self.answer.n_tokens());
    }

    /// The peer closed.
    fn on_close(&mut self, at: Nanos, stats: &mut StreamStats) -> Fate {
        if self.in_flight.is_none() {
            return Fate::Closed;
        }
        if self.reader.is_complete_at_close() {
            self.conclude(at, stats);
        } else if self.reader.is_fresh() {
            self.fail(at, FailureKind::Connection, "closed before an answer came");
        } else {
            let text = format!("closed after {} output bytes", self.answer.text().len());
            self.fail(at, FailureKind::Truncated, &text);
        }
        Fate::Closed
    }

    fn broken(&mut self, what: &str, error: &io::Error) -> Fate {
        if let Some(f) = &self.in_flight {
            let at = f.responder.now();
            self.fail(at, FailureKind::Connection, &format!("{what}: {error}"));
        }
        Fate::Closed
    }

    /// Ends what is under way, badly.
    pub(crate) fn fail(&mut self, at: Nanos, kind: FailureKind, detail: &str) {
        if let Some(f) = self.in_flight.take() {
            f.responder.fail(f.id, at, kind, detail);
        }
    }
}

/// The start of what a server said, on one line.
fn shown(bytes: &[u8]) -> String {
    let cut = &bytes[..bytes.len().min(MAX_SHOWN_BYTES)];
    let text = String::from_utf8_lossy(cut);
    let mut line: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect::<String>();
    if bytes.len() > cut.len() {
        line.push('…');
    }
    line.trim().to_owned()
}
