//! A model's configuration, validated once: defaults filled in, contradictions refused.
//!
//! Reads `config.json` in both styles that hub folders use: transformers 5 (`rope_parameters`,
//! `dtype`) and before (`rope_theta`, `rope_scaling`, `torch_dtype`). GGUF metadata becomes the
//! same [`ModelConfig`] in `gguf.rs`. Which architecture can be built is the registry's business.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Deserialize;

use crate::device::Dtype;
use crate::error::ModelError;
use crate::files::{parse_json, read_text, read_text_if_there};

mod gpt;

mod llama;

use gpt::{RawGpt2, RawNeoX};
use llama::RawLlama;

/// What the wiring of a decoder needs to know.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    /// As the checkpoint names it: `LlamaForCausalLM`.
    pub architecture: String,
    /// Rows of the embedding.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width inside the MLP.
    pub intermediate_size: usize,
    /// Decoder layers.
    pub n_layers: usize,
    /// Query heads.
    pub n_heads: usize,
    /// Key and value heads; query heads share them in equal groups.
    pub n_kv_heads: usize,
    /// Width of one head; not always `hidden_size / n_heads`.
    pub head_dim: usize,
    /// Longest sequence.
    pub max_positions: usize,
    /// Keys a query sees, its own included; `None` where it sees all before it.
    pub sliding_window: Option<usize>,
    /// Layers whose queries see all keys before them although there is a window.
    pub full_layers: BTreeSet<usize>,
    /// Added to the mean square (or the variance) before its root.
    pub norm_eps: f64,
    /// Rotary position embedding.
    pub rope: RopeConfig,
    /// Numbers of a head that are rotated, the first ones; 0 where positions are learned.
    pub rotary_dim: usize,
    /// True where the output matrix is the embedding.
    pub tie_word_embeddings: bool,
    /// True where q, k and v projections have a bias.
    pub qkv_bias: bool,
    /// True where the o projection has a bias.
    pub o_bias: bool,
    /// True where each head of q and k is normed before it is rotated.
    pub qk_norm: bool,
    /// True where the projections of the MLP have a bias.
    pub mlp_bias: bool,
    /// Curve of an MLP of two matrices; `None` for the gated MLP with SiLU.
    pub activation: Option<Activation>,
    /// True where attention and MLP both read the layer's input.
    pub parallel_residual: bool,
    /// Format the weights were stored in, where the checkpoint says.
    pub dtype: Option<Dtype>,
    /// Id that starts a text.
    pub bos_id: Option<u32>,
    /// Ids that end a text.
    pub eos_ids: Vec<u32>,
}

/// The curve between two matrices of an MLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// `x Φ(x)` with the error function.
    Gelu,
    /// Its approximation with tanh.
    GeluTanh,
    /// `max(x, 0)`.
    Relu,
}

/// Rotary position embedding: base and how far it is stretched.
#[derive(Debug, Clone, PartialEq)]
pub struct RopeConfig {
    /// Base of the geometric series of wavelengths.
    pub theta: f64,
    /// Stretching for contexts longer than trained.
    pub scaling: RopeScaling,
}

/// Ways to stretch rotary positions.
#[derive(Debug, Clone, PartialEq)]
pub enum RopeScaling {
    /// As trained.
    None,
    /// Every wave `factor` times longer.
    Linear {
        /// How much longer.
        factor: f64,
    },
    /// Long waves `factor` times longer, short ones kept, those between blended (Llama 3.1).
    Llama3 {
        /// How much longer.
        factor: f64,
        /// Waves longer than `original_positions / low_freq_factor` are stretched whole.
        low_freq_factor: f64,
        /// Waves shorter than `original_positions / high_freq_factor` are kept.
        high_freq_factor: f64,
        /// Context length the model was trained with.
        original_positions: f64,
    },
    /// Each frequency divided by its own factor, as GGUF files store what became of `Llama3`.
    Divided(Vec<f64>),
}

/// More layers than any model has; a file that claims more would be believed tensor by tensor.
pub(crate) const MAX_LAYERS: usize = 4096;

impl ModelConfig {
    /// Reads `config.json`.
    ///
    /// # Errors
    /// [`ModelError::Io`], [`ModelError::Malformed`] for bad JSON or a wrong type, and
    /// [`ModelError::Config`] with every contradiction found.
    pub fn read(path: &Path) -> Result<Self, ModelError> {
        Self::parse(path, &read_text(path)?)
    }

