//! GPT-NeoX (Pythia): rotary positions on a part of each head, attention and MLP side by side, q, k
//! and v interleaved head by head, untied head.
//!
//! Our attention rotates pairs `(i, i + head_dim / 2)` of a whole head, the model pairs `(i, i +
//! rotary_dim / 2)` of its first `rotary_dim` numbers. The rows of q and k are put in an order that
//! makes these pairs those; the pairs left over get the angle 0, and scores do not depend on the
//! order of their summands. Tensor names: transformers' `GPTNeoXForCausalLM`.

use std::sync::Arc;

use crate::config::{Activation, ModelConfig};
use crate::error::ModelError;
use crate::gpt::{Dense, Gpt, GptLayer, attention, take_norm};
use crate::layers::Compute;
use crate::layers::embedding::Embedding;
use crate::layers::layer_norm::{LayerNorm, LayerNormParts};
use crate::layers::linear::{Linear, Matrix};
use crate::weights::{Taken, Weights};

struct Parts {
    embed_in: Taken,
    layers: Vec<LayerParts>,
    final_layer_norm: LayerNormParts,
    /// `None` where the embedding is the output matrix.
    embed_out: Option<Taken>,
}

struct LayerParts {
    input_layernorm: LayerNormParts,
    query_key_value: Dense,
    attention_dense: Dense,
    post_attention_layernorm: LayerNormParts,
    dense_h_to_4h: Dense,
    dense_4h_to_h: Dense,
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
    // Masks and angles that older exporters stored beside the weights.
    weights.ignore(|name| {
        [".attention.bias", ".masked_bias", ".rotary_emb.inv_freq"]
            .iter()
            .any(|end| name.ends_with(end))
            || (config.tie_word_embeddings && name == "embed_out.weight")
    });
    weights.finish()?;
    let weights = &*weights;
    let (embed_in, embed_out, table_bytes) =
        Matrix::read_tables(compute, weights, &parts.embed_in, parts.embed_out.as_ref())?;
    let layers = parts.layers.iter();
    let layers = layers.map(|p| read_layer(config, weights, compute, p));
    Ok(Gpt {
        table_bytes,
        embedding: Embedding::new(compute, embed_in, config.hidden_size),
        positions: None,
        layers: layers.collect::<Result<_, _>>()?,
        final_norm: LayerNorm::read(compute, weights, &parts.final_layer_norm, config.norm_eps)?,
        head: Linear::new(compute, embed_out, None),
        parallel: config.parallel_residual,
        activation: config.activation.unwrap_or(Activation::Gelu),
    })
}

fn take(config: &ModelConfig, weights: &mut Weights) -> Parts {
    let (hidden, vocab) = (config.hidden_size, config.vocab_size);
    Parts {
        embed_in: weights.take("gpt_neox.embed_in.weight", &[vocab, hidden]),
        layers: (0..config.n_layers)
            .map(|i| take_layer(config, weights, &format!("gpt_neox.layers.{i}")))
            .collect(),
        final_layer_norm: take_norm(weights, "gpt_neox.final_layer_norm", hidden),
        embed_out: (!config.tie_word_embeddings)
            .then(|| weights.take("embed_out.weight", &[vocab, hidden])),
    }
}

fn take_layer(config: &ModelConfig, weights: &mut Weights, layer: &str) -> LayerParts {
    let (hidden, inner) = (config.hidden_size, config.intermediate_size);
    let mut dense = |name: &str, bias: bool, [outputs, inputs]: [usize; 2]| Dense {
        weight: weights.take(&format!("{layer}.{name}.weight"), &[outputs, inputs]),
        bias: bias.then(|| weights.take(&format!("{layer}.{name}.bias"), &[outputs])),
    };
    let (qkv, o) = ("attention.query_key_value", "attention.dense");
    LayerParts {
        query_key_value: dense(qkv, config.qkv_bias, [3 * hidden, hidden]),
        attention_dense: dense(o, config.o_bias, [hidden, hidden]),
        dense_h_to_4h: dense("mlp.dense_h_to_4h", true, [inner, hidden]),
        dense_4h_to_h: dense("mlp.dense_4h_to_h", true, [hidden, inner]),
        input_layernorm: take_norm(weights, &format!("{layer}.input_layernorm"), hidden),
        post_attention_layernorm: take_norm(
            weights,
            &format!("{layer}.post_attention_layernorm"),
            hidden,
        ),
    }
}

