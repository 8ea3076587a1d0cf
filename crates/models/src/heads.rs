//! What stands on top of an encoder: hidden states to vectors, label numbers or span numbers.

use std::sync::Arc;

use tch::{Kind, Tensor};

use crate::encoder::EncoderOutput;
use crate::encoder_stack::{DenseParts, PackedTexts, StatesNeeded};
use crate::error::ModelError;
use crate::layers::Compute;
use crate::layers::bidirectional::{TextRows, equal_lengths};
use crate::layers::linear::Linear;
use crate::layers::numbers;
use crate::pooling::{Pooling, PoolingMode, SMALLEST_NORM};
use crate::weights::Weights;

/// The curve between the two layers of a classifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Curve {
    /// BERT's and RoBERTa's.
    Tanh,
    /// DistilBERT's.
    Relu,
}

/// Tensors of a head, taken but not read.
pub enum HeadParts {
    /// Nothing to take.
    Embedding,
    /// Two layers on the first token.
    Labels {
        /// The first.
        dense: DenseParts,
        /// Between them.
        curve: Curve,
        /// The second, one output a label.
        out: DenseParts,
    },
    /// Two outputs for every token.
    Span(DenseParts),
    /// One output a label for every token.
    TokenLabels(DenseParts),
}

/// A head.
pub enum Head {
    /// Pooled states.
    Embedding(Pooling),
    /// Two layers on the first token.
    Labels {
        /// The first.
        dense: Linear,
        /// Between them.
        curve: Curve,
        /// The second, one output a label.
        out: Linear,
    },
    /// Two outputs for every token.
    Span(Linear),
    /// One output a label for every token.
    TokenLabels(Linear),
}

impl Head {
    /// Reads the tensors.
    ///
    /// # Errors
    /// What reading a tensor can give; see [`Weights::read`].
    pub fn read(
        parts: &HeadParts,
        pooling: &Pooling,
        weights: &Weights,
        compute: &Arc<Compute>,
    ) -> Result<Self, ModelError> {
        Ok(match parts {
            HeadParts::Embedding => Self::Embedding(pooling.clone()),
            HeadParts::Labels { dense, curve, out } => Self::Labels {
                dense: dense.read(compute, weights)?,
                curve: *curve,
                out: out.read(compute, weights)?,
            },
            HeadParts::Span(dense) => Self::Span(dense.read(compute, weights)?),
            HeadParts::TokenLabels(dense) => Self::TokenLabels(dense.read(compute, weights)?),
        })
    }

    /// Memory of the weights. Unit: bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Embedding(_) => 0,
            Self::Labels { dense, out, .. } => dense.bytes() + out.bytes(),
            Self::Span(dense) | Self::TokenLabels(dense) => dense.bytes(),
        }
    }

    /// Which states it reads.
    pub fn needs(&self) -> StatesNeeded {
        match self {
            Self::Embedding(pooling) if pooling.modes == [PoolingMode::Cls] => StatesNeeded::First,
            Self::Labels { .. } => StatesNeeded::First,
            Self::Embedding(_) | Self::Span(_) | Self::TokenLabels(_) => StatesNeeded::All,
        }
    }

    /// One output for each text of the batch, in its order. Shape: `hidden: [rows, hidden]`, the
    /// rows that [`Head::needs`] names.
    pub fn forward(
        &self,
        hidden: &Tensor,
        batch: &PackedTexts,
        compute: &Compute,
    ) -> Vec<EncoderOutput> {
        // The rows of each text in `hidden`.
        let texts = match self.needs() {
            StatesNeeded::All => batch.texts.clone(),
            StatesNeeded::First => (0..batch.texts.len()).map(|i| i..i + 1).collect(),
        };
        match self {
            Self::Embedding(pooling) => embeddings(pooling, hidden, &texts, compute),
            Self::Labels { dense, curve, out } => {
                let inner = dense.forward(hidden);
                let inner = match curve {
                    Curve::Tanh => inner.tanh(),
                    Curve::Relu => inner.relu(),
                };
                by_text(&out.forward(&inner), &texts, EncoderOutput::Labels)
            }
            Self::Span(dense) => by_text(&dense.forward(hidden), &texts, |pairs| {
                let column = |i: usize| pairs.iter().skip(i).step_by(2).copied().collect();
                EncoderOutput::Span {
                    start: column(0),
                    end: column(1),
                }
            }),
            Self::TokenLabels(dense) => {
                by_text(&dense.forward(hidden), &texts, EncoderOutput::TokenLabels)
            }
        }
    }
}

