//! SmolLM2-135M-Instruct from its GGUF file against transformers.

#![allow(
    clippy::unwrap_used,
    reason = "clippy knows a test only by its attribute"
)]

mod golden;

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use golden::{
    continue_alone, continue_together, floats, ids, ids_of, json, open, options, smollm2,
};
use prony_models::gguf::GgufFile;
use prony_models::weights::Weights;
use prony_models::{Dtype, LoadOptions, LoadedModel, NextToken, Quant};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// A step whose best two logits are nearer than this may go either way.
const MARGIN: f64 = 0.002;
const EOS: Option<u32> = Some(2);
const NEW_TOKENS: usize = 48;

/// The f32 model, loaded once for all tests of this binary.
fn model() -> MutexGuard<'static, LoadedModel> {
    static MODEL: OnceLock<Mutex<LoadedModel>> = OnceLock::new();
    let model = MODEL.get_or_init(|| Mutex::new(open(&smollm2(), &options(Dtype::F32))));
    model.lock().unwrap_or_else(PoisonError::into_inner)
}

fn check_greedy(prompt: &Value, got: &[u32], how: &str) {
    let (expected, margins) = (ids(&prompt["greedy"]), floats(&prompt["margins"]));
    let split = expected.iter().zip(got).position(|(e, g)| e != g);
    let name = &prompt["name"];
    match split {
        None => assert_eq!(got, expected, "{name} {how}"),
        Some(step) => {
            assert!(
                margins[step] < MARGIN,
                "{name} {how}: step {step}, margin {}",
                margins[step]
            );
        }
    }
}

#[test]
fn greedy_tokens_are_those_of_the_reference_alone_and_with_15_neighbours() {
    let golden = json("smollm2/golden.json");
    let prompts = golden["prompts"].as_array().unwrap();
    assert_eq!(prompts.len(), 24);
    let mut model = model();
    let decoder = &mut *model.decoder;
    let mut all: Vec<Vec<u32>> = prompts.iter().map(|p| ids(&p["ids"])).collect();
    let alone: Vec<Vec<NextToken>> = all
        .iter()
        .map(|p| continue_alone(decoder, p, NEW_TOKENS, EOS))
        .collect();
    for (prompt, out) in prompts.iter().zip(&alone) {
        check_greedy(prompt, &ids_of(out), "alone");
        let top = &prompt["top10"][0];
        let off = (f64::from(out[0].logprob) - top[1].as_f64().unwrap()).abs();
        assert!(
            off < 1e-3,
            "{}: logprob of the first token off by {off}",
            prompt["name"]
        );
    }
    // The first 15 follow once more, so that the last of the 24 have neighbours to their end.
    all.extend_from_within(..15);
    let together = continue_together(decoder, &all, NEW_TOKENS, EOS, (16, 64));
    for ((prompt, out), alone) in prompts.iter().zip(&together).zip(&alone) {
        check_greedy(prompt, &ids_of(out), "with 15 neighbours");
        if prony_models::kernels::available() {
            // Not a tolerance: our own loops give the same bits in any company.
            assert!(
                out == alone,
                "{}: neighbours changed a logprob",
                prompt["name"]
            );
        }
    }
}

#[test]
fn prompts_become_the_ids_of_the_reference() {
    let model = model();
    let golden = json("smollm2/golden.json");
    let mut n = 0;
    for prompt in golden["prompts"].as_array().unwrap() {
        let text = prompt
            .get("prompt")
            .or(prompt.get("rendered"))
            .unwrap()
            .as_str()
            .unwrap();
        let encoded = model.tokenizer.encode(text, true).unwrap();
        assert_eq!(encoded.get_ids(), ids(&prompt["ids"]), "{text:?}");
        n += 1;
    }
    let text = golden["perplexity"]["text"].as_str().unwrap();
    let encoded = model.tokenizer.encode(text, true).unwrap();
    assert_eq!(encoded.get_ids(), ids(&golden["perplexity"]["ids"]));
    let cases = json("gguf/tokenizer_golden.json");
    for case in cases["cases"].as_array().unwrap() {
        let text = case["text"].as_str().unwrap();
        let encoded = model.tokenizer.encode(text, true).unwrap();
        assert_eq!(encoded.get_ids(), ids(&case["ids"]), "{text:?}");
        let decoded = model.tokenizer.decode(encoded.get_ids(), true).unwrap();
        assert_eq!(
            decoded,
            case["decoded_skip_special"].as_str().unwrap(),
            "{text:?}"
        );
        n += 1;
    }
    assert_eq!(n, 24 + 40);
}