    /// The architecture that a config.json names, whatever else is in it.
    ///
    /// # Errors
    /// [`ModelError::Io`], and [`ModelError::Malformed`] for a file that is not such JSON.
    pub fn architecture_of(path: &Path) -> Result<String, ModelError> {
        let family: RawFamily = parse_json(path, &read_text(path)?)?;
        Ok(family.architecture())
    }

    /// [`ModelConfig::read`] on text already in memory; `path` is for the messages.
    ///
    /// # Errors
    /// As [`ModelConfig::read`], without I/O.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ModelError> {
        let family: RawFamily = parse_json(path, text)?;
        let validated = match family.architecture().as_str() {
            "GPT2LMHeadModel" | "gpt2" => parse_json::<RawGpt2>(path, text)?.validate(family),
            "GPTNeoXForCausalLM" | "gpt_neox" => {
                parse_json::<RawNeoX>(path, text)?.validate(family)
            }
            _ => parse_json::<RawLlama>(path, text)?.validate(family),
        };
        validated.map_err(|problems| ModelError::Config {
            path: path.to_owned(),
            problems,
        })
    }

    /// Keys a query of a layer sees, its own included; `None` where it sees all before it.
    pub fn window_of(&self, layer: usize) -> Option<usize> {
        self.sliding_window
            .filter(|_| !self.full_layers.contains(&layer))
    }

    /// Every contradiction in the numbers, each naming key and value.
    pub(crate) fn contradictions(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for (key, value) in [
            ("vocab_size", self.vocab_size),
            ("hidden_size", self.hidden_size),
            ("intermediate_size", self.intermediate_size),
            ("num_hidden_layers", self.n_layers),
            ("num_attention_heads", self.n_heads),
            ("num_key_value_heads", self.n_kv_heads),
            ("head_dim", self.head_dim),
            ("max_position_embeddings", self.max_positions),
        ] {
            // The upper end keeps every product of two sizes inside 64 bits.
            if value == 0 || value > 1 << 30 {
                problems.push(format!("{key} {value}: must be 1 to 2^30"));
            }
        }
        if self.n_layers > MAX_LAYERS {
            problems.push(format!(
                "num_hidden_layers {}: must be at most {MAX_LAYERS}",
                self.n_layers
            ));
        }
        if self.n_kv_heads > 0 && !self.n_heads.is_multiple_of(self.n_kv_heads) {
            problems.push(format!(
                "num_attention_heads {} is not a multiple of num_key_value_heads {}",
                self.n_heads, self.n_kv_heads
            ));
        }
        // A text would never end by such a token.
        let vocab = self.vocab_size;
        for id in self.eos_ids.iter().filter(|id| **id as usize >= vocab) {
            problems.push(format!(
                "eos_token_id {id}: must be below vocab_size {vocab}"
            ));
        }
        if !self.rotary_dim.is_multiple_of(2) || self.rotary_dim > self.head_dim {
            problems.push(format!(
                "{} rotated numbers of a head of {}: rotary pairs need an even number of them",
                self.rotary_dim, self.head_dim
            ));
        }
        if self.sliding_window == Some(0) {
            problems.push("sliding_window 0: must be at least 1".to_owned());
        }
        positive("norm_eps", self.norm_eps, &mut problems);
        self.rope.contradictions(&mut problems);
        problems
    }

    /// Itself, if nothing contradicts itself.
    ///
    /// # Errors
    /// `problems` and every contradiction.
    pub(crate) fn checked(self, mut problems: Vec<String>) -> Result<Self, Vec<String>> {
        problems.extend(self.contradictions());
        if problems.is_empty() {
            Ok(self)
        } else {
            Err(problems)
        }
    }
}

fn positive(key: &str, value: f64, problems: &mut Vec<String>) {
    if !(value.is_finite() && value > 0.0) {
        problems.push(format!("{key} {value}: must be a positive number"));
    }
}

impl RopeConfig {
    fn contradictions(&self, problems: &mut Vec<String>) {
        positive("rope_theta", self.theta, problems);
        match self.scaling {
            RopeScaling::None => {}
            RopeScaling::Linear { factor } => positive("rope factor", factor, problems),
            RopeScaling::Divided(ref factors) => {
                for factor in factors {
                    positive("rope factor", *factor, problems);
                }
            }
            RopeScaling::Llama3 {
                factor,
                low_freq_factor,
                high_freq_factor,
                original_positions,
            } => {
                positive("rope factor", factor, problems);
                positive("rope low_freq_factor", low_freq_factor, problems);
                positive(
                    "rope original_max_position_embeddings",
                    original_positions,
                    problems,
                );
                if high_freq_factor.partial_cmp(&low_freq_factor)
                    != Some(std::cmp::Ordering::Greater)
                {
                    problems.push(format!(
                        "rope high_freq_factor {high_freq_factor}: must be above low_freq_factor \
                         {low_freq_factor}"
                    ));
                }
            }
        }
    }
}

