//! The layers of a BERT-like encoder: embeddings, then attention and MLP, each added to the stream
//! and normalised after (post-norm).
//!
//! BERT, RoBERTa, XLM-R and DistilBERT differ in the names of their tensors and in positions and
//! token types, not in this computation; `bert` and `distilbert` name the tensors.
//! Source: Devlin et al., "BERT", section 3; Vaswani et al., "Attention is all you need", 3.1.

use std::sync::Arc;

use tch::Tensor;

use crate::config::Activation;
use crate::encoder_config::EncoderConfig;
use crate::error::ModelError;
use crate::layers::Compute;
use crate::layers::bidirectional::{BidirectionalAttention, TextRows};
use crate::layers::encoder_embedding::{EncoderEmbedding, EncoderEmbeddingParts, TokenRows};
use crate::layers::layer_norm::{LayerNorm, LayerNormParts};
use crate::layers::linear::Linear;
use crate::weights::{Taken, Weights};

/// Tensors of the encoder, taken but not read.
pub struct StackParts {
    /// The three tables and their norm.
    pub embeddings: EncoderEmbeddingParts,
    /// The layers in order.
    pub layers: Vec<LayerParts>,
}

/// Tensors of one layer.
pub struct LayerParts {
    /// Query, key and value projections.
    pub qkv: [DenseParts; 3],
    /// The projection after attention.
    pub attention_output: DenseParts,
    /// The norm after attention.
    pub attention_norm: LayerNormParts,
    /// The MLP's first matrix.
    pub intermediate: DenseParts,
    /// The MLP's second matrix.
    pub output: DenseParts,
    /// The norm after the MLP.
    pub output_norm: LayerNormParts,
}

/// A matrix and its bias.
pub struct DenseParts {
    /// Shape: `[outputs, inputs]`.
    pub weight: Taken,
    /// Shape: `[outputs]`.
    pub bias: Taken,
}

impl DenseParts {
    /// Takes `NAME.weight` and `NAME.bias`.
    pub fn take(weights: &mut Weights, name: &str, outputs: usize, inputs: usize) -> Self {
        Self {
            weight: weights.take(&format!("{name}.weight"), &[outputs, inputs]),
            bias: weights.take(&format!("{name}.bias"), &[outputs]),
        }
    }

    /// Reads it.
    ///
    /// # Errors
    /// What reading a tensor can give; see [`Weights::read`].
    pub fn read(&self, compute: &Arc<Compute>, weights: &Weights) -> Result<Linear, ModelError> {
        Linear::read(compute, weights, &[&self.weight], &[&self.bias])
    }
}

/// Takes the two vectors of a norm. The oldest checkpoints call them gamma and beta.
pub fn take_norm(weights: &mut Weights, name: &str, hidden: usize) -> LayerNormParts {
    let mut take = |new: &str, old: &str| {
        let old = format!("{name}.{old}");
        if weights.has(&old) {
            weights.take(&old, &[hidden])
        } else {
            weights.take(&format!("{name}.{new}"), &[hidden])
        }
    };
    LayerNormParts {
        weight: take("weight", "gamma"),
        bias: take("bias", "beta"),
    }
}

/// Rows of a batch, texts one behind the other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PackedTexts {
    /// What each row is made of.
    pub rows: TokenRows,
    /// The rows of each text; texts of one length stand together.
    pub texts: Vec<TextRows>,
}

/// Which hidden states the head needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatesNeeded {
    /// One a token.
    All,
    /// The first token's of each text.
    First,
}

/// The encoder without its head.
pub struct EncoderStack {
    embeddings: EncoderEmbedding,
    layers: Vec<Layer>,
    compute: Arc<Compute>,
}

struct Layer {
    qkv: Linear,
    attention: BidirectionalAttention,
    attention_output: Linear,
    attention_norm: LayerNorm,
    intermediate: Linear,
    activation: Activation,
    output: Linear,
    output_norm: LayerNorm,
}

impl EncoderStack {
    /// Reads all tensors.
    ///
    /// # Errors
    /// What reading a tensor can give; see [`Weights::read`].
    pub fn read(
        config: &EncoderConfig,
        weights: &Weights,
        compute: &Arc<Compute>,
        parts: &StackParts,
    ) -> Result<Self, ModelError> {
        let eps = config.layer_norm_eps;
        let layers = parts.layers.iter();
        Ok(Self {
            embeddings: EncoderEmbedding::read(compute, weights, &parts.embeddings, eps)?,
            layers: layers
                .map(|p| Layer::read(config, weights, compute, p))
                .collect::<Result<_, _>>()?,
            compute: Arc::clone(compute),
        })
    }

    /// Memory of the weights. Unit: bytes.
    pub fn bytes(&self) -> usize {
        self.embeddings.bytes() + self.layers.iter().map(Layer::bytes).sum::<usize>()
    }

    /// The last hidden states. Shape: `[rows, hidden]`, or `[texts, hidden]` for
    /// [`StatesNeeded::First`].
    pub fn forward(&self, batch: &PackedTexts, needed: StatesNeeded) -> Tensor {
        let mut hidden = self.embeddings.forward(&batch.rows);
        let Some((last, others)) = self.layers.split_last() else {
            return hidden;
        };
        for layer in others {
            let attended = layer.attend(&hidden, &batch.texts);
            layer.finish(&attended, &mut hidden);
        }
        let mut attended = last.attend(&hidden, &batch.texts);
        if needed == StatesNeeded::First {
            // Nothing reads the other rows any more: most of the layer is left out for them.
            let rows: Vec<i64> = batch.texts.iter().map(|t| t.start as i64).collect();
            let rows = Tensor::from_slice(&rows).to_device(self.compute.device.torch());
            attended = attended.index_select(0, &rows);
            hidden = hidden.index_select(0, &rows);
        }
        last.finish(&attended, &mut hidden);
        hidden
    }
}

impl Layer {
    fn read(
        config: &EncoderConfig,
        weights: &Weights,
        compute: &Arc<Compute>,
        parts: &LayerParts,
    ) -> Result<Self, ModelError> {
        let qkv = parts.qkv.each_ref();
        let norm = |parts| LayerNorm::read(compute, weights, parts, config.layer_norm_eps);
        Ok(Self {
            qkv: Linear::read(
                compute,
                weights,
                &qkv.map(|p| &p.weight),
                &qkv.map(|p| &p.bias),
            )?,
            attention: BidirectionalAttention::new(compute, config.n_heads, config.head_dim()),
            attention_output: parts.attention_output.read(compute, weights)?,
            attention_norm: norm(&parts.attention_norm)?,
            intermediate: parts.intermediate.read(compute, weights)?,
            activation: config.activation,
            output: parts.output.read(compute, weights)?,
            output_norm: norm(&parts.output_norm)?,
        })
    }

    fn bytes(&self) -> usize {
        self.qkv.bytes()
            + self.attention_output.bytes()
            + self.attention_norm.bytes()
            + self.intermediate.bytes()
            + self.output.bytes()
            + self.output_norm.bytes()
    }

    fn attend(&self, hidden: &Tensor, texts: &[TextRows]) -> Tensor {
        self.attention.forward(&self.qkv.forward(hidden), texts)
    }

    /// From attention's result to the layer's, in place on the stream.
    fn finish(&self, attended: &Tensor, hidden: &mut Tensor) {
        self.attention_output.forward_add(attended, hidden);
        self.attention_norm.apply(hidden);
        let inner = self.intermediate.forward_bent(hidden, self.activation);
        self.output.forward_add(&inner, hidden);
        self.output_norm.apply(hidden);
    }
}
