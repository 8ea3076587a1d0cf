//! What computes: ids in, next ids out. The engine knows no more than this trait.
//!
//! A step is flat: one list of ids, cut into rows. Whatever a backend keeps of a sequence (cache
//! blocks, random numbers) it keeps under a [`SeqId`] that it gave out itself.

use std::sync::Arc;
use std::time::Instant;

use crate::chat_template::ChatTemplate;
use crate::config::{BackendConfig, Config};
use crate::error::SutError;
use crate::request::Generate;
use crate::stream::Drawn;
use crate::tokenize::{TokenTable, Tokenizer};

pub mod echo;

#[cfg(feature = "torch")]
pub mod torch;

/// A sequence inside a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SeqId(pub u32);

/// Facts about a loaded backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendInfo {
    /// Prompt and output tokens that one sequence may have.
    pub max_model_len: usize,
    /// Ids are below this.
    pub vocab_size: usize,
    /// Ids that end a text.
    pub eos_ids: Vec<u32>,
    /// Tokens the cache holds in all.
    pub kv_capacity_tokens: usize,
    /// The cache is lent in units of this many tokens.
    pub kv_block_tokens: usize,
}

impl BackendInfo {
    /// What a sequence of `tokens` takes from the cache: whole blocks.
    #[must_use]
    pub fn kv_cost(&self, tokens: usize) -> usize {
        tokens.next_multiple_of(self.kv_block_tokens)
    }
}

/// One row of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Whose row.
    pub seq: SeqId,
    /// How many of the step's ids are this row's.
    pub n_ids: usize,
    /// Whether the token after them is wanted.
    pub draw: bool,
    /// How many of the step's followers are this row's.
    pub n_scored: usize,
}

/// How much of a text is in the cache already.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KnownPrefix {
    /// Tokens that need not be computed.
    pub tokens: usize,
    /// Those of them in blocks that others own just now: sharing them takes no free ones.
    pub owned_tokens: usize,
}

/// One step's work.
#[derive(Debug, Clone, Default)]
pub struct Step {
    /// The ids of all rows, one row after the other.
    pub ids: Vec<u32>,
    /// The rows. A sequence has at most one.
    pub rows: Vec<Row>,
    /// Known tokens that are asked about: of each row that has some, the ones that follow its first
    /// ids.
    pub followers: Vec<u32>,
}

/// What a step gives.
#[derive(Debug, Clone, Default)]
pub struct Answers {
    /// One entry a row: the token drawn, or `None` for a row that wants none.
    pub next: Vec<Option<Drawn>>,
    /// One entry a follower: how likely it was.
    pub scores: Vec<Drawn>,
}

/// Why a backend could not do something.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// A row that no backend can compute; found before anything changed, so the other rows can be
    /// tried without it.
    #[error("{0}")]
    BadRow(String),
    /// The step was not computed and its sequences are in no known state.
    #[error("{0}")]
    Step(String),
}

/// Continues sequences of ids. Belongs to the engine thread from the first call on.
pub trait Backend: Send {
    /// Facts that never change.
    fn info(&self) -> &BackendInfo;

    /// Tokens the cache could take now, whole blocks.
    fn kv_free_tokens(&self) -> usize;

    /// How much of `ids` is in the cache for texts of `root`; `None` from a backend whose sequences
    /// share nothing.
    fn known_prefix(&self, _root: u64, _ids: &[u32]) -> Option<KnownPrefix> {
        None
    }

    /// A new sequence, with no cache yet.
    ///
    /// # Errors
    /// [`BackendError::BadRow`] when the request cannot be computed.
    fn open(&mut self, request: &Generate, now: Instant) -> Result<SeqId, BackendError>;

    /// Seats a sequence without cache: from here on steps feed it `ids`, its prompt and what it has
    /// drawn, and take cache for them block by block. Returns how many of them are there already
    /// and must not be fed.
    fn seat(&mut self, seq: SeqId, ids: &[u32]) -> usize;

    /// Gives the sequence's cache back at once, and keeps what else belongs to it: what it drew,
    /// and where its random numbers stand.
    fn unseat(&mut self, seq: SeqId);

    /// Ends the sequence and gives its cache back at once.
    fn close(&mut self, seq: SeqId);

    /// Not before this time, for a backend that imitates a slower one.
    fn ready_at(&self, _seq: SeqId) -> Option<Instant> {
        None
    }

    /// Computes all rows together and adds to `answers`, which are empty. The caller has seen to
    /// it that the cache has room.
    ///
    /// # Errors
    /// See [`BackendError`]; `answers` then hold nothing of use.
    fn step(&mut self, step: &Step, answers: &mut Answers) -> Result<(), BackendError>;
}

/// What belongs to a model beside its numbers; shared by all handlers.
#[derive(Debug, Clone)]
pub struct Texts {
    /// Text to ids.
    pub tokenizer: Arc<Tokenizer>,
    /// Ids to bytes.
    pub table: Arc<TokenTable>,
    /// Messages to text; a base model has none.
    pub chat_template: Option<Arc<ChatTemplate>>,
}

impl Texts {
    /// For the echo backend: bytes as ids, `role: text` as template.
    #[must_use]
    pub fn bytes() -> Self {
        Texts {
            tokenizer: Arc::new(Tokenizer::Bytes),
            table: Arc::new(TokenTable::Bytes),
            chat_template: Some(Arc::new(ChatTemplate::plain())),
        }
    }
}

/// A backend ready for the engine, and the texts that go with it.
pub struct Loaded {
    /// Belongs to the engine thread.
    pub backend: Box<dyn Backend>,
    /// Shared by all handlers.
    pub texts: Texts,
}

/// Loads what the configuration names. Called on the engine thread: LibTorch's thread count is a
/// property of the thread that calls it.
///
/// # Errors
/// The [`SutError`] of a model, tokenizer or template that cannot be used.
pub fn load(config: &Config) -> Result<Loaded, SutError> {
    match &config.backend {
        BackendConfig::Echo(echo) => Ok(Loaded {
            backend: Box::new(echo::Echo::new(*echo, &config.limits)),
            texts: Texts::bytes(),
        }),
        #[cfg(feature = "torch")]
        BackendConfig::Torch(torch) => torch::load(torch, &config.limits),
        #[cfg(not(feature = "torch"))]
        BackendConfig::Torch(_) => {
            unreachable!("Args::validate refuses torch in a build without it")
        }
    }
}
