//! Llama: RMS norm, rotary grouped-query attention, gated MLP, tied or untied head.
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
    input_layernorm: Taken,
    /// q, k and v, and their biases.
    qkv: [Taken; 3],
    qkv_biases: Option<[Taken; 3]>,
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
        let embedding = Matrix::read(compute, weights, &[&parts.embed_tokens])?;
        let lm_head = match &parts.lm_head {
            Some(part) => Matrix::read(compute, weights, &[part])?,
            None => embedding.share(),
        };
        let head_bytes = if parts.lm_head.is_some() {
            lm_head.bytes()
        } else {
            0
        };
        let layers = parts
            .layers
            .iter()
            .map(|p| Layer::read(config, weights, compute, p))
            .collect::<Result<Vec<_>, _>>()?;
        let norm = RmsNorm::read(compute, weights, &parts.norm, config.rms_norm_eps)?;
        let weight_bytes = embedding.bytes()
            + head_bytes
            + norm.bytes()
            + layers.iter().map(Layer::bytes).sum::<usize>();
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
        let norm = |part| RmsNorm::read(compute, weights, part, config.rms_norm_eps);
        let qkv: Vec<&Taken> = parts.qkv.iter().collect();
        let qkv_biases: Vec<&Taken> = parts.qkv_biases.iter().flatten().collect();
        let o_bias: Vec<&Taken> = parts.o_bias.iter().collect();
        Ok(Self {
            input_layernorm: norm(&parts.input_layernorm)?,
            qkv_proj: Linear::read(compute, weights, &qkv, &qkv_biases)?,
            attention: SelfAttention::new(compute, Heads::of(config)),
            o_proj: Linear::read(compute, weights, &[&parts.o], &o_bias)?,
            post_attention_layernorm: norm(&parts.post_attention_layernorm)?,
            mlp: GatedMlp::read(compute, weights, &parts.mlp)?,
        })
    }

    fn bytes(&self) -> usize {
        self.input_layernorm.bytes()
            + self.qkv_proj.bytes()
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
    let mut take =
        |name: &str, shape: &[usize]| weights.take(&format!("model.layers.{layer}.{name}"), shape);
    let qkv_shapes = [("q", q_width), ("k", kv_width), ("v", kv_width)];
    let mlp_shapes = [("gate", inner), ("up", inner), ("down", hidden)];
    LayerParts {
        input_layernorm: take("input_layernorm.weight", &[hidden]),
        qkv: qkv_shapes
            .map(|(n, width)| take(&format!("self_attn.{n}_proj.weight"), &[width, hidden])),
        qkv_biases: config.attention_bias.then(|| {
            qkv_shapes.map(|(n, width)| take(&format!("self_attn.{n}_proj.bias"), &[width]))
        }),
        o: take("self_attn.o_proj.weight", &[hidden, q_width]),
        o_bias: config
            .attention_bias
            .then(|| take("self_attn.o_proj.bias", &[hidden])),
        post_attention_layernorm: take("post_attention_layernorm.weight", &[hidden]),
        mlp: GatedMlpParts {
            gate: take("mlp.gate_proj.weight", &[inner, hidden]),
            up: take("mlp.up_proj.weight", &[inner, hidden]),
            down: take("mlp.down_proj.weight", &[hidden, inner]),
            biases: config.mlp_bias.then(|| {
                mlp_shapes.map(|(n, width)| take(&format!("mlp.{n}_proj.bias"), &[width]))
            }),
        },
    }
}
