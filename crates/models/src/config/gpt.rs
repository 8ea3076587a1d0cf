//! `config.json` of GPT-2 and GPT-NeoX, whose keys are not Llama's.
//!
//! Defaults are those of transformers' `GPT2Config` and `GPTNeoXConfig`.

use std::collections::BTreeSet;

use serde::Deserialize;

use crate::config::{Activation, ModelConfig, RawFamily, RawRope, RopeConfig, RopeScaling};

/// A configuration, or everything that contradicts itself in it.
pub(crate) type Validated = Result<ModelConfig, Vec<String>>;

#[derive(Debug, Deserialize)]
pub(super) struct RawGpt2 {
    vocab_size: Option<usize>,
    n_embd: Option<usize>,
    n_layer: Option<usize>,
    n_head: Option<usize>,
    n_positions: Option<usize>,
    n_inner: Option<usize>,
    activation_function: Option<String>,
    layer_norm_epsilon: Option<f64>,
    scale_attn_weights: Option<bool>,
    scale_attn_by_inverse_layer_idx: Option<bool>,
}

#[derive(Debug, Deserialize)]
pub(super) struct RawNeoX {
    vocab_size: Option<usize>,
    hidden_size: Option<usize>,
    intermediate_size: Option<usize>,
    num_hidden_layers: Option<usize>,
    num_attention_heads: Option<usize>,
    max_position_embeddings: Option<usize>,
    hidden_act: Option<String>,
    layer_norm_eps: Option<f64>,
    attention_bias: Option<bool>,
    use_parallel_residual: Option<bool>,
    rope_parameters: Option<RawRope>,
    rope_scaling: Option<RawRope>,
    rotary_pct: Option<f64>,
    rotary_emb_base: Option<f64>,
}

impl RawGpt2 {
    pub(super) fn validate(self, family: RawFamily) -> Validated {
        let mut problems = Vec::new();
        let hidden_size = self.n_embd.unwrap_or(768);
        let n_heads = self.n_head.unwrap_or(12);
        if self.scale_attn_weights == Some(false) {
            problems.push("scale_attn_weights false: must be true".to_owned());
        }
        if self.scale_attn_by_inverse_layer_idx == Some(true) {
            problems.push("scale_attn_by_inverse_layer_idx true: must be false".to_owned());
        }
        let head_dim = head_dim("n_embd", hidden_size, ("n_head", n_heads), &mut problems);
        let act = self.activation_function.as_deref().unwrap_or("gelu_new");
        let config = ModelConfig {
            vocab_size: self.vocab_size.unwrap_or(50_257),
            intermediate_size: self.n_inner.unwrap_or(4 * hidden_size),
            n_layers: self.n_layer.unwrap_or(12),
            max_positions: self.n_positions.unwrap_or(1024),
            norm_eps: self.layer_norm_epsilon.unwrap_or(1e-5),
            tie_word_embeddings: true,
            activation: activation("activation_function", act, &mut problems),
            ..blank(hidden_size, n_heads, head_dim)
        };
        finish(config, family, problems)
    }
}

impl RawNeoX {
    pub(super) fn validate(self, family: RawFamily) -> Validated {
        let mut problems = Vec::new();
        let hidden_size = self.hidden_size.unwrap_or(6144);
        let n_heads = self.num_attention_heads.unwrap_or(64);
        let heads = ("num_attention_heads", n_heads);
        let head_dim = head_dim("hidden_size", hidden_size, heads, &mut problems);
        let act = self.hidden_act.as_deref().unwrap_or("gelu");
        let max_positions = self.max_position_embeddings.unwrap_or(2048);
        let rope = self
            .rope_parameters
            .or(self.rope_scaling)
            .unwrap_or_default();
        let share = rope
            .partial_rotary_factor
            .or(self.rotary_pct)
            .unwrap_or(0.25);
        let rope = rope.validate(self.rotary_emb_base, max_positions, &mut problems);
        let bias = self.attention_bias.unwrap_or(true);
        let config = ModelConfig {
            vocab_size: self.vocab_size.unwrap_or(50_432),
            intermediate_size: self.intermediate_size.unwrap_or(24_576),
            n_layers: self.num_hidden_layers.unwrap_or(44),
            max_positions,
            norm_eps: self.layer_norm_eps.unwrap_or(1e-5),
            rope,
            // Truncated, as the reference does.
            rotary_dim: (head_dim as f64 * share) as usize,
            qkv_bias: bias,
            o_bias: bias,
            activation: activation("hidden_act", act, &mut problems),
            parallel_residual: self.use_parallel_residual.unwrap_or(true),
            ..blank(hidden_size, n_heads, head_dim)
        };
        finish(config, family, problems)
    }
}

