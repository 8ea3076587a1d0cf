//! What a client is told may not depend on the cache: on a tiny model, the same ids alone, in
//! company, after a preemption, and with the prompt computed for somebody else.

#![cfg(feature = "torch")]
#![allow(
    clippy::expect_used,
    reason = "clippy knows a test only by its attribute"
)]

mod service;

use serde_json::{Value, json};
use service::Service;

/// The ids that are drawn after a prompt.
async fn ids(service: &Service, prompt: &[u32], params: &Value) -> Vec<Value> {
    let mut body = json!({"prompt": prompt, "return_token_ids": true, "ignore_eos": true});
    let fields = body.as_object_mut().expect("an object");
    fields.extend(params.as_object().expect("an object").clone());
    let answer = service.ask("/v1/completions", &body).await;
    let choices = answer["choices"].as_array().expect("choices").iter();
    choices.map(|choice| choice["token_ids"].clone()).collect()
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
    let small = Service::tiny("--kv-tokens 256 --max-batch-tokens 64");
    let alone = Service::tiny("--kv-tokens 4096 --max-batch-tokens 256 --no-prefix-cache");
    for params in &ways() {
        let prompts: Vec<Vec<u32>> = (0..6).map(|n| prompt(n, 90 + n)).collect();
        let mut expected = Vec::new();
        for prompt in &prompts {
            expected.push(ids(&alone, prompt, params).await);
        }
        assert_ne!(expected[0], expected[1]);
        let asked = prompts.iter().map(|prompt| ids(&small, prompt, params));
        let together = futures_util::future::join_all(asked).await;
        assert_eq!(together, expected, "{params}");
        // Once more, one by one, with what is left in the cache.
        for (prompt, expected) in prompts.iter().zip(&expected) {
            assert_eq!(&ids(&small, prompt, params).await, expected, "{params}");
        }
    }
    let metrics = &small.app.metrics;
    assert!(metrics.cache.preemptions.get() > 0);
    assert!(metrics.cache.prefix_hits.get() >= 32 * 10);
    assert!(metrics.cache.usage.get() == 0.0);
    assert_eq!(alone.app.metrics.cache.prefix_hits.get(), 0);
}

#[tokio::test]
async fn a_cache_of_half_the_bytes_serves_too() {
    let service = Service::tiny("--kv-tokens 256 --kv-dtype bf16");
    let ids = ids(&service, &prompt(0, 50), &ways()[0]).await;
    assert_eq!(ids[0].as_array().map(Vec::len), Some(60));
}
