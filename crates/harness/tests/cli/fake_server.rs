//! A server that tells the truth about itself and misbehaves on demand.
//!
//! One thread a connection, OpenAI routes, an answer scripted by [`Script`]. It knows nothing of
//! the client's code: shapes and framing are written out by hand.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// How answers look.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    pub(crate) tokens: u32,
    pub(crate) tokens_per_event: u32,
    pub(crate) ttft: Duration,
    pub(crate) gap: Duration,
    /// A role-only chunk at once, before the first token is due.
    pub(crate) role_chunk: bool,
    pub(crate) crlf: bool,
    /// A comment line before the first event, as proxies send to keep a connection open.
    pub(crate) comment: bool,
    /// Each event in two writes, cut in the middle.
    pub(crate) split: bool,
    /// So many of the first tokens come as `reasoning_content`.
    pub(crate) reasoning: u32,
    pub(crate) usage: bool,
    pub(crate) stream: bool,
    /// No answer begins before so many requests were under way at once.
    pub(crate) hold_until: u64,
    pub(crate) trouble: Trouble,
    /// Every how many requests the trouble strikes; 1 is every time.
    pub(crate) every: u64,
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    None,
    Status503,
    NoSuchModel,
    Html,
    ErrorEvent,
    /// An event named `error` whose data have no member that says so, and a proper end.
    NamedErrorEvent,
    /// Well-formed JSON and a proper end, and nothing of an answer in it.
    NoAnswer,
    /// Ends well as far as HTTP can tell, but in the middle of the answer.
    Truncate,
    /// Closes in the middle of a chunk.
    CloseMidway,
    Reset,
    /// Accepts, reads, never answers.
    Silence,
    BadJson,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            tokens: 5,
            tokens_per_event: 1,
            ttft: Duration::ZERO,
            gap: Duration::ZERO,
            role_chunk: false,
            crlf: false,
            comment: false,
            split: false,
            reasoning: 0,
            usage: true,
            stream: true,
            hold_until: 0,
            trouble: Trouble::None,
            every: 1,
        }
    }
}

/// A running server; it lives as long as the test's process.
#[derive(Debug)]
pub(crate) struct FakeServer {
    address: SocketAddr,
    counter: Arc<Counter>,
}

impl FakeServer {
    pub(crate) fn start(script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let counter = Arc::new(Counter::default());
        let for_connections = Arc::clone(&counter);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (script, counter) = (script.clone(), Arc::clone(&for_connections));
                std::thread::spawn(move || serve(&stream, &script, &counter));
            }
        });
        Self { address, counter }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Requests for an answer so far, good or bad.
    pub(crate) fn n_answers(&self) -> u64 {
        self.counter.counts.lock().expect("no panics").n
    }

    /// Most requests that were under way at once.
    pub(crate) fn peak_active(&self) -> u64 {
        self.counter.counts.lock().expect("no panics").peak
    }

    /// Blocks until so many were asked for.
    pub(crate) fn wait_for_answers(&self, n: u64) {
        assert!(
            self.counter.wait_while(|counts| counts.n < n),
            "the client sent too few requests"
        );
    }
}

/// Requests for an answer; waiting for a number of them needs no clock.
#[derive(Debug, Default)]
struct Counter {
    counts: Mutex<Counts>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Counts {
    n: u64,
    active: u64,
    peak: u64,
}

impl Counter {
    /// Counts a request in; its number, from 1.
    fn enter(&self) -> u64 {
        let mut counts = self.counts.lock().expect("no panics");
        counts.n += 1;
        counts.active += 1;
        counts.peak = counts.peak.max(counts.active);
        self.changed.notify_all();
        counts.n
    }

    /// Blocks while a condition holds; false if it held for too long.
    fn wait_while(&self, condition: impl Fn(&Counts) -> bool) -> bool {
        let counts = self.counts.lock().expect("no panics");
        let patience = Duration::from_secs(30);
        let (_counts, timeout) = self
            .changed
            .wait_timeout_while(counts, patience, |counts| condition(counts))
            .expect("no panics");
        !timeout.timed_out()
    }
}

/// A request under way. Dropped before the end of its answer is sent: the client may ask again
/// as soon as it has read that, and two would be counted where there is one.
struct Visit<'a>(&'a Counter);

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.0.counts.lock().expect("no panics").active -= 1;
    }
}

fn serve(stream: &TcpStream, script: &Script, counter: &Counter) {
    stream.set_nodelay(true).expect("a socket option");
    let mut reader = BufReader::new(stream);
    while let Some((head, length)) = read_head(&mut reader) {
        if head.starts_with("GET ") {
            let body = r#"{"object":"list","data":[{"id":"fake","object":"model"}]}"#;
            if write_whole(stream, "200 OK", "application/json", body).is_err() {
                return;
            }
            continue;
        }
        let number = counter.enter();
        let visit = Visit(counter);
        let strikes = number.is_multiple_of(script.every);
        let trouble = if strikes {
            script.trouble
        } else {
            Trouble::None
        };
        if trouble == Trouble::Reset {
            // The body stays unread: closing then makes the kernel reset the connection.
            let _ = answer(stream, script, Trouble::CloseMidway, visit);
            return;
        }
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        if !counter.wait_while(|counts| counts.peak < script.hold_until)
            || answer(stream, script, trouble, visit).is_err()
        {
            return;
        }
    }
}