/// What every `config.json` of a decoder has, whatever the family.
#[derive(Debug, Deserialize)]
pub(crate) struct RawFamily {
    architectures: Option<Vec<String>>,
    model_type: Option<String>,
    tie_word_embeddings: Option<bool>,
    dtype: Option<String>,
    torch_dtype: Option<String>,
    bos_token_id: Option<u32>,
    eos_token_id: Option<Ids>,
}

impl RawFamily {
    /// Class or type of the model; empty where the file names none.
    pub(crate) fn architecture(&self) -> String {
        let class = self.architectures.as_ref().and_then(|a| a.first());
        class
            .or(self.model_type.as_ref())
            .cloned()
            .unwrap_or_default()
    }

    /// Fills in the parts of a configuration that no family reads differently.
    pub(crate) fn fill(self, config: &mut ModelConfig) {
        config.architecture = self.architecture();
        config.tie_word_embeddings = self
            .tie_word_embeddings
            .unwrap_or(config.tie_word_embeddings);
        config.dtype = self.dtype.or(self.torch_dtype).and_then(|d| d.parse().ok());
        config.bos_id = self.bos_token_id;
        config.eos_ids = self.eos_token_id.map(Ids::into_vec).unwrap_or_default();
    }
}

/// `rope_parameters` and `rope_scaling`.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct RawRope {
    rope_type: Option<String>,
    /// The name of `rope_type` in the oldest folders.
    #[serde(rename = "type")]
    old_type: Option<String>,
    rope_theta: Option<f64>,
    pub(crate) partial_rotary_factor: Option<f64>,
    factor: Option<f64>,
    low_freq_factor: Option<f64>,
    high_freq_factor: Option<f64>,
    original_max_position_embeddings: Option<f64>,
}

/// One id or a list of them.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Ids {
    One(u32),
    Many(Vec<u32>),
}

impl Ids {
    fn into_vec(self) -> Vec<u32> {
        match self {
            Self::One(id) => vec![id],
            Self::Many(ids) => ids,
        }
    }
}

impl RawRope {
    pub(crate) fn validate(
        self,
        theta: Option<f64>,
        max_positions: usize,
        problems: &mut Vec<String>,
    ) -> RopeConfig {
        let mut needed = |key: &str, value: Option<f64>| {
            value.unwrap_or_else(|| {
                problems.push(format!("rope {key} is missing"));
                1.0
            })
        };
        let scaling = match self.rope_type.or(self.old_type).as_deref() {
            None | Some("default") => RopeScaling::None,
            Some("linear") => RopeScaling::Linear {
                factor: needed("factor", self.factor),
            },
            Some("llama3") => RopeScaling::Llama3 {
                factor: needed("factor", self.factor),
                low_freq_factor: needed("low_freq_factor", self.low_freq_factor),
                high_freq_factor: needed("high_freq_factor", self.high_freq_factor),
                original_positions: self
                    .original_max_position_embeddings
                    .unwrap_or(max_positions as f64),
            },
            Some(other) => {
                problems.push(format!(
                    "rope_type {other}: must be default, linear or llama3"
                ));
                RopeScaling::None
            }
        };
        RopeConfig {
            theta: self.rope_theta.or(theta).unwrap_or(10_000.0),
            scaling,
        }
    }
}

/// End ids of `generation_config.json`, which generation follows before `config.json`.
///
/// # Errors
/// [`ModelError::Malformed`]; a file that is not there is no error.
pub(crate) fn generation_eos_ids(path: &Path) -> Result<Vec<u32>, ModelError> {
    #[derive(Deserialize)]
    struct Raw {
        eos_token_id: Option<Ids>,
    }
    let Some(text) = read_text_if_there(path)? else {
        return Ok(Vec::new());
    };
    let raw: Raw = parse_json(path, &text)?;
    Ok(raw.eos_token_id.map(Ids::into_vec).unwrap_or_default())
}

#[cfg(test)]
mod tests;
