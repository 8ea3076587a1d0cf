//! What a server sees of a text model: sequences, steps, next tokens. No tensor crosses this line.
//!
//! A step takes any mix of decode rows (one token) and prefill chunks (many tokens) and runs them
//! through the model together. One thread owns a decoder; it is `Send` so that it can be built
//! elsewhere.

use crate::device::{Device, Dtype};
use crate::error::ModelError;
use crate::kv_cache::{KnownPrefix, Sequence};
use crate::quant::Quant;
use crate::sampler::{NextToken, Sampler};

/// Facts about a loaded model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelInfo {
    /// Name of the wiring, as the checkpoint gives it: `LlamaForCausalLM`.
    pub architecture: String,
    /// Weights, a tied head counted once.
    pub n_parameters: u64,
    /// Memory the weights take as loaded.
    pub weight_bytes: u64,
    /// Ids run from 0 to this, exclusive.
    pub vocab_size: usize,
    /// Decoder layers.
    pub n_layers: usize,
    /// Longest sequence the positions allow.
    pub max_tokens: usize,
    /// Memory one token takes in the key/value cache.
    pub kv_bytes_per_token: u64,
    /// Tokens that fit the key/value cache.
    pub kv_capacity_tokens: usize,
    /// Ids that end a text.
    pub eos_ids: Vec<u32>,
    /// Id that starts a text, where the model has one.
    pub bos_id: Option<u32>,
    /// Number format of the weights.
    pub dtype: Dtype,
    /// Number format of the key/value cache.
    pub kv_dtype: Dtype,
    /// How the matrices are quantised.
    pub quant: Quant,
    /// Where it computes.
    pub device: Device,
    /// Threads it computes with on the processor.
    pub threads: usize,
}

/// One sequence's share of a step.
#[derive(Debug)]
pub struct StepRow<'a> {
    /// The sequence; grows by the tokens.
    pub seq: &'a mut Sequence,
    /// Its next tokens: one when decoding, a chunk when prefilling.
    pub tokens: &'a [u32],
    /// Draws the token after the last of `tokens`. `None` for a chunk whose logits nobody needs;
    /// those are then not computed.
    pub sampler: Option<&'a mut Sampler>,
    /// Tells how likely the model holds known tokens. `None` costs nothing.
    pub scoring: Option<Scoring<'a>>,
}

/// Known tokens whose probabilities are wanted.
#[derive(Debug)]
pub struct Scoring<'a> {
    /// The token that follows each of the row's tokens. The last one has no follower where the
    /// text ends with it.
    pub followers: &'a [u32],
    /// How many of the most likely tokens are wanted beside each.
    pub n_top: usize,
    /// One entry a follower is added to this.
    pub out: &'a mut Vec<NextToken>,
}

/// A model that continues sequences of tokens.
pub trait Decoder: Send {
    /// Facts about the model.
    fn info(&self) -> &ModelInfo;

    /// A new sequence with room for `max_tokens` tokens, prompt and output together. Within that
    /// room no step fails for lack of cache.
    ///
    /// # Errors
    /// [`ModelError::KvExhausted`] when the cache is too full now, [`ModelError::TooLong`] when
    /// the model's positions end earlier.
    fn new_sequence(&mut self, max_tokens: usize) -> Result<Sequence, ModelError>;

    /// How much of a text that begins with `tokens` is in the cache already. Texts of different
    /// roots never share.
    fn known_prefix(&self, root: u64, tokens: &[u32]) -> KnownPrefix;

    /// A sequence that begins with the [`Decoder::known_prefix`] of `tokens`: its length says where
    /// to go on. It owns no room yet; steps take what they need, and fail with
    /// [`ModelError::KvExhausted`] when there is none.
    fn sharing_sequence(&mut self, root: u64, tokens: &[u32]) -> Sequence;

    /// Tokens the key/value cache could take now.
    fn kv_free_tokens(&self) -> usize;

    /// Runs all rows through the model once; the answers stand in the order of the rows, `None`
    /// where the row has no sampler.
    ///
    /// # Errors
    /// A request's fault ([`ModelError::TokenOutOfRange`], [`ModelError::TooLong`],
    /// [`ModelError::KvExhausted`], [`ModelError::EmptyRow`]) is found before anything changes.
    /// After any other error the sequences of the step are in no known state: drop them.
    fn step(&mut self, rows: &mut [StepRow<'_>]) -> Result<Vec<Option<NextToken>>, ModelError>;

    /// Runs `tokens` and returns the logits after each of them. Shape: `[tokens, vocab]`, row
    /// after row. For measuring a model; serving never needs it.
    ///
    /// # Errors
    /// As [`Decoder::step`].
    fn logits(&mut self, seq: &mut Sequence, tokens: &[u32]) -> Result<Vec<f32>, ModelError>;
}