/// f32 on the CPU.
pub(crate) fn plain(x: &Tensor) -> Tensor {
    x.to_device(tch::Device::Cpu)
        .to_kind(Kind::Float)
        .contiguous()
}

/// Cuts a matrix into the rows of each text.
fn by_text(
    x: &Tensor,
    texts: &[TextRows],
    output: impl Fn(Vec<f32>) -> EncoderOutput,
) -> Vec<EncoderOutput> {
    let x = plain(x);
    let width = x.size()[1] as usize;
    let all = numbers(&x);
    let rows = texts.iter().map(|t| &all[t.start * width..t.end * width]);
    rows.map(|rows| output(rows.to_vec())).collect()
}

fn embeddings(
    pooling: &Pooling,
    hidden: &Tensor,
    texts: &[TextRows],
    compute: &Compute,
) -> Vec<EncoderOutput> {
    let width = hidden.size()[1] as usize;
    if compute.team.is_some() {
        let all = numbers(hidden);
        let rows = texts.iter().map(|t| &all[t.start * width..t.end * width]);
        return rows
            .map(|rows| EncoderOutput::Embedding(pooling.pool(rows, width)))
            .collect();
    }
    // Pooled where the states are: on an accelerator only the vectors cross the bus.
    let pooled: Vec<Tensor> = equal_lengths(texts)
        .map(|(first, n, len)| {
            let [first, n, len] = [first, n, len].map(|n| n as i64);
            let states = hidden.narrow(0, first, n * len).to_kind(Kind::Float);
            pool(pooling, &states.view([n, len, width as i64]))
        })
        .collect();
    let pooled = Tensor::cat(&pooled, 0);
    let singles: Vec<TextRows> = (0..texts.len()).map(|i| i..i + 1).collect();
    by_text(&pooled, &singles, EncoderOutput::Embedding)
}

/// [`Pooling::pool`] with LibTorch's operators. Shapes: `[texts, tokens, hidden]` to
/// `[texts, embedding_size]`.
fn pool(pooling: &Pooling, states: &Tensor) -> Tensor {
    let len = states.size()[1];
    let vectors: Vec<Tensor> = pooling
        .modes
        .iter()
        .map(|mode| match mode {
            PoolingMode::Cls => states.select(1, 0),
            PoolingMode::LastToken => states.select(1, len - 1),
            PoolingMode::Max => states.amax([1i64], false),
            PoolingMode::Mean => states.mean_dim(&[1i64][..], false, Kind::Float),
            PoolingMode::MeanSqrtLen => {
                states.sum_dim_intlist(&[1i64][..], false, Kind::Float) / (len as f64).sqrt()
            }
            PoolingMode::WeightedMean => {
                let weights = Tensor::arange(len, (Kind::Float, states.device())) + 1.0;
                let weighted = states * weights.view([1, len, 1]);
                weighted.sum_dim_intlist(&[1i64][..], false, Kind::Float)
                    / (len * (len + 1) / 2) as f64
            }
        })
        .collect();
    let all = Tensor::cat(&vectors, 1);
    if !pooling.normalize {
        return all;
    }
    let squares = all.square().sum_dim_intlist(&[1i64][..], true, Kind::Float);
    let norm = squares.sqrt();
    all / norm.clamp_min(f64::from(SMALLEST_NORM))
}
