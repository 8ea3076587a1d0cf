//! OpenAI's HTTP API as far as both ends speak it: completions, chat, models, errors.
//!
//! Response types borrow their text (`Cow`), so that neither end copies a token's text to write
//! or read it. Field names are OpenAI's; fields that other servers added (`top_k`, `ignore_eos`,
//! `return_token_ids`, …) carry vLLM's names, because clients already send those.
//!
//! Source: <https://platform.openai.com/docs/api-reference>, and vLLM's
//! `OpenAI-Compatible Server` page for the additions.

pub mod shared;

pub mod error;

pub mod models;

pub mod logprobs;

pub mod completions;

pub mod chat;

pub use chat::{ChatChunk, ChatRequest, ChatResponse};
pub use completions::{CompletionRequest, CompletionResponse, Prompt};
pub use error::ErrorBody;
pub use models::ModelList;
pub use shared::{FinishReason, Stop, StreamOptions, Usage};
