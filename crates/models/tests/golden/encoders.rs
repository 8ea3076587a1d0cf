//! Golden data of encoders: the checkpoints, their items, the ways to load them.

use std::path::PathBuf;

use prony_models::encoder_tokenizer::EncoderText;
use prony_models::{Dtype, EncoderInput, EncoderOutput, LoadOptions, LoadedEncoder};
use serde_json::Value;

use super::{golden, ids, json, options};

/// Twenty times the reference's own noise.
pub const OUTPUTS: f32 = 5e-5;
/// Alone against in company, with LibTorch's operators.
pub const SAME: f32 = 5e-5;

/// Checkpoints with golden data.
pub const CHECKPOINTS: [&str; 7] = [
    "bert_seqcls",
    "bert_qa",
    "bert_embed_mean",
    "bert_embed_cls",
    "distilbert_seqcls",
    "roberta_seqcls",
    "xlmr_seqcls",
];

/// How far an output may be off.
pub fn tolerance(name: &str) -> f32 {
    // Normalised vectors have small numbers.
    if name == "bert_embed_mean" {
        5e-6
    } else {
        OUTPUTS
    }
}

/// The ways a checkpoint is loaded: our own loops and LibTorch's operators.
pub fn variants() -> [LoadOptions; 2] {
    [true, false].map(|own_kernels| LoadOptions {
        own_kernels,
        ..options(Dtype::F32)
    })
}

/// Folder of a checkpoint.
pub fn folder(name: &str) -> PathBuf {
    golden(&format!("tiny/{name}"))
}

/// One text or pair of the golden data.
pub struct Item {
    first: String,
    second: Option<String>,
    pub ids: Vec<u32>,
    pub token_types: Vec<u32>,
}

/// The items of a checkpoint.
pub struct Items(pub Vec<Item>);

impl Items {
    pub fn of(name: &str) -> Self {
        let golden = json(&format!("tiny/{name}/golden.json"));
        let text = |v: &Value| v.as_str().unwrap().to_owned();
        let items = golden["items"].as_array().unwrap().iter();
        Self(
            items
                .map(|item| {
                    let (first, second) = match item["pair"].as_array() {
                        Some(pair) => (text(&pair[0]), Some(text(&pair[1]))),
                        None => (text(&item["text"]), None),
                    };
                    Item {
                        first,
                        second,
                        ids: ids(&item["ids"]),
                        token_types: ids(&item["token_type_ids"]),
                    }
                })
                .collect(),
        )
    }
}

impl Item {
    pub fn text(&self) -> EncoderText<'_> {
        match &self.second {
            Some(second) => EncoderText::Pair(&self.first, second),
            None => EncoderText::One(&self.first),
        }
    }

    pub fn input(&self) -> EncoderInput<'_> {
        EncoderInput {
            ids: &self.ids,
            token_types: &self.token_types,
        }
    }
}

pub fn inputs(items: &Items) -> Vec<EncoderInput<'_>> {
    items.0.iter().map(Item::input).collect()
}

/// Outputs as numbers in the order of the golden tensors: starts before ends.
pub fn outputs_of(model: &mut LoadedEncoder, inputs: &[EncoderInput<'_>]) -> Vec<Vec<f32>> {
    let outputs = model.encoder.encode(inputs).unwrap();
    outputs
        .into_iter()
        .map(|output| match output {
            EncoderOutput::Embedding(v)
            | EncoderOutput::Labels(v)
            | EncoderOutput::TokenLabels(v) => v,
            EncoderOutput::Span { start, end } => [start, end].concat(),
        })
        .collect()
}
