//! Loading an encoder from safetensors needs little more memory than its weights. Alone in its
//! binary: the peak is the process's.

#![allow(
    clippy::unwrap_used,
    reason = "clippy knows a test only by its attribute"
)]

mod golden;

use std::path::Path;

use golden::{open_encoder, options};
use prony_models::Dtype;
use prony_models::device::{process_memory, reset_peak_memory};

#[test]
fn the_peak_while_loading_is_weights_and_a_tenth() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.models/all-MiniLM-L6-v2");
    for dtype in [Dtype::Bf16, Dtype::F32] {
        // Pages of libraries come in with their first use, more or fewer as the system pleases,
        // and the allocator keeps some of what it was given back: they are no part of loading.
        drop(open_encoder(&folder, &options(dtype)));
        assert!(reset_peak_memory(), "the system counts the peak anew");
        let before = process_memory().unwrap().resident_bytes;
        let model = open_encoder(&folder, &options(dtype));
        let peak = process_memory().unwrap().peak_bytes - before;
        let weights = model.info.weight_bytes;
        // As for decoders: the tokenizer's tables and the pieces in flight are no weights.
        let allowed = weights + weights / 10 + (16 << 20);
        let mib = |bytes: u64| bytes >> 20;
        assert!(
            peak < allowed,
            "{dtype}: peak {} MiB, allowed {} MiB",
            mib(peak),
            mib(allowed)
        );
        assert!(
            peak > weights,
            "{dtype}: the peak of {} MiB was not measured",
            mib(peak)
        );
    }
}
