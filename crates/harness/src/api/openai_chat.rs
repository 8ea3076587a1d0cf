//! OpenAI's `POST /v1/chat/completions`: a conversation in, the next message out.

use prony_wire::openai::StreamOptions;
use prony_wire::openai::chat::{ChatMessage, ChatRequest, Content};

use super::{Api, Delta, Unreadable, openai_reader};
use crate::prompt::{Generation, Item, Prompt};

/// The API; it has no state.
#[derive(Debug)]
pub struct Chat;

impl Api for Chat {
    fn path(&self) -> &'static str {
        "/v1/chat/completions"
    }

    fn takes_token_ids(&self) -> bool {
        false
    }

    fn body(&self, item: &Item, model: Option<&str>, generation: &Generation) -> Vec<u8> {
        let request = ChatRequest {
            model: model.map(str::to_owned),
            messages: Some(messages(&item.prompt)),
            max_tokens: Some(u64::from(item.max_tokens.unwrap_or(generation.max_tokens))),
            temperature: Some(generation.temperature),
            top_p: generation.top_p,
            seed: generation.seed,
            ignore_eos: generation.ignore_eos.then_some(true),
            stream: Some(generation.stream),
            stream_options: generation.stream.then_some(StreamOptions {
                include_usage: Some(true),
            }),
            ..ChatRequest::default()
        };
        serde_json::to_vec(&request).expect("plain data always serializes")
    }

    fn read_event(&self, data: &[u8], text: &mut Vec<u8>) -> Result<Delta, Unreadable> {
        openai_reader::read(data, text)
    }
}

fn messages(prompt: &Prompt) -> Vec<ChatMessage> {
    match prompt {
        Prompt::Text(text) => vec![message("user", text)],
        Prompt::Chat(turns) => turns.iter().map(|t| message(&t.role, &t.content)).collect(),
        // `takes_token_ids` is false, and the scenario file was refused for it.
        Prompt::TokenIds(_) => unreachable!("chat takes no token ids"),
    }
}

fn message(role: &str, content: &str) -> ChatMessage {
    ChatMessage {
        role: role.to_owned(),
        content: Some(Content::Text(content.to_owned())),
        name: None,
    }
}
