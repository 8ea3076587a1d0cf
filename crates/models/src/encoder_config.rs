//! An encoder's `config.json`, validated once: BERT, RoBERTa, XLM-R and DistilBERT, in the style of
//! transformers 5 and in older ones.
//!
//! The class in `architectures` says both the wiring ([`Family`]) and the head ([`HeadKind`]); how
//! embeddings are pooled stands in other files, see `sentence_files`.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use crate::config::{Activation, MAX_LAYERS};
use crate::device::Dtype;
use crate::error::ModelError;
use crate::files::{parse_json, read_text};

/// Which wiring a checkpoint has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// BERT: positions from 0, token types.
    Bert,
    /// RoBERTa and XLM-R: BERT's wiring, positions from the padding id + 1.
    Roberta,
    /// DistilBERT: no token types, names of its own.
    DistilBert,
}

/// What stands on top of the encoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadKind {
    /// Nothing: hidden states, to be pooled.
    Embedding,
    /// One number a label for the whole sequence.
    SequenceClassification,
    /// A start and an end number for each token.
    QuestionAnswering,
    /// One number a label for each token.
    TokenClassification,
}

/// How a classifier's numbers become scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScoreKind {
    /// Labels exclude each other: softmax.
    Softmax,
    /// Every label for itself: the logistic function.
    Sigmoid,
    /// As they are.
    Identity,
}

/// What the wiring of an encoder needs to know.
#[derive(Debug, Clone, PartialEq)]
pub struct EncoderConfig {
    /// As the checkpoint names it: `BertForSequenceClassification`.
    pub architecture: String,
    /// The wiring.
    pub family: Family,
    /// The head.
    pub head: HeadKind,
    /// Rows of the word embedding.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width inside the MLP.
    pub intermediate_size: usize,
    /// Layers.
    pub n_layers: usize,
    /// Attention heads, each `hidden_size / n_heads` wide.
    pub n_heads: usize,
    /// Rows of the position embedding.
    pub n_positions: usize,
    /// Row of the position embedding that the first token takes.
    pub first_position: usize,
    /// Rows of the token type embedding; 0 where there is none.
    pub n_token_types: usize,
    /// Added to the variance before its root.
    pub layer_norm_eps: f64,
    /// The MLP's curve.
    pub activation: Activation,
    /// Id that fills up batches elsewhere; RoBERTa gives it no position.
    pub pad_id: u32,
    /// What a classifier's numbers stand for, in order; empty without a classifier.
    pub labels: Vec<String>,
    /// How a classifier's numbers become scores.
    pub score_kind: ScoreKind,
    /// Format the weights were stored in, where the checkpoint says.
    pub dtype: Option<Dtype>,
}

/// Wirings by the first part of a class name, longest first where one begins another.
const FAMILIES: [(&str, Family); 4] = [
    ("DistilBert", Family::DistilBert),
    ("XLMRoberta", Family::Roberta),
    ("Roberta", Family::Roberta),
    ("Bert", Family::Bert),
];

/// Heads by the rest of a class name. A pre-training head is left out: its encoder is what counts.
const HEADS: [(&str, HeadKind); 6] = [
    ("Model", HeadKind::Embedding),
    ("ForMaskedLM", HeadKind::Embedding),
    ("ForPreTraining", HeadKind::Embedding),
    (
        "ForSequenceClassification",
        HeadKind::SequenceClassification,
    ),
    ("ForQuestionAnswering", HeadKind::QuestionAnswering),
    ("ForTokenClassification", HeadKind::TokenClassification),
];

/// Wiring and head of a class of transformers, or `None` for one that is not built here.
pub fn known(architecture: &str) -> Option<(Family, HeadKind)> {
    FAMILIES.iter().find_map(|(name, family)| {
        let rest = architecture.strip_prefix(name)?;
        let (_, head) = HEADS.iter().find(|(name, _)| *name == rest)?;
        Some((*family, *head))
    })
}

/// What [`known`] knows, for messages.
const SUPPORTED: [&str; 4] = [
    "Bert*, Roberta*, XLMRoberta* and DistilBert* with Model",
    "ForSequenceClassification",
    "ForQuestionAnswering",
    "ForTokenClassification",
];

impl EncoderConfig {
    /// Reads `config.json`.
    ///
    /// # Errors
    /// [`ModelError::Io`], [`ModelError::Malformed`] for bad JSON or a wrong type,
    /// [`ModelError::UnsupportedArchitecture`], and [`ModelError::Config`] with every
    /// contradiction found.
    pub fn read(path: &Path) -> Result<Self, ModelError> {
        Self::parse(path, &read_text(path)?)
    }

