//! Llama and its kin: RMS norm, rotary grouped-query attention, gated MLP, tied or untied head.
//!
//! What differs between them is in the configuration: Mistral has a sliding window, Qwen2 biases on
//! q, k and v, Qwen3 norms on the heads of q and k, Phi-3 fused projections.
//!
//! One file of wiring: which tensors, in which order. Source of the structure: Touvron et al.,
//! "LLaMA", section 2.2, and the tensor names of transformers' `LlamaForCausalLM`.

use std::sync::Arc;

use tch::Tensor;

use crate::causal::CausalModel;
use crate::config::ModelConfig;
use crate::error::ModelError;
use crate::layers::Compute;
use crate::layers::attention::{Batch, Cache, Heads, SelfAttention};
use crate::layers::embedding::Embedding;
use crate::layers::linear::{Linear, Matrix};
use crate::layers::mlp::{GatedMlp, GatedMlpParts};
use crate::layers::norm::RmsNorm;
use crate::weights::{Taken, Weights};

/// A Llama model.
pub struct Llama {
    embed_tokens: Embedding,
    layers: Vec<Layer>,
    norm: RmsNorm,
    lm_head: Linear,
    weight_bytes: usize,
}

struct Layer {
    input_layernorm: RmsNorm,
    qkv_proj: Linear,
    attention: SelfAttention,
    o_proj: Linear,
    post_attention_layernorm: RmsNorm,
    mlp: GatedMlp,
}

/// Tensors of the model, taken but not read.
struct Parts {
    embed_tokens: Taken,
    layers: Vec<LayerParts>,
    norm: Taken,
    /// `None` where the embedding is the output matrix.
    lm_head: Option<Taken>,
}

struct LayerParts {
    index: usize,
    input_layernorm: Taken,
    /// q, k and v, or the tensor that fuses them, and their biases.
    qkv: Vec<Taken>,
    qkv_biases: Vec<Taken>,
    /// Norms of the heads of q and k.
    qk_norms: Option<[Taken; 2]>,
    o: Taken,
    o_bias: Option<Taken>,
    post_attention_layernorm: Taken,
    mlp: GatedMlpParts,
}

impl Llama {
    /// Takes and reads the tensors that `config` implies.
    ///
    /// # Errors
    /// [`ModelError::Tensors`] with everything that does not fit; what reading can give.
    pub fn load(
        config: &ModelConfig,
        weights: &mut Weights,
        compute: &Arc<Compute>,
    ) -> Result<Self, ModelError> {
        let parts = take(config, weights);
        // Buffers that older exporters stored beside the weights; both follow from the config. A
        // tied model's copy of the embedding is never used by the reference either.
        weights.ignore(|name| {
            name.ends_with(".rotary_emb.inv_freq")
                || (config.tie_word_embeddings && name == "lm_head.weight")
        });
        weights.finish()?;
        let weights = &*weights;
        let (embedding, lm_head, table_bytes) = Matrix::read_tables(
            compute,
            weights,
            &parts.embed_tokens,
            parts.lm_head.as_ref(),
        )?;
        let layers = parts
            .layers
            .iter()
            .map(|p| Layer::read(config, weights, compute, p))
            .collect::<Result<Vec<_>, _>>()?;
        let norm = RmsNorm::read(compute, weights, &parts.norm, config.norm_eps)?;
        let weight_bytes =
            table_bytes + norm.bytes() + layers.iter().map(Layer::bytes).sum::<usize>();
        Ok(Self {
            embed_tokens: Embedding::new(compute, embedding, config.hidden_size),
            layers,
            norm,
            lm_head: Linear::new(compute, lm_head, None),
            weight_bytes,
        })
    }
}

impl CausalModel for Llama {
    fn weight_bytes(&self) -> usize {
        self.weight_bytes
    }

    fn forward(&self, ids: &[u32], batch: &Batch, caches: &mut [Cache]) -> Tensor {
        assert_eq!(caches.len(), self.layers.len(), "one cache a layer");
        let mut hidden = self.embed_tokens.forward(ids);
        for (layer, cache) in self.layers.iter().zip(caches) {
            layer.forward(&mut hidden, batch, cache);
        }
        hidden
    }

    fn head(&self, hidden: &Tensor) -> Tensor {
        self.lm_head.forward(&self.norm.forward(hidden))
    }
}

