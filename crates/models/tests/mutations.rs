//! Some thousand damaged checkpoints, the same ones every time: each gives a typed error or a model
//! that computes, and none makes the process panic or take more memory than the model needs.

#![allow(
    clippy::unwrap_used,
    unsafe_code,
    reason = "clippy knows a test only by its attribute; counting memory needs an allocator"
)]

mod golden;

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use golden::{gguf_of, golden, options};
use prony_models::device::process_memory;
use prony_models::{
    Dtype, EncoderInput, LoadOptions, LoadedModel, ModelSource, load, load_encoder,
};

/// Remembers the largest piece that was ever asked for. Unit: bytes.
struct Watched;

static LARGEST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: hands everything on to the system's allocator; the counter allocates nothing.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // Relaxed: only the value counts, and it is read after the threads are joined.
        LARGEST.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise about the layout is handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: as for `alloc`.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static WATCHED: Watched = Watched;

/// The largest file here has 1 MB.
const LARGEST_ALLOWED: usize = 16 << 20;
/// All allocators together, LibTorch's included, over all mutations.
const GROWTH_ALLOWED: u64 = 512 << 20;

/// Splitmix64, so that the damage is the same on every machine.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % below.max(1) as u64) as usize
    }

    /// A place in the file; mostly in its first part, where headers are.
    fn place(&mut self, len: usize) -> usize {
        let part = if self.roll(4) > 0 {
            len.min(12 << 10)
        } else {
            len
        };
        self.roll(part)
    }
}

const NUMBERS: [&str; 9] = [
    "0",
    "-1",
    "1e999",
    "1e-320",
    "0.5",
    "1073741824",
    "4294967296",
    "18446744073709551615",
    "null",
];

/// Damages the contents of a file.
fn damage(bytes: &mut Vec<u8>, dice: &mut Dice) {
    let at = dice.place(bytes.len());
    match dice.roll(7) {
        0 => bytes[at] ^= 1 << dice.roll(8),
        1 => bytes.truncate(at),
        2 => {
            // A length field, or what happens to lie there, blown up.
            let at = at.min(bytes.len() - 8);
            let huge = [u64::MAX, 1 << 62, 1 << 40, 1 << 31, 1 << 20, 0][dice.roll(6)];
            bytes[at..at + 8].copy_from_slice(&huge.to_le_bytes());
        }
        3 => {
            let end = (at + 1 + dice.roll(64)).min(bytes.len());
            bytes.drain(at..end);
        }
        4 => {
            let end = (at + 1 + dice.roll(64)).min(bytes.len());
            let copy = bytes[at..end].to_vec();
            bytes.splice(at..at, copy);
        }
        5 => {
            let deep = [b"[".as_slice(), b"{\"a\":"][dice.roll(2)].repeat(50_000);
            bytes.splice(at..at, deep);
        }
        _ => number(bytes, at, dice),
    }
}

/// Puts an odd number in the place of the first one after `at`.
fn number(bytes: &mut Vec<u8>, at: usize, dice: &mut Dice) {
    let digit = |b: &u8| b.is_ascii_digit();
    let Some(start) = bytes[at..].iter().position(digit).map(|i| at + i) else {
        return;
    };
    let end = bytes[start..].iter().position(|b| !digit(b));
    let end = end.map_or(bytes.len(), |i| start + i);
    let odd = NUMBERS[dice.roll(NUMBERS.len())];
    bytes.splice(start..end, odd.bytes());
}

fn small() -> LoadOptions {
    LoadOptions {
        threads: 1,
        kv_capacity_tokens: 64,
        ..options(Dtype::F32)
    }
}

/// Loads a decoder and computes with it; what it says against that.
fn decode(path: &Path) -> Result<(), String> {
    let source = ModelSource::Path(path.to_owned());
    let mut model = load(&source, &small()).map_err(|e| e.to_string())?;
    compute(&mut model).map_err(|e| e.to_string())
}

fn compute(model: &mut LoadedModel) -> Result<(), prony_models::ModelError> {
    // A tokenizer may be damaged so that it loses letters, or all of them.
    let encoded = model.tokenizer.encode("Is it 12 o'clock?", true);
    let ids = encoded.map_or(vec![1], |e| e.get_ids().to_vec());
    let mut seq = model.decoder.new_sequence(ids.len())?;
    let logits = model.decoder.logits(&mut seq, &ids)?;
    assert_eq!(logits.len(), ids.len() * model.info.vocab_size);
    let _ = model.tokenizer.decode(&ids, true);
    Ok(())
}

