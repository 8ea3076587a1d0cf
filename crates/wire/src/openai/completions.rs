//! `POST /v1/completions`: request, and the one shape of answer and stream chunk.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::shared::{FinishReason, Stop, StreamOptions, Usage, present};

/// The request body. Everything but the prompt may be left out.
///
/// Fields that our server refuses (`suffix`, `logprobs`, …) are here so that it can refuse them
/// by name instead of silently answering another question.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CompletionRequest {
    /// Which model; servers with a single one accept its absence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// What to continue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<Prompt>,
    /// Most tokens to generate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
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
    /// Go on past the end-of-text token (vLLM; benchmarks need it for a fixed output length).
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
    /// Answers per prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub n: Option<u64>,
    /// Candidates to choose the answers from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_of: Option<u64>,
    /// Repeat the prompt before the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub echo: Option<bool>,
    /// Log-probabilities wanted per token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<u64>,
    /// Text after the gap to fill.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suffix: Option<String>,
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
}

/// The four forms a prompt may take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Prompt {
    /// One text.
    Text(String),
    /// Several texts, one answer each.
    Texts(Vec<String>),
    /// One text as token ids.
    Ids(Vec<u32>),
    /// Several texts as token ids, one answer each.
    IdLists(Vec<Vec<u32>>),
}

impl<'de> Deserialize<'de> for Prompt {
    // Not `untagged`: that would buffer every id as a JSON value and name no expected form.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PromptVisitor)
    }
}

struct PromptVisitor;

impl<'de> Visitor<'de> for PromptVisitor {
    type Value = Prompt;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("prompt: a string, a list of strings, token ids, or lists of token ids")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Prompt, E> {
        Ok(Prompt::Text(text.to_owned()))
    }

    fn visit_string<E: de::Error>(self, text: String) -> Result<Prompt, E> {
        Ok(Prompt::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Prompt, A::Error> {
        // The first element decides the form; the others must agree with it.
        match seq.next_element::<First>()? {
            None => Ok(Prompt::Texts(Vec::new())),
            Some(First::Text(text)) => Ok(Prompt::Texts(rest(text, seq)?)),
            Some(First::Id(id)) => Ok(Prompt::Ids(rest(id, seq)?)),
            Some(First::Ids(ids)) => Ok(Prompt::IdLists(rest(ids, seq)?)),
        }
    }
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "prompt: elements must be strings, token ids or lists of them"
)]
enum First {
    Text(String),
    Id(u32),
    Ids(Vec<u32>),
}

fn rest<'de, A, T>(first: T, mut seq: A) -> Result<Vec<T>, A::Error>
where
    A: SeqAccess<'de>,
    T: Deserialize<'de>,
{
    let mut all = vec![first];
    while let Some(next) = seq.next_element()? {
        all.push(next);
    }
    Ok(all)
}

/// The whole answer, and (with the same fields) one chunk of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompletionResponse<'a> {
    /// Id of the request, the same in all its chunks.
    #[serde(default, borrow)]
    pub id: Cow<'a, str>,
    /// Always `text_completion`.
    #[serde(default, borrow)]
    pub object: Cow<'a, str>,
    /// Unix time in seconds.
    #[serde(default)]
    pub created: u64,
    /// Which model answered.
    #[serde(default, borrow)]
    pub model: Cow<'a, str>,
    /// One entry a prompt; empty in the chunk that carries the usage.
    #[serde(default, borrow)]
    pub choices: Vec<CompletionChoice<'a>>,
    /// Absent, `null` or the usage; see [`StreamOptions::include_usage`].
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub usage: Option<Option<Usage>>,
}

/// One answer, or one piece of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompletionChoice<'a> {
    /// Which prompt of the request this answers.
    #[serde(default)]
    pub index: u32,
    /// The text, or the part that is new in this chunk.
    #[serde(default, borrow)]
    pub text: Cow<'a, str>,
    /// How likely the tokens were, where asked for; see [`super::logprobs`].
    #[serde(default)]
    pub logprobs: Option<serde_json::Value>,
    /// Set in the last chunk of this choice.
    #[serde(default)]
    pub finish_reason: Option<FinishReason>,
    /// The ids behind `text`, when `return_token_ids` asked for them.
    #[serde(default, skip_serializing_if = "Option::is_none", borrow)]
    pub token_ids: Option<Cow<'a, [u32]>>,
}
