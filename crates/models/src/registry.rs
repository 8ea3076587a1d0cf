//! Architecture name to constructor: the one place that lists what can be built.

use std::sync::Arc;

use crate::causal::CausalDecoder;
use crate::config::ModelConfig;
use crate::decoder::Decoder;
use crate::error::ModelError;
use crate::layers::Compute;
use crate::llama::Llama;
use crate::weights::Weights;

/// Builds a decoder with room for so many tokens in its cache.
type Build =
    fn(&ModelConfig, &mut Weights, &Arc<Compute>, usize) -> Result<Box<dyn Decoder>, ModelError>;

/// Every decoder architecture, under the names of transformers' classes and of `model_type`.
const DECODERS: &[(&str, Build)] = &[("LlamaForCausalLM", llama), ("llama", llama)];

/// Builds the decoder that `config` names.
///
/// # Errors
/// [`ModelError::UnsupportedArchitecture`]; what the architecture's constructor can give.
pub fn build_decoder(
    config: &ModelConfig,
    weights: &mut Weights,
    compute: &Arc<Compute>,
    kv_capacity_tokens: usize,
) -> Result<Box<dyn Decoder>, ModelError> {
    let build = find(&config.architecture)?;
    build(config, weights, compute, kv_capacity_tokens)
}

/// True-or-error form of the look-up, so that a folder is refused before its weights are opened.
///
/// # Errors
/// [`ModelError::UnsupportedArchitecture`].
pub fn check(architecture: &str) -> Result<(), ModelError> {
    find(architecture).map(|_| ())
}

fn find(architecture: &str) -> Result<Build, ModelError> {
    let found = DECODERS.iter().find(|(name, _)| *name == architecture);
    found
        .map(|(_, build)| *build)
        .ok_or_else(|| ModelError::UnsupportedArchitecture {
            architecture: architecture.to_owned(),
            supported: DECODERS.iter().map(|(name, _)| *name).collect(),
        })
}

fn llama(
    config: &ModelConfig,
    weights: &mut Weights,
    compute: &Arc<Compute>,
    kv_capacity_tokens: usize,
) -> Result<Box<dyn Decoder>, ModelError> {
    let model = Llama::load(config, weights, compute)?;
    let n_parameters = weights.n_parameters();
    Ok(Box::new(CausalDecoder::new(
        model,
        config,
        compute,
        kv_capacity_tokens,
        n_parameters,
    )))
}
