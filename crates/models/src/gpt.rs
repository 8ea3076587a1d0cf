//! The layers of GPT-2 and GPT-NeoX: layer norm before attention and before an MLP of two matrices,
//! biases everywhere, heads that share no keys.
//!
//! `gpt2` and `gpt_neox` name the tensors and bring them into the order that is expected here.
//! Source: Radford et al., "Language models are unsupervised multitask learners", section 2.3.

use std::sync::Arc;

use tch::Tensor;

use crate::causal::CausalModel;
use crate::config::{Activation, ModelConfig};
use crate::error::ModelError;
use crate::layers::Compute;
use crate::layers::attention::{Batch, Cache, Heads, SelfAttention};
use crate::layers::embedding::Embedding;
use crate::layers::layer_norm::{LayerNorm, LayerNormParts};
use crate::layers::linear::{Linear, Matrix};
use crate::weights::{Taken, Weights};

/// A model, its matrices read.
pub struct Gpt {
    pub(crate) embedding: Embedding,
    /// Learned positions. Shape: `[positions, hidden]`, in the format of activations.
    pub(crate) positions: Option<Tensor>,
    pub(crate) layers: Vec<GptLayer>,
    pub(crate) final_norm: LayerNorm,
    pub(crate) head: Linear,
    /// True where attention and MLP both read the layer's input.
    pub(crate) parallel: bool,
    pub(crate) activation: Activation,
    /// Memory of the embeddings and, where it is a matrix of its own, of the head.
    pub(crate) table_bytes: usize,
}

/// One layer.
pub(crate) struct GptLayer {
    pub(crate) attention_norm: LayerNorm,
    pub(crate) qkv: Linear,
    pub(crate) attention: SelfAttention,
    pub(crate) attention_output: Linear,
    pub(crate) mlp_norm: LayerNorm,
    pub(crate) mlp_in: Linear,
    pub(crate) mlp_out: Linear,
}

/// A matrix with its bias, taken but not read.
pub(crate) struct Dense {
    pub(crate) weight: Taken,
    pub(crate) bias: Option<Taken>,
}

impl Dense {
    /// Reads the layer; `rows_of` brings weights and, as rows of one number, biases into order.
    pub(crate) fn read(
        &self,
        compute: &Arc<Compute>,
        weights: &Weights,
        rows_of: impl Fn(Vec<f32>, usize) -> Vec<f32>,
        (outputs, inputs): (usize, usize),
    ) -> Result<Linear, ModelError> {
        let matrix = if weights.is_unread() {
            Matrix::zeros(compute, outputs, inputs)?
        } else {
            let rows = rows_of(weights.read_all(&self.weight)?, inputs);
            assert_eq!(rows.len(), outputs * inputs, "matrix out of shape");
            Matrix::of_rows(compute, &rows, inputs)?
        };
        let bias = match &self.bias {
            Some(bias) => Some(weights.read_all(bias)?),
            None => None,
        };
        Ok(Linear::new(compute, matrix, bias.as_deref()))
    }
}

/// Takes `NAME.weight` and `NAME.bias` of a layer norm.
pub(crate) fn take_norm(weights: &mut Weights, name: &str, width: usize) -> LayerNormParts {
    LayerNormParts {
        weight: weights.take(&format!("{name}.weight"), &[width]),
        bias: weights.take(&format!("{name}.bias"), &[width]),
    }
}

/// The attention of a layer of `config`.
pub(crate) fn attention(compute: &Arc<Compute>, config: &ModelConfig) -> SelfAttention {
    SelfAttention::new(compute, Heads::of(config), config.sliding_window)
}

impl CausalModel for Gpt {
    fn weight_bytes(&self) -> usize {
        let positions = self.positions.as_ref();
        let layers = self.layers.iter().map(GptLayer::bytes);
        self.table_bytes
            + positions.map_or(0, |p| p.numel() * p.kind().elt_size_in_bytes())
            + self.final_norm.bytes()
            + layers.sum::<usize>()
    }

    fn forward(&self, ids: &[u32], batch: &Batch, caches: &mut [Cache]) -> Tensor {
        assert_eq!(caches.len(), self.layers.len(), "one cache a layer");
        let mut hidden = self.embedding.forward(ids);
        if let Some(table) = &self.positions {
            let spans = batch.spans.iter();
            let positions: Vec<i64> = spans
                .flat_map(|s| s.past as i64..(s.past + s.n_rows) as i64)
                .collect();
            let positions = Tensor::from_slice(&positions).to_device(table.device());
            hidden += table.index_select(0, &positions);
        }
        for (layer, cache) in self.layers.iter().zip(caches) {
            self.layer(layer, &mut hidden, batch, cache);
        }
        hidden
    }

    fn head(&self, hidden: &Tensor) -> Tensor {
        let mut normed = hidden.copy();
        self.final_norm.apply(&mut normed);
        self.head.forward(&normed)
    }
}

impl Gpt {
    fn layer(&self, layer: &GptLayer, hidden: &mut Tensor, batch: &Batch, cache: &mut Cache) {
        let normed = |norm: &LayerNorm, x: &Tensor| {
            let mut x = x.copy();
            norm.apply(&mut x);
            x
        };
        // Read before attention adds to the stream, where both branches start from it.
        let before = self.parallel.then(|| normed(&layer.mlp_norm, hidden));
        let qkv = layer.qkv.forward(&normed(&layer.attention_norm, hidden));
        let attended = layer.attention.forward(qkv, batch, cache);
        layer.attention_output.forward_add(&attended, hidden);
        let input = before.unwrap_or_else(|| normed(&layer.mlp_norm, hidden));
        let inner = layer.mlp_in.forward_bent(&input, self.activation);
        layer.mlp_out.forward_add(&inner, hidden);
    }
}

impl GptLayer {
    fn bytes(&self) -> usize {
        self.attention_norm.bytes()
            + self.mlp_norm.bytes()
            + self.qkv.bytes()
            + self.attention_output.bytes()
            + self.mlp_in.bytes()
            + self.mlp_out.bytes()
    }
}
