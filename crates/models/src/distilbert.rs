//! DistilBERT: the names of its tensors. BERT without token types and without a pooler.
//!
//! Source: Sanh et al., "DistilBERT", section 3, and the tensor names of transformers'
//! `DistilBertModel`.

use crate::encoder_config::{EncoderConfig, HeadKind};
use crate::encoder_stack::{DenseParts, LayerParts, StackParts, take_norm};
use crate::heads::{Curve, HeadParts};
use crate::layers::encoder_embedding::EncoderEmbeddingParts;
use crate::weights::Weights;

/// Takes every tensor of the encoder.
pub fn take(config: &EncoderConfig, weights: &mut Weights) -> StackParts {
    // A model saved without a head has no prefix.
    let bare = weights.has("embeddings.word_embeddings.weight");
    let prefix = if bare { "" } else { "distilbert." };
    let hidden = config.hidden_size;
    let mut table = |name: &str, rows: usize| {
        weights.take(
            &format!("{prefix}embeddings.{name}.weight"),
            &[rows, hidden],
        )
    };
    StackParts {
        embeddings: EncoderEmbeddingParts {
            word: table("word_embeddings", config.vocab_size),
            position: table("position_embeddings", config.n_positions),
            token_type: None,
            norm: take_norm(weights, &format!("{prefix}embeddings.LayerNorm"), hidden),
        },
        layers: (0..config.n_layers)
            .map(|i| take_layer(config, weights, &format!("{prefix}transformer.layer.{i}")))
            .collect(),
    }
}

/// Takes every tensor of the head.
pub fn take_head(config: &EncoderConfig, weights: &mut Weights) -> HeadParts {
    let (hidden, n_labels) = (config.hidden_size, config.labels.len());
    let mut dense = |name: &str, outputs: usize| DenseParts::take(weights, name, outputs, hidden);
    match config.head {
        HeadKind::Embedding => HeadParts::Embedding,
        HeadKind::QuestionAnswering => HeadParts::Span(dense("qa_outputs", 2)),
        HeadKind::TokenClassification => HeadParts::TokenLabels(dense("classifier", n_labels)),
        HeadKind::SequenceClassification => HeadParts::Labels {
            dense: dense("pre_classifier", hidden),
            curve: Curve::Relu,
            out: dense("classifier", n_labels),
        },
    }
}

fn take_layer(config: &EncoderConfig, weights: &mut Weights, layer: &str) -> LayerParts {
    let (hidden, inner) = (config.hidden_size, config.intermediate_size);
    let mut dense = |name: &str, outputs: usize, inputs: usize| {
        DenseParts::take(weights, &format!("{layer}.{name}"), outputs, inputs)
    };
    LayerParts {
        qkv: ["q", "k", "v"].map(|part| dense(&format!("attention.{part}_lin"), hidden, hidden)),
        attention_output: dense("attention.out_lin", hidden, hidden),
        intermediate: dense("ffn.lin1", inner, hidden),
        output: dense("ffn.lin2", hidden, inner),
        attention_norm: take_norm(weights, &format!("{layer}.sa_layer_norm"), hidden),
        output_norm: take_norm(weights, &format!("{layer}.output_layer_norm"), hidden),
    }
}

/// True for tensors of a checkpoint that the encoder and its head do without: the head of
/// pre-training, position ids stored as a buffer.
pub fn is_spare(name: &str) -> bool {
    let name = name.strip_prefix("distilbert.").unwrap_or(name);
    name.starts_with("vocab_transform.")
        || name.starts_with("vocab_layer_norm.")
        || name.starts_with("vocab_projector.")
        || name == "embeddings.position_ids"
}
