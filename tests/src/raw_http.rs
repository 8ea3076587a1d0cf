//! HTTP spoken byte by byte over a plain socket, so that a shared mistake of client and server
//! in `prony-wire` cannot hide.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// One answer, split but not interpreted.
#[derive(Debug)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Header lines as received, names in lower case.
    pub headers: Vec<(String, String)>,
    /// Body, with chunked framing removed.
    pub body: Vec<u8>,
}

impl Answer {
    /// First value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, v)| v.as_str())
    }

    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// If it is not JSON.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    /// Payloads of the `data:` lines of an event stream, in order.
    #[must_use]
    pub fn events(&self) -> Vec<String> {
        let text = self.text();
        text.lines()
            .filter_map(|l| l.strip_prefix("data: "))
            .map(str::to_owned)
            .collect()
    }
}

/// Sends one request and reads the answer to the end of the connection.
///
/// # Panics
/// If the connection fails or the answer is no HTTP.
#[must_use]
pub fn request(address: &str, method: &str, path: &str, body: Option<&str>) -> Answer {
    let mut socket = TcpStream::connect(address).unwrap_or_else(|e| panic!("{address}: {e}"));
    socket
        .set_read_timeout(Some(Duration::from_secs(120)))
        .expect("a socket takes a timeout");
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    if let Some(body) = body {
        head += &format!(
            "Content-Type: application/json\r\nContent-Length: {}\r\n",
            body.len()
        );
    }
    head += "\r\n";
    head += body.unwrap_or_default();
    socket
        .write_all(head.as_bytes())
        .expect("the request is sent");
    let mut bytes = Vec::new();
    socket.read_to_end(&mut bytes).expect("the answer is read");
    parse(&bytes)
}

fn parse(bytes: &[u8]) -> Answer {
    let end = bytes
        .windows(4)
        .position(|w| w == b"\r\n\r\n")
        .expect("a header end");
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut lines = head.split("\r\n");
    let status_line = lines.next().unwrap_or_default();
    let status = status_line.split(' ').nth(1).and_then(|s| s.parse().ok());
    let headers: Vec<(String, String)> = lines
        .filter_map(|l| l.split_once(':'))
        .map(|(n, v)| (n.to_ascii_lowercase(), v.trim().to_owned()))
        .collect();
    let raw = &bytes[end + 4..];
    let chunked = headers
        .iter()
        .any(|(n, v)| n == "transfer-encoding" && v == "chunked");
    Answer {
        status: status.unwrap_or_else(|| panic!("no status in {status_line:?}")),
        headers,
        body: if chunked { unchunk(raw) } else { raw.to_vec() },
    }
}

fn unchunk(mut raw: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let line = raw
            .windows(2)
            .position(|w| w == b"\r\n")
            .expect("a chunk size line");
        let text = std::str::from_utf8(&raw[..line]).expect("a chunk size in ASCII");
        let size = usize::from_str_radix(text.trim(), 16).expect("a chunk size in hex");
        raw = &raw[line + 2..];
        if size == 0 {
            return body;
        }
        body.extend_from_slice(&raw[..size]);
        raw = &raw[size + 2..];
    }
}
