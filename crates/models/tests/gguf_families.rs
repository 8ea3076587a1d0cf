//! GGUF files of every family give the numbers and the token ids of the folders they came from.

#![allow(
    clippy::unwrap_used,
    reason = "clippy knows a test only by its attribute"
)]

mod golden;

use std::fs::File;

use candle_core::quantized::gguf_file::{self, Value};
use golden::{gguf_of, ids, json, open, options, worst};
use prony_models::Dtype;
use prony_models::gguf::GgufFile;
use prony_models::tokenizer;

/// As for the folders.
const LOGITS: f32 = 2e-4;

/// Golden folder, family of its file, name of its cuts.
const FILES: [(&str, &str, &str); 7] = [
    ("llama_gqa_tied", "llama", "gpt-2"),
    ("llama_bias", "llama", "gpt-2"),
    ("llama_rope_llama3", "llama", "gpt-2"),
    ("qwen2", "qwen2", "qwen2"),
    ("qwen3", "qwen3", "qwen2"),
    ("phi3", "phi3", "gpt-2"),
    ("gpt2", "gpt2", "gpt-2"),
];

#[test]
fn every_family_gives_the_numbers_of_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    for (name, family, pre) in FILES {
        let path = folder.path().join(format!("{name}.gguf"));
        gguf_of::write(name, family, pre, &path);
        let mut model = open(&path, &options(Dtype::F32));
        let tensors = golden::tensors(&format!("tiny/{name}/golden.safetensors"));
        let golden = json(&format!("tiny/{name}/golden.json"));
        for prompt in golden["prompts"].as_array().unwrap() {
            let ids = ids(&prompt["ids"]);
            let mut seq = model.decoder.new_sequence(ids.len()).unwrap();
            let logits = model.decoder.logits(&mut seq, &ids).unwrap();
            let last = &logits[logits.len() - model.info.vocab_size..];
            let prompt = prompt["name"].as_str().unwrap();
            let off = worst(last, &tensors[&format!("last/{prompt}")]);
            assert!(off < LOGITS, "{name} {prompt}: off by {off}");
        }
        for case in golden["tokenizer"].as_array().unwrap() {
            let text = case["text"].as_str().unwrap();
            let encoded = model.tokenizer.encode(text, true).unwrap();
            assert_eq!(encoded.get_ids(), ids(&case["ids"]), "{name} {text:?}");
        }
    }
}

/// A vocabulary alone, with what a header must have.
fn vocabulary(metadata: &[(&str, Value)]) -> Result<tokenizers::Tokenizer, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("v.gguf");
    let metadata: Vec<(&str, &Value)> = metadata.iter().map(|(k, v)| (*k, v)).collect();
    gguf_file::write(&mut File::create(&path).unwrap(), &metadata, &[]).unwrap();
    let file = GgufFile::open(&path).unwrap();
    let parts = tokenizer::from_gguf(&file).map_err(|e| e.to_string())?;
    Ok(parts.tokenizer)
}

/// Pieces as SentencePiece stores them: text, score, type.
fn pieces() -> Vec<(String, f32, i32)> {
    let mut all = vec![
        ("<unk>".to_owned(), 0.0, 2),
        ("<s>".to_owned(), 0.0, 3),
        ("</s>".to_owned(), 0.0, 3),
    ];
    all.extend((0..256).map(|b| (format!("<0x{b:02X}>"), 0.0, 6)));
    let words = "▁t er he in ▁a ▁the re ▁he at ▁that hat an ▁an and ▁and the tha ▁th th";
    for (rank, word) in words.split(' ').enumerate() {
        all.push((word.to_owned(), -(rank as f32), 1));
    }
    for (rank, letter) in "▁abdehinrt".chars().enumerate() {
        all.push((letter.to_string(), -100.0 - rank as f32, 1));
    }
    all
}

