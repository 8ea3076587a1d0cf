//! `prony-sut` with the echo backend, spoken to byte by byte: streams, usage, limits, signals.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use e2e::process::{self, Server};
use e2e::raw_http::request;
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(20);

fn complete(server: &Server, body: &Value) -> Value {
    let answer = request(
        server.address(),
        "POST",
        "/v1/completions",
        Some(&body.to_string()),
    );
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

/// The text of a stream, put together from its events, and its last usage.
fn streamed(server: &Server, path: &str, body: &Value) -> (String, Value) {
    let mut body = body.clone();
    body["stream"] = json!(true);
    body["stream_options"] = json!({"include_usage": true});
    let answer = request(server.address(), "POST", path, Some(&body.to_string()));
    assert_eq!(answer.status, 200, "{}", answer.text());
    let kind = answer.header("content-type").unwrap_or_default();
    assert!(kind.starts_with("text/event-stream"), "{kind}");
    let events = answer.events();
    let (last, chunks) = events.split_last().expect("a stream has events");
    assert_eq!(last, "[DONE]");
    let mut text = String::new();
    let mut usage = Value::Null;
    for chunk in chunks {
        let chunk: Value = serde_json::from_str(chunk).expect("an event holds JSON");
        if chunk["usage"].is_object() {
            usage = chunk["usage"].clone();
        }
        for choice in chunk["choices"].as_array().expect("choices") {
            let piece = choice["text"]
                .as_str()
                .or(choice["delta"]["content"].as_str());
            text += piece.unwrap_or_default();
        }
    }
    (text, usage)
}

#[test]
fn a_stream_carries_the_same_text_and_usage_as_one_answer() {
    let server = Server::echo(&[]);
    let prompts = [
        "hello, wörld",
        "a",
        "日本語 and 🦀 crabs",
        "line\nbreak \"quoted\"",
    ];
    for prompt in prompts {
        let body = json!({"model": "echo", "prompt": prompt, "max_tokens": 64});
        let whole = complete(&server, &body);
        let (text, usage) = streamed(&server, "/v1/completions", &body);
        assert_eq!(whole["choices"][0]["text"], text, "{prompt}");
        assert_eq!(whole["usage"], usage, "{prompt}");
        assert!(!text.is_empty(), "{prompt}");
    }
}

#[test]
fn chat_streams_what_it_answers() {
    let server = Server::echo(&[]);
    let body = json!({
        "model": "echo",
        "messages": [{"role": "user", "content": "say it back"}],
        "max_completion_tokens": 48,
    });
    let answer = request(
        server.address(),
        "POST",
        "/v1/chat/completions",
        Some(&body.to_string()),
    )
    .json();
    let (text, usage) = streamed(&server, "/v1/chat/completions", &body);
    assert_eq!(answer["choices"][0]["message"]["content"], text);
    assert_eq!(answer["choices"][0]["message"]["role"], "assistant");
    assert_eq!(answer["usage"], usage);
}

#[test]
fn max_tokens_and_ignore_eos_fix_the_length() {
    let server = Server::echo(&["--echo-tokens", "5"]);
    let mut body = json!({"model": "echo", "prompt": "0123456789", "max_tokens": 12});
    let ended = complete(&server, &body);
    assert_eq!(ended["choices"][0]["finish_reason"], "stop");
    body["ignore_eos"] = json!(true);
    let forced = complete(&server, &body);
    assert_eq!(forced["usage"]["completion_tokens"], 12);
    assert_eq!(forced["choices"][0]["finish_reason"], "length");
}

#[test]
fn bad_requests_are_refused_in_the_shape_openai_uses() {
    let server = Server::echo(&[]);
    let cases = [
        ("{\"model\": \"echo\", \"prompt\": ", 400),
        ("{\"model\": \"echo\"}", 400),
        (
            "{\"model\": \"echo\", \"prompt\": \"a\", \"max_tokens\": -3}",
            400,
        ),
        (
            "{\"model\": \"echo\", \"prompt\": \"a\", \"temperature\": \"hot\"}",
            400,
        ),
        ("{\"model\": \"no-such-model\", \"prompt\": \"a\"}", 404),
    ];
    for (body, status) in cases {
        let answer = request(server.address(), "POST", "/v1/completions", Some(body));
        assert_eq!(answer.status, status, "{body}: {}", answer.text());
        let error = &answer.json()["error"];
        assert!(
            error["message"].as_str().is_some_and(|m| !m.is_empty()),
            "{body}"
        );
        assert!(error["type"].is_string(), "{body}");
    }
    assert_eq!(
        request(server.address(), "GET", "/nowhere", None).status,
        404
    );
    assert_eq!(
        request(server.address(), "GET", "/v1/completions", None).status,
        405
    );
}

#[test]
fn health_models_and_metrics_answer_before_any_traffic() {
    let server = Server::echo(&[]);
    assert_eq!(
        request(server.address(), "GET", "/health", None).status,
        200
    );
    let models = request(server.address(), "GET", "/v1/models", None).json();
    assert_eq!(models["object"], "list");
    assert_eq!(models["data"][0]["id"], "echo");
    let metrics = request(server.address(), "GET", "/metrics", None).text();
    for name in ["vllm:num_requests_running", "vllm:num_requests_waiting"] {
        let line = metrics
            .lines()
            .find(|l| l.starts_with(name))
            .unwrap_or_default();
        assert!(line.ends_with(" 0"), "{name}: {line:?}");
    }
}

#[test]
fn a_client_that_leaves_frees_its_sequence() {
    let server = Server::echo(&["--echo-itl", "20ms", "--echo-tokens", "100000"]);
    let body = json!({"model": "echo", "prompt": "x", "max_tokens": 5000, "stream": true});
    let body = body.to_string();
    let mut socket = TcpStream::connect(server.address()).expect("connects");
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    socket.write_all(head.as_bytes()).expect("sends");
    let mut first = [0; 64];
    assert!(socket.read(&mut first).expect("reads") > 0);
    poll_until_running_is(&server, 1.0);
    drop(socket);
    poll_until_running_is(&server, 0.0);
}

/// Asks for the metrics, a few hundred times at most: each answer takes a while of its own.
fn poll_until_running_is(server: &Server, expected: f64) {
    let seen = (0..500)
        .map(|_| running(server))
        .find(|n| (n - expected).abs() < 0.5);
    assert!(
        seen.is_some(),
        "{expected} sequences never ran; now {}",
        running(server)
    );
}

fn running(server: &Server) -> f64 {
    let metrics = request(server.address(), "GET", "/metrics", None).text();
    let line = metrics
        .lines()
        .find(|l| l.starts_with("vllm:num_requests_running"));
    let value = line
        .and_then(|l| l.rsplit(' ').next())
        .and_then(|v| v.parse().ok());
    value.unwrap_or_else(|| panic!("no vllm:num_requests_running in {metrics}"))
}

#[test]
fn sigterm_lets_a_running_stream_finish_and_exits_0() {
    let mut server = Server::echo(&["--echo-itl", "10ms", "--echo-tokens", "50"]);
    let body = json!({"model": "echo", "prompt": "x", "max_tokens": 50, "stream": true});
    let body = body.to_string();
    let mut socket = TcpStream::connect(server.address()).expect("connects");
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n\
         Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    socket.write_all(head.as_bytes()).expect("sends");
    let mut bytes = vec![0; 256];
    let n = socket.read(&mut bytes).expect("reads");
    bytes.truncate(n);
    server.signal(libc::SIGTERM);
    socket
        .read_to_end(&mut bytes)
        .expect("the stream goes on to its end");
    assert!(String::from_utf8_lossy(&bytes).contains("data: [DONE]"));
    assert_eq!(server.wait(SOON).code(), Some(0));
}

#[test]
fn a_second_signal_ends_a_server_that_waits_for_half_a_request() {
    let mut server = Server::echo(&[]);
    let mut socket = TcpStream::connect(server.address()).expect("connects");
    let half = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{";
    socket.write_all(half.as_bytes()).expect("sends");
    // Answered after the half request was read: connections are served in turn.
    assert_eq!(
        request(server.address(), "GET", "/health", None).status,
        200
    );
    server.signal(libc::SIGTERM);
    // The listener closes when the drain is over: from then on only that socket is waited for.
    while TcpStream::connect(server.address()).is_ok() {
        std::thread::yield_now();
    }
    server.signal(libc::SIGTERM);
    assert_eq!(server.wait(SOON).code(), Some(1));
}

#[test]
fn a_port_in_use_is_one_line_and_exit_code_2() {
    let server = Server::echo(&[]);
    let port = server.address().rsplit(':').next().expect("a port");
    let output = process::run(
        "prony-sut",
        &["serve", "--backend", "echo", "--port", port],
        SOON,
    );
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains(port), "{stderr}");
    assert_eq!(stderr.trim().lines().count(), 1, "{stderr}");
}

#[test]
fn an_unknown_model_path_is_one_line_and_exit_code_3() {
    let args = ["serve", "--model", "./no/such/folder", "--port", "0"];
    let output = process::run("prony-sut", &args, SOON);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("./no/such/folder"), "{stderr}");
}
