//! The APIs that `prony` can speak: a sample becomes a request body, an event becomes output.
//!
//! No socket and no time here. To add an API: a file beside `openai_chat.rs`, and one line in
//! [`ApiKind`].

mod openai_reader;

pub mod openai_completions;

pub mod openai_chat;

use crate::prompt::{Generation, Item};

/// An API of an endpoint.
pub trait Api: std::fmt::Debug + Send + Sync {
    /// Where the request goes, below the endpoint's base URL.
    fn path(&self) -> &'static str;

    /// The JSON body that asks for an answer to `item`.
    fn body(&self, item: &Item, model: Option<&str>, generation: &Generation) -> Vec<u8>;

    /// Whether a prompt may be given as token ids.
    fn takes_token_ids(&self) -> bool {
        true
    }

    /// Reads the data of one server-sent event. Appends output text to `text`.
    ///
    /// # Errors
    /// If the data are not this API's; nothing is then counted.
    fn read_event(&self, data: &[u8], text: &mut Vec<u8>) -> Result<Delta, Unreadable>;

    /// Reads a whole, unstreamed answer. Appends its text to `text`.
    ///
    /// # Errors
    /// If the body is not this API's.
    fn read_answer(&self, body: &[u8], text: &mut Vec<u8>) -> Result<Delta, Unreadable> {
        self.read_event(body, text)
    }
}

/// The APIs by the names scenario files use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApiKind {
    /// `POST /v1/completions`.
    OpenAiCompletions,
    /// `POST /v1/chat/completions`.
    OpenAiChat,
}

impl ApiKind {
    /// Every API, in the order it is documented.
    pub const ALL: [Self; 2] = [Self::OpenAiCompletions, Self::OpenAiChat];

    /// The name in scenario files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenAiCompletions => "openai-completions",
            Self::OpenAiChat => "openai-chat",
        }
    }

    /// The API itself.
    #[must_use]
    pub fn api(self) -> &'static dyn Api {
        match self {
            Self::OpenAiCompletions => &openai_completions::Completions,
            Self::OpenAiChat => &openai_chat::Chat,
        }
    }
}

/// What one event, or one whole answer, brought.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Delta {
    /// Output came: text, reasoning or a tool call that is not empty.
    pub has_output: bool,
    /// Token ids that came along, where the server sends them.
    pub n_token_ids: Option<i64>,
    /// The server says that the answer is complete.
    pub finished: bool,
    /// Output tokens as the server counts them.
    pub usage_tokens: Option<i64>,
    /// The server reports an error inside its answer.
    pub error: Option<String>,
}

/// Data that are not what the API promises.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// What was wrong, in the parser's words.
    pub reason: String,
}
