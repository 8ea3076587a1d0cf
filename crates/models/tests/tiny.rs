//! Small random checkpoints against transformers: logits, greedy continuations, chunks, batches.

#![allow(
    clippy::unwrap_used,
    reason = "clippy knows a test only by its attribute"
)]

mod golden;

use std::fs;
use std::path::{Path, PathBuf};

use golden::{
    continue_alone, continue_together, cosine, golden, ids, ids_of, json, open, options, worst,
};
use prony_models::{Dtype, LoadOptions, LoadedModel, Quant};

/// Ten times the reference's own noise, six times below the smallest mistake its data shows.
const LOGITS: f32 = 2e-4;
/// Chunked against whole and batched against alone; our own loops give 0.
const SAME: f32 = 5e-5;

const CHECKPOINTS: [&str; 13] = [
    "llama_gqa_tied",
    "llama_gqa_untied_sharded",
    "llama_head_dim",
    "llama_rope_llama3",
    "llama_bias",
    "llama_bf16",
    "mistral_swa",
    "qwen2",
    "qwen3",
    "phi3",
    "gpt2",
    "gpt2_hub_names",
    "gpt_neox",
];

/// The ways a checkpoint is loaded: our own loops and LibTorch's operators.
fn variants() -> [LoadOptions; 2] {
    [true, false].map(|own_kernels| LoadOptions {
        own_kernels,
        kv_capacity_tokens: 2048,
        ..options(Dtype::F32)
    })
}

fn folder(name: &str) -> PathBuf {
    golden(&format!("tiny/{name}"))
}

/// A copy of a checkpoint whose config.json is the one of older hub folders.
fn with_older_config(name: &str) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(folder(name)).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
    }
    fs::rename(
        copy.path().join("config_v4.json"),
        copy.path().join("config.json"),
    )
    .unwrap();
    copy
}

/// The golden prompts: name and ids.
fn prompts(name: &str) -> Vec<(String, Vec<u32>)> {
    let golden = json(&format!("tiny/{name}/golden.json"));
    let prompts = golden["prompts"].as_array().unwrap().iter();
    prompts
        .map(|p| (p["name"].as_str().unwrap().to_owned(), ids(&p["ids"])))
        .collect()
}

/// Logits after each token, the prompt fed in chunks.
fn logits(model: &mut LoadedModel, ids: &[u32], chunk: usize) -> Vec<f32> {
    let mut seq = model.decoder.new_sequence(ids.len()).unwrap();
    ids.chunks(chunk)
        .flat_map(|c| model.decoder.logits(&mut seq, c).unwrap())
        .collect()
}

fn check_logits(name: &str, path: &Path, options: &LoadOptions) {
    let mut model = open(path, options);
    let tensors = golden::tensors(&format!("tiny/{name}/golden.safetensors"));
    for (prompt, ids) in prompts(name) {
        let whole = logits(&mut model, &ids, ids.len());
        let vocab = model.info.vocab_size;
        let last = &whole[whole.len() - vocab..];
        let off = worst(last, &tensors[&format!("last/{prompt}")]);
        assert!(off < LOGITS, "{name} {prompt}: last off by {off}");
        if let Some(all) = tensors.get(&format!("all/{prompt}")) {
            let off = worst(&whole, all);
            assert!(off < LOGITS, "{name} {prompt}: all off by {off}");
        }
        for chunk in [1, 3, 16] {
            let off = worst(&whole, &logits(&mut model, &ids, chunk));
            let allowed = if options.own_kernels { 0.0 } else { SAME };
            assert!(
                off <= allowed,
                "{name} {prompt}: chunks of {chunk} off by {off}"
            );
        }
    }
}

#[test]
fn logits_are_those_of_the_reference_and_chunks_change_nothing() {
    for name in CHECKPOINTS {
        for options in variants() {
            check_logits(name, &folder(name), &options);
        }
    }
}

#[test]
fn the_older_style_of_config_gives_the_same() {
    for name in CHECKPOINTS {
        check_logits(name, with_older_config(name).path(), &variants()[0]);
    }
}

#[test]
fn greedy_tokens_are_those_of_the_reference_alone_and_in_any_company() {
    for name in CHECKPOINTS {
        for options in variants() {
            let mut model = open(&folder(name), &options);
            let decoder = &mut *model.decoder;
            let golden = json(&format!("tiny/{name}/golden.json"));
            let expected: Vec<Vec<u32>> = golden["prompts"]
                .as_array()
                .unwrap()
                .iter()
                .map(|p| ids(&p["greedy24"]))
                .collect();
            let prompts: Vec<Vec<u32>> = prompts(name).into_iter().map(|(_, ids)| ids).collect();
            let alone: Vec<_> = prompts
                .iter()
                .map(|p| continue_alone(decoder, p, 24, None))
                .collect();
            for (a, e) in alone.iter().zip(&expected) {
                assert_eq!(ids_of(a), *e, "{name}");
            }
            for shape in [(3, 64), (7, 5)] {
                let together = continue_together(decoder, &prompts, 24, None, shape);
                for (t, a) in together.iter().zip(&alone) {
                    assert_eq!(ids_of(t), ids_of(a), "{name} {shape:?}");
                    let logprob = |x: &prony_models::NextToken| x.logprob;
                    let (t, a): (Vec<f32>, Vec<f32>) = (
                        t.iter().map(logprob).collect(),
                        a.iter().map(logprob).collect(),
                    );
                    let allowed = if options.own_kernels { 0.0 } else { SAME };
                    assert!(worst(&t, &a) <= allowed, "{name} {shape:?}");
                }
            }
            assert_eq!(decoder.kv_free_tokens(), decoder.info().kv_capacity_tokens);
        }
    }
}