    /// [`EncoderConfig::read`] on text already in memory; `path` is for the messages.
    ///
    /// # Errors
    /// As [`EncoderConfig::read`], without I/O.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ModelError> {
        let raw: RawConfig = parse_json(path, text)?;
        let named = raw.architectures.as_ref().and_then(|a| a.first());
        let architecture = named.cloned().unwrap_or_default();
        let Some((family, head)) = known(&architecture) else {
            return Err(ModelError::UnsupportedArchitecture {
                architecture,
                supported: SUPPORTED.to_vec(),
            });
        };
        raw.validate(architecture, family, head)
            .map_err(|problems| ModelError::Config {
                path: path.to_owned(),
                problems,
            })
    }

    /// Width of a head.
    pub fn head_dim(&self) -> usize {
        self.hidden_size / self.n_heads
    }

    /// Longest sequence the positions allow, special tokens included.
    pub fn max_tokens(&self) -> usize {
        self.n_positions - self.first_position
    }

    fn contradictions(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for (key, value) in [
            ("vocab_size", self.vocab_size),
            ("hidden_size", self.hidden_size),
            ("intermediate_size", self.intermediate_size),
            ("num_hidden_layers", self.n_layers),
            ("num_attention_heads", self.n_heads),
            ("max_position_embeddings", self.n_positions),
        ] {
            // The upper end keeps every product of two sizes inside 64 bits.
            if value == 0 || value > 1 << 30 {
                problems.push(format!("{key} {value}: must be 1 to 2^30"));
            }
        }
        if !self.hidden_size.is_multiple_of(self.n_heads.max(1)) {
            problems.push(format!(
                "hidden_size {} is not a multiple of num_attention_heads {}",
                self.hidden_size, self.n_heads
            ));
        }
        if self.n_layers > MAX_LAYERS {
            let n = self.n_layers;
            problems.push(format!(
                "num_hidden_layers {n}: must be at most {MAX_LAYERS}"
            ));
        }
        if self.n_token_types > 1 << 30 {
            let n = self.n_token_types;
            problems.push(format!("type_vocab_size {n}: must be at most 2^30"));
        }
        if self.first_position >= self.n_positions {
            problems.push(format!(
                "pad_token_id {}: positions start behind it, and max_position_embeddings is {}",
                self.pad_id, self.n_positions
            ));
        }
        if !(self.layer_norm_eps.is_finite() && self.layer_norm_eps > 0.0) {
            let eps = self.layer_norm_eps;
            problems.push(format!("layer_norm_eps {eps}: must be a positive number"));
        }
        problems
    }
}

/// `config.json` as written; every key that changes the numbers. DistilBERT's names for a size
/// stand as aliases.
#[derive(Debug, Deserialize)]
struct RawConfig {
    architectures: Option<Vec<String>>,
    vocab_size: Option<usize>,
    #[serde(alias = "dim")]
    hidden_size: Option<usize>,
    #[serde(alias = "hidden_dim")]
    intermediate_size: Option<usize>,
    #[serde(alias = "n_layers")]
    num_hidden_layers: Option<usize>,
    #[serde(alias = "n_heads")]
    num_attention_heads: Option<usize>,
    max_position_embeddings: Option<usize>,
    type_vocab_size: Option<usize>,
    layer_norm_eps: Option<f64>,
    #[serde(alias = "activation")]
    hidden_act: Option<String>,
    pad_token_id: Option<u32>,
    position_embedding_type: Option<String>,
    is_decoder: Option<bool>,
    id2label: Option<BTreeMap<String, String>>,
    num_labels: Option<usize>,
    problem_type: Option<String>,
    /// Where cross-encoders keep their activation, now and in older folders.
    sentence_transformers: Option<RawCrossEncoder>,
    sbert_ce_default_activation_function: Option<String>,
    dtype: Option<String>,
    torch_dtype: Option<String>,
}

#[derive(Debug, Deserialize)]
struct RawCrossEncoder {
    activation_fn: Option<String>,
}

