//! Loading needs little more memory than the weights. Alone in its binary: the peak is the
//! process's.

#![allow(
    clippy::unwrap_used,
    reason = "clippy knows a test only by its attribute"
)]

mod golden;

use golden::{open, options, smollm2};
use prony_models::Dtype;
use prony_models::device::process_memory;

#[test]
fn the_peak_while_loading_is_weights_and_a_tenth() {
    // LibTorch's own pages come in with its first use, more or fewer of them as the system pleases:
    // they are no part of loading.
    drop(open(
        &golden::golden("tiny/llama_gqa_tied"),
        &options(Dtype::Bf16),
    ));
    let before = process_memory().unwrap().resident_bytes;
    let model = open(&smollm2(), &options(Dtype::Bf16));
    let peak = process_memory().unwrap().peak_bytes - before;
    let weights = model.info.weight_bytes;
    // The tokenizer's tables are no weights: 49152 tokens and 48900 merges take some 20 MiB.
    let allowed = weights + weights / 10 + (24 << 20);
    let mib = |bytes: u64| bytes >> 20;
    assert!(
        peak < allowed,
        "peak {} MiB, allowed {} MiB",
        mib(peak),
        mib(allowed)
    );
    assert!(
        peak > weights,
        "the peak of {} MiB was not measured",
        mib(peak)
    );
}
