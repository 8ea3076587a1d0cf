//! What inspecting says is what loading and computing then take. Alone in its binary: the peak is
//! the process's.

#![allow(
    clippy::unwrap_used,
    reason = "clippy knows a test only by its attribute"
)]

mod golden;

use golden::{golden, open, options, smollm2};
use prony_models::device::process_memory;
use prony_models::{
    Dtype, LoadOptions, ModelError, ModelSource, Quant, Sampler, Sequence, StepRow, inspect,
};

const CHECKPOINTS: [&str; 8] = [
    "llama_gqa_tied",
    "llama_gqa_untied_sharded",
    "mistral_swa",
    "qwen2",
    "qwen3",
    "phi3",
    "gpt2",
    "gpt_neox",
];

/// Rows of a step of the measured load.
const ROWS: usize = 256;

#[test]
fn an_estimate_is_what_loading_and_computing_take() {
    sizes_are_those_of_loading();
    the_operations_of_smollm2_by_hand();
    what_does_not_fit_is_refused_with_numbers();
    the_measured_peak_is_within_a_tenth();
}

fn sizes_are_those_of_loading() {
    for name in CHECKPOINTS {
        for (dtype, quant) in [
            (Dtype::F32, Quant::None),
            (Dtype::Bf16, Quant::None),
            (Dtype::Bf16, Quant::Int8),
            (Dtype::Bf16, Quant::Int4),
        ] {
            for own_kernels in [true, false] {
                if !own_kernels && quant != Quant::None {
                    continue;
                }
                let options = LoadOptions {
                    quant,
                    own_kernels,
                    ..options(dtype)
                };
                let path = golden(&format!("tiny/{name}"));
                let seen = inspect(&ModelSource::Path(path.clone()), &options).unwrap();
                assert_eq!(
                    seen.info,
                    open(&path, &options).info,
                    "{name} {dtype} {quant}"
                );
            }
        }
    }
}

fn the_operations_of_smollm2_by_hand() {
    let seen = inspect(&ModelSource::Path(smollm2()), &options(Dtype::Bf16)).unwrap();
    // 30 layers of 576 x (576 + 2 x 192) + 576 x 576 + 3 x 576 x 1536, and the head of 49152 x 576.
    assert_eq!(seen.matrix_flops_per_token, 2 * 134_479_872);
    assert_eq!(seen.attention_flops_per_pair, 4 * 30 * 576);
    assert_eq!(seen.info.kv_bytes_per_token, 2 * 30 * 192 * 2);
    let encodings: Vec<&str> = seen.stored.keys().map(String::as_str).collect();
    assert_eq!(encodings, ["F32", "Q4_1", "Q8_0"], "{:?}", seen.stored);
    let tensors: usize = seen.stored.values().map(|(n, _)| n).sum();
    assert_eq!(tensors, 272);
}

fn what_does_not_fit_is_refused_with_numbers() {
    let mut seen = inspect(&ModelSource::Path(smollm2()), &options(Dtype::Bf16)).unwrap();
    let needed = seen.info.weight_bytes + seen.cache_bytes();
    seen.available_bytes = Some(needed);
    seen.check_memory().unwrap();
    seen.available_bytes = Some(needed - 1);
    let refused = seen.check_memory().unwrap_err();
    assert!(matches!(refused, ModelError::Memory { .. }));
    let text = refused.to_string();
    assert!(
        text.starts_with("cpu: 2") && text.ends_with(" that are free"),
        "{text}"
    );
    // A step of one row whose token is drawn: 4 x (2 x 576 + 1536) + 2 x 1536 + 4 x 49152 bytes.
    assert_eq!(seen.activation_bytes(1, 1), 210_432);
    seen.available_bytes = Some(seen.info.weight_bytes + 210_432 + 10 * 23_040);
    assert_eq!(seen.tokens_that_fit(1), Some(10));
}

fn the_measured_peak_is_within_a_tenth() {
    // LibTorch's own pages come in with its first use.
    drop(open(&golden("tiny/llama_gqa_tied"), &options(Dtype::Bf16)));
    let before = process_memory().unwrap().resident_bytes;
    let seen = inspect(&ModelSource::Path(smollm2()), &options(Dtype::Bf16)).unwrap();
    let looked = process_memory().unwrap().resident_bytes - before;
    assert!(looked < 64 << 20, "looking took {} MiB", looked >> 20);

    let mut model = open(&smollm2(), &options(Dtype::Bf16));
    let decoder = &mut *model.decoder;
    let length = 2048;
    let n = seen.info.kv_capacity_tokens / length;
    let mut sequences: Vec<Sequence> = (0..n)
        .map(|_| decoder.new_sequence(length).unwrap())
        .collect();
    let tokens: Vec<u32> = (0..length as u32).collect();
    for seq in &mut sequences {
        for chunk in tokens.chunks(ROWS) {
            let mut sampler = Sampler::greedy();
            let mut rows = [StepRow {
                seq,
                tokens: chunk,
                sampler: Some(&mut sampler),
                scoring: None,
            }];
            decoder.step(&mut rows).unwrap();
        }
    }
    let peak = process_memory().unwrap().peak_bytes - before;
    let estimate = seen.info.weight_bytes + seen.cache_bytes() + seen.activation_bytes(ROWS, 1);
    let ratio = peak as f64 / estimate as f64;
    assert!(
        (0.9..1.1).contains(&ratio),
        "peak {peak}, estimate {estimate}"
    );
}
