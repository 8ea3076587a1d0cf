//! Is the endpoint there, and what does it say about itself? Asked before the run, off its clock.
//!
//! One question, `GET /v1/models`, over a blocking socket: no pool, no retry but the waiting that
//! the user asked for.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use prony_loadgen::clock::{Clock, MonotonicClock, Nanos};
use serde_json::Value;

use crate::error::EndpointError;
use crate::http1::{Piece, ResponseReader};
use crate::url::BaseUrl;

/// One question may take this long; a server that loads a model answers others meanwhile.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(10);

/// Pause between two tries.
const PAUSE: Duration = Duration::from_millis(100);

/// More than any list of models needs.
const MAX_BODY_BYTES: usize = 1 << 20;

/// What an endpoint said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ready {
    /// Where it was reached.
    pub address: SocketAddr,
    /// Models it lists, in its order.
    pub models: Vec<String>,
    /// What it tells about the first of them and itself.
    pub facts: BTreeMap<String, String>,
}

/// Waits until the endpoint answers, at most `patience` from now; at least one try is made.
///
/// # Errors
/// If it has no address, does not answer in time, or refuses for a reason that waiting does not
/// cure (credentials, say).
pub fn wait(
    url: &BaseUrl,
    headers: &[(String, String)],
    patience: Nanos,
) -> Result<Ready, EndpointError> {
    let clock = MonotonicClock::start();
    loop {
        let reason = match ask(url, headers)? {
            Ok(ready) => return Ok(ready),
            Err(reason) => reason,
        };
        if clock.now() >= patience {
            let waited_s = patience.0.unsigned_abs().div_ceil(1_000_000_000);
            return Err(EndpointError::NotReady {
                url: url.to_string(),
                reason,
                waited_s,
            });
        }
        std::thread::sleep(PAUSE);
    }
}

/// One try; the inner error is one that may pass.
fn ask(
    url: &BaseUrl,
    headers: &[(String, String)],
) -> Result<Result<Ready, String>, EndpointError> {
    let mut last = "no address".to_owned();
    for address in resolve(url)? {
        match get(url, "/v1/models", headers, address) {
            Err(error) => last = reason(&error),
            Ok((200, body)) => return Ok(Ok(read_models(address, &body))),
            // A server without that route is there all the same.
            Ok((404 | 405 | 501, _)) => return Ok(Ok(read_models(address, b""))),
            Ok((status @ (429 | 500..), body)) => {
                last = format!("HTTP {status}: {}", String::from_utf8_lossy(&body).trim());
            }
            Ok((status, body)) => {
                let body = String::from_utf8_lossy(&body).trim().to_owned();
                return Err(EndpointError::Refused {
                    url: url.to_string(),
                    status,
                    body,
                });
            }
        }
    }
    Ok(Err(last))
}

/// Why a try failed. A timeout of a socket has another name on every system, none of them helpful.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            format!("no answer within {} s", QUESTION_TIMEOUT.as_secs())
        }
        _ => error.to_string(),
    }
}

fn resolve(url: &BaseUrl) -> Result<Vec<SocketAddr>, EndpointError> {
    (url.host(), url.port())
        .to_socket_addrs()
        .map(Iterator::collect)
        .map_err(|source| EndpointError::NoAddress {
            url: url.to_string(),
            source,
        })
}

fn get(
    url: &BaseUrl,
    path: &str,
    headers: &[(String, String)],
    address: SocketAddr,
) -> io::Result<(u16, Vec<u8>)> {
    let mut stream = TcpStream::connect_timeout(&address, QUESTION_TIMEOUT)?;
    stream.set_read_timeout(Some(QUESTION_TIMEOUT))?;
    stream.set_write_timeout(Some(QUESTION_TIMEOUT))?;
    let mut request = format!(
        "GET {} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n",
        url.path(path),
        url.authority()
    );
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str("\r\n");
    stream.write_all(request.as_bytes())?;
    read_response(&mut stream)
}

fn read_response(stream: &mut TcpStream) -> io::Result<(u16, Vec<u8>)> {
    let mut reader = ResponseReader::default();
    let mut buffer = [0u8; 8192];
    let mut body = Vec::new();
    loop {
        let n = stream.read(&mut buffer)?;
        if n == 0 {
            return if reader.is_complete_at_close() {
                Ok((reader.head().status, body))
            } else {
                Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "closed before an answer came",
                ))
            };
        }
        let mut bytes = &buffer[..n];
        loop {
            match reader.next(&mut bytes).map_err(io::Error::other)? {
                Piece::NeedMore => break,
                Piece::Body(piece) if body.len() + piece.len() <= MAX_BODY_BYTES => {
                    body.extend_from_slice(piece);
                }
                Piece::Body(_) => return Err(io::Error::other("the list of models is too long")),
                Piece::End => return Ok((reader.head().status, body)),
            }
        }
    }
}

fn read_models(address: SocketAddr, body: &[u8]) -> Ready {
    let list: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
    let models: &[Value] = list["data"].as_array().map_or(&[], Vec::as_slice);
    let names = models.iter().filter_map(|model| model["id"].as_str());
    let mut facts = BTreeMap::new();
    if let Some(first) = models.first() {
        collect_facts(first, "", &mut facts);
    }
    Ready {
        address,
        models: names.map(str::to_owned).collect(),
        facts,
    }
}

/// Flattens what a server says; names of nested values are joined by dots.
fn collect_facts(value: &Value, name: &str, facts: &mut BTreeMap<String, String>) {
    const NO_FACTS: [&str; 3] = ["id", "object", "created"];
    const MAX_FACTS: usize = 64;
    if let Value::Object(entries) = value {
        for (key, value) in entries {
            let full = if name.is_empty() {
                key.clone()
            } else {
                format!("{name}.{key}")
            };
            if !NO_FACTS.contains(&full.as_str()) {
                collect_facts(value, &full, facts);
            }
        }
        return;
    }
    let shown = match value {
        Value::Null | Value::Array(_) | Value::Object(_) => return,
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    };
    if facts.len() < MAX_FACTS {
        facts.insert(name.to_owned(), shown);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_says_nothing_is_not_a_resource_that_is_unavailable() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_millis(1)))
            .unwrap();
        let error = read_response(&mut stream).unwrap_err();
        assert_eq!(reason(&error), "no answer within 10 s");
    }

    #[test]
    fn models_and_facts_are_read() {
        let body = br#"{"data":[{"id":"m","object":"model","max_model_len":2048,
            "x":{"threads":2,"list":[1]}},{"id":"n"}]}"#;
        let ready = read_models(([127, 0, 0, 1], 1).into(), body);
        assert_eq!(ready.models, ["m", "n"]);
        let facts: Vec<String> = ready
            .facts
            .iter()
            .map(|(k, v)| format!("{k}={v}"))
            .collect();
        assert_eq!(facts, ["max_model_len=2048", "x.threads=2"]);
        assert!(read_models(ready.address, b"<html>").models.is_empty());
    }
}
