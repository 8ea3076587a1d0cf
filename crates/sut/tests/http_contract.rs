//! The HTTP API without a socket: statuses, error bodies, headers and event streams of every route,
//! over the echo backend.

mod service;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response};
use expect_test::{Expect, expect};
use http_body_util::BodyExt as _;
use prony_sut::server::router;
use serde_json::{Value, json};
use tower::ServiceExt as _;

/// The echo backend's service.
struct Service(service::Service);

impl Service {
    fn start(flags: &str) -> Self {
        let echo = "--backend echo --served-model-name echo ";
        Service(service::Service::start(&(echo.to_owned() + flags)))
    }

    async fn send(&self, request: Request<Body>) -> Response<Body> {
        let router = router(Arc::clone(&self.0.app));
        router.oneshot(request).await.expect("infallible")
    }

    /// Status, JSON body.
    async fn post(&self, path: &str, body: impl Into<Body>) -> (u16, Value) {
        let response = self.send(post(path, body)).await;
        let status = response.status().as_u16();
        let body = serde_json::from_str(&text(response).await).expect("a JSON body");
        (status, body)
    }

    async fn get(&self, path: &str) -> (u16, String) {
        let request = Request::get(path).body(Body::empty()).expect("a request");
        let response = self.send(request).await;
        (response.status().as_u16(), text(response).await)
    }
}

fn post(path: &str, body: impl Into<Body>) -> Request<Body> {
    Request::post(path).body(body.into()).expect("a request")
}

async fn text(response: Response<Body>) -> String {
    let bytes = response.into_body().collect().await.expect("a body");
    String::from_utf8(bytes.to_bytes().to_vec()).expect("text")
}

/// One line a body: status, code, field at fault, message. A string is sent as it stands.
async fn refusals(path: &str, bodies: &[Value], expected: Expect) {
    let service = Service::start("");
    let mut lines = String::new();
    for body in bodies {
        let bytes = match body {
            Value::String(raw) => raw.clone(),
            json => json.to_string(),
        };
        let (status, answer) = service.post(path, bytes).await;
        let word = |key: &str| answer["error"][key].as_str().unwrap_or("-").to_owned();
        let (code, param) = (word("code"), word("param"));
        let message = word("message").replace(", ", ",\n    ");
        lines += &format!("{status} {code} {param}\n    {message}\n");
    }
    expected.assert_eq(&lines);
}

/// A completion body with one field set.
fn with(key: &str, value: Value) -> Value {
    let mut body = json!({"model": "echo", "prompt": "hello", "max_tokens": 3});
    body[key] = value;
    body
}

