//! What a model will cost, before any of its weights is read.
//!
//! The model is built as for loading, but from weights that all read as 0: its matrices and its
//! cache are address space whose pages nobody touches. So the sizes here are those of loading, by
//! the same code.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::config::ModelConfig;
use crate::decoder::ModelInfo;
use crate::device::{Device, available_memory};
use crate::error::ModelError;
use crate::hub::Hub;
use crate::load::{LoadOptions, ModelSource, check_cache_memory, compute_for, open};
use crate::registry;

/// What a decoder will cost.
#[derive(Debug, Clone, PartialEq)]
pub struct Inspection {
    /// Facts about the model as it would be loaded.
    pub info: ModelInfo,
    /// Encodings of the checkpoint: how many tensors each has, and their bytes.
    pub stored: BTreeMap<String, (usize, u64)>,
    /// Floating-point operations of the matrices for one token: two for each weight that is
    /// multiplied, the look-up of the embedding left out.
    pub matrix_flops_per_token: u64,
    /// Floating-point operations of attention for one token and one token before it.
    pub attention_flops_per_pair: u64,
    /// Memory free on the device now; `None` where it does not tell. Unit: bytes.
    pub available_bytes: Option<u64>,
    sizes: StepSizes,
}

/// Numbers that a step keeps at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct StepSizes {
    /// Of a row, in f32.
    per_row: u64,
    /// Of a row, packed for the widest product: at most two bytes each.
    packed_per_row: u64,
    /// Of a row whose next token is drawn, in f32.
    per_draw: u64,
}

/// Looks at a decoder without reading its weights.
///
/// # Errors
/// As [`load`](fn@crate::load), but for what only reading can find.
pub fn inspect(source: &ModelSource, options: &LoadOptions) -> Result<Inspection, ModelError> {
    inspect_from(source, options, &Hub::from_env())
}

/// [`inspect`] with a hub that is given, not read from the environment.
///
/// # Errors
/// As [`inspect`].
pub fn inspect_from(
    source: &ModelSource,
    options: &LoadOptions,
    hub: &Hub,
) -> Result<Inspection, ModelError> {
    let (config, weights, _) = open(source, hub)?;
    let mut weights = weights.unread();
    let compute = Arc::new(compute_for(&config, options)?);
    let capacity = options.kv_capacity_tokens;
    if options.device == Device::Cpu {
        check_cache_memory(&config, options)?;
    }
    let decoder = registry::build_decoder(&config, &mut weights, &compute, capacity)?;
    let attention_width = (config.n_heads * config.head_dim) as u64;
    Ok(Inspection {
        info: decoder.info().clone(),
        stored: weights.stored(),
        matrix_flops_per_token: 2 * matrix_weights(&config),
        // A product with the key and one with the value, each an addition too.
        attention_flops_per_pair: 4 * config.n_layers as u64 * attention_width,
        available_bytes: match options.device {
            Device::Cpu => available_memory(),
            Device::Cuda(_) => None,
        },
        sizes: StepSizes::of(&config),
    })
}

impl StepSizes {
    /// At the widest point of a layer: the stream, its normed copy, and the MLP's inside, which is
    /// where q, k, v and the attended rows were before.
    fn of(config: &ModelConfig) -> Self {
        let heads = config.n_heads + 2 * config.n_kv_heads;
        let attention = heads * config.head_dim + config.n_heads * config.head_dim;
        let widest = config.intermediate_size.max(attention);
        Self {
            per_row: (2 * config.hidden_size + widest) as u64,
            packed_per_row: config.intermediate_size.max(config.hidden_size) as u64,
            per_draw: config.vocab_size as u64,
        }
    }
}

/// Weights that one token is multiplied with.
fn matrix_weights(config: &ModelConfig) -> u64 {
    let heads = (config.n_heads + 2 * config.n_kv_heads) * config.head_dim;
    let attention = config.hidden_size * (heads + config.n_heads * config.head_dim);
    let n_mlp = if config.activation.is_some() { 2 } else { 3 };
    let mlp = n_mlp * config.hidden_size * config.intermediate_size;
    (config.n_layers * (attention + mlp) + config.hidden_size * config.vocab_size) as u64
}

impl Inspection {
    /// Memory of a step of `rows` tokens, of which `draws` are followed by a drawn one. Unit:
    /// bytes.
    pub fn activation_bytes(&self, rows: usize, draws: usize) -> u64 {
        let per_row = 4 * self.sizes.per_row + 2 * self.sizes.packed_per_row;
        rows as u64 * per_row + draws as u64 * 4 * self.sizes.per_draw
    }

    /// Memory of the cache when it is full. Unit: bytes.
    pub fn cache_bytes(&self) -> u64 {
        self.info.kv_bytes_per_token * self.info.kv_capacity_tokens as u64
    }

    /// Tokens of cache that fit beside weights and a step of `rows` tokens, all drawn from;
    /// `None` where the device does not tell what is free.
    pub fn tokens_that_fit(&self, rows: usize) -> Option<u64> {
        let others = self.info.weight_bytes + self.activation_bytes(rows, rows);
        let left = self.available_bytes?.saturating_sub(others);
        Some(left / self.info.kv_bytes_per_token.max(1))
    }

    /// Refuses what would not fit.
    ///
    /// # Errors
    /// [`ModelError::Memory`].
    pub fn check_memory(&self) -> Result<(), ModelError> {
        let (weights, cache) = (self.info.weight_bytes, self.cache_bytes());
        match self.available_bytes {
            Some(available) if weights + cache > available => Err(ModelError::Memory {
                device: self.info.device.to_string(),
                weights,
                cache,
                available,
            }),
            _ => Ok(()),
        }
    }
}