impl RawConfig {
    /// Defaults are those of transformers' `BertConfig`, `RobertaConfig` and `DistilBertConfig`.
    fn validate(
        self,
        architecture: String,
        family: Family,
        head: HeadKind,
    ) -> Result<EncoderConfig, Vec<String>> {
        let mut problems = Vec::new();
        let labels = self.labels(head, &mut problems);
        let score_kind = self.score_kind(labels.len(), &mut problems);
        let mut needed = |key: &str, value: Option<usize>| {
            value.unwrap_or_else(|| {
                problems.push(format!("{key} is missing"));
                1
            })
        };
        let vocab_size = needed("vocab_size", self.vocab_size);
        let hidden_size = needed("hidden_size", self.hidden_size);
        let intermediate_size = needed("intermediate_size", self.intermediate_size);
        let n_layers = needed("num_hidden_layers", self.num_hidden_layers);
        let n_heads = needed("num_attention_heads", self.num_attention_heads);
        let activation = activation(self.hidden_act.as_deref(), &mut problems);
        let positions = self.position_embedding_type.as_deref();
        if let Some(kind) = positions.filter(|p| *p != "absolute") {
            problems.push(format!("position_embedding_type {kind}: must be absolute"));
        }
        if self.is_decoder == Some(true) {
            problems.push("is_decoder true: must be false".to_owned());
        }
        let roberta = family == Family::Roberta;
        let pad_id = self.pad_token_id.unwrap_or(u32::from(roberta));
        let config = EncoderConfig {
            architecture,
            family,
            head,
            vocab_size,
            hidden_size,
            intermediate_size,
            n_layers,
            n_heads,
            n_positions: self.max_position_embeddings.unwrap_or(512),
            // Source: `create_position_ids_from_input_ids` in transformers' modeling_roberta.py.
            first_position: if roberta { pad_id as usize + 1 } else { 0 },
            n_token_types: match family {
                Family::DistilBert => 0,
                Family::Bert | Family::Roberta => self.type_vocab_size.unwrap_or(2),
            },
            // DistilBERT has no key for it: transformers writes 1e-12 into the code.
            layer_norm_eps: match family {
                Family::DistilBert => 1e-12,
                Family::Bert | Family::Roberta => self.layer_norm_eps.unwrap_or(1e-12),
            },
            activation,
            pad_id,
            labels,
            score_kind,
            dtype: self.dtype.or(self.torch_dtype).and_then(|d| d.parse().ok()),
        };
        problems.extend(config.contradictions());
        if problems.is_empty() {
            Ok(config)
        } else {
            Err(problems)
        }
    }

    /// Names in order of their index, `LABEL_0`, `LABEL_1` where the file has none.
    fn labels(&self, head: HeadKind, problems: &mut Vec<String>) -> Vec<String> {
        match head {
            HeadKind::Embedding | HeadKind::QuestionAnswering => return Vec::new(),
            HeadKind::SequenceClassification | HeadKind::TokenClassification => {}
        }
        let Some(map) = &self.id2label else {
            let n = self.num_labels.unwrap_or(2);
            if !(1..=1 << 20).contains(&n) {
                problems.push(format!("num_labels {n}: must be 1 to 2^20"));
                return Vec::new();
            }
            return (0..n).map(|i| format!("LABEL_{i}")).collect();
        };
        let labels: Option<Vec<String>> = (0..map.len())
            .map(|i| map.get(&i.to_string()).cloned())
            .collect();
        let labels = labels.unwrap_or_default();
        if labels.is_empty() {
            problems.push("id2label: keys must be 0, 1, 2 without a gap".to_owned());
        }
        labels
    }

    /// A cross-encoder says it outright; otherwise one label or many that do not exclude each
    /// other mean the logistic function, as in the reference's pipelines.
    fn score_kind(&self, n_labels: usize, problems: &mut Vec<String>) -> ScoreKind {
        let nested = self.sentence_transformers.as_ref();
        let said = nested
            .and_then(|s| s.activation_fn.as_deref())
            .or(self.sbert_ce_default_activation_function.as_deref());
        let class = said.map(|name| name.rsplit('.').next().unwrap_or(name));
        match (class, self.problem_type.as_deref()) {
            (Some("Sigmoid"), _) => ScoreKind::Sigmoid,
            (Some("Identity"), _) => ScoreKind::Identity,
            (Some(other), _) => {
                problems.push(format!(
                    "activation_fn {other}: must be Sigmoid or Identity"
                ));
                ScoreKind::Identity
            }
            (None, Some("multi_label_classification")) => ScoreKind::Sigmoid,
            (None, Some("regression")) => ScoreKind::Identity,
            _ if n_labels == 1 => ScoreKind::Sigmoid,
            _ => ScoreKind::Softmax,
        }
    }
}

fn activation(name: Option<&str>, problems: &mut Vec<String>) -> Activation {
    match name.unwrap_or("gelu") {
        "gelu" => Activation::Gelu,
        "gelu_new" | "gelu_pytorch_tanh" | "gelu_fast" => Activation::GeluTanh,
        "relu" => Activation::Relu,
        other => {
            problems.push(format!(
                "hidden_act {other}: must be gelu, gelu_new, gelu_pytorch_tanh, gelu_fast or relu"
            ));
            Activation::Gelu
        }
    }
}

#[cfg(test)]
mod tests;
