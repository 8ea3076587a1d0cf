//! Several answers, echoed prompts, probabilities and deadlines: what a client reads.

#![allow(
    clippy::expect_used,
    reason = "clippy knows a test only by its attribute"
)]

mod service;

use serde_json::{Value, json};
use service::Service;

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";

/// Index and text of each choice.
fn texts(answer: &Value) -> Vec<(u64, &str)> {
    let choices = answer["choices"].as_array().expect("choices").iter();
    let text = |choice: &Value| choice["index"].as_u64().expect("an index");
    let texts = choices.map(|choice| (text(choice), choice["text"].as_str().expect("a text")));
    texts.collect()
}

/// Lists of entries in pieces, put together for the choice `index`.
fn joined(pieces: &[Value], index: u64, list: impl Fn(&Value) -> Option<&Value>) -> Vec<Value> {
    let of_choice = pieces.iter().filter(|piece| piece["index"] == index);
    let lists = of_choice.filter_map(|piece| list(piece)?.as_array());
    lists.flatten().cloned().collect()
}

#[tokio::test]
async fn each_prompt_gets_n_answers_and_counts_once() {
    let echo = Service::start("--backend echo");
    let body = json!({"prompt": ["ab", "cd"], "n": 2, "best_of": 2, "max_tokens": 2});
    let answer = echo.ask(COMPLETIONS, &body).await;
    assert_eq!(texts(&answer), [(0, "ab"), (1, "ab"), (2, "cd"), (3, "cd")]);
    let usage = json!({"prompt_tokens": 4, "completion_tokens": 8, "total_tokens": 12});
    assert_eq!(answer["usage"], usage);
    let body = json!({"messages": [{"role": "user", "content": "x"}], "n": 3, "max_tokens": 1});
    let answer = echo.ask(CHAT, &body).await;
    assert_eq!(answer["choices"].as_array().map(Vec::len), Some(3));
    // In a stream every answer has its own role, before its text.
    let pieces = echo.pieces(CHAT, &body).await;
    for index in 0..3u64 {
        let mut of_answer = pieces.iter().filter(|piece| piece["index"] == index);
        let first = of_answer.next().expect("a piece");
        assert_eq!(first["delta"]["role"], "assistant", "{index}");
        assert!(of_answer.all(|piece| piece["delta"]["role"].is_null()));
    }
    let text = echo.app.metrics.render();
    assert!(text.contains("vllm:request_params_n_sum{model_name=\"echo\"} 8"));
}

#[tokio::test]
async fn an_echoed_prompt_stands_before_the_answer_whole_and_streamed() {
    let echo = Service::start("--backend echo");
    for prompt in [json!(["né", "b"]), json!([[110, 195, 169], [98]])] {
        let body = json!({"prompt": prompt, "echo": true, "n": 2, "max_tokens": 3});
        let answer = echo.ask(COMPLETIONS, &body).await;
        let expected = [(0, "néné"), (1, "néné"), (2, "bb"), (3, "bb")];
        assert_eq!(texts(&answer), expected, "{prompt}");
        let pieces = echo.pieces(COMPLETIONS, &body).await;
        for (index, text) in expected {
            let of_choice = pieces.iter().filter(|piece| piece["index"] == index);
            let pieces = of_choice.map(|piece| piece["text"].as_str());
            assert_eq!(pieces.collect::<Option<String>>().as_deref(), Some(text));
        }
    }
}

