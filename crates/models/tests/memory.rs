//! Loading needs little more memory than the weights. Alone in its binary: the peak is the
//! process's.

#![allow(
    clippy::unwrap_used,
    reason = "clippy knows a test only by its attribute"
)]

mod golden;

use golden::{open, options, smollm2};
use prony_models::Dtype;
use prony_models::device::{process_memory, reset_peak_memory};

#[test]
fn the_peak_while_loading_is_weights_and_a_tenth() {
    // Pages of libraries come in with their first use, more or fewer as the system pleases, and the
    // allocator keeps some of what it was given back: they are no part of loading.
    drop(open(&smollm2(), &options(Dtype::Bf16)));
    assert!(reset_peak_memory(), "the system counts the peak anew");
    let before = process_memory().unwrap().resident_bytes;
    let model = open(&smollm2(), &options(Dtype::Bf16));
    let peak = process_memory().unwrap().peak_bytes - before;
    let weights = model.info.weight_bytes;
    // The tokenizer's tables and the pieces in flight are no weights.
    let allowed = weights + weights / 10 + (16 << 20);
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