impl Layer {
    fn read(
        config: &ModelConfig,
        weights: &Weights,
        compute: &Arc<Compute>,
        parts: &LayerParts,
    ) -> Result<Self, ModelError> {
        let norm = |part| RmsNorm::read(compute, weights, part, config.norm_eps);
        let qkv: Vec<&Taken> = parts.qkv.iter().collect();
        let qkv_biases: Vec<&Taken> = parts.qkv_biases.iter().collect();
        let o_bias: Vec<&Taken> = parts.o_bias.iter().collect();
        let mut attention =
            SelfAttention::new(compute, Heads::of(config), config.window_of(parts.index));
        if let Some([q, k]) = &parts.qk_norms {
            attention = attention.with_qk_norm(norm(q)?, norm(k)?);
        }
        Ok(Self {
            input_layernorm: norm(&parts.input_layernorm)?,
            qkv_proj: Linear::read(compute, weights, &qkv, &qkv_biases)?,
            attention,
            o_proj: Linear::read(compute, weights, &[&parts.o], &o_bias)?,
            post_attention_layernorm: norm(&parts.post_attention_layernorm)?,
            mlp: GatedMlp::read(compute, weights, &parts.mlp)?,
        })
    }

    fn bytes(&self) -> usize {
        self.input_layernorm.bytes()
            + self.qkv_proj.bytes()
            + self.attention.bytes()
            + self.o_proj.bytes()
            + self.post_attention_layernorm.bytes()
            + self.mlp.bytes()
    }

    fn forward(&self, hidden: &mut Tensor, batch: &Batch, cache: &mut Cache) {
        let qkv = self.qkv_proj.forward(&self.input_layernorm.forward(hidden));
        let attended = self.attention.forward(qkv, batch, cache);
        self.o_proj.forward_add(&attended, hidden);
        let normed = self.post_attention_layernorm.forward(hidden);
        self.mlp.forward_add(&normed, hidden);
    }
}

/// Names and shapes of every tensor.
fn take(config: &ModelConfig, weights: &mut Weights) -> Parts {
    let (hidden, vocab) = (config.hidden_size, config.vocab_size);
    Parts {
        embed_tokens: weights.take("model.embed_tokens.weight", &[vocab, hidden]),
        layers: (0..config.n_layers)
            .map(|i| take_layer(config, weights, i))
            .collect(),
        norm: weights.take("model.norm.weight", &[hidden]),
        lm_head: (!config.tie_word_embeddings)
            .then(|| weights.take("lm_head.weight", &[vocab, hidden])),
    }
}

fn take_layer(config: &ModelConfig, weights: &mut Weights, layer: usize) -> LayerParts {
    let (hidden, inner) = (config.hidden_size, config.intermediate_size);
    let q_width = config.n_heads * config.head_dim;
    let kv_width = config.n_kv_heads * config.head_dim;
    // Phi-3 stores the same rows, one projection below the other.
    let fused = config.architecture.to_lowercase().starts_with("phi3");
    let mut take =
        |name: &str, shape: &[usize]| weights.take(&format!("model.layers.{layer}.{name}"), shape);
    let qkv_parts = if fused {
        vec![("qkv", q_width + 2 * kv_width)]
    } else {
        vec![("q", q_width), ("k", kv_width), ("v", kv_width)]
    };
    let mut qkv = |kind: &str, cols: Option<usize>| -> Vec<Taken> {
        let shape = |rows| [Some(rows), cols].into_iter().flatten().collect::<Vec<_>>();
        let parts = qkv_parts.iter();
        parts
            .map(|(n, rows)| take(&format!("self_attn.{n}_proj.{kind}"), &shape(*rows)))
            .collect()
    };
    let qkv_weights = qkv("weight", Some(hidden));
    let qkv_biases = if config.qkv_bias {
        qkv("bias", None)
    } else {
        Vec::new()
    };
    let (gate, up) = if fused {
        let both = take("mlp.gate_up_proj.weight", &[2 * inner, hidden]);
        (both.part(0..inner), both.part(inner..2 * inner))
    } else {
        let mut take = |n: &str| take(&format!("mlp.{n}_proj.weight"), &[inner, hidden]);
        (take("gate"), take("up"))
    };
    let mlp_shapes = [("gate", inner), ("up", inner), ("down", hidden)];
    LayerParts {
        index: layer,
        input_layernorm: take("input_layernorm.weight", &[hidden]),
        qkv: qkv_weights,
        qkv_biases,
        qk_norms: config.qk_norm.then(|| {
            ["q", "k"].map(|n| take(&format!("self_attn.{n}_norm.weight"), &[config.head_dim]))
        }),
        o: take("self_attn.o_proj.weight", &[hidden, q_width]),
        o_bias: config
            .o_bias
            .then(|| take("self_attn.o_proj.bias", &[hidden])),
        post_attention_layernorm: take("post_attention_layernorm.weight", &[hidden]),
        mlp: GatedMlpParts {
            gate,
            up,
            down: take("mlp.down_proj.weight", &[hidden, inner]),
            biases: config.mlp_bias.then(|| {
                mlp_shapes.map(|(n, width)| take(&format!("mlp.{n}_proj.bias"), &[width]))
            }),
        },
    }
}
