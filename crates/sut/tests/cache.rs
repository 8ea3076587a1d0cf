//! What a client is told may not depend on the cache: on a tiny model, the same ids alone, in
//! company, after a preemption, and with the prompt computed for somebody else.

#![cfg(feature = "torch")]

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
use serde_json::{Value, json};
use tower::ServiceExt as _;

const MODEL: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/golden/models/tiny/llama_gqa_tied"
);

struct Service {
    app: Arc<App>,
    engine: Option<EngineHandle>,
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Some(engine) = self.engine.take() {
            engine.stop();
        }
    }
}

impl Service {
    fn start(flags: &str) -> Self {
        let words = ["prony-sut", "serve", "--threads", "1", "--model", MODEL];
        let words = words.into_iter().chain(flags.split_whitespace());
        let Command::Serve(args) = Cli::parse_from(words).command;
        let config = args.validate().expect("flags of a test");
        let (app, engine) = start(&config).expect("the tiny model");
        Service {
            app,
            engine: Some(engine),
        }
    }

    /// The choices of a completion.
    async fn complete(&self, body: Value) -> Vec<Value> {
        let request = Request::post("/v1/completions").body(Body::from(body.to_string()));
        let router = router(Arc::clone(&self.app));
        let response = router.oneshot(request.expect("a request")).await;
        let body = response.expect("infallible").into_body().collect().await;
        let mut body: Value =
            serde_json::from_slice(&body.expect("a body").to_bytes()).expect("JSON");
        match body["choices"].take() {
            Value::Array(choices) => choices,
            _ => panic!("no answer but {body}"),
        }
    }

    /// The ids that are drawn after a prompt.
    async fn ids(&self, prompt: &[u32], params: &Value) -> Vec<Value> {
        let mut body = json!({"prompt": prompt, "return_token_ids": true, "ignore_eos": true});
        let fields = body.as_object_mut().expect("an object");
        fields.extend(params.as_object().expect("an object").clone());
        let ids = |choice: &Value| choice["token_ids"].clone();
        self.complete(body).await.iter().map(ids).collect()
    }

    fn free_blocks_are_all_blocks(&self) -> bool {
        self.app.metrics.cache.usage.get() == 0.0
    }
}

/// A prompt of `n` tokens whose first 40 are everybody's.
fn prompt(which: u32, n: u32) -> Vec<u32> {
    (0..n)
        .map(|t| 7 + (11 * t + if t < 40 { 0 } else { 31 * which }) % 450)
        .collect()
}

/// Greedy, and drawn with penalties and random numbers, which must survive a preemption.
fn ways() -> [Value; 2] {
    [
        json!({"max_tokens": 60, "temperature": 0}),
        json!({"max_tokens": 60, "temperature": 1.5, "seed": 5, "frequency_penalty": 0.5}),
    ]
}

#[tokio::test]
async fn the_same_ids_alone_in_company_preempted_and_with_a_known_prefix() {
    // 10 of the 16 blocks are needed by each of the six in the end.
    let small = Service::start("--kv-tokens 256 --max-batch-tokens 64");
    let alone = Service::start("--kv-tokens 4096 --max-batch-tokens 256 --no-prefix-cache");
    for params in &ways() {
        let prompts: Vec<Vec<u32>> = (0..6).map(|n| prompt(n, 90 + n)).collect();
        let mut expected = Vec::new();
        for prompt in &prompts {
            expected.push(alone.ids(prompt, params).await);
        }
        assert_ne!(expected[0], expected[1]);
        let asked = prompts.iter().map(|prompt| small.ids(prompt, params));
        let together = futures_util::future::join_all(asked).await;
        assert_eq!(together, expected, "{params}");
        // Once more, one by one, with what is left in the cache.
        for (prompt, expected) in prompts.iter().zip(&expected) {
            assert_eq!(&small.ids(prompt, params).await, expected, "{params}");
        }
    }
    let metrics = &small.app.metrics;
    assert!(metrics.cache.preemptions.get() > 0);
    assert!(metrics.cache.prefix_hits.get() >= 32 * 10);
    assert!(small.free_blocks_are_all_blocks());
    assert_eq!(alone.app.metrics.cache.prefix_hits.get(), 0);
}

#[tokio::test]
async fn a_cache_of_half_the_bytes_serves_too() {
    let service = Service::start("--kv-tokens 256 --kv-dtype bf16");
    let ids = service.ids(&prompt(0, 50), &ways()[0]).await;
    assert_eq!(ids[0].as_array().map(Vec::len), Some(60));
}
