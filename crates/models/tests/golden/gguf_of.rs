//! A golden folder written as the GGUF file that llama.cpp's conversion makes of it.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use candle_core::quantized::gguf_file::{self, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use serde_json::Value as Json;

use super::{golden, json};

/// Name of a tensor in a GGUF file, longest ending first where one ends another.
const NAMES: [(&str, &str); 23] = [
    ("model.embed_tokens", "token_embd"),
    ("transformer.wte", "token_embd"),
    ("transformer.wpe", "position_embd"),
    ("model.norm", "output_norm"),
    ("transformer.ln_f", "output_norm"),
    ("lm_head", "output"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.qkv_proj", "attn_qkv"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("self_attn.o_proj", "attn_output"),
    ("input_layernorm", "attn_norm"),
    ("post_attention_layernorm", "ffn_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.gate_up_proj", "ffn_up"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
    ("attn.c_attn", "attn_qkv"),
    ("attn.c_proj", "attn_output"),
    ("mlp.c_fc", "ffn_up"),
    ("mlp.c_proj", "ffn_down"),
];

fn gguf_name(hf: &str) -> String {
    let (part, kind) = hf.rsplit_once('.').unwrap();
    let (layer, part) = ["model.layers.", "transformer.h."]
        .iter()
        .find_map(|start| part.strip_prefix(start)?.split_once('.'))
        .map_or((None, part), |(layer, part)| (Some(layer), part));
    let norms = [("ln_1", "attn_norm"), ("ln_2", "ffn_norm")];
    let mut names = NAMES.iter().chain(&norms);
    let (_, short) = names.find(|(name, _)| *name == part).unwrap();
    layer.map_or_else(
        || format!("{short}.{kind}"),
        |layer| format!("blk.{layer}.{short}.{kind}"),
    )
}

/// Rows of interleaved pairs from rows of halves: `halves[i]` and `halves[i + half]` side by side.
fn interleaved(rows: &[&[f32]], head_dim: usize) -> Vec<f32> {
    let half = head_dim / 2;
    let heads = rows.chunks(head_dim);
    heads
        .flat_map(|head| (0..half).flat_map(|i| [head[i], head[i + half]]))
        .flatten()
        .copied()
        .collect()
}

/// What the folder's tensors become: shape and numbers by GGUF name.
fn tensors(name: &str, family: &str, config: &Json) -> BTreeMap<String, (Vec<usize>, Vec<f32>)> {
    let bytes = std::fs::read(golden(&format!("tiny/{name}/model.safetensors"))).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let number = |b: &[u8]| f32::from_le_bytes(b.try_into().unwrap());
    let mut all = BTreeMap::new();
    for (hf, view) in file.iter() {
        let mut numbers: Vec<f32> = view.data().chunks(4).map(number).collect();
        let mut shape = view.shape().to_vec();
        if family == "llama" && (hf.contains("q_proj") || hf.contains("k_proj")) {
            let cols = if shape.len() == 2 { shape[1] } else { 1 };
            let rows: Vec<&[f32]> = numbers.chunks(cols).collect();
            numbers = interleaved(&rows, 16);
        }
        if family == "gpt2" && shape.len() == 2 && hf.contains(".h.") {
            let (inputs, outputs) = (shape[0], shape[1]);
            let order = (0..outputs).flat_map(|o| (0..inputs).map(move |i| i * outputs + o));
            numbers = order.map(|i| numbers[i]).collect();
            shape.reverse();
        }
        all.insert(gguf_name(hf), (shape, numbers));
    }
    let rope = &config["rope_parameters"];
    if rope["rope_type"] == "llama3" {
        all.insert("rope_freqs.weight".to_owned(), (vec![8], factors(rope)));
    }
    all
}

/// What the frequencies of Llama 3.1 are divided by, for heads of 16.
fn factors(rope: &Json) -> Vec<f32> {
    let of = |key: &str| rope[key].as_f64().unwrap();
    let (low, high) = (of("low_freq_factor"), of("high_freq_factor"));
    let length = of("original_max_position_embeddings");
    let factor = |pair: u32| {
        let wave = std::f64::consts::TAU * of("rope_theta").powf(f64::from(pair) / 8.0);
        let kept = ((length / wave - low) / (high - low)).clamp(0.0, 1.0);
        (1.0 / ((1.0 - kept) / of("factor") + kept)) as f32
    };
    (0..8).map(factor).collect()
}

fn metadata(name: &str, family: &str, pre: &str, config: &Json) -> Vec<(String, Value)> {
    let first = |keys: [&str; 2]| keys.iter().find_map(|k| config[*k].as_u64());
    let mut all = vec![("general.architecture".to_owned(), text(family))];
    let hidden = first(["hidden_size", "n_embd"]).unwrap();
    let heads = first(["num_attention_heads", "n_head"]).unwrap();
    for (key, value) in [
        ("embedding_length", Some(hidden)),
        ("attention.head_count", Some(heads)),
        (
            "attention.head_count_kv",
            config["num_key_value_heads"].as_u64(),
        ),
        ("attention.key_length", config["head_dim"].as_u64()),
        (
            "feed_forward_length",
            Some(config["intermediate_size"].as_u64().unwrap_or(4 * hidden)),
        ),
        ("block_count", first(["num_hidden_layers", "n_layer"])),
        (
            "context_length",
            first(["max_position_embeddings", "n_positions"]),
        ),
    ] {
        if let Some(value) = value {
            all.push((format!("{family}.{key}"), Value::U32(value as u32)));
        }
    }
    for (key, value) in [
        ("attention.layer_norm_rms_epsilon", &config["rms_norm_eps"]),
        (
            "attention.layer_norm_epsilon",
            &config["layer_norm_epsilon"],
        ),
        ("rope.freq_base", &config["rope_parameters"]["rope_theta"]),
    ] {
        if let Some(value) = value.as_f64() {
            all.push((format!("{family}.{key}"), Value::F32(value as f32)));
        }
    }
    all.extend(vocabulary(name, pre));
    all
}

fn text(s: &str) -> Value {
    Value::String(s.to_owned())
}

fn vocabulary(name: &str, pre: &str) -> Vec<(String, Value)> {
    let tokenizer = json(&format!("tiny/{name}/tokenizer.json"));
    let vocab = tokenizer["model"]["vocab"].as_object().unwrap();
    let mut tokens: Vec<(u64, &str)> = vocab
        .iter()
        .map(|(token, id)| (id.as_u64().unwrap(), token.as_str()))
        .collect();
    tokens.sort_unstable();
    let added: Vec<u64> = tokenizer["added_tokens"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| t["id"].as_u64().unwrap())
        .collect();
    let types = tokens
        .iter()
        .map(|(id, _)| Value::I32(if added.contains(id) { 3 } else { 1 }));
    let merges = tokenizer["model"]["merges"].as_array().unwrap().iter();
    let merges = merges.map(|m| {
        text(&format!(
            "{} {}",
            m[0].as_str().unwrap(),
            m[1].as_str().unwrap()
        ))
    });
    [
        ("model", text("gpt2")),
        ("pre", text(pre)),
        (
            "tokens",
            Value::Array(tokens.iter().map(|(_, t)| text(t)).collect()),
        ),
        ("token_type", Value::Array(types.collect())),
        ("merges", Value::Array(merges.collect())),
        ("eos_token_id", Value::U32(2)),
    ]
    .map(|(key, value)| (format!("tokenizer.ggml.{key}"), value))
    .to_vec()
}

/// Writes the file; `pre` names the cuts of its tokenizer.
pub fn write(name: &str, family: &str, pre: &str, path: &Path) {
    let config = json(&format!("tiny/{name}/config.json"));
    let tensors: Vec<(String, QTensor)> = tensors(name, family, &config)
        .into_iter()
        .map(|(name, (shape, numbers))| {
            let tensor = Tensor::from_vec(numbers, shape, &Device::Cpu).unwrap();
            (name, QTensor::quantize(&tensor, GgmlDType::F32).unwrap())
        })
        .collect();
    let metadata = metadata(name, family, pre, &config);
    let metadata: Vec<(&str, &Value)> = metadata.iter().map(|(k, v)| (k.as_str(), v)).collect();
    let tensors: Vec<(&str, &QTensor)> = tensors.iter().map(|(k, v)| (k.as_str(), v)).collect();
    let mut file = File::create(path).unwrap();
    gguf_file::write(&mut file, &metadata, &tensors).unwrap();
}