#[test]
fn generation_stops_with_the_end_token() {
    let golden = json("tiny/llama_gqa_tied/golden.json");
    let case = &golden["eos_case"];
    let all = prompts("llama_gqa_tied");
    let (_, prompt) = all
        .iter()
        .find(|(n, _)| *n == case["prompt"].as_str().unwrap())
        .unwrap();
    let mut model = open(&folder("llama_gqa_tied"), &variants()[0]);
    let eos = case["eos_token_id"].as_u64().map(|id| id as u32);
    let out = continue_alone(&mut *model.decoder, prompt, 24, eos);
    assert_eq!(ids_of(&out), ids(&case["expected_new_ids"]));
}

#[test]
fn bf16_stays_near_the_reference() {
    let options = LoadOptions {
        dtype: Dtype::Bf16,
        ..variants()[0].clone()
    };
    for name in CHECKPOINTS {
        for (ours, reference) in last_logits(name, &options) {
            let off = worst(&ours, &reference);
            assert!(off < 1.0, "{name}: {off}");
        }
    }
}

/// The logits after each golden prompt, and what the reference has there.
fn last_logits(name: &str, options: &LoadOptions) -> Vec<(Vec<f32>, Vec<f32>)> {
    let mut model = open(&folder(name), options);
    let tensors = golden::tensors(&format!("tiny/{name}/golden.safetensors"));
    let last = |(prompt, ids): (String, Vec<u32>)| {
        let whole = logits(&mut model, &ids, ids.len());
        let last = whole[whole.len() - model.info.vocab_size..].to_vec();
        (last, tensors[&format!("last/{prompt}")].clone())
    };
    prompts(name).into_iter().map(last).collect()
}

/// Weights of 8 bits are held to the bound of bf16. Random weights of 4 bits move single logits by
/// as much as a mistake in the wiring would, so only their direction is asked for, on average.
#[test]
fn quantised_every_architecture_stays_near_the_reference() {
    for (quant, least) in [
        (Quant::Int8, 0.99),
        (Quant::Int8Dynamic, 0.99),
        (Quant::Int4, 0.85),
    ] {
        let options = LoadOptions {
            quant,
            ..variants()[0].clone()
        };
        for name in CHECKPOINTS {
            let pairs = last_logits(name, &options);
            let off = pairs.iter().map(|(ours, reference)| worst(ours, reference));
            let off = off.fold(0.0, f32::max);
            assert!(quant == Quant::Int4 || off < 1.0, "{quant} {name}: {off}");
            let cosines = pairs
                .iter()
                .map(|(ours, reference)| cosine(ours, reference));
            let mean = cosines.sum::<f32>() / pairs.len() as f32;
            println!("{quant} {name}: worst logit off {off}, mean cosine {mean}");
            assert!(mean > least, "{quant} {name}: {mean}");
        }
    }
}

#[test]
fn text_parts_come_with_the_folder() {
    for name in CHECKPOINTS {
        let model = open(&folder(name), &variants()[0]);
        let golden = json(&format!("tiny/{name}/golden.json"));
        for case in golden["tokenizer"].as_array().unwrap() {
            let text = case["text"].as_str().unwrap();
            for (key, special) in [("ids", true), ("ids_no_special", false)] {
                let encoded = model.tokenizer.encode(text, special).unwrap();
                assert_eq!(encoded.get_ids(), ids(&case[key]), "{name} {text:?} {key}");
            }
        }
        let has_template = ["llama_gqa_tied", "qwen2"].contains(&name);
        assert_eq!(model.chat_template.is_some(), has_template, "{name}");
        assert_eq!(model.eos_text.as_deref(), Some("<|im_end|>"));
        assert_eq!(model.info.eos_ids, [2]);
    }
}

/// What went wrong when a changed copy of a checkpoint was loaded.
fn problem_with(change: impl Fn(&Path)) -> String {
    let copy = with_older_config("llama_gqa_tied");
    change(copy.path());
    let source = prony_models::ModelSource::Path(copy.path().to_owned());
    let problem = prony_models::load(&source, &variants()[0])
        .err()
        .expect("refused")
        .to_string();
    problem.replace(copy.path().to_str().unwrap(), "DIR")
}

fn edit_config(folder: &Path, from: &str, to: &str) {
    let path = folder.join("config.json");
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(from));
    fs::write(path, text.replace(from, to)).unwrap();
}