fn sentence_piece(more: &[(&'static str, Value)]) -> tokenizers::Tokenizer {
    let pieces = pieces();
    let array =
        |f: &dyn Fn(&(String, f32, i32)) -> Value| Value::Array(pieces.iter().map(f).collect());
    let mut metadata = vec![
        ("tokenizer.ggml.model", Value::String("llama".to_owned())),
        (
            "tokenizer.ggml.tokens",
            array(&|p| Value::String(p.0.clone())),
        ),
        ("tokenizer.ggml.scores", array(&|p| Value::F32(p.1))),
        ("tokenizer.ggml.token_type", array(&|p| Value::I32(p.2))),
        ("tokenizer.ggml.bos_token_id", Value::U32(1)),
    ];
    metadata.extend_from_slice(more);
    vocabulary(&metadata).unwrap()
}

/// What SentencePiece does, word for word: join the neighbors whose join scores best, the first of
/// equals, until none is in the vocabulary; bytes for what is left over.
fn joined(text: &str) -> Vec<u32> {
    let pieces = pieces();
    let find = |s: &str| pieces.iter().position(|p| p.0 == s && p.2 == 1);
    let text = format!("▁{}", text.replace(' ', "▁"));
    let mut parts: Vec<String> = text.chars().map(String::from).collect();
    loop {
        let pairs = parts.windows(2).enumerate();
        let scored = pairs.filter_map(|(i, pair)| Some((i, pieces[find(&pair.concat())?].1)));
        let best = scored.reduce(|a, b| if b.1 > a.1 { b } else { a });
        let Some((i, _)) = best else { break };
        let right = parts.remove(i + 1);
        parts[i].push_str(&right);
    }
    let ids = parts.iter().flat_map(|part| match find(part) {
        Some(id) => vec![id as u32],
        None => part.bytes().map(|b| 3 + u32::from(b)).collect(),
    });
    std::iter::once(1).chain(ids).collect()
}

#[test]
fn a_vocabulary_of_scores_joins_as_sentence_piece_does() {
    let tokenizer = sentence_piece(&[]);
    let letters: Vec<char> = "thean rid t é ".chars().collect();
    let mut seed = 12_u64;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as usize % below
    };
    for _ in 0..500 {
        let n = 1 + random(12);
        let text: String = (0..n).map(|_| letters[random(letters.len())]).collect();
        let ids = tokenizer.encode(text.as_str(), true).unwrap();
        assert_eq!(ids.get_ids(), joined(&text), "{text:?}");
        assert_eq!(tokenizer.decode(ids.get_ids(), true).unwrap(), text);
    }
}

#[test]
fn flags_of_the_start_token_and_the_first_space_are_followed() {
    let ids = |more: &[(&'static str, Value)]| {
        let encoded = sentence_piece(more).encode("the", true).unwrap();
        encoded.get_tokens().to_vec()
    };
    assert_eq!(ids(&[]), ["<s>", "▁the"]);
    let no_start = ("tokenizer.ggml.add_bos_token", Value::Bool(false));
    assert_eq!(ids(std::slice::from_ref(&no_start)), ["▁the"]);
    let no_space = ("tokenizer.ggml.add_space_prefix", Value::Bool(false));
    assert_eq!(ids(&[no_start, no_space]), ["the"]);
}

/// Texts whose cuts differ: digits, capitals in short forms, newlines. Letters are the bytes'.
#[test]
fn cuts_are_those_of_the_name() {
    let bytes: Vec<String> = {
        let tokenizer = json("tiny/gpt2/tokenizer.json");
        let vocab = tokenizer["model"]["vocab"].as_object().unwrap().keys();
        vocab.filter(|t| t.chars().count() == 1).cloned().collect()
    };
    // Joins any two digits, and any apostrophe with an S: the cuts decide whether they meet.
    let digits = (0..10).flat_map(|a| (0..10).map(move |b| (a, b)));
    let mut merges: Vec<String> = digits.map(|(a, b)| format!("{a} {b}")).collect();
    merges.push("' S".to_owned());
    let joined = merges.iter().map(|m| m.replace(' ', ""));
    let strings = |all: Vec<String>| Value::Array(all.into_iter().map(Value::String).collect());
    let metadata = |pre: &str, extra: Option<&str>| {
        let extra = extra.map(str::to_owned);
        let tokens = bytes.iter().cloned().chain(joined.clone()).chain(extra);
        [
            ("tokenizer.ggml.model", Value::String("gpt2".to_owned())),
            ("tokenizer.ggml.pre", Value::String(pre.to_owned())),
            ("tokenizer.ggml.tokens", strings(tokens.collect())),
            ("tokenizer.ggml.merges", strings(merges.clone())),
        ]
    };
    let cut = |pre: &str, text: &str| {
        let tokenizer = vocabulary(&metadata(pre, Some("abc"))).unwrap();
        let encoded = tokenizer.encode(text, true).unwrap();
        encoded.get_tokens().join("|")
    };
    assert_eq!(cut("gpt-2", "1234"), "12|34");
    assert_eq!(cut("smollm", "1234"), "1|2|3|4");
    assert_eq!(cut("qwen2", "1234"), "1|2|3|4");
    assert_eq!(cut("llama-bpe", "1234"), "12|3|4");
    assert_eq!(cut("llama-bpe", "X'S"), "X|'S");
    assert_eq!(cut("gpt-2", "X'SY"), "X|'|S|Y");
    // Llama 3 takes a whole word of its vocabulary even where no merges lead to it.
    assert_eq!(cut("llama-bpe", "abc"), "abc");
    assert_eq!(cut("qwen2", "abc"), "a|b|c");
    let refused = vocabulary(&metadata("tekken", None)).unwrap_err();
    let end = "tokenizer.ggml.pre tekken: must be gpt-2, smollm, llama-bpe or qwen2";
    assert!(refused.ends_with(end), "{refused}");
}

#[test]
fn other_families_and_stretched_positions_are_refused_by_name() {
    let problem = |family: &str, more: &[(&str, Value)]| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.gguf");
        let family = Value::String(family.to_owned());
        let mut metadata = vec![("general.architecture", &family)];
        metadata.extend(more.iter().map(|(k, v)| (*k, v)));
        gguf_file::write(&mut File::create(&path).unwrap(), &metadata, &[]).unwrap();
        GgufFile::open(&path)
            .unwrap()
            .config()
            .unwrap_err()
            .to_string()
    };
    let other = problem("gemma", &[]);
    assert!(
        other.starts_with("architecture gemma (general.architecture of "),
        "{other}"
    );
    assert!(
        other.ends_with("(supported: llama, qwen2, qwen3, phi3, gpt2)"),
        "{other}"
    );
    let yarn = ("qwen2.rope.scaling.type", Value::String("yarn".to_owned()));
    let yarn = problem("qwen2", &[yarn]);
    assert!(
        yarn.contains("qwen2.rope.scaling.type yarn: must be none or linear"),
        "{yarn}"
    );
}