#[tokio::test]
#[cfg(feature = "torch")]
async fn probabilities_of_prompt_and_answer_agree_with_each_other() {
    let tiny = Service::tiny("--max-batch-tokens 32");
    let prompt: Vec<u32> = (0..40).map(|t| 7 + 11 * t % 450).collect();
    let body = json!({
        "prompt": prompt, "max_tokens": 6, "temperature": 0, "ignore_eos": true,
        "echo": true, "logprobs": 2, "return_token_ids": true,
    });
    let answer = tiny.ask(COMPLETIONS, &body).await;
    let choice = &answer["choices"][0];
    let lists = &choice["logprobs"];
    let list = |name: &str| lists[name].as_array().expect("a list").clone();
    let (tokens, logprobs) = (list("tokens"), list("token_logprobs"));
    assert_eq!((tokens.len(), logprobs.len()), (46, 46));
    assert!(logprobs[0].is_null() && list("top_logprobs")[0].is_null());
    assert!(
        logprobs[1..]
            .iter()
            .all(|l| l.as_f64().is_some_and(|l| l < 0.0))
    );
    // What was drawn greedily is the likeliest: no entry beside it is above its own.
    for (top, own) in list("top_logprobs")[40..].iter().zip(&logprobs[40..]) {
        let top = top.as_object().expect("a map");
        assert!(top.values().all(|l| l.as_f64() <= own.as_f64()), "{top:?}");
    }
    // The text that was drawn, given as prompt, has the same probabilities.
    let drawn = choice["token_ids"].as_array().expect("ids").iter();
    let drawn = drawn.map(|id| id.as_u64().expect("an id") as u32);
    let longer: Vec<u32> = prompt.into_iter().chain(drawn).collect();
    let mut again = body.clone();
    (again["prompt"], again["max_tokens"]) = (json!(longer), json!(1));
    let answer = tiny.ask(COMPLETIONS, &again).await;
    let of_longer = &answer["choices"][0]["logprobs"];
    for name in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
        let list_again = of_longer[name].as_array().expect("a list");
        assert_eq!(list_again[..46], list(name), "{name}");
    }
    // Piece by piece the same lists.
    let pieces = tiny.pieces(COMPLETIONS, &body).await;
    for name in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
        let of_pieces = joined(&pieces, 0, |piece| piece["logprobs"].get(name));
        assert_eq!(of_pieces, list(name), "{name}");
    }
}

#[tokio::test]
async fn a_chat_answer_tells_tokens_bytes_and_probabilities() {
    let echo = Service::start("--backend echo");
    let body = json!({
        "messages": [{"role": "user", "content": "é"}], "max_tokens": 8, "logprobs": true,
    });
    let answer = echo.ask(CHAT, &body).await;
    let choice = &answer["choices"][0];
    let content = choice["logprobs"]["content"].as_array().expect("a list");
    let bytes = content
        .iter()
        .flat_map(|entry| entry["bytes"].as_array().expect("bytes"));
    let bytes: Vec<u8> = bytes.map(|b| b.as_u64().expect("a byte") as u8).collect();
    assert_eq!(choice["message"]["content"], json!("user: é"));
    assert_eq!(String::from_utf8(bytes).as_deref(), Ok("user: é"));
    let pieces = echo.pieces(CHAT, &body).await;
    let of_pieces = joined(&pieces, 0, |piece| piece["logprobs"].get("content"));
    assert_eq!(&of_pieces, content);
}

#[tokio::test]
#[cfg(feature = "torch")]
async fn answers_to_one_prompt_share_what_is_computed_of_it() {
    let prompt: Vec<u32> = (0..50).map(|t| 7 + 11 * t % 450).collect();
    let body = |n: usize, seed: usize| {
        json!({
            "prompt": prompt, "max_tokens": 20, "seed": seed, "n": n, "ignore_eos": true,
            "return_token_ids": true,
        })
    };
    let tiny = Service::tiny("--no-prefix-cache");
    let answer = tiny.ask(COMPLETIONS, &body(4, 7)).await;
    let hits = || tiny.app.metrics.cache.prefix_hits.get();
    // Three whole blocks, for all but the first.
    assert_eq!(hits(), 3 * 48);
    for (index, choice) in answer["choices"]
        .as_array()
        .expect("four")
        .iter()
        .enumerate()
    {
        let alone = tiny.ask(COMPLETIONS, &body(1, 7 + index)).await;
        assert_eq!(choice["token_ids"], alone["choices"][0]["token_ids"]);
    }
    assert_ne!(
        answer["choices"][0]["token_ids"],
        answer["choices"][1]["token_ids"]
    );
    // Other requests had nothing of it.
    assert_eq!(hits(), 3 * 48);
}

#[tokio::test]
async fn an_answer_that_comes_too_late_for_its_client_is_504() {
    let echo = Service::start("--backend echo --echo-ttft 3600s");
    let body = json!({"prompt": "a", "deadline_ms": 1});
    let (status, answer) = echo.post(COMPLETIONS, &body).await;
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    let error = &answer["error"];
    assert_eq!(
        (status, error["code"].as_str()),
        (504, Some("deadline_exceeded"))
    );
    assert_eq!(echo.app.metrics.expired.get(), 1);
}
