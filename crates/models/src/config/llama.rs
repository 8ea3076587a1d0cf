//! `config.json` of Llama and its kin: Mistral, Qwen2, Qwen3, Phi-3.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::gpt::Validated;
use super::{MAX_LAYERS, ModelConfig, RawFamily, RawRope, RopeConfig};

/// As written; every key that changes the numbers.
#[derive(Debug, Deserialize)]
pub(super) struct RawLlama {
    vocab_size: Option<usize>,
    hidden_size: Option<usize>,
    intermediate_size: Option<usize>,
    num_hidden_layers: Option<usize>,
    num_attention_heads: Option<usize>,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    max_position_embeddings: Option<usize>,
    rms_norm_eps: Option<f64>,
    rope_parameters: Option<RawRope>,
    rope_scaling: Option<RawRope>,
    rope_theta: Option<f64>,
    partial_rotary_factor: Option<f64>,
    attention_bias: Option<bool>,
    mlp_bias: Option<bool>,
    hidden_act: Option<String>,
    sliding_window: Option<usize>,
    use_sliding_window: Option<bool>,
    max_window_layers: Option<usize>,
    layer_types: Option<Vec<String>>,
}

impl RawLlama {
    /// Defaults are those of transformers' `LlamaConfig`, and where they differ those of the
    /// family's own class.
    pub(super) fn validate(mut self, family: RawFamily) -> Validated {
        let mut problems = Vec::new();
        let name = family.architecture();
        let is = |family: &str| name.to_lowercase().starts_with(family);
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
        if name.is_empty() {
            problems.push("architectures and model_type are missing".to_owned());
        }
        let own_head_dim = is("qwen3").then_some(128);
        let head_dim = self.head_dim.or(own_head_dim).unwrap_or_else(|| {
            if hidden_size % n_heads.max(1) != 0 {
                problems.push(format!(
                    "hidden_size {hidden_size} is not a multiple of num_attention_heads {n_heads}"
                ));
            }
            hidden_size / n_heads.max(1)
        });
        self.refuse_variants(&mut problems);
        let max_positions = self.max_position_embeddings.unwrap_or(2048);
        let rope = self.read_rope(max_positions, &mut problems);
        let sliding_window = self.window(&name);
        let full_layers = self.full_layers(sliding_window, n_layers, &mut problems);
        let attention_bias = self.attention_bias.unwrap_or(false);
        let mut config = ModelConfig {
            architecture: String::new(),
            vocab_size,
            hidden_size,
            intermediate_size,
            n_layers,
            n_heads,
            n_kv_heads: self.num_key_value_heads.unwrap_or(n_heads),
            head_dim,
            max_positions,
            sliding_window,
            full_layers,
            norm_eps: self
                .rms_norm_eps
                .unwrap_or(if is("phi3") { 1e-5 } else { 1e-6 }),
            rope,
            rotary_dim: head_dim,
            tie_word_embeddings: false,
            qkv_bias: attention_bias || is("qwen2"),
            o_bias: attention_bias && !is("qwen2"),
            qk_norm: is("qwen3"),
            mlp_bias: self.mlp_bias.unwrap_or(false),
            activation: None,
            parallel_residual: false,
            dtype: None,
            bos_id: None,
            eos_ids: Vec::new(),
        };
        family.fill(&mut config);
        config.checked(problems)
    }

    fn read_rope(&mut self, max_positions: usize, problems: &mut Vec<String>) -> RopeConfig {
        // The newer key wins: transformers 5 writes only that one.
        let rope = self
            .rope_parameters
            .take()
            .or_else(|| self.rope_scaling.take())
            .unwrap_or_default();
        let partial = rope.partial_rotary_factor.or(self.partial_rotary_factor);
        if let Some(partial) = partial.filter(|p| *p != 1.0) {
            problems.push(format!("partial_rotary_factor {partial}: must be 1"));
        }
        rope.validate(self.rope_theta, max_positions, problems)
    }

    /// The window, where it is on: Qwen's folders name one that mostly is not, and Llama has none.
    fn window(&self, name: &str) -> Option<usize> {
        let name = name.to_lowercase();
        let on = if name.starts_with("qwen") {
            self.use_sliding_window == Some(true)
        } else {
            !name.starts_with("llama")
        };
        let default = name.starts_with("qwen").then_some(4096);
        self.sliding_window.or(default).filter(|_| on)
    }

    /// Layers without the window: as listed, else Qwen's first `max_window_layers`.
    fn full_layers(
        &self,
        window: Option<usize>,
        n_layers: usize,
        problems: &mut Vec<String>,
    ) -> BTreeSet<usize> {
        let Some(types) = &self.layer_types else {
            // Only Qwen's switch makes a difference between layers; 28 is the default of its class.
            let first = self
                .use_sliding_window
                .map_or(0, |_| self.max_window_layers.unwrap_or(28));
            let all = first.min(n_layers).min(MAX_LAYERS);
            return window.map_or(0..0, |_| 0..all).collect();
        };
        if types.len() != n_layers {
            let n = types.len();
            problems.push(format!(
                "layer_types names {n} layers, num_hidden_layers {n_layers}"
            ));
        }
        for kind in types {
            match (kind.as_str(), window) {
                ("full_attention", _) | ("sliding_attention", Some(_)) => {}
                ("sliding_attention", None) => {
                    problems.push("layer_types sliding_attention: there is no window".to_owned());
                    break;
                }
                (other, _) => {
                    problems.push(format!(
                        "layer_types {other}: must be full_attention or sliding_attention"
                    ));
                    break;
                }
            }
        }
        let full = types.iter().enumerate();
        full.filter(|(_, kind)| *kind == "full_attention")
            .filter(|_| window.is_some())
            .map(|(layer, _)| layer)
            .collect()
    }

    /// Variants of the architecture that would need other wiring.
    fn refuse_variants(&self, problems: &mut Vec<String>) {
        let act = self.hidden_act.as_deref().unwrap_or("silu");
        if act != "silu" {
            problems.push(format!("hidden_act {act}: must be silu"));
        }
    }
}
