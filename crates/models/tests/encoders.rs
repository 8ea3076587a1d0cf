//! Small random encoders against transformers: ids, outputs, batches; and what is refused.

#![allow(
    clippy::unwrap_used,
    reason = "clippy knows a test only by its attribute"
)]

mod golden;

use golden::encoders::{
    CHECKPOINTS, Items, OUTPUTS, SAME, folder, inputs, outputs_of, tolerance, variants,
};
use golden::{floats, json, open_encoder, options, tensors, worst};
use prony_models::encoder_config::HeadKind;
use prony_models::encoder_tokenizer::EncoderText;
use prony_models::scores::{best_label, label_scores};
use prony_models::{Dtype, EncoderInput, Quant, Task};

#[test]
fn ids_and_token_types_are_those_of_the_reference() {
    for name in CHECKPOINTS {
        let model = open_encoder(&folder(name), &variants()[0]);
        for item in &Items::of(name).0 {
            let tokens = model.tokenizer.encode(item.text()).unwrap();
            assert_eq!(tokens.ids, item.ids, "{name} {:?}", item.text());
            assert_eq!(tokens.token_types, item.token_types, "{name}");
            let is_cut = item.ids.len() == 24 && name.contains("embed");
            assert_eq!(tokens.is_cut(), is_cut, "{name}");
        }
        for case in json(&format!("tiny/{name}/golden.json"))["tokenizer"]
            .as_array()
            .unwrap()
        {
            let text = case["text"].as_str().unwrap();
            let encoded = model.tokenizer.encode(EncoderText::One(text));
            // A text alone cannot be cut for question answering; these are short enough.
            let tokens = encoded.unwrap();
            let whole = golden::ids(&case["ids"]);
            assert_eq!(tokens.n_whole, whole.len(), "{name} {text:?}");
            if !tokens.is_cut() {
                assert_eq!(tokens.ids, whole, "{name} {text:?}");
            }
        }
    }
}

#[test]
fn outputs_are_those_of_the_reference_alone() {
    for name in CHECKPOINTS {
        let stored = tensors(&format!("tiny/{name}/golden.safetensors"));
        for options in variants() {
            let mut model = open_encoder(&folder(name), &options);
            for (i, item) in Items::of(name).0.iter().enumerate() {
                let got = outputs_of(&mut model, &[item.input()]).remove(0);
                let off = worst(&got, &stored[&format!("single/{i}")]);
                assert!(off < tolerance(name), "{name} {i}: off by {off}");
            }
        }
    }
}

#[test]
fn hidden_states_are_those_of_the_reference() {
    for name in ["bert_embed_mean", "bert_embed_cls"] {
        let stored = tensors(&format!("tiny/{name}/golden.safetensors"));
        for options in variants() {
            let mut model = open_encoder(&folder(name), &options);
            let items = Items::of(name);
            let got = model.encoder.hidden(items.0[1].input()).unwrap();
            let off = worst(&got, &stored["hidden/1"]);
            assert!(off < OUTPUTS, "{name}: off by {off}");
        }
    }
}

/// Every text alone, in a batch of copies of itself, and among the others at every position.
fn company_changes_nothing(name: &str, options: &prony_models::LoadOptions, allowed: f32) {
    let mut model = open_encoder(&folder(name), options);
    let items = Items::of(name);
    let all = inputs(&items);
    let alone: Vec<Vec<f32>> = all
        .iter()
        .map(|input| outputs_of(&mut model, &[*input]).remove(0))
        .collect();
    for (i, input) in all.iter().enumerate() {
        for got in outputs_of(&mut model, &[*input; 5]) {
            let off = worst(&got, &alone[i]);
            assert!(off <= allowed, "{name} {i}: copies off by {off}");
        }
    }
    for shift in 0..all.len() {
        let mut rotated: Vec<usize> = (0..all.len()).collect();
        rotated.rotate_left(shift);
        let batch: Vec<EncoderInput<'_>> = rotated.iter().map(|&i| all[i]).collect();
        for (i, got) in rotated.iter().zip(outputs_of(&mut model, &batch)) {
            let off = worst(&got, &alone[*i]);
            assert!(off <= allowed, "{name} {i} at shift {shift}: off by {off}");
        }
    }
}