/// As [`decode`], for an encoder.
fn encode(path: &Path) -> Result<(), String> {
    use prony_models::encoder_tokenizer::EncoderText;
    let source = ModelSource::Path(path.to_owned());
    let mut model = load_encoder(&source, &small()).map_err(|e| e.to_string())?;
    let text = EncoderText::Pair("Is it 12 o'clock?", "It is.");
    let tokens = model.tokenizer.encode(text).map_err(|e| e.to_string())?;
    let input = EncoderInput {
        ids: &tokens.ids,
        token_types: &tokens.token_types,
    };
    let outputs = model.encoder.encode(&[input]);
    outputs.map(|_| ()).map_err(|e| e.to_string())
}

/// Damages one file after the other and loads; how many loads failed.
fn check(files: &[PathBuf], n: usize, seed: u64, run: impl Fn() -> Result<(), String>) -> usize {
    assert_eq!(run(), Ok(()), "undamaged");
    let before = process_memory().unwrap().peak_bytes;
    let mut refused = 0;
    for i in 0..n {
        let mut dice = Dice(seed + i as u64);
        let file = &files[i % files.len()];
        let whole = fs::read(file).unwrap();
        let mut bytes = whole.clone();
        damage(&mut bytes, &mut dice);
        fs::write(file, &bytes).unwrap();
        let result = catch_unwind(AssertUnwindSafe(&run));
        let what = format!("mutation {} of {}", seed + i as u64, file.display());
        let result = result.unwrap_or_else(|_| panic!("{what}: panicked"));
        if let Err(text) = result {
            refused += 1;
            assert!(!text.is_empty(), "{what}: no message");
        }
        let largest = LARGEST.load(Ordering::Relaxed);
        assert!(largest < LARGEST_ALLOWED, "{what}: {largest} bytes at once");
        let grown = process_memory().unwrap().peak_bytes.saturating_sub(before);
        assert!(grown < GROWTH_ALLOWED, "{what}: {grown} bytes more");
        fs::write(file, &whole).unwrap();
    }
    refused
}

/// A copy of a golden folder without the golden data.
fn copy(name: &str) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    let from = golden(&format!("tiny/{name}"));
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        fs::create_dir_all(copy.path().join(&folder)).unwrap();
        for entry in fs::read_dir(from.join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let name = folder.join(entry.file_name());
            if entry.path().is_dir() {
                folders.push(name);
            } else if !name.to_string_lossy().starts_with("golden") {
                fs::copy(entry.path(), copy.path().join(name)).unwrap();
            }
        }
    }
    copy
}

#[test]
fn a_damaged_folder_is_an_error_or_a_model() {
    let read = [
        "config.json",
        "tokenizer.json",
        "model.safetensors",
        "tokenizer_config.json",
        "generation_config.json",
        "model.safetensors.index.json",
        "model-00002-of-00003.safetensors",
    ];
    for (name, seed) in [
        ("llama_gqa_untied_sharded", 10_000),
        ("qwen2", 20_000),
        ("phi3", 30_000),
        ("gpt2", 40_000),
        ("gpt_neox", 50_000),
    ] {
        let copy = copy(name);
        let files = read.map(|f| copy.path().join(f));
        let files: Vec<PathBuf> = files.into_iter().filter(|f| f.exists()).collect();
        let refused = check(&files, 300, seed, || decode(copy.path()));
        assert!(refused > 100, "{name}: only {refused} of 300 refused");
    }
}

#[test]
fn a_damaged_encoder_is_an_error_or_a_model() {
    let read = [
        "config.json",
        "tokenizer.json",
        "model.safetensors",
        "tokenizer_config.json",
        "modules.json",
        "sentence_bert_config.json",
        "1_Pooling/config.json",
    ];
    for (name, seed) in [
        ("bert_embed_mean", 60_000),
        ("distilbert_seqcls", 70_000),
        ("xlmr_seqcls", 80_000),
    ] {
        let copy = copy(name);
        let files = read.map(|f| copy.path().join(f));
        let files: Vec<PathBuf> = files.into_iter().filter(|f| f.exists()).collect();
        let refused = check(&files, 300, seed, || encode(copy.path()));
        assert!(refused > 100, "{name}: only {refused} of 300 refused");
    }
}

#[test]
fn a_damaged_gguf_file_is_an_error_or_a_model() {
    let folder = tempfile::tempdir().unwrap();
    for (name, family, seed) in [("llama_bias", "llama", 90_000), ("gpt2", "gpt2", 100_000)] {
        let path = folder.path().join(format!("{name}.gguf"));
        gguf_of::write(name, family, "gpt-2", &path);
        let files = std::slice::from_ref(&path);
        let refused = check(files, 600, seed, || decode(&path));
        assert!(refused > 200, "{name}: only {refused} of 600 refused");
    }
}
