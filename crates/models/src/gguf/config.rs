//! GGUF metadata to a [`ModelConfig`].

use std::collections::BTreeSet;

use super::{Family, GgufFile, ROPE_FACTORS};
use crate::config::{Activation, ModelConfig, RopeConfig, RopeScaling};
use crate::error::ModelError;

impl GgufFile {
    /// The configuration in the metadata.
    ///
    /// # Errors
    /// [`ModelError::UnsupportedArchitecture`] for a family without a wiring here, else
    /// [`ModelError::Config`] with every missing key and contradiction.
    pub fn config(&self) -> Result<ModelConfig, ModelError> {
        let Some(family) = self.family else {
            let name = self.string("general.architecture").unwrap_or_default();
            return Err(ModelError::UnsupportedArchitecture {
                architecture: format!("{name} (general.architecture of {})", self.path().display()),
                supported: Family::ALL.iter().map(|(name, _)| *name).collect(),
            });
        };
        let mut problems = Vec::new();
        let config = self.read_config(family, &mut problems)?;
        config
            .checked(problems)
            .map_err(|problems| ModelError::Config {
                path: self.path().to_owned(),
                problems,
            })
    }

    fn read_config(
        &self,
        family: Family,
        problems: &mut Vec<String>,
    ) -> Result<ModelConfig, ModelError> {
        let gpt2 = family == Family::Gpt2;
        let head_dim = self.head_dim;
        let rope = self.rope(problems)?;
        let rotary_dim = if gpt2 { 0 } else { head_dim };
        let rotated = self.size(&self.key("rope.dimension_count"));
        if let Some(n) = rotated.filter(|n| *n != rotary_dim && !gpt2) {
            let key = self.key("rope.dimension_count");
            problems.push(format!("{key} {n}: must be the head width {head_dim}"));
        }
        let mut needed = |rest: &str| {
            let key = self.key(rest);
            self.size(&key).unwrap_or_else(|| {
                problems.push(format!("{key} is missing or not a size"));
                1
            })
        };
        let n_heads = needed("attention.head_count");
        let (norm_eps, default_eps) = if gpt2 {
            ("attention.layer_norm_epsilon", 1e-5)
        } else {
            ("attention.layer_norm_rms_epsilon", 1e-6)
        };
        let window = self.size(&self.key("attention.sliding_window"));
        let has = |hf: &str| self.hf_names.contains_key(hf);
        Ok(ModelConfig {
            architecture: family.architecture().to_owned(),
            vocab_size: self
                .embedding_rows()
                .unwrap_or_else(|| needed("vocab_size")),
            hidden_size: needed("embedding_length"),
            intermediate_size: needed("feed_forward_length"),
            n_layers: needed("block_count"),
            n_heads,
            n_kv_heads: self
                .size(&self.key("attention.head_count_kv"))
                .unwrap_or(n_heads),
            head_dim,
            max_positions: needed("context_length"),
            sliding_window: window.filter(|n| *n > 0),
            full_layers: BTreeSet::new(),
            norm_eps: self.number(&self.key(norm_eps)).unwrap_or(default_eps),
            rope,
            rotary_dim,
            tie_word_embeddings: !has("lm_head.weight"),
            qkv_bias: gpt2 || has("model.layers.0.self_attn.q_proj.bias"),
            o_bias: gpt2 || has("model.layers.0.self_attn.o_proj.bias"),
            qk_norm: has("model.layers.0.self_attn.q_norm.weight"),
            mlp_bias: gpt2 || has("model.layers.0.mlp.gate_proj.bias"),
            activation: gpt2.then_some(Activation::GeluTanh),
            parallel_residual: false,
            dtype: None,
            bos_id: self.token_id("tokenizer.ggml.bos_token_id"),
            eos_ids: self.eos_ids(),
        })
    }

    fn eos_ids(&self) -> Vec<u32> {
        ["tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"]
            .iter()
            .filter_map(|key| self.token_id(key))
            .collect()
    }

    fn rope(&self, problems: &mut Vec<String>) -> Result<RopeConfig, ModelError> {
        let theta = self.number(&self.key("rope.freq_base")).unwrap_or(10_000.0);
        // The second key is the one of the oldest files.
        let factor = ["rope.scaling.factor", "rope.scale_linear"]
            .iter()
            .find_map(|rest| self.number(&self.key(rest)));
        let infos = &self.content.tensor_infos;
        if infos.contains_key("rope_factors_long.weight") {
            let problem = "rope_factors_long.weight: positions stretched by longrope are not \
                           supported; a model of the short context is";
            problems.push(problem.to_owned());
        }
        let scaling = match (self.string(&self.key("rope.scaling.type")), factor) {
            _ if infos.contains_key(ROPE_FACTORS) => RopeScaling::Divided(self.rope_factors()?),
            (Some("none"), _) | (None | Some("linear"), None) => RopeScaling::None,
            (None | Some("linear"), Some(factor)) => RopeScaling::Linear { factor },
            (Some(other), _) => {
                let key = self.key("rope.scaling.type");
                problems.push(format!("{key} {other}: must be none or linear"));
                RopeScaling::None
            }
        };
        Ok(RopeConfig { theta, scaling })
    }

    fn rope_factors(&self) -> Result<Vec<f64>, ModelError> {
        let info = &self.content.tensor_infos[ROPE_FACTORS];
        let mut factors = Vec::new();
        self.decode(ROPE_FACTORS, info, 0..1, &mut factors)?;
        let half = self.head_dim / 2;
        if factors.len() != half {
            let problem = format!("{} factors for {half} rotary pairs", factors.len());
            return Err(self.malformed(ROPE_FACTORS, &problem));
        }
        Ok(factors.into_iter().map(f64::from).collect())
    }
}
