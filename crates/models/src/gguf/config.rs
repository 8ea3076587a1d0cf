//! GGUF metadata to a [`ModelConfig`].

use super::GgufFile;
use crate::config::{ModelConfig, RopeConfig, RopeScaling};
use crate::error::ModelError;

impl GgufFile {
    /// The configuration in the metadata.
    ///
    /// # Errors
    /// [`ModelError::UnsupportedArchitecture`] for a family without a wiring here, else
    /// [`ModelError::Config`] with every missing key and contradiction.
    pub fn config(&self) -> Result<ModelConfig, ModelError> {
        let family = self.string("general.architecture").unwrap_or_default();
        if family != "llama" {
            return Err(ModelError::UnsupportedArchitecture {
                architecture: format!(
                    "{family} (general.architecture of {})",
                    self.path().display()
                ),
                supported: vec!["llama"],
            });
        }
        let mut problems = Vec::new();
        let mut needed = |key: &str| {
            self.size(key).unwrap_or_else(|| {
                problems.push(format!("{key} is missing or not a size"));
                1
            })
        };
        let hidden_size = needed("llama.embedding_length");
        let n_heads = needed("llama.attention.head_count");
        let intermediate_size = needed("llama.feed_forward_length");
        let n_layers = needed("llama.block_count");
        let max_positions = needed("llama.context_length");
        let vocab_size = self
            .embedding_rows()
            .unwrap_or_else(|| needed("llama.vocab_size"));
        let head_dim = self.head_dim;
        let rotated = self.size("llama.rope.dimension_count").unwrap_or(head_dim);
        if rotated != head_dim {
            problems.push(format!(
                "llama.rope.dimension_count {rotated}: must be the head width {head_dim}"
            ));
        }
        let has = |hf: &str| self.hf_names.contains_key(hf);
        let config = ModelConfig {
            architecture: "LlamaForCausalLM".to_owned(),
            vocab_size,
            hidden_size,
            intermediate_size,
            n_layers,
            n_heads,
            n_kv_heads: self
                .size("llama.attention.head_count_kv")
                .unwrap_or(n_heads),
            head_dim,
            max_positions,
            sliding_window: None,
            norm_eps: self
                .number("llama.attention.layer_norm_rms_epsilon")
                .unwrap_or(1e-6),
            rope: self.rope(&mut problems),
            rotary_dim: head_dim,
            tie_word_embeddings: !has("lm_head.weight"),
            qkv_bias: has("model.layers.0.self_attn.q_proj.bias"),
            o_bias: has("model.layers.0.self_attn.o_proj.bias"),
            qk_norm: false,
            mlp_bias: has("model.layers.0.mlp.gate_proj.bias"),
            activation: None,
            parallel_residual: false,
            dtype: None,
            bos_id: self.token_id("tokenizer.ggml.bos_token_id"),
            eos_ids: self.eos_ids(),
        };
        config
            .checked(problems)
            .map_err(|problems| ModelError::Config {
                path: self.path().to_owned(),
                problems,
            })
    }

    fn eos_ids(&self) -> Vec<u32> {
        ["tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"]
            .iter()
            .filter_map(|key| self.token_id(key))
            .collect()
    }

    fn rope(&self, problems: &mut Vec<String>) -> RopeConfig {
        let theta = self.number("llama.rope.freq_base").unwrap_or(10_000.0);
        let scaling = match self.string("llama.rope.scaling.type") {
            None | Some("none") => RopeScaling::None,
            Some("linear") => match self.number("llama.rope.scaling.factor") {
                Some(factor) => RopeScaling::Linear { factor },
                None => RopeScaling::None,
            },
            Some(other) => {
                problems.push(format!(
                    "llama.rope.scaling.type {other}: must be none or linear"
                ));
                RopeScaling::None
            }
        };
        RopeConfig { theta, scaling }
    }
}
