//! What a server sees of an encoder: token ids in, vectors, labels or spans out. No tensor crosses
//! this line.
//!
//! A batch is any mix of lengths; nothing is padded, so a text's numbers do not depend on its
//! company. One thread owns an encoder; it is `Send` so that it can be built elsewhere. What the
//! numbers of a head mean to a user is `scores`' business.

use crate::device::{Device, Dtype};
use crate::encoder_config::{HeadKind, ScoreKind};
use crate::error::ModelError;
use crate::pooling::Pooling;

/// Something a loaded encoder can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Task {
    /// A vector for a text.
    Embed,
    /// A score a label for a text or a pair.
    Classify,
    /// One relevance for a pair of query and text.
    Rerank,
    /// The span of a context that answers a question.
    Answer,
    /// A score a label for every token.
    Tag,
}

/// Facts about a loaded encoder.
#[derive(Debug, Clone, PartialEq)]
pub struct EncoderInfo {
    /// Name of the wiring, as the checkpoint gives it: `BertForSequenceClassification`.
    pub architecture: String,
    /// What stands on top.
    pub head: HeadKind,
    /// Weights in the tensors that are used.
    pub n_parameters: u64,
    /// Memory the weights take as loaded.
    pub weight_bytes: u64,
    /// Ids run from 0 to this, exclusive.
    pub vocab_size: usize,
    /// Layers.
    pub n_layers: usize,
    /// Width of a hidden state.
    pub hidden_size: usize,
    /// Floating-point operations of the linear layers for one token; attention comes on top.
    pub linear_flops_per_token: u64,
    /// Longest sequence, special tokens included: what the positions allow or the folder asks for.
    pub max_tokens: usize,
    /// Token types the model tells apart; below 2 they are ignored.
    pub n_token_types: usize,
    /// What a classifier's numbers stand for, in order; empty without a classifier.
    pub labels: Vec<String>,
    /// How a classifier's numbers become scores.
    pub score_kind: ScoreKind,
    /// How vectors are made, where the head gives vectors.
    pub pooling: Pooling,
    /// Number format of the weights.
    pub dtype: Dtype,
    /// Where it computes.
    pub device: Device,
    /// Threads it computes with on the processor.
    pub threads: usize,
}

impl EncoderInfo {
    /// What this encoder can be asked for.
    pub fn tasks(&self) -> &'static [Task] {
        match self.head {
            HeadKind::Embedding => &[Task::Embed],
            HeadKind::SequenceClassification if self.labels.len() == 1 => {
                &[Task::Classify, Task::Rerank]
            }
            HeadKind::SequenceClassification => &[Task::Classify],
            HeadKind::QuestionAnswering => &[Task::Answer],
            HeadKind::TokenClassification => &[Task::Tag],
        }
    }

    /// Numbers in a vector, where the head gives vectors.
    pub fn embedding_size(&self) -> usize {
        self.hidden_size * self.pooling.modes.len()
    }
}

/// One text or pair, as ids with their special tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncoderInput<'a> {
    /// Token ids.
    pub ids: &'a [u32],
    /// Type of each token: which text of a pair it belongs to. Empty means 0 for all.
    pub token_types: &'a [u32],
}

/// What the head says about one input.
#[derive(Debug, Clone, PartialEq)]
pub enum EncoderOutput {
    /// The vector. Shape: `[embedding_size]`.
    Embedding(Vec<f32>),
    /// One number a label, before any softmax. Shape: `[labels]`.
    Labels(Vec<f32>),
    /// How well an answer starts and ends at each token. Shape: `[tokens]` each.
    Span {
        /// Starts.
        start: Vec<f32>,
        /// Ends, inclusive.
        end: Vec<f32>,
    },
    /// One number a label for every token. Shape: `[tokens, labels]`, token after token.
    TokenLabels(Vec<f32>),
}

/// A model that reads whole texts.
pub trait Encoder: Send {
    /// Facts about the model.
    fn info(&self) -> &EncoderInfo;

    /// Runs all inputs through the model; the answers stand in the order of the inputs.
    ///
    /// # Errors
    /// [`ModelError::Input`], [`ModelError::TokenOutOfRange`] and [`ModelError::TooLong`] are one
    /// request's fault and found before anything is computed.
    fn encode(&mut self, inputs: &[EncoderInput<'_>]) -> Result<Vec<EncoderOutput>, ModelError>;

    /// The last hidden states of one input. Shape: `[tokens, hidden]`, token after token. For
    /// measuring a model; serving never needs it.
    ///
    /// # Errors
    /// As [`Encoder::encode`].
    fn hidden(&mut self, input: EncoderInput<'_>) -> Result<Vec<f32>, ModelError>;
}
