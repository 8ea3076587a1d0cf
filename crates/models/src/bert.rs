//! BERT, RoBERTa and XLM-R: the names of their tensors.
//!
//! Source: the tensor names of transformers' `BertModel` and `RobertaModel`.

use crate::encoder_config::{EncoderConfig, Family, HeadKind};
use crate::encoder_stack::{DenseParts, LayerParts, StackParts, take_norm};
use crate::heads::{Curve, HeadParts};
use crate::layers::encoder_embedding::EncoderEmbeddingParts;
use crate::weights::Weights;

/// Takes every tensor of the encoder.
pub fn take(config: &EncoderConfig, weights: &mut Weights) -> StackParts {
    let prefix = prefix(config, weights);
    let hidden = config.hidden_size;
    let mut table = |name: &str, rows: usize| {
        weights.take(
            &format!("{prefix}embeddings.{name}.weight"),
            &[rows, hidden],
        )
    };
    let word = table("word_embeddings", config.vocab_size);
    let position = table("position_embeddings", config.n_positions);
    let n_types = config.n_token_types;
    let token_type = (n_types > 0).then(|| table("token_type_embeddings", n_types));
    StackParts {
        embeddings: EncoderEmbeddingParts {
            word,
            position,
            token_type,
            norm: take_norm(weights, &format!("{prefix}embeddings.LayerNorm"), hidden),
        },
        layers: (0..config.n_layers)
            .map(|i| take_layer(config, weights, &format!("{prefix}encoder.layer.{i}")))
            .collect(),
    }
}

/// Takes every tensor of the head. BERT puts its pooler before a classifier, RoBERTa a layer of
/// the classifier's own.
pub fn take_head(config: &EncoderConfig, weights: &mut Weights) -> HeadParts {
    let (hidden, n_labels) = (config.hidden_size, config.labels.len());
    let mut dense = |name: &str, outputs: usize| DenseParts::take(weights, name, outputs, hidden);
    match (config.head, config.family) {
        (HeadKind::Embedding, _) => HeadParts::Embedding,
        (HeadKind::QuestionAnswering, _) => HeadParts::Span(dense("qa_outputs", 2)),
        (HeadKind::TokenClassification, _) => HeadParts::TokenLabels(dense("classifier", n_labels)),
        (HeadKind::SequenceClassification, Family::Roberta) => HeadParts::Labels {
            dense: dense("classifier.dense", hidden),
            curve: Curve::Tanh,
            out: dense("classifier.out_proj", n_labels),
        },
        (HeadKind::SequenceClassification, _) => HeadParts::Labels {
            dense: dense("bert.pooler.dense", hidden),
            curve: Curve::Tanh,
            out: dense("classifier", n_labels),
        },
    }
}

/// A model saved without a head has no prefix.
fn prefix(config: &EncoderConfig, weights: &Weights) -> &'static str {
    let prefix = match config.family {
        Family::Roberta => "roberta.",
        Family::Bert | Family::DistilBert => "bert.",
    };
    let bare = weights.has("embeddings.word_embeddings.weight");
    if bare { "" } else { prefix }
}

fn take_layer(config: &EncoderConfig, weights: &mut Weights, layer: &str) -> LayerParts {
    let (hidden, inner) = (config.hidden_size, config.intermediate_size);
    let mut dense = |name: &str, outputs: usize, inputs: usize| {
        DenseParts::take(weights, &format!("{layer}.{name}"), outputs, inputs)
    };
    let qkv = ["query", "key", "value"];
    LayerParts {
        qkv: qkv.map(|part| dense(&format!("attention.self.{part}"), hidden, hidden)),
        attention_output: dense("attention.output.dense", hidden, hidden),
        intermediate: dense("intermediate.dense", inner, hidden),
        output: dense("output.dense", hidden, inner),
        attention_norm: take_norm(
            weights,
            &format!("{layer}.attention.output.LayerNorm"),
            hidden,
        ),
        output_norm: take_norm(weights, &format!("{layer}.output.LayerNorm"), hidden),
    }
}

/// True for tensors of a checkpoint that the encoder and its head do without: heads of
/// pre-training, the pooler where the head does not use it, position ids stored as a buffer.
pub fn is_spare(name: &str) -> bool {
    let name = name
        .strip_prefix("bert.")
        .or_else(|| name.strip_prefix("roberta."))
        .unwrap_or(name);
    name.starts_with("cls.")
        || name.starts_with("lm_head.")
        || name.starts_with("pooler.")
        || name == "embeddings.position_ids"
        || name == "embeddings.token_type_ids"
}
