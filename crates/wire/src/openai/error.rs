//! The error body, the same on every route and for every status that is not a success.

use serde::{Deserialize, Serialize};

/// `{"error": {...}}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// What went wrong.
    pub error: ErrorDetail,
}

/// What went wrong, for a person (`message`) and for a program (the rest).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorDetail {
    /// One sentence naming the thing and the value.
    pub message: String,
    /// The class of error, such as `invalid_request_error`.
    #[serde(rename = "type", default)]
    pub kind: String,
    /// The request field at fault, where there is one.
    #[serde(default)]
    pub param: Option<String>,
    /// A stable word such as `context_length_exceeded`. Some servers send a number here.
    #[serde(default)]
    pub code: Option<ErrorCode>,
}

/// OpenAI sends a word, vLLM the HTTP status as a number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ErrorCode {
    /// A stable word.
    Word(String),
    /// An HTTP status repeated in the body.
    Number(i64),
}