/// What both have in common: biases everywhere, a key head for each query head.
fn blank(hidden_size: usize, n_heads: usize, head_dim: usize) -> ModelConfig {
    ModelConfig {
        architecture: String::new(),
        vocab_size: 0,
        hidden_size,
        intermediate_size: 0,
        n_layers: 0,
        n_heads,
        n_kv_heads: n_heads,
        head_dim,
        max_positions: 0,
        sliding_window: None,
        full_layers: BTreeSet::new(),
        norm_eps: 0.0,
        rope: RopeConfig {
            theta: 10_000.0,
            scaling: RopeScaling::None,
        },
        rotary_dim: 0,
        tie_word_embeddings: false,
        qkv_bias: true,
        o_bias: true,
        qk_norm: false,
        mlp_bias: true,
        activation: None,
        parallel_residual: false,
        dtype: None,
        bos_id: None,
        eos_ids: Vec::new(),
    }
}

fn head_dim(
    width_key: &str,
    width: usize,
    (heads_key, heads): (&str, usize),
    problems: &mut Vec<String>,
) -> usize {
    if !width.is_multiple_of(heads.max(1)) {
        problems.push(format!(
            "{width_key} {width} is not a multiple of {heads_key} {heads}"
        ));
    }
    width / heads.max(1)
}

fn activation(key: &str, name: &str, problems: &mut Vec<String>) -> Option<Activation> {
    match name {
        "gelu" => Some(Activation::Gelu),
        "gelu_new" | "gelu_fast" | "gelu_pytorch_tanh" => Some(Activation::GeluTanh),
        "relu" => Some(Activation::Relu),
        other => {
            problems.push(format!(
                "{key} {other}: must be gelu, gelu_new, gelu_fast, gelu_pytorch_tanh or relu"
            ));
            None
        }
    }
}

fn finish(mut config: ModelConfig, family: RawFamily, problems: Vec<String>) -> Validated {
    family.fill(&mut config);
    config.checked(problems)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn parse(text: &str) -> Result<ModelConfig, String> {
        ModelConfig::parse(Path::new("config.json"), text).map_err(|e| e.to_string())
    }

    #[test]
    fn gpt2_defaults_are_the_small_model() {
        let config = parse(r#"{"architectures": ["GPT2LMHeadModel"]}"#).unwrap();
        let sizes = (
            config.hidden_size,
            config.intermediate_size,
            config.n_layers,
        );
        assert_eq!(sizes, (768, 3072, 12));
        assert_eq!((config.head_dim, config.rotary_dim), (64, 0));
        assert_eq!(config.activation, Some(Activation::GeluTanh));
        assert!(config.tie_word_embeddings);
    }

    #[test]
    fn gpt_neox_reads_both_styles() {
        let sizes = r#""architectures": ["GPTNeoXForCausalLM"], "hidden_size": 64,
            "num_attention_heads": 4"#;
        let old = format!(r#"{{{sizes}, "rotary_pct": 0.5, "rotary_emb_base": 5000}}"#);
        let new = format!(
            r#"{{{sizes}, "rope_parameters": {{"partial_rotary_factor": 0.5,
            "rope_theta": 5000, "rope_type": "default"}}}}"#
        );
        let config = parse(&old).unwrap();
        assert_eq!(config, parse(&new).unwrap());
        assert_eq!((config.rotary_dim, config.rope.theta), (8, 5000.0));
    }

    #[test]
    fn contradictions_name_the_keys_of_the_family() {
        let cases = [
            (
                r#"{"model_type": "gpt2", "n_head": 7}"#,
                "config.json: n_embd 768 is not a multiple of n_head 7",
            ),
            (
                r#"{"model_type": "gpt2", "activation_function": "swish"}"#,
                "config.json: activation_function swish: must be gelu, gelu_new, gelu_fast, \
                 gelu_pytorch_tanh or relu",
            ),
            (
                r#"{"model_type": "gpt2", "n_layer": -1}"#,
                "config.json: invalid value: integer `-1`, expected usize at line 1 column 36",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text).unwrap_err(), expected);
        }
    }
}
