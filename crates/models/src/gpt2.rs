//! GPT-2: learned positions, matrices stored as `[inputs, outputs]`, tied head.
//!
//! Reads both namings on the Hub: `transformer.h.0...` as transformers writes, and `h.0...` with
//! stored masks as the first checkpoints have it. Tensor names: transformers' `GPT2LMHeadModel`.

use std::sync::Arc;

use tch::Tensor;

use crate::config::{Activation, ModelConfig};
use crate::error::ModelError;
use crate::gpt::{Dense, Gpt, GptLayer, attention, take_norm};
use crate::layers::Compute;
use crate::layers::embedding::Embedding;
use crate::layers::layer_norm::{LayerNorm, LayerNormParts};
use crate::layers::linear::{Linear, Matrix};
use crate::weights::{Taken, Weights};

struct Parts {
    wte: Taken,
    wpe: Taken,
    layers: Vec<LayerParts>,
    ln_f: LayerNormParts,
    /// `None` where the embedding is the output matrix.
    lm_head: Option<Taken>,
}

struct LayerParts {
    ln_1: LayerNormParts,
    c_attn: Dense,
    attn_c_proj: Dense,
    ln_2: LayerNormParts,
    c_fc: Dense,
    mlp_c_proj: Dense,
}

/// Takes and reads the tensors that `config` implies.
///
/// # Errors
/// [`ModelError::Tensors`] with everything that does not fit; what reading can give.
pub fn load(
    config: &ModelConfig,
    weights: &mut Weights,
    compute: &Arc<Compute>,
) -> Result<Gpt, ModelError> {
    let parts = take(config, weights);
    // Masks of the first checkpoints, and a tied model's copy of the embedding.
    weights.ignore(|name| {
        name.ends_with(".attn.bias")
            || name.ends_with(".attn.masked_bias")
            || (config.tie_word_embeddings && name == "lm_head.weight")
    });
    weights.finish()?;
    let weights = &*weights;
    let (wte, lm_head, table_bytes) =
        Matrix::read_tables(compute, weights, &parts.wte, parts.lm_head.as_ref())?;
    let layers = parts.layers.iter();
    let layers = layers.map(|p| read_layer(config, weights, compute, p));
    let shape = [config.max_positions as i64, config.hidden_size as i64];
    let positions = Tensor::f_from_slice(&weights.read_all(&parts.wpe)?)?
        .f_view(shape)?
        .f_to_kind(compute.kind())?
        .f_to_device(compute.device.torch())?;
    Ok(Gpt {
        table_bytes,
        embedding: Embedding::new(compute, wte, config.hidden_size),
        positions: Some(positions),
        layers: layers.collect::<Result<_, _>>()?,
        final_norm: LayerNorm::read(compute, weights, &parts.ln_f, config.norm_eps)?,
        head: Linear::new(compute, lm_head, None),
        parallel: false,
        activation: config.activation.unwrap_or(Activation::GeluTanh),
    })
}

fn take(config: &ModelConfig, weights: &mut Weights) -> Parts {
    let (hidden, vocab) = (config.hidden_size, config.vocab_size);
    let prefix = if weights.has("wte.weight") {
        ""
    } else {
        "transformer."
    };
    Parts {
        wte: weights.take(&format!("{prefix}wte.weight"), &[vocab, hidden]),
        wpe: weights.take(
            &format!("{prefix}wpe.weight"),
            &[config.max_positions, hidden],
        ),
        layers: (0..config.n_layers)
            .map(|i| take_layer(config, weights, &format!("{prefix}h.{i}")))
            .collect(),
        ln_f: take_norm(weights, &format!("{prefix}ln_f"), hidden),
        lm_head: (!config.tie_word_embeddings)
            .then(|| weights.take("lm_head.weight", &[vocab, hidden])),
    }
}

fn take_layer(config: &ModelConfig, weights: &mut Weights, layer: &str) -> LayerParts {
    let (hidden, inner) = (config.hidden_size, config.intermediate_size);
    let by_output = weights.is_gguf();
    let mut dense = |name: &str, inputs: usize, outputs: usize| Dense {
        weight: {
            let shape = if by_output {
                [outputs, inputs]
            } else {
                [inputs, outputs]
            };
            weights.take(&format!("{layer}.{name}.weight"), &shape)
        },
        bias: Some(weights.take(&format!("{layer}.{name}.bias"), &[outputs])),
    };
    LayerParts {
        c_attn: dense("attn.c_attn", hidden, 3 * hidden),
        attn_c_proj: dense("attn.c_proj", hidden, hidden),
        c_fc: dense("mlp.c_fc", hidden, inner),
        mlp_c_proj: dense("mlp.c_proj", inner, hidden),
        ln_1: take_norm(weights, &format!("{layer}.ln_1"), hidden),
        ln_2: take_norm(weights, &format!("{layer}.ln_2"), hidden),
    }
}

fn read_layer(
    config: &ModelConfig,
    weights: &Weights,
    compute: &Arc<Compute>,
    parts: &LayerParts,
) -> Result<GptLayer, ModelError> {
    let (hidden, inner) = (config.hidden_size, config.intermediate_size);
    let norm = |part| LayerNorm::read(compute, weights, part, config.norm_eps);
    // A GGUF file stores the matrix of every family as it is used.
    let in_order = |stored: Vec<f32>, inputs: usize| {
        if weights.is_gguf() {
            stored
        } else {
            transposed(stored, inputs)
        }
    };
    let dense =
        |part: &Dense, inputs, outputs| part.read(compute, weights, in_order, (outputs, inputs));
    Ok(GptLayer {
        attention_norm: norm(&parts.ln_1)?,
        qkv: dense(&parts.c_attn, hidden, 3 * hidden)?,
        attention: attention(compute, config),
        attention_output: dense(&parts.attn_c_proj, hidden, hidden)?,
        mlp_norm: norm(&parts.ln_2)?,
        mlp_in: dense(&parts.c_fc, hidden, inner)?,
        mlp_out: dense(&parts.mlp_c_proj, inner, hidden)?,
    })
}

/// `[inputs, outputs]` to `[outputs, inputs]`.
fn transposed(stored: Vec<f32>, inputs: usize) -> Vec<f32> {
    let outputs = stored.len() / inputs;
    let column = |output| (0..inputs).map(move |input| (output, input));
    let order = (0..outputs).flat_map(column);
    order.map(|(o, i)| stored[i * outputs + o]).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn columns_become_rows() {
        let stored = vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        assert_eq!(super::transposed(stored, 2), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    }
}
