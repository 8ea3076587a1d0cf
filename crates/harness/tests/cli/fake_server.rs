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
    pub(crate) usage: bool,
    pub(crate) stream: bool,
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
            usage: true,
            stream: true,
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
        *self.counter.n.lock().expect("no panics")
    }

    /// Blocks until so many were asked for.
    pub(crate) fn wait_for_answers(&self, n: u64) {
        let count = self.counter.n.lock().expect("no panics");
        let patience = Duration::from_secs(30);
        let (_count, timeout) = self
            .counter
            .changed
            .wait_timeout_while(count, patience, |count| *count < n)
            .expect("no panics");
        assert!(!timeout.timed_out(), "the client sent too few requests");
    }
}

/// Requests for an answer; waiting for a number of them needs no clock.
#[derive(Debug, Default)]
struct Counter {
    n: Mutex<u64>,
    changed: Condvar,
}

impl Counter {
    fn next(&self) -> u64 {
        let mut n = self.n.lock().expect("no panics");
        *n += 1;
        self.changed.notify_all();
        *n
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
        let number = counter.next();
        let strikes = number.is_multiple_of(script.every);
        let trouble = if strikes {
            script.trouble
        } else {
            Trouble::None
        };
        if trouble == Trouble::Reset {
            // The body stays unread: closing then makes the kernel reset the connection.
            let _ = answer(stream, script, Trouble::CloseMidway);
            return;
        }
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        if answer(stream, script, trouble).is_err() {
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

fn answer(out: &TcpStream, script: &Script, trouble: Trouble) -> std::io::Result<()> {
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
        _ if !script.stream => {
            let n = script.tokens;
            let body = format!(
                r#"{{"choices":[{{"text":"{}","finish_reason":"length"}}],
                    "usage":{{"completion_tokens":{n}}}}}"#,
                "a".repeat(n as usize)
            );
            write_whole(out, "200 OK", "application/json", &body)
        }
        _ => stream_answer(out, script, trouble),
    }
}

fn stream_answer(mut out: &TcpStream, script: &Script, trouble: Trouble) -> std::io::Result<()> {
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
    let mut left = script.tokens;
    while left > 0 {
        let n = left.min(script.tokens_per_event);
        left -= n;
        let text = "tok ".repeat(n as usize);
        event(
            out,
            script,
            &format!(r#"data: {{"choices":[{{"delta":{{"content":"{text}"}}}}]}}"#),
        )?;
        match trouble {
            Trouble::ErrorEvent => {
                event(out, script, r#"data: {"error":{"message":"engine died"}}"#)?;
                return finish(out);
            }
            Trouble::Truncate => return finish(out),
            Trouble::BadJson => {
                event(out, script, r#"data: {"choices":[{"#)?;
                return finish(out);
            }
            Trouble::CloseMidway => {
                out.write_all(b"ff\r\ndata: {")?;
                return Err(std::io::ErrorKind::ConnectionAborted.into());
            }
            _ => {}
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
    event(out, script, "data: [DONE]")?;
    finish(out)
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