#[test]
fn a_text_alone_is_the_same_in_any_company_at_every_position() {
    for name in CHECKPOINTS {
        for options in variants() {
            // Our own loops promise every bit.
            let allowed = if options.own_kernels { 0.0 } else { SAME };
            company_changes_nothing(name, &options, allowed);
        }
    }
}

#[test]
fn in_bf16_too() {
    for name in CHECKPOINTS {
        for own_kernels in [true, false] {
            let options = prony_models::LoadOptions {
                own_kernels,
                ..options(Dtype::Bf16)
            };
            company_changes_nothing(name, &options, if own_kernels { 0.0 } else { 2e-2 });
            let mut model = open_encoder(&folder(name), &options);
            let stored = tensors(&format!("tiny/{name}/golden.safetensors"));
            for (i, item) in Items::of(name).0.iter().enumerate() {
                let got = outputs_of(&mut model, &[item.input()]).remove(0);
                // The reference's own bf16 is off by up to 0.13.
                let off = worst(&got, &stored[&format!("single/{i}")]);
                assert!(off < 0.2, "{name} {i}: off by {off}");
            }
        }
    }
}

#[test]
fn with_quantised_weights_too() {
    for name in CHECKPOINTS {
        for quant in [Quant::Int8, Quant::Int8Dynamic, Quant::Int4] {
            let options = prony_models::LoadOptions {
                quant,
                ..options(Dtype::Bf16)
            };
            company_changes_nothing(name, &options, 0.0);
        }
    }
}

#[test]
fn labels_and_probabilities_are_those_of_the_reference() {
    for name in CHECKPOINTS {
        let mut model = open_encoder(&folder(name), &variants()[0]);
        if model.info.head != HeadKind::SequenceClassification {
            continue;
        }
        assert_eq!(model.info.tasks(), [Task::Classify]);
        let golden = json(&format!("tiny/{name}/golden.json"));
        for (item, stored) in Items::of(name)
            .0
            .iter()
            .zip(golden["items"].as_array().unwrap())
        {
            let numbers = outputs_of(&mut model, &[item.input()]).remove(0);
            let scores = label_scores(model.info.score_kind, &numbers);
            for (score, expected) in scores.iter().zip(floats(&stored["probs"])) {
                assert!((f64::from(*score) - expected).abs() < 1e-5, "{name}");
            }
            let label = &model.info.labels[best_label(&scores).unwrap()];
            assert_eq!(label, stored["label"].as_str().unwrap(), "{name}");
        }
    }
}

#[test]
fn facts_are_those_of_the_folder() {
    let facts = |name: &str| open_encoder(&folder(name), &variants()[0]).info;
    let bert = facts("bert_qa");
    assert_eq!(bert.tasks(), [Task::Answer]);
    assert_eq!((bert.max_tokens, bert.n_token_types), (128, 2));
    assert_eq!(
        (bert.hidden_size, bert.n_layers, bert.vocab_size),
        (64, 2, 420)
    );
    // 2 layers of (4 x 64 x 64 + 2 x 64 x 128) weights, two operations each.
    assert_eq!(bert.linear_flops_per_token, 2 * 2 * 32_768);
    // Everything in the file but its header, in f32.
    let file = std::fs::metadata(folder("bert_qa").join("model.safetensors")).unwrap();
    let left = file.len() - 4 * bert.n_parameters;
    assert!(left < 8192, "{left} bytes are no parameters");
    // Biases of linears are not counted.
    let share = bert.weight_bytes as f64 / (4 * bert.n_parameters) as f64;
    assert!((0.98..1.05).contains(&share), "{share}");
    let embed = facts("bert_embed_mean");
    assert_eq!(embed.tasks(), [Task::Embed]);
    assert_eq!((embed.max_tokens, embed.embedding_size()), (24, 64));
    assert!(embed.pooling.normalize && !facts("bert_embed_cls").pooling.normalize);
    // Positions start behind the padding's: two rows of 130 are never used.
    assert_eq!(facts("roberta_seqcls").max_tokens, 128);
    assert_eq!(facts("distilbert_seqcls").n_token_types, 0);
    assert_eq!(facts("xlmr_seqcls").labels, ["no", "yes"]);
}

