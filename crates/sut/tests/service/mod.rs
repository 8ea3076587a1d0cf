//! A server without a socket, asked in JSON.

#![allow(
    dead_code,
    clippy::expect_used,
    clippy::panic,
    reason = "each test uses what it needs; clippy knows a test only by its attribute"
)]

use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use clap::Parser as _;
use http_body_util::BodyExt as _;
use prony_sut::api::App;
use prony_sut::config::{Cli, Command};
use prony_sut::engine_thread::EngineHandle;
use prony_sut::serve::start;
use prony_sut::server::router;
use serde_json::Value;
use tower::ServiceExt as _;

/// Flags that load a model of a few random weights.
pub(crate) const TINY: &str = concat!(
    "--threads 1 --model ",
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/golden/models/tiny/llama_gqa_tied "
);

/// The application with an engine behind it that ends with the test.
pub(crate) struct Service {
    pub(crate) app: Arc<App>,
    pub(crate) engine: Option<EngineHandle>,
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Some(engine) = self.engine.take() {
            engine.stop();
        }
    }
}

impl Service {
    pub(crate) fn start(flags: &str) -> Self {
        let words = ["prony-sut", "serve"].into_iter();
        let cli = Cli::parse_from(words.chain(flags.split_whitespace()));
        let Command::Serve(args) = cli.command else {
            panic!("the words say serve");
        };
        let config = args.validate().expect("flags of a test");
        let (app, engine) = start(&config).expect("a backend");
        Service {
            app,
            engine: Some(engine),
        }
    }

    /// The tiny model.
    pub(crate) fn tiny(flags: &str) -> Self {
        Self::start(&(TINY.to_owned() + flags))
    }

    /// Status and body.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> (u16, String) {
        let request = Request::post(path).body(Body::from(body.to_string()));
        let router = router(Arc::clone(&self.app));
        let response = router.oneshot(request.expect("a request")).await;
        let response = response.expect("infallible");
        let status = response.status().as_u16();
        let body = response.into_body().collect().await;
        let body = body.expect("a body").to_bytes().to_vec();
        (status, String::from_utf8(body).expect("text"))
    }

    /// The whole answer.
    pub(crate) async fn ask(&self, path: &str, body: &Value) -> Value {
        let (status, answer) = self.post(path, body).await;
        assert_eq!(status, 200, "{answer}");
        serde_json::from_str(&answer).expect("JSON")
    }

    /// The choices of the same request streamed, in the order of their pieces.
    pub(crate) async fn pieces(&self, path: &str, body: &Value) -> Vec<Value> {
        let mut body = body.clone();
        body["stream"] = true.into();
        let (status, answer) = self.post(path, &body).await;
        assert_eq!(status, 200, "{answer}");
        let data = answer.lines().filter_map(|l| l.strip_prefix("data: "));
        let events = data.filter(|data| *data != "[DONE]");
        let choices = |event: &str| {
            let event: Value = serde_json::from_str(event).expect("JSON");
            event["choices"].as_array().expect("choices").clone()
        };
        events.flat_map(choices).collect()
    }
}
