//! Golden data of the reference implementation, and the models it belongs to.

// Every test binary uses its own part; clippy knows a test only by its attribute.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "shared by several test binaries"
)]

pub mod encoders;
pub mod gguf_of;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use prony_models::{
    Decoder, Device, Dtype, LoadOptions, LoadedEncoder, LoadedModel, ModelSource, NextToken, Quant,
    Sampler, Sequence, StepRow, load, load_encoder,
};
use serde_json::Value;

/// A file or folder under `tests/golden/models` of the repository.
pub fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/golden/models")
        .join(name)
}

/// The GGUF file that `scripts/setup.sh` unpacks.
pub fn smollm2() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.models/SmolLM2-135M-Instruct");
    let file = folder.join("SmolLM2-135M-Instruct.Q4_1.gguf");
    assert!(
        file.exists(),
        "{} is missing: run scripts/setup.sh",
        file.display()
    );
    file
}

/// A golden JSON file.
pub fn json(name: &str) -> Value {
    let path = golden(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap()
}

/// All f32 tensors of a golden safetensors file.
pub fn tensors(name: &str) -> BTreeMap<String, Vec<f32>> {
    let bytes = std::fs::read(golden(name)).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let number = |b: &[u8]| f32::from_le_bytes(b.try_into().unwrap());
    file.iter()
        .map(|(n, t)| (n.to_owned(), t.data().chunks(4).map(number).collect()))
        .collect()
}

/// Token ids in a JSON list.
pub fn ids(value: &Value) -> Vec<u32> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|v| v.as_u64().unwrap() as u32)
        .collect()
}

/// Numbers in a JSON list.
pub fn floats(value: &Value) -> Vec<f64> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|v| v.as_f64().unwrap())
        .collect()
}

/// Options of the tests: two threads, our own loops, a cache for a few thousand tokens.
pub fn options(dtype: Dtype) -> LoadOptions {
    LoadOptions {
        dtype,
        device: Device::Cpu,
        threads: 2,
        kv_dtype: None,
        kv_capacity_tokens: 8192,
        quant: Quant::None,
        own_kernels: true,
    }
}

/// Loads from a path.
pub fn open(path: &Path, options: &LoadOptions) -> LoadedModel {
    let source = ModelSource::Path(path.to_owned());
    load(&source, options).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Loads an encoder from a path.
pub fn open_encoder(path: &Path, options: &LoadOptions) -> LoadedEncoder {
    let source = ModelSource::Path(path.to_owned());
    load_encoder(&source, options).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Greedy continuation of one prompt, fed in chunks of at most `chunk` tokens.
pub fn continue_alone(
    decoder: &mut dyn Decoder,
    prompt: &[u32],
    n: usize,
    eos: Option<u32>,
) -> Vec<NextToken> {
    let mut seq = decoder.new_sequence(prompt.len() + n).unwrap();
    let mut sampler = Sampler::greedy();
    let mut out: Vec<NextToken> = Vec::new();
    while out.len() < n && out.last().is_none_or(|t| Some(t.id) != eos) {
        let last = out.last().map(|t| [t.id]);
        let tokens = last.as_ref().map_or(prompt, |t| &t[..]);
        out.push(step_one(decoder, &mut seq, tokens, &mut sampler));
    }
    out
}

fn step_one(
    decoder: &mut dyn Decoder,
    seq: &mut Sequence,
    tokens: &[u32],
    sampler: &mut Sampler,
) -> NextToken {
    let mut rows = [StepRow {
        seq,
        tokens,
        sampler: Some(sampler),
        scoring: None,
    }];
    decoder.step(&mut rows).unwrap().remove(0).unwrap()
}

/// One sequence of [`continue_together`].
struct Running<'a> {
    index: usize,
    seq: Sequence,
    sampler: Sampler,
    prompt: &'a [u32],
    fed: usize,
    out: Vec<NextToken>,
}

/// Greedy continuations of all prompts with `slots` of them running at any time: new ones join at
/// the next step, prompts are fed `chunk` tokens a step, finished ones leave.
pub fn continue_together(
    decoder: &mut dyn Decoder,
    prompts: &[Vec<u32>],
    n: usize,
    eos: Option<u32>,
    (slots, chunk): (usize, usize),
) -> Vec<Vec<NextToken>> {
    let mut waiting = prompts.iter().enumerate();
    let mut running: Vec<Running<'_>> = Vec::new();
    let mut done = vec![Vec::new(); prompts.len()];
    loop {
        while running.len() < slots {
            let Some((index, prompt)) = waiting.next() else {
                break;
            };
            let seq = decoder.new_sequence(prompt.len() + n).unwrap();
            let sampler = Sampler::greedy();
            running.push(Running {
                index,
                seq,
                sampler,
                prompt,
                fed: 0,
                out: Vec::new(),
            });
        }
        if running.is_empty() {
            return done;
        }
        let feeds: Vec<Vec<u32>> = running
            .iter()
            .map(|r| match r.out.last() {
                Some(t) => vec![t.id],
                None => r.prompt[r.fed..(r.fed + chunk).min(r.prompt.len())].to_vec(),
            })
            .collect();
        let mut rows: Vec<StepRow<'_>> = running
            .iter_mut()
            .zip(&feeds)
            .map(|(r, tokens)| {
                let complete = r.fed + tokens.len() >= r.prompt.len();
                let sampler = complete.then_some(&mut r.sampler);
                StepRow {
                    seq: &mut r.seq,
                    tokens,
                    sampler,
                    scoring: None,
                }
            })
            .collect();
        let next = decoder.step(&mut rows).unwrap();
        for ((r, tokens), next) in running.iter_mut().zip(&feeds).zip(next) {
            r.fed += tokens.len();
            r.out.extend(next);
        }
        running.retain_mut(|r| {
            let ended = r
                .out
                .last()
                .is_some_and(|t| r.out.len() == n || Some(t.id) == eos);
            if ended {
                done[r.index] = std::mem::take(&mut r.out);
            }
            !ended
        });
    }
}

/// Ids of some tokens.
pub fn ids_of(tokens: &[NextToken]) -> Vec<u32> {
    tokens.iter().map(|t| t.id).collect()
}

/// Cosine of the angle between two vectors.
pub fn cosine(a: &[f32], b: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f32>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

/// Largest absolute difference.
pub fn worst(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter()
        .zip(b)
        .map(|(x, y)| (x - y).abs())
        .fold(0.0, f32::max)
}
