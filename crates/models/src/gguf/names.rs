//! The families of GGUF files, and what their tensors are called in a Hugging Face checkpoint.
//!
//! Source: the conversion script of llama.cpp (`convert_hf_to_gguf.py`), read backwards.

/// A family that has a wiring here. Mistral's files call themselves `llama`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    /// Llama 2 and 3, Mistral, SmolLM2.
    Llama,
    /// Biases on q, k and v.
    Qwen2,
    /// Norms on the heads of q and k.
    Qwen3,
    /// Fused projections.
    Phi3,
    /// Learned positions.
    Gpt2,
}

impl Family {
    /// All of them, under the names of `general.architecture`, which also start their keys.
    pub(crate) const ALL: [(&'static str, Self); 5] = [
        ("llama", Self::Llama),
        ("qwen2", Self::Qwen2),
        ("qwen3", Self::Qwen3),
        ("phi3", Self::Phi3),
        ("gpt2", Self::Gpt2),
    ];

    /// The family of that name.
    pub(crate) fn of(name: &str) -> Option<Self> {
        let found = Self::ALL.iter().find(|(known, _)| *known == name);
        found.map(|(_, family)| *family)
    }

    /// Class of the model in transformers.
    pub(crate) fn architecture(self) -> &'static str {
        match self {
            Self::Llama => "LlamaForCausalLM",
            Self::Qwen2 => "Qwen2ForCausalLM",
            Self::Qwen3 => "Qwen3ForCausalLM",
            Self::Phi3 => "Phi3ForCausalLM",
            Self::Gpt2 => "GPT2LMHeadModel",
        }
    }

    /// True for the tensors whose rows are stored for interleaved rotary pairs. Only Llama's are:
    /// the other families rotate halves in llama.cpp as they do in transformers.
    pub(crate) fn is_interleaved(self, gguf: &str) -> bool {
        self == Self::Llama && (gguf.contains(".attn_q.") || gguf.contains(".attn_k."))
    }

    /// The Hugging Face name of a tensor.
    pub(crate) fn hf_name(self, gguf: &str) -> Option<String> {
        let gpt2 = self == Self::Gpt2;
        let whole = match gguf {
            "output.weight" => Some("lm_head.weight"),
            "token_embd.weight" if gpt2 => Some("transformer.wte.weight"),
            "token_embd.weight" => Some("model.embed_tokens.weight"),
            "position_embd.weight" if gpt2 => Some("transformer.wpe.weight"),
            "output_norm.weight" if gpt2 => Some("transformer.ln_f.weight"),
            "output_norm.bias" if gpt2 => Some("transformer.ln_f.bias"),
            "output_norm.weight" => Some("model.norm.weight"),
            _ => None,
        };
        if let Some(name) = whole {
            return Some(name.to_owned());
        }
        let (layer, rest) = gguf.strip_prefix("blk.")?.split_once('.')?;
        let layer: usize = layer.parse().ok()?;
        let (part, kind) = rest.rsplit_once('.')?;
        if gpt2 {
            let part = gpt2_part(part)?;
            return Some(format!("transformer.h.{layer}.{part}.{kind}"));
        }
        let part = match part {
            "attn_q" => "self_attn.q_proj",
            "attn_k" => "self_attn.k_proj",
            "attn_v" => "self_attn.v_proj",
            "attn_qkv" => "self_attn.qkv_proj",
            "attn_q_norm" => "self_attn.q_norm",
            "attn_k_norm" => "self_attn.k_norm",
            "attn_output" => "self_attn.o_proj",
            "ffn_gate" => "mlp.gate_proj",
            "ffn_up" if self == Self::Phi3 => "mlp.gate_up_proj",
            "ffn_up" => "mlp.up_proj",
            "ffn_down" => "mlp.down_proj",
            "attn_norm" => "input_layernorm",
            "ffn_norm" => "post_attention_layernorm",
            _ => return None,
        };
        Some(format!("model.layers.{layer}.{part}.{kind}"))
    }
}

fn gpt2_part(part: &str) -> Option<&'static str> {
    Some(match part {
        "attn_norm" => "ln_1",
        "attn_qkv" => "attn.c_attn",
        "attn_output" => "attn.c_proj",
        "ffn_norm" => "ln_2",
        "ffn_up" => "mlp.c_fc",
        "ffn_down" => "mlp.c_proj",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_those_of_hugging_face() {
        use Family::{Gpt2, Llama, Phi3, Qwen3};
        let cases = [
            (Llama, "token_embd.weight", "model.embed_tokens.weight"),
            (
                Llama,
                "blk.12.attn_q.weight",
                "model.layers.12.self_attn.q_proj.weight",
            ),
            (
                Llama,
                "blk.0.ffn_norm.weight",
                "model.layers.0.post_attention_layernorm.weight",
            ),
            (
                Llama,
                "blk.1.attn_v.bias",
                "model.layers.1.self_attn.v_proj.bias",
            ),
            (Llama, "rope_freqs.weight", ""),
            (Llama, "blk.x.attn_q.weight", ""),
            (
                Qwen3,
                "blk.3.attn_q_norm.weight",
                "model.layers.3.self_attn.q_norm.weight",
            ),
            (
                Phi3,
                "blk.0.ffn_up.weight",
                "model.layers.0.mlp.gate_up_proj.weight",
            ),
            (Gpt2, "output_norm.bias", "transformer.ln_f.bias"),
            (Gpt2, "blk.7.ffn_up.bias", "transformer.h.7.mlp.c_fc.bias"),
        ];
        for (family, gguf, expected) in cases {
            assert_eq!(family.hf_name(gguf).unwrap_or_default(), expected);
        }
    }
}
