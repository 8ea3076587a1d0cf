//! What is asked and how much may be answered, before any API gives it a form.

/// One prompt of a data set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prompt {
    /// Plain text.
    Text(String),
    /// Token ids of the model's own vocabulary: the length is then exact.
    TokenIds(Vec<u32>),
    /// A conversation, oldest turn first.
    Chat(Vec<Turn>),
}

/// One turn of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// `system`, `user` or `assistant`.
    pub role: String,
    /// What was said.
    pub content: String,
}

/// One item of a data set: the prompt, and its own answer length where the data set gives one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// What is asked.
    pub prompt: Prompt,
    /// Most tokens to answer with; wins over [`Generation::max_tokens`].
    pub max_tokens: Option<u32>,
}

/// How every answer is to be generated.
#[derive(Debug, Clone, PartialEq)]
pub struct Generation {
    /// Most tokens of an answer.
    pub max_tokens: u32,
    /// 0 is greedy.
    pub temperature: f64,
    /// Nucleus mass, where the server's default is not wanted.
    pub top_p: Option<f64>,
    /// Seed of the server's sampler.
    pub seed: Option<i64>,
    /// Go on past the end-of-text token, so that every answer has `max_tokens` tokens.
    pub ignore_eos: bool,
    /// Ask for server-sent events, token by token.
    pub stream: bool,
}