#[test]
fn a_model_that_does_not_fit_is_refused_in_one_line() {
    let arch = problem_with(|f| edit_config(f, "LlamaForCausalLM", "OddForCausalLM"));
    assert_eq!(
        arch,
        "architecture OddForCausalLM is not supported (supported: LlamaForCausalLM, llama, \
         MistralForCausalLM, mistral, Qwen2ForCausalLM, qwen2, Qwen3ForCausalLM, qwen3, \
         Phi3ForCausalLM, phi3, GPT2LMHeadModel, gpt2, GPTNeoXForCausalLM, gpt_neox)"
    );
    let shape = problem_with(|f| edit_config(f, r#""vocab_size": 512"#, r#""vocab_size": 500"#));
    assert_eq!(
        shape,
        "DIR: 1 mis-shaped tensors: tensor model.embed_tokens.weight: expected [500, 64], \
         got [512, 64]"
    );
    let layers = problem_with(|f| {
        edit_config(f, r#""num_hidden_layers": 2"#, r#""num_hidden_layers": 3"#);
    });
    assert!(
        layers.starts_with("DIR: 9 missing tensors: model.layers.2."),
        "{layers}"
    );
    let unused = problem_with(|f| {
        edit_config(f, r#""num_hidden_layers": 2"#, r#""num_hidden_layers": 1"#);
    });
    assert!(
        unused.starts_with("DIR: 9 unused tensors: model.layers.1."),
        "{unused}"
    );
    let json = problem_with(|f| fs::write(f.join("config.json"), "{").unwrap());
    assert!(
        json.starts_with("DIR/config.json: EOF while parsing"),
        "{json}"
    );
    let tokenizer = problem_with(|f| fs::remove_file(f.join("tokenizer.json")).unwrap());
    assert_eq!(tokenizer, "DIR: no tokenizer.json in this folder");
    let weights = problem_with(|f| fs::write(f.join("model.safetensors"), "short").unwrap());
    assert!(weights.starts_with("DIR/model.safetensors: "), "{weights}");
    let gone = problem_with(|f| fs::remove_dir_all(f).unwrap());
    assert_eq!(gone, "model DIR: no such file or folder");
}

/// Layers with the window and without in one model: the reference has none, so the two ways to
/// compute must agree, and each pure case be the one that it is.
#[test]
fn a_window_may_hold_for_some_layers_only() {
    let [full, sliding] = ["full_attention", "sliding_attention"];
    let last = |types: [&str; 2], window: &str, options: &LoadOptions| {
        let copy = with_older_config("mistral_swa");
        let types = format!(r#""sliding_window": {window}, "layer_types": {types:?}"#);
        edit_config(copy.path(), r#""sliding_window": 8"#, &types);
        let (_, ids) = prompts("mistral_swa").pop().unwrap();
        logits(&mut open(copy.path(), options), &ids, 7)
    };
    let [own, torch] = variants();
    let whole = last([full, full], "null", &own);
    assert_eq!(last([full, full], "8", &own), whole);
    let windowed = last([sliding, sliding], "8", &own);
    for types in [[full, sliding], [sliding, full]] {
        let mixed = last(types, "8", &own);
        assert!(worst(&mixed, &whole) > 0.01 && worst(&mixed, &windowed) > 0.01);
        assert!(worst(&mixed, &last(types, "8", &torch)) < LOGITS);
    }
}

#[test]
fn a_bad_row_is_refused_before_anything_changes() {
    use prony_models::{ModelError, Sampler, StepRow};
    let options = LoadOptions {
        kv_capacity_tokens: 64,
        ..variants()[0].clone()
    };
    let mut model = open(&folder("llama_gqa_tied"), &options);
    let decoder = &mut *model.decoder;
    let mut good = decoder.new_sequence(16).unwrap();
    let mut bad = decoder.new_sequence(16).unwrap();
    let mut step = |tokens: &[u32]| {
        let mut sampler = Sampler::greedy();
        let mut rows = [
            StepRow {
                seq: &mut good,
                tokens: &[1, 2],
                sampler: Some(&mut sampler),
                scoring: None,
            },
            StepRow {
                seq: &mut bad,
                tokens,
                sampler: None,
                scoring: None,
            },
        ];
        let problem = decoder
            .step(&mut rows)
            .map_err(|e| e.to_string())
            .unwrap_err();
        assert_eq!((good.len(), bad.len()), (0, 0));
        problem
    };
    assert_eq!(step(&[]), "step row 1: no tokens");
    assert_eq!(step(&[5, 512]), "token id 512: the vocabulary has 512");
    assert_eq!(
        step(&[1; 300]),
        "sequence of 300 tokens: the model allows 256"
    );
    assert_eq!(
        step(&[1; 100]),
        "key/value cache: 96 tokens needed, 32 of 64 free"
    );
    assert!(matches!(
        decoder.new_sequence(300),
        Err(ModelError::TooLong { .. })
    ));
    assert!(matches!(
        decoder.new_sequence(33),
        Err(ModelError::KvExhausted { .. })
    ));
}
