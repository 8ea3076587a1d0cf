//! `POST /v1/chat/completions`: request, whole answer, stream chunk.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::shared::{FinishReason, Stop, StreamOptions, Usage, present};

/// The request body. Everything but the messages may be left out.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChatRequest {
    /// Which model; servers with a single one accept its absence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The conversation so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<Vec<ChatMessage>>,
    /// Most tokens to generate (the older name).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Most tokens to generate (the newer name; wins when both are there).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_completion_tokens: Option<u64>,
    /// Fewest tokens before the end-of-text token may be drawn (vLLM).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_tokens: Option<u64>,
    /// Softmax temperature; 0 is greedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Nucleus mass kept, in (0, 1].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// Candidates kept; 0 or −1 keeps all (vLLM).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_k: Option<i64>,
    /// Seed of this request's own random numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// Strings that end the text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop: Option<Stop>,
    /// Go on past the end-of-text token (vLLM).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ignore_eos: Option<bool>,
    /// Answer as server-sent events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<bool>,
    /// What else to stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream_options: Option<StreamOptions>,
    /// Put the generated ids beside the text (vLLM).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub return_token_ids: Option<bool>,
    /// Answers per conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub n: Option<u64>,
    /// Whether log-probabilities are wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<bool>,
    /// How many alternatives per token are wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_logprobs: Option<u64>,
    /// Penalty for tokens that occurred.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub presence_penalty: Option<f64>,
    /// Penalty by how often a token occurred.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frequency_penalty: Option<f64>,
    /// Multiplicative penalty (Hugging Face); 1 is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repetition_penalty: Option<f64>,
    /// Least probability kept, as a share of the likeliest (vLLM).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_p: Option<f64>,
    /// Ids that end the text (vLLM).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_token_ids: Option<Vec<i64>>,
    /// Added to the logits, by token id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logit_bias: Option<serde_json::Map<String, serde_json::Value>>,
    /// Place in the queue: lower goes first, 0 is the default (vLLM).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
    /// How long after its arrival the answer is still wanted (ours).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// Functions the model may call (the older name).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub functions: Option<Vec<serde_json::Value>>,
    /// Functions the model may call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<serde_json::Value>>,
    /// The form of the answer, such as `{"type": "text"}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_format: Option<serde_json::Value>,
}

/// One turn of the conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatMessage {
    /// `system`, `user`, `assistant`, or what else the template knows.
    pub role: String,
    /// What was said.
    #[serde(default)]
    pub content: Option<Content>,
    /// Who said it, when several share a role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Plain text, or a list of typed parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Content {
    /// Plain text.
    Text(String),
    /// Typed parts; only `text` parts mean something to a text model.
    Parts(Vec<ContentPart>),
}

/// One typed part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentPart {
    /// `text`, `image_url`, …
    #[serde(rename = "type")]
    pub kind: String,
    /// The text of a `text` part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

impl<'de> Deserialize<'de> for Content {
    // Not `untagged`: its error would not say what was expected.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrParts;
        impl<'de> Visitor<'de> for TextOrParts {
            type Value = Content;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("content: a string or a list of parts")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Content, E> {
                Ok(Content::Text(text.to_owned()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Content, A::Error> {
                let mut parts = Vec::new();
                while let Some(part) = seq.next_element()? {
                    parts.push(part);
                }
                Ok(Content::Parts(parts))
            }
        }
        deserializer.deserialize_any(TextOrParts)
    }
}

/// The whole answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatResponse<'a> {
    /// Id of the request.
    #[serde(default, borrow)]
    pub id: Cow<'a, str>,
    /// Always `chat.completion`.
    #[serde(default, borrow)]
    pub object: Cow<'a, str>,
    /// Unix time in seconds.
    #[serde(default)]
    pub created: u64,
    /// Which model answered.
    #[serde(default, borrow)]
    pub model: Cow<'a, str>,
    /// The answers.
    #[serde(borrow)]
    pub choices: Vec<ChatChoice<'a>>,
    /// Tokens taken and given.
    #[serde(default)]
    pub usage: Option<Usage>,
}

/// One answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatChoice<'a> {
    /// Which answer.
    #[serde(default)]
    pub index: u32,
    /// What the assistant says.
    #[serde(borrow)]
    pub message: ChatAnswer<'a>,
    /// How likely the tokens were, where asked for; see [`super::logprobs`].
    #[serde(default)]
    pub logprobs: Option<serde_json::Value>,
    /// Why it ended.
    #[serde(default)]
    pub finish_reason: Option<FinishReason>,
    /// The generated ids, when `return_token_ids` asked for them.
    #[serde(default, skip_serializing_if = "Option::is_none", borrow)]
    pub token_ids: Option<Cow<'a, [u32]>>,
}

/// The message of an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatAnswer<'a> {
    /// Always `assistant`.
    #[serde(borrow)]
    pub role: Cow<'a, str>,
    /// The text.
    #[serde(default, borrow)]
    pub content: Option<Cow<'a, str>>,
}

/// One chunk of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatChunk<'a> {
    /// Id of the request, the same in all its chunks.
    #[serde(default, borrow)]
    pub id: Cow<'a, str>,
    /// Always `chat.completion.chunk`.
    #[serde(default, borrow)]
    pub object: Cow<'a, str>,
    /// Unix time in seconds.
    #[serde(default)]
    pub created: u64,
    /// Which model answers.
    #[serde(default, borrow)]
    pub model: Cow<'a, str>,
    /// What is new; empty in the chunk that carries the usage.
    #[serde(default, borrow)]
    pub choices: Vec<ChatDeltaChoice<'a>>,
    /// Absent, `null` or the usage; see [`StreamOptions::include_usage`].
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub usage: Option<Option<Usage>>,
}

/// What is new in one answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatDeltaChoice<'a> {
    /// Which answer.
    #[serde(default)]
    pub index: u32,
    /// The new part of the message.
    #[serde(default, borrow)]
    pub delta: ChatDelta<'a>,
    /// How likely the tokens were, where asked for; see [`super::logprobs`].
    #[serde(default)]
    pub logprobs: Option<serde_json::Value>,
    /// Set in the last chunk of this answer.
    #[serde(default)]
    pub finish_reason: Option<FinishReason>,
    /// The ids behind the delta, when `return_token_ids` asked for them.
    #[serde(default, skip_serializing_if = "Option::is_none", borrow)]
    pub token_ids: Option<Cow<'a, [u32]>>,
}

/// The new part of a message: the role once at the start, then text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatDelta<'a> {
    /// `assistant`, in the first chunk only.
    #[serde(default, skip_serializing_if = "Option::is_none", borrow)]
    pub role: Option<Cow<'a, str>>,
    /// New text.
    #[serde(default, skip_serializing_if = "Option::is_none", borrow)]
    pub content: Option<Cow<'a, str>>,
}