#[test]
fn the_file_describes_the_model() {
    let model = model();
    let info = &model.info;
    assert_eq!(info.architecture, "LlamaForCausalLM");
    assert_eq!(
        (info.vocab_size, info.n_layers, info.max_tokens),
        (49152, 30, 8192)
    );
    assert_eq!(
        (info.n_parameters, info.weight_bytes),
        (134_515_008, 4 * 134_515_008)
    );
    assert_eq!(info.kv_bytes_per_token, 2 * 30 * 192 * 4);
    assert_eq!((&info.eos_ids[..], info.bos_id), (&[2][..], Some(1)));
    assert_eq!(model.eos_text.as_deref(), Some("<|im_end|>"));
    assert!(
        model
            .chat_template
            .as_ref()
            .unwrap()
            .contains("<|im_start|>")
    );
}

/// Mean negative log-likelihood of the stored text, one window, no start token.
fn mean_nll(model: &mut LoadedModel, tokens: &[u32]) -> f64 {
    let mut seq = model.decoder.new_sequence(tokens.len()).unwrap();
    let vocab = model.info.vocab_size;
    let mut sum = 0.0;
    let mut next = tokens[1..].iter();
    for chunk in tokens.chunks(128) {
        let logits = model.decoder.logits(&mut seq, chunk).unwrap();
        for (row, &id) in logits.chunks(vocab).zip(&mut next) {
            let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let total: f64 = row.iter().map(|l| f64::from(l - max).exp()).sum();
            sum += total.ln() - f64::from(row[id as usize] - max);
        }
    }
    sum / (tokens.len() - 1) as f64
}

#[test]
fn the_stored_text_is_as_likely_as_in_the_reference() {
    let golden = json("smollm2/golden.json");
    let perplexity = &golden["perplexity"];
    let tokens = ids(&perplexity["ids"]);
    let f32_nll = mean_nll(&mut model(), &tokens);
    let expected = perplexity["mean_nll_f32"].as_f64().unwrap();
    assert!(
        (f32_nll - expected).abs() < 1e-4,
        "f32: {f32_nll}, reference {expected}"
    );
    let bf16_nll = mean_nll(&mut open(&smollm2(), &options(Dtype::Bf16)), &tokens);
    let expected = perplexity["mean_nll_bf16"].as_f64().unwrap();
    assert!(
        (bf16_nll - expected).abs() < 0.01,
        "bf16: {bf16_nll}, reference {expected}"
    );
}

/// Weights of 8 and 4 bits can only be judged so, not by tokens. The weights here are 4-bit groups
/// by nature, so that int4 loses nothing but in the embedding.
#[test]
fn quantised_the_text_is_nearly_as_likely() {
    let golden = json("smollm2/golden.json");
    let perplexity = &golden["perplexity"];
    let tokens = ids(&perplexity["ids"]);
    let expected = perplexity["mean_nll_f32"].as_f64().unwrap();
    println!("dtype  quant         mean NLL  off from f32's {expected}");
    for (dtype, quant, allowed) in [
        (Dtype::F32, Quant::None, 1e-4),
        (Dtype::Bf16, Quant::None, 0.01),
        (Dtype::Bf16, Quant::Int8, 0.03),
        (Dtype::F32, Quant::Int8Dynamic, 0.03),
        (Dtype::Bf16, Quant::Int8Dynamic, 0.03),
        (Dtype::Bf16, Quant::Int4, 0.15),
    ] {
        if quant != Quant::None && !prony_models::kernels::available() {
            continue;
        }
        let options = LoadOptions {
            quant,
            ..options(dtype)
        };
        let nll = mean_nll(&mut open(&smollm2(), &options), &tokens);
        let off = nll - expected;
        let (dtype, quant) = (dtype.to_string(), quant.to_string());
        println!("{dtype:6} {quant:13} {nll:.6}  {off:+.6}");
        assert!(off.abs() < allowed, "{dtype} {quant}: {nll}");
    }
}

#[test]
fn dequantised_tensors_are_those_of_the_reference_bit_for_bit() {
    let golden = json("gguf/dequant.json");
    let mut weights = Weights::from_gguf(GgufFile::open(&smollm2()).unwrap());
    let mut n = 0;
    for tensor in golden["tensors"].as_array().unwrap() {
        let name = tensor["hf_name"].as_str().unwrap();
        let shape: Vec<usize> = ids(&tensor["rows_cols"])
            .into_iter()
            .map(|n| n as usize)
            .collect();
        let taken = weights.take(name, &shape);
        let mut hash = Sha256::new();
        weights
            .read(&taken, |_, piece| {
                piece.iter().for_each(|x| hash.update(x.to_le_bytes()));
            })
            .unwrap();
        let hex: String = hash.finalize().iter().map(|b| format!("{b:02x}")).collect();
        let stored = &tensor["sha256_f32_as_stored"];
        let expected = tensor.get("sha256_f32_hf_row_order").unwrap_or(stored);
        assert_eq!(hex, expected.as_str().unwrap(), "{name}");
        n += 1;
    }
    assert_eq!(n, 8);
}
