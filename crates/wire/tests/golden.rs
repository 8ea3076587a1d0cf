//! The public APIs byte for byte: every golden file is read and written back unchanged.
//!
//! The files were written by hand after the API reference, not by this crate's serialiser, so
//! that a wrong field name cannot agree with itself.

use prony_wire::openai::logprobs::{ChatLogprobs, CompletionLogprobs};
use prony_wire::openai::{
    ChatChunk, ChatRequest, ChatResponse, CompletionRequest, CompletionResponse, ErrorBody,
    FinishReason, ModelList, Prompt,
};
use prony_wire::sse;
use serde::{Deserialize, Serialize};

fn same_bytes<'a, T: Serialize + Deserialize<'a>>(golden: &'a str) -> T {
    let value: T = serde_json::from_str(golden).expect("the golden file parses");
    assert_eq!(
        serde_json::to_string(&value).expect("it serialises"),
        golden
    );
    value
}

fn same_stream<'a, T: Serialize + Deserialize<'a>>(golden: &'a str) -> Vec<T> {
    let mut events = Vec::new();
    let mut out = Vec::new();
    let mut decoder = sse::Decoder::new(1 << 20);
    decoder
        .push(golden.as_bytes(), |event| events.push(event.data.to_vec()))
        .expect("small");
    assert_eq!(events.pop().as_deref(), Some(sse::DONE_DATA));
    let chunks: Vec<T> = golden
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .filter(|data| data.as_bytes() != sse::DONE_DATA)
        .map(|data| serde_json::from_str(data).expect("a chunk parses"))
        .collect();
    assert_eq!(chunks.len(), events.len());
    for chunk in &chunks {
        sse::encode_json(&mut out, chunk).expect("it serialises");
    }
    out.extend_from_slice(sse::DONE);
    assert_eq!(String::from_utf8(out).expect("UTF-8"), golden);
    chunks
}

#[test]
fn completion_request() {
    let request: CompletionRequest = same_bytes(include_str!("golden/completion_request.json"));
    assert_eq!(request.prompt, Some(Prompt::Text("Hello".to_owned())));
    assert_eq!(request.stop.expect("given").as_slice(), ["\n", "END"]);
    let request: CompletionRequest = same_bytes(include_str!("golden/completion_request_ids.json"));
    assert_eq!(
        request.prompt,
        Some(Prompt::IdLists(vec![vec![1, 2, 3], vec![4]]))
    );
    assert_eq!(request.stop.expect("given").as_slice(), ["."]);
}

#[test]
fn completion_response() {
    let response: CompletionResponse = same_bytes(include_str!("golden/completion_response.json"));
    assert_eq!(response.choices[0].text, " world\n");
    assert_eq!(response.usage.flatten().expect("there").total_tokens, 8);
}

#[test]
fn completion_stream() {
    let chunks: Vec<CompletionResponse> = same_stream(include_str!("golden/completion_stream.sse"));
    assert_eq!(chunks[0].usage, Some(None));
    assert_eq!(chunks[1].choices[0].text, "ld \"é\"\n");
    assert_eq!(
        chunks[1].choices[0].finish_reason,
        Some(FinishReason::Length)
    );
    assert!(chunks[2].choices.is_empty());
}

#[test]
fn chat() {
    let request: ChatRequest = same_bytes(include_str!("golden/chat_request.json"));
    assert_eq!(request.messages.expect("given").len(), 2);
    let response: ChatResponse = same_bytes(include_str!("golden/chat_response.json"));
    assert_eq!(
        response.choices[0].message.content.as_deref(),
        Some("Hello!")
    );
    let chunks: Vec<ChatChunk> = same_stream(include_str!("golden/chat_stream.sse"));
    assert_eq!(chunks[1].choices[0].delta.content.as_deref(), Some("Hi"));
    assert_eq!(chunks[1].usage, None);
}

#[test]
fn error_and_models() {
    let error: ErrorBody = same_bytes(include_str!("golden/error.json"));
    assert_eq!(error.error.param.as_deref(), Some("model"));
    let models: ModelList = same_bytes(include_str!("golden/models.json"));
    assert_eq!(models.data[0].max_model_len, Some(2048));
}

#[test]
fn other_servers_answers_are_understood() {
    // vLLM: a numeric code; extra fields; no usage; an unknown finish reason.
    let error: ErrorBody = serde_json::from_str(
        r#"{"object":"error",
            "error":{"message":"m","type":"NotFoundError","param":null,"code":404}}"#,
    )
    .expect("parses");
    assert_eq!(error.error.message, "m");
    let chunk: CompletionResponse = serde_json::from_str(
        r#"{"choices":[{"index":0,"text":"a","stop_reason":null,"finish_reason":"abort"}],"x":1}"#,
    )
    .expect("parses");
    assert_eq!(chunk.choices[0].finish_reason, Some(FinishReason::Other));
    let chunk: ChatChunk =
        serde_json::from_str(r#"{"choices":[{"delta":{"role":"assistant","content":null}}]}"#)
            .expect("parses");
    assert_eq!(chunk.choices[0].delta.content, None);
}

#[test]
fn prompt_forms() {
    let prompt = |json: &str| serde_json::from_str::<Prompt>(json);
    assert_eq!(prompt("[]").expect("empty"), Prompt::Texts(vec![]));
    assert_eq!(prompt("[1]").expect("ids"), Prompt::Ids(vec![1]));
    assert_eq!(
        prompt(r#"["a"]"#).expect("texts"),
        Prompt::Texts(vec!["a".to_owned()])
    );
    for bad in [
        "1",
        "{}",
        "null",
        "[-1]",
        "[1.5]",
        r#"[1,"a"]"#,
        r#"["a",1]"#,
        "[[1],2]",
        "[true]",
    ] {
        let error = prompt(bad).expect_err(bad).to_string();
        assert!(
            error.contains("prompt") || error.contains("expected"),
            "{bad}: {error}"
        );
    }
}

#[test]
fn logprobs() {
    let lists: CompletionLogprobs = same_bytes(include_str!("golden/completion_logprobs.json"));
    assert_eq!(lists.token_logprobs, [None, Some(-0.5)]);
    let answer: ChatLogprobs = same_bytes(include_str!("golden/chat_logprobs.json"));
    assert_eq!(answer.content[0].top_logprobs[1].token, "Hey");
}
