//! Architecture name to constructor: the one place that lists what can be built.

use std::sync::Arc;

use crate::causal::{CausalDecoder, CausalModel};
use crate::config::ModelConfig;
use crate::decoder::Decoder;
use crate::error::ModelError;
use crate::gpt_neox;
use crate::gpt2;
use crate::layers::Compute;
use crate::llama::Llama;
use crate::weights::Weights;

/// Builds a decoder with room for so many tokens in its cache.
type Build =
    fn(&ModelConfig, &mut Weights, &Arc<Compute>, usize) -> Result<Box<dyn Decoder>, ModelError>;

/// Every decoder architecture, under the names of transformers' classes and of `model_type`.
const DECODERS: &[(&str, Build)] = &[
    ("LlamaForCausalLM", llama),
    ("llama", llama),
    ("MistralForCausalLM", llama),
    ("mistral", llama),
    ("Qwen2ForCausalLM", llama),
    ("qwen2", llama),
    ("Qwen3ForCausalLM", llama),
    ("qwen3", llama),
    ("Phi3ForCausalLM", llama),
    ("phi3", llama),
    ("GPT2LMHeadModel", gpt2),
    ("gpt2", gpt2),
    ("GPTNeoXForCausalLM", gpt_neox),
    ("gpt_neox", gpt_neox),
];

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
    Ok(decoder(
        model,
        config,
        weights,
        (compute, kv_capacity_tokens),
    ))
}

fn gpt2(
    config: &ModelConfig,
    weights: &mut Weights,
    compute: &Arc<Compute>,
    kv_capacity_tokens: usize,
) -> Result<Box<dyn Decoder>, ModelError> {
    let model = gpt2::load(config, weights, compute)?;
    Ok(decoder(
        model,
        config,
        weights,
        (compute, kv_capacity_tokens),
    ))
}

fn gpt_neox(
    config: &ModelConfig,
    weights: &mut Weights,
    compute: &Arc<Compute>,
    kv_capacity_tokens: usize,
) -> Result<Box<dyn Decoder>, ModelError> {
    let model = gpt_neox::load(config, weights, compute)?;
    Ok(decoder(
        model,
        config,
        weights,
        (compute, kv_capacity_tokens),
    ))
}

fn decoder<M: CausalModel + 'static>(
    model: M,
    config: &ModelConfig,
    weights: &Weights,
    (compute, kv_capacity_tokens): (&Arc<Compute>, usize),
) -> Box<dyn Decoder> {
    let n_parameters = weights.n_parameters();
    Box::new(CausalDecoder::new(
        model,
        config,
        compute,
        kv_capacity_tokens,
        n_parameters,
    ))
}