#[tokio::test]
async fn a_field_of_the_wrong_type_is_named_with_its_value() {
    let bodies = [
        json!("{"),
        json!({"model": "echo"}),
        with("prompt", json!([-1])),
        with("max_tokens", json!(-1)),
        with("max_tokens", json!(1.5)),
        with("temperature", json!("hot")),
        with("stop", json!(3)),
    ];
    refusals(
        "/v1/completions",
        &bodies,
        expect![[r#"
        400 invalid_json -
            body: EOF while parsing an object at line 1 column 1
        400 invalid_value prompt
            prompt: missing
        400 invalid_value prompt[0]
            prompt[0]: elements must be strings,
            token ids or lists of them
        400 invalid_value max_tokens
            max_tokens: invalid value: integer `-1`,
            expected u64
        400 invalid_value max_tokens
            max_tokens: invalid type: floating point `1.5`,
            expected u64
        400 invalid_value temperature
            temperature: invalid type: string "hot",
            expected f64
        400 invalid_value stop
            stop: invalid type: integer `3`,
            expected stop: a string or a list of strings
    "#]],
    )
    .await;
}

#[tokio::test]
async fn a_value_out_of_range_is_named_with_its_range() {
    let bodies = [
        with("model", json!("other")),
        with("prompt", json!("")),
        with("prompt", json!([])),
        with("max_tokens", json!(0)),
        with("max_tokens", json!(1_000_000_000_000_u64)),
        with("temperature", json!(-1)),
        with("top_p", json!(0)),
        with("top_k", json!(-5)),
        with("stop", json!("")),
        with("stop", json!(vec!["a"; 17])),
        with("stream_options", json!({"include_usage": true})),
        with("n", json!(0)),
    ];
    refusals(
        "/v1/completions",
        &bodies,
        expect![[r#"
        404 model_not_found model
            model other: not served here; echo is
        400 invalid_value prompt
            prompt: empty,
            must have at least one token
        400 invalid_value prompt
            prompt: 0 of them,
            must be 1 to 4096
        400 invalid_value max_tokens
            max_tokens: 0,
            must be at least 1
        400 context_length_exceeded prompt
            prompt of 5 tokens and max_tokens 1000000000000 make 1000000000005,
            at most 16384 fit
        400 invalid_value temperature
            temperature: -1,
            must be from 0 to 2
        400 invalid_value top_p
            top_p: 0,
            must be above 0 and at most 1
        400 invalid_value top_k
            top_k: -5,
            must be -1 or 0 (all),
            or a positive number
        400 invalid_value stop
            stop: a string of 0 bytes,
            must be 1 to 1024
        400 invalid_value stop
            stop: 17 strings,
            at most 16
        400 invalid_value stream_options
            stream_options: only allowed with stream
        400 invalid_value n
            n: 0,
            must be from 1 to 128
    "#]],
    )
    .await;
}

#[tokio::test]
async fn chat_names_the_message_at_fault() {
    let chat = |messages: Value| json!({"model": "echo", "messages": messages, "max_tokens": 3});
    refusals(
        "/v1/chat/completions",
        &[
            json!({"model": "echo"}),
            chat(json!([])),
            chat(json!("hello")),
            chat(json!([{"role": "user", "content": 5}])),
            chat(json!([{"content": "hello"}])),
            chat(json!([{"role": "user", "content": [{"type": "image_url"}]}])),
        ],
        expect![[r#"
            400 invalid_value messages
                messages: missing or empty
            400 invalid_value messages
                messages: missing or empty
            400 invalid_value messages
                messages: invalid type: string "hello",
                expected a sequence
            400 invalid_value messages[0].content
                messages[0].content: invalid type: integer `5`,
                expected content: a string or a list of parts
            400 invalid_value messages[0]
                messages[0]: missing field `role`
            400 invalid_value messages
                messages: a part of type image_url,
                must be text
        "#]],
    )
    .await;
}

#[tokio::test]
async fn unknown_paths_methods_and_models_have_the_same_error_shape() {
    let service = Service::start("");
    let mut lines = String::new();
    for path in ["/nope", "/v1/completions", "/v1/models/other"] {
        let (status, body) = service.get(path).await;
        let body: Value = serde_json::from_str(&body).expect("a JSON body");
        let keys: Vec<&String> = body["error"]
            .as_object()
            .expect("an object")
            .keys()
            .collect();
        let (code, message) = (&body["error"]["code"], &body["error"]["message"]);
        lines += &format!("{path} {status} {keys:?}\n    {code} {message}\n");
    }
    expect![[r#"
        /nope 404 ["message", "type", "param", "code"]
            "not_found" "no such path"
        /v1/completions 405 ["message", "type", "param", "code"]
            "method_not_allowed" "this path has another method"
        /v1/models/other 404 ["message", "type", "param", "code"]
            "model_not_found" "model other: not served here; echo is"
    "#]]
    .assert_eq(&lines);
}

#[tokio::test]
async fn a_body_over_the_limit_is_413() {
    let service = Service::start("");
    // The framework's own limit, 2 MiB, is not ours.
    let (status, _) = service.post("/v1/completions", vec![b' '; 3 << 20]).await;
    assert_eq!(status, 400);
    let body = vec![b' '; prony_sut::api::MAX_BODY_BYTES + 1];
    let (status, answer) = service.post("/v1/completions", body).await;
    let code = answer["error"]["code"].as_str();
    assert_eq!((status, code), (413, Some("body_too_large")));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_never_ends_is_given_up() {
    let service = Service::start("");
    let never = futures_util::stream::pending::<Result<Vec<u8>, std::io::Error>>();
    let asked = service.post("/v1/completions", Body::from_stream(never));
    let answer = tokio::time::timeout(Duration::from_mins(5), asked).await;
    let (status, answer) = answer.expect("an answer");
    let code = answer["error"]["code"].as_str();
    assert_eq!((status, code), (408, Some("body_timeout")));
}

#[tokio::test]
async fn what_would_change_the_answer_is_refused_by_name() {
    let service = Service::start("");
    let chat = json!([{"role": "user", "content": "hi"}]);
    for (path, key, value) in [
        ("/v1/completions", "logprobs", json!(21)),
        ("/v1/completions", "best_of", json!(2)),
        ("/v1/completions", "suffix", json!("end")),
        ("/v1/completions", "min_p", json!(1.1)),
        ("/v1/completions", "logit_bias", json!({"4294967295": 1})),
        ("/v1/completions", "stop_token_ids", json!([2])),
        ("/v1/chat/completions", "top_logprobs", json!(2)),
        ("/v1/chat/completions", "tools", json!([{}])),
        ("/v1/chat/completions", "functions", json!([{}])),
        (
            "/v1/chat/completions",
            "response_format",
            json!({"type": "json_object"}),
        ),
        ("/v1/chat/completions", "min_p", json!(1.1)),
    ] {
        let mut body = json!({"prompt": "hi", "messages": chat, "max_tokens": 1});
        assert_eq!(service.post(path, body.to_string()).await.0, 200, "{key}");
        body[key] = value;
        let (status, answer) = service.post(path, body.to_string()).await;
        let param = answer["error"]["param"].as_str();
        assert_eq!((status, param), (400, Some(key)), "{answer}");
    }
}

#[tokio::test]
async fn a_full_queue_is_429_with_retry_after() {
    let service = Service::start("--max-queue 1 --max-batch-rows 1 --echo-ttft 3600s");
    let body = json!({"prompt": "a", "stream": true}).to_string();
    let ask = || service.send(post("/v1/completions", body.clone()));
    let running = ask().await;
    while service.0.app.admission.waiting() > 0 {
        tokio::task::yield_now().await;
    }
    let waiting = ask().await;
    let refused = ask().await;
    assert_eq!(refused.status().as_u16(), 429);
    assert_eq!(refused.headers()["retry-after"], "1");
    drop((running, waiting));
}

#[tokio::test]
async fn a_request_larger_than_the_queue_is_not_told_to_come_back() {
    let service = Service::start("--max-queue 1");
    let body = json!({"prompt": ["a", "b"]}).to_string();
    let (status, answer) = service.post("/v1/completions", body).await;
    let error = &answer["error"];
    assert_eq!((status, error["param"].as_str()), (400, Some("prompt")));
    let message = "prompt: 2 of them with 2 tokens, at most 1 with 1048576 may wait";
    assert_eq!(error["message"], message);
}

#[tokio::test]
async fn a_server_that_goes_down_refuses_with_503_and_stays_alive() {
    let service = Service::start("");
    service.0.app.admission.close();
    let body = json!({"model": "echo", "prompt": "a", "max_tokens": 1}).to_string();
    let response = service.send(post("/v1/completions", body)).await;
    assert_eq!(response.status().as_u16(), 503);
    assert_eq!(response.headers()["connection"], "close");
    assert!(text(response).await.contains(r#""code":"unavailable""#));
    let (status, body) = service.get("/health/ready").await;
    assert_eq!((status, body.as_str()), (503, r#"{"status":"draining"}"#));
    assert_eq!(service.get("/health/live").await.0, 200);
}

#[tokio::test]
async fn an_engine_that_ended_answers_503_and_is_neither_ready_nor_alive() {
    let mut service = Service::start("");
    service.0.engine.take().expect("it runs").stop();
    let body = json!({"prompt": "a"}).to_string();
    let (status, answer) = service.post("/v1/completions", body).await;
    let code = answer["error"]["code"].as_str();
    assert_eq!((status, code), (503, Some("unavailable")));
    for path in ["/health", "/health/live"] {
        assert_eq!(service.get(path).await.0, 503, "{path}");
    }
}

#[tokio::test]
async fn a_stream_is_events_and_ends_with_done() {
    let service = Service::start("");
    let body = json!({
        "model": "echo", "prompt": "hi", "max_tokens": 2, "stream": true,
        "stream_options": {"include_usage": true},
    });
    let response = service
        .send(post("/v1/completions", body.to_string()))
        .await;
    let kind = response.headers()["content-type"].clone();
    let body = text(response).await;
    let mut events: Vec<&str> = body
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| line.strip_prefix("data: ").expect("only data lines"))
        .collect();
    assert_eq!(kind, "text/event-stream; charset=utf-8");
    assert_eq!(events.pop(), Some("[DONE]"));
    let mut events: Vec<Value> = events
        .iter()
        .map(|event| serde_json::from_str(event).expect("JSON"))
        .collect();
    let usage = events.pop().expect("a usage event");
    assert_eq!(usage["choices"], json!([]));
    let counts = json!({"prompt_tokens": 2, "completion_tokens": 2, "total_tokens": 4});
    assert_eq!(usage["usage"], counts);
    // How many tokens share an event is a matter of timing; the text and the end are not.
    let texts = events.iter().map(|e| e["choices"][0]["text"].as_str());
    assert_eq!(texts.collect::<Option<String>>().as_deref(), Some("hi"));
    let last = events.last().expect("a text event");
    assert_eq!(last["choices"][0]["finish_reason"], "length");
}
