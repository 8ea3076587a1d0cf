//! The two shapes in which the API tells how likely tokens were.
//!
//! Choices carry them as plain JSON, because clients must not fail on another server's variant of
//! a field that they do not read; our server writes these types.

use serde::{Deserialize, Serialize};

/// Of a completion: four lists, one entry a token each.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CompletionLogprobs {
    /// The tokens as text.
    pub tokens: Vec<String>,
    /// Natural logarithms of their probabilities; `null` for the first token of an echoed prompt.
    pub token_logprobs: Vec<Option<f32>>,
    /// The most likely tokens at each place, with the chosen one; `null` where none were asked for.
    pub top_logprobs: Option<Vec<Option<serde_json::Map<String, serde_json::Value>>>>,
    /// Where each token begins in the choice's text. Unit: characters.
    pub text_offset: Vec<usize>,
}

/// Of a chat answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ChatLogprobs {
    /// One entry a token.
    pub content: Vec<TokenLogprob>,
    /// Always `null`: our models refuse in words.
    pub refusal: Option<serde_json::Value>,
}

/// A token of a chat answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TokenLogprob {
    /// The token as text.
    pub token: String,
    /// Natural logarithm of its probability.
    pub logprob: f32,
    /// Its bytes: a character may be spread over several tokens.
    pub bytes: Option<Vec<u8>>,
    /// The most likely tokens at its place.
    pub top_logprobs: Vec<TopLogprob>,
}

/// A token that might have been.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TopLogprob {
    /// The token as text.
    pub token: String,
    /// Natural logarithm of its probability.
    pub logprob: f32,
    /// Its bytes.
    pub bytes: Option<Vec<u8>>,
}