fn read_layer(
    config: &ModelConfig,
    weights: &Weights,
    compute: &Arc<Compute>,
    parts: &LayerParts,
) -> Result<GptLayer, ModelError> {
    let norm = |part| LayerNorm::read(compute, weights, part, config.norm_eps);
    let plain = |part: &Dense| {
        let bias: Vec<&Taken> = part.bias.iter().collect();
        Linear::read(compute, weights, &[&part.weight], &bias)
    };
    let order = row_order(config.n_heads, config.head_dim, config.rotary_dim);
    let ordered = |stored: &[f32], inputs: usize| -> Vec<f32> {
        let row = |&row: &usize| &stored[row * inputs..(row + 1) * inputs];
        order.iter().flat_map(row).copied().collect()
    };
    let qkv = &parts.query_key_value;
    let matrix = if weights.is_unread() {
        Matrix::zeros(compute, order.len(), config.hidden_size)?
    } else {
        let rows = ordered(&weights.read_all(&qkv.weight)?, config.hidden_size);
        Matrix::of_rows(compute, &rows, config.hidden_size)?
    };
    let bias = match &qkv.bias {
        Some(bias) => Some(ordered(&weights.read_all(bias)?, 1)),
        None => None,
    };
    Ok(GptLayer {
        attention_norm: norm(&parts.input_layernorm)?,
        qkv: Linear::new(compute, matrix, bias.as_deref()),
        attention: attention(compute, config),
        attention_output: plain(&parts.attention_dense)?,
        mlp_norm: norm(&parts.post_attention_layernorm)?,
        mlp_in: plain(&parts.dense_h_to_4h)?,
        mlp_out: plain(&parts.dense_4h_to_h)?,
    })
}

/// Stored rows in the order that attention expects: all of q, all of k, all of v; within the heads
/// of q and k the rotated pairs half a head apart.
fn row_order(heads: usize, dim: usize, rotary: usize) -> Vec<usize> {
    let (half, turning) = (dim / 2, rotary / 2);
    let within_head = |i: usize| match i {
        i if i < turning => i,
        i if i < half => rotary + (i - turning),
        i if i < half + turning => turning + (i - half),
        i => rotary + (half - turning) + (i - half - turning),
    };
    let mut order = Vec::with_capacity(3 * heads * dim);
    for part in 0..3 {
        for head in 0..heads {
            let start = (head * 3 + part) * dim;
            // Values are not rotated.
            let place = |i| if part == 2 { i } else { within_head(i) };
            order.extend((0..dim).map(|i| start + place(i)));
        }
    }
    order
}

#[cfg(test)]
mod tests {
    /// Two heads of 8, 4 numbers rotated: pairs (0, 2) and (1, 3) go to (0, 4) and (1, 5).
    #[test]
    fn rotated_pairs_end_half_a_head_apart() {
        let order = super::row_order(2, 8, 4);
        assert_eq!(order[..8], [0, 1, 4, 5, 2, 3, 6, 7]);
        assert_eq!(order[8..16], [24, 25, 28, 29, 26, 27, 30, 31]);
        assert_eq!(order[16..24], [8, 9, 12, 13, 10, 11, 14, 15]);
        assert_eq!(order[32..40], [16, 17, 18, 19, 20, 21, 22, 23]);
        let mut all = order;
        all.sort_unstable();
        assert!(all.into_iter().eq(0..48));
    }
}