/// Head of the next request and the length of its body; nothing at the end of the connection.
fn read_head(reader: &mut impl BufRead) -> Option<(String, usize)> {
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line == "\r\n" {
            return Some((head, length));
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        head.push_str(&line);
    }
}

fn write_whole(mut out: &TcpStream, status: &str, kind: &str, body: &str) -> std::io::Result<()> {
    let length = body.len();
    let text = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    out.write_all(text.as_bytes())
}

fn answer(
    out: &TcpStream,
    script: &Script,
    trouble: Trouble,
    visit: Visit<'_>,
) -> std::io::Result<()> {
    match trouble {
        Trouble::Status503 => write_whole(out, "503 Busy", "text/plain", "come back later"),
        Trouble::NoSuchModel => {
            let body = r#"{"error":{"message":"The model `x` does not exist","code":404}}"#;
            write_whole(out, "404 Not Found", "application/json", body)
        }
        Trouble::Html => write_whole(out, "200 OK", "text/html", "<html>Welcome</html>"),
        Trouble::Silence => {
            pause(Duration::from_secs(30));
            Err(std::io::ErrorKind::TimedOut.into())
        }
        Trouble::NoAnswer if !script.stream => {
            write_whole(out, "200 OK", "application/json", r#"{"status":"fine"}"#)
        }
        _ if !script.stream => {
            drop(visit);
            let n = script.tokens;
            let body = format!(
                r#"{{"choices":[{{"text":"{}","finish_reason":"length"}}],
                    "usage":{{"completion_tokens":{n}}}}}"#,
                "a".repeat(n as usize)
            );
            write_whole(out, "200 OK", "application/json", &body)
        }
        _ => stream_answer(out, script, trouble, visit),
    }
}

fn stream_answer(
    mut out: &TcpStream,
    script: &Script,
    trouble: Trouble,
    visit: Visit<'_>,
) -> std::io::Result<()> {
    out.write_all(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
    )?;
    if script.comment {
        event(out, script, ": ping")?;
    }
    if script.role_chunk {
        event(
            out,
            script,
            r#"data: {"choices":[{"delta":{"role":"assistant","content":""}}]}"#,
        )?;
    }
    pause(script.ttft);
    if trouble == Trouble::NoAnswer {
        event(out, script, r#"data: {"status":"fine"}"#)?;
        event(out, script, "data: [DONE]")?;
        return finish(out);
    }
    let mut left = script.tokens;
    while left > 0 {
        let n = left.min(script.tokens_per_event);
        let is_reasoning = script.tokens - left < script.reasoning;
        left -= n;
        let text = "tok ".repeat(n as usize);
        let key = if is_reasoning {
            "reasoning_content"
        } else {
            "content"
        };
        event(
            out,
            script,
            &format!(r#"data: {{"choices":[{{"delta":{{"{key}":"{text}"}}}}]}}"#),
        )?;
        if strike(out, script, trouble)? {
            return finish(out);
        }
        if left > 0 {
            pause(script.gap);
        }
    }
    event(
        out,
        script,
        r#"data: {"choices":[{"delta":{},"finish_reason":"length"}]}"#,
    )?;
    if script.usage {
        let n = script.tokens;
        event(
            out,
            script,
            &format!(r#"data: {{"choices":[],"usage":{{"completion_tokens":{n}}}}}"#),
        )?;
    }
    drop(visit);
    event(out, script, "data: [DONE]")?;
    finish(out)
}

/// What goes wrong after the first output, if anything does; true if the answer ends with it.
fn strike(mut out: &TcpStream, script: &Script, trouble: Trouble) -> std::io::Result<bool> {
    match trouble {
        Trouble::ErrorEvent => {
            event(out, script, r#"data: {"error":{"message":"engine died"}}"#)?;
        }
        Trouble::NamedErrorEvent => {
            let end = if script.crlf { "\r\n" } else { "\n" };
            let lines = format!(r#"event: error{end}data: {{"detail":"engine died"}}"#);
            event(out, script, &lines)?;
            event(out, script, "data: [DONE]")?;
        }
        Trouble::Truncate => {}
        Trouble::BadJson => event(out, script, r#"data: {"choices":[{"#)?,
        Trouble::CloseMidway => {
            out.write_all(b"ff\r\ndata: {")?;
            return Err(std::io::ErrorKind::ConnectionAborted.into());
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn finish(mut out: &TcpStream) -> std::io::Result<()> {
    out.write_all(b"0\r\n\r\n")
}

/// One event as one chunk; split, it goes out in two writes.
fn event(mut out: &TcpStream, script: &Script, line: &str) -> std::io::Result<()> {
    let end = if script.crlf { "\r\n\r\n" } else { "\n\n" };
    let data = format!("{line}{end}");
    let chunk = format!("{:x}\r\n{data}\r\n", data.len());
    if script.split {
        let (front, back) = chunk.split_at(chunk.len() / 2);
        out.write_all(front.as_bytes())?;
        pause(Duration::from_millis(1));
        return out.write_all(back.as_bytes());
    }
    out.write_all(chunk.as_bytes())
}

/// The server's own pace: waits for something that never comes.
fn pause(time: Duration) {
    if !time.is_zero() {
        let (never, wait) = sync_channel::<()>(1);
        let _ = wait.recv_timeout(time);
        drop(never);
    }
}
