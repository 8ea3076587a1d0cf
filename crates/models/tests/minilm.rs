//! all-MiniLM-L6-v2 against sentence-transformers: ids, cuts, vectors in
//! f32, bf16 and 8 bits.

#![allow(
    clippy::unwrap_used,
    reason = "clippy knows a test only by its attribute"
)]

mod golden;

use std::path::{Path, PathBuf};

use golden::encoders::{outputs_of, variants};
use golden::{cosine, floats, ids, json, open_encoder, options, worst};
use prony_models::encoder_tokenizer::EncoderText;
use prony_models::{Dtype, EncoderInput, LoadOptions, Quant};
use serde_json::Value;

/// Ten times the reference's own noise.
const VECTORS: f32 = 2e-6;

/// The folder that `scripts/setup.sh` unpacks.
fn minilm() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.models/all-MiniLM-L6-v2");
    assert!(
        folder.join("model.safetensors").exists(),
        "{} is missing: run scripts/setup.sh",
        folder.display()
    );
    folder
}

fn texts() -> Vec<Value> {
    json("minilm/golden.json")["texts"]
        .as_array()
        .unwrap()
        .clone()
}

/// Vectors of all golden texts in one batch.
fn vectors(options: &LoadOptions) -> Vec<Vec<f32>> {
    let mut model = open_encoder(&minilm(), options);
    let all: Vec<Vec<u32>> = texts().iter().map(|t| ids(&t["ids"])).collect();
    let inputs: Vec<EncoderInput<'_>> = all
        .iter()
        .map(|ids| EncoderInput {
            ids,
            token_types: &[],
        })
        .collect();
    let together = outputs_of(&mut model, &inputs);
    for (i, input) in inputs.iter().enumerate() {
        let alone = outputs_of(&mut model, &[*input]).remove(0);
        let off = worst(&alone, &together[i]);
        let allowed = match (options.own_kernels, options.dtype) {
            (true, _) => 0.0,
            (false, Dtype::Bf16) => 2e-2,
            (false, _) => VECTORS,
        };
        assert!(off <= allowed, "text {i} in company: off by {off}");
    }
    together
}

fn expected() -> Vec<Vec<f32>> {
    let narrow = |v: &Value| floats(v).into_iter().map(|x| x as f32).collect();
    texts().iter().map(|t| narrow(&t["embedding"])).collect()
}

#[test]
fn ids_are_cut_at_256_and_never_padded() {
    let model = open_encoder(&minilm(), &variants()[0]);
    assert_eq!(model.info.max_tokens, 256);
    for text in texts() {
        let name = text["name"].as_str().unwrap();
        let one = EncoderText::One(text["text"].as_str().unwrap());
        let tokens = model.tokenizer.encode(one).unwrap();
        assert_eq!(tokens.ids, ids(&text["ids"]), "{name}");
        assert!(tokens.token_types.iter().all(|t| *t == 0), "{name}");
        let whole = text["tokens_before_truncation"].as_u64().unwrap() as usize;
        assert_eq!(tokens.n_whole, whole, "{name}");
        assert_eq!(tokens.is_cut(), whole > 256, "{name}");
    }
}

#[test]
fn vectors_are_those_of_the_reference() {
    for options in variants() {
        let got = vectors(&options);
        for (i, (got, expected)) in got.iter().zip(expected()).enumerate() {
            let off = worst(got, &expected);
            assert!(off < VECTORS, "text {i}: off by {off}");
            assert!(cosine(got, &expected) > 0.99999, "text {i}");
        }
        let stored = &json("minilm/golden.json")["cosine"];
        let names: Vec<String> = texts()
            .iter()
            .map(|t| t["name"].as_str().unwrap().to_owned())
            .collect();
        let of = |name: &Value| {
            let at = names.iter().position(|n| n == name.as_str().unwrap());
            &got[at.unwrap()]
        };
        for (a, row) in stored["names"].as_array().unwrap().iter().enumerate() {
            for (b, expected) in floats(&stored["matrix"][a]).into_iter().enumerate() {
                let off = f64::from(cosine(of(row), of(&stored["names"][b]))) - expected;
                assert!(off.abs() < 2e-6, "cosine {a} {b}: off by {off}");
            }
        }
    }
}

#[test]
fn vectors_in_bf16_point_the_same_way() {
    for own_kernels in [true, false] {
        let options = LoadOptions {
            own_kernels,
            ..options(Dtype::Bf16)
        };
        for (i, (got, expected)) in vectors(&options).iter().zip(expected()).enumerate() {
            let cosine = cosine(got, &expected);
            assert!(cosine >= 0.999, "text {i}: cosine {cosine}");
        }
    }
}

#[test]
fn vectors_of_8_bits_point_the_same_way() {
    // [CLS] carries one number twenty times the root mean square of the others. Where rows keep 8
    // bits too it takes the range, and a text of little else is off most.
    let bounds = [(Quant::Int8, 0.995), (Quant::Int8Dynamic, 0.98)];
    for (dtype, (quant, bound)) in [Dtype::F32, Dtype::Bf16]
        .into_iter()
        .flat_map(|dtype| bounds.map(|bound| (dtype, bound)))
    {
        let options = LoadOptions {
            quant,
            ..options(dtype)
        };
        let got = vectors(&options);
        let cosines: Vec<f32> = got
            .iter()
            .zip(expected())
            .map(|(got, expected)| cosine(got, &expected))
            .collect();
        let least = cosines.iter().copied().fold(1.0, f32::min);
        let mean = cosines.iter().sum::<f32>() / cosines.len() as f32;
        println!("{dtype} {quant}: cosine {least:.5} at least, {mean:.5} in the mean");
        assert!(least >= bound, "{dtype} {quant}: {cosines:?}");
    }
}