#[test]
fn a_bad_input_is_refused_before_anything_is_computed() {
    let mut model = open_encoder(&folder("bert_qa"), &variants()[0]);
    let mut problem = |ids: &[u32], token_types: &[u32]| {
        let good = EncoderInput {
            ids: &[2, 5, 3],
            token_types: &[],
        };
        let bad = EncoderInput { ids, token_types };
        model.encoder.encode(&[good, bad]).unwrap_err().to_string()
    };
    assert_eq!(problem(&[], &[]), "input 1: no tokens");
    assert_eq!(
        problem(&[2, 420], &[]),
        "token id 420: the vocabulary has 420"
    );
    assert_eq!(
        problem(&[2; 129], &[]),
        "sequence of 129 tokens: the model allows 128"
    );
    assert_eq!(
        problem(&[2, 3], &[0]),
        "input 1: 1 token types for 2 tokens"
    );
    assert_eq!(
        problem(&[2, 3], &[0, 2]),
        "input 1: token type 2: the model has 2"
    );
    assert_eq!(model.encoder.encode(&[]).unwrap(), []);
    // One type or none: whatever the tokenizer says is ignored.
    let mut model = open_encoder(&folder("distilbert_seqcls"), &variants()[0]);
    let typed = |token_types: &'static [u32]| EncoderInput {
        ids: &[2, 5, 3],
        token_types,
    };
    let both = outputs_of(&mut model, &[typed(&[0, 1, 1]), typed(&[])]);
    assert_eq!(both[0], both[1]);
}

#[test]
fn a_long_context_is_read_in_windows_that_overlap() {
    let model = open_encoder(&folder("bert_qa"), &variants()[0]);
    let short = model.tokenizer.windows("Who smiled?", "The keeper smiled.");
    let [only] = &short.unwrap()[..] else {
        panic!("a short context is one window");
    };
    assert!(!only.is_cut() && only.texts.contains(&Some(1)));
    let context = "The tide was low. ".repeat(60);
    let windows = model.tokenizer.windows("Who smiled?", &context).unwrap();
    assert!(windows.len() > 2, "{} windows", windows.len());
    let mut covered = 0;
    for window in &windows {
        assert!(window.is_cut() && window.ids.len() <= 128);
        assert_eq!(
            window.ids[..5],
            windows[0].ids[..5],
            "each begins with the question"
        );
        let of_context = window.texts.iter().zip(&window.offsets);
        let bytes: Vec<_> = of_context
            .filter(|(t, _)| **t == Some(1))
            .map(|(_, o)| *o)
            .collect();
        let (first, last) = (bytes[0].0, bytes[bytes.len() - 1].1);
        assert!(
            first <= covered,
            "bytes {covered}..{first} are in no window"
        );
        assert!(covered == 0 || first < covered, "windows share some tokens");
        covered = last;
    }
    assert_eq!(covered, context.trim_end().len());
    // A question that leaves no room for a context.
    let question = "How many boats are there? ".repeat(60);
    let pair = EncoderText::Pair(&question, "There are 12 boats.");
    let problem = model.tokenizer.encode(pair).unwrap_err().to_string();
    assert_eq!(
        problem,
        "input 0: a question of 420 tokens leaves no room: the model allows 128"
    );
    let windows = model.tokenizer.windows(&question, "There are 12 boats.");
    assert_eq!(windows.unwrap_err().to_string(), problem);
}
