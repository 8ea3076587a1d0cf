//! OpenAI's `POST /v1/completions`: text or token ids in, text out.

use prony_wire::openai::{CompletionRequest, Prompt as WirePrompt, StreamOptions};

use super::{Api, Delta, Unreadable, openai_reader};
use crate::prompt::{Generation, Item, Prompt, Turn};

/// The API; it has no state.
#[derive(Debug)]
pub struct Completions;

impl Api for Completions {
    fn path(&self) -> &'static str {
        "/v1/completions"
    }

    fn body(&self, item: &Item, model: Option<&str>, generation: &Generation) -> Vec<u8> {
        let request = CompletionRequest {
            model: model.map(str::to_owned),
            prompt: Some(match &item.prompt {
                Prompt::Text(text) => WirePrompt::Text(text.clone()),
                Prompt::TokenIds(ids) => WirePrompt::Ids(ids.clone()),
                Prompt::Chat(turns) => WirePrompt::Text(joined(turns)),
            }),
            max_tokens: Some(u64::from(item.max_tokens.unwrap_or(generation.max_tokens))),
            temperature: Some(generation.temperature),
            top_p: generation.top_p,
            seed: generation.seed,
            ignore_eos: generation.ignore_eos.then_some(true),
            stream: Some(generation.stream),
            stream_options: generation.stream.then_some(StreamOptions {
                include_usage: Some(true),
            }),
            ..CompletionRequest::default()
        };
        serde_json::to_vec(&request).expect("plain data always serializes")
    }

    fn read_event(&self, data: &[u8], text: &mut Vec<u8>) -> Result<Delta, Unreadable> {
        openai_reader::read(data, text)
    }
}

/// This API knows no turns: they are put one after the other, without roles.
fn joined(turns: &[Turn]) -> String {
    let contents: Vec<&str> = turns.iter().map(|turn| turn.content.as_str()).collect();
    contents.join("\n")
}
