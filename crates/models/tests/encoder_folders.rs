//! Folders made from the golden ones: heads and names that those lack, and faults.

#![allow(
    clippy::unwrap_used,
    reason = "clippy knows a test only by its attribute"
)]

mod golden;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use golden::encoders::{Items, OUTPUTS, folder, outputs_of, tolerance, variants};
use golden::{open_encoder, tensors, worst};
use prony_models::encoder_config::ScoreKind;
use prony_models::scores::label_scores;
use prony_models::{ModelSource, Task, load_encoder};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};

/// A tensor: format, shape, bytes.
type Stored = (Dtype, Vec<usize>, Vec<u8>);

/// A copy of a golden folder that a test changes.
struct Copy {
    folder: tempfile::TempDir,
    tensors: BTreeMap<String, Stored>,
}

impl Copy {
    fn of(name: &str) -> Self {
        let copy = tempfile::tempdir().unwrap();
        copy_files(&folder(name), copy.path());
        let bytes = fs::read(copy.path().join("model.safetensors")).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let tensors = file
            .iter()
            .map(|(name, t)| {
                let stored = (t.dtype(), t.shape().to_vec(), t.data().to_vec());
                (name.to_owned(), stored)
            })
            .collect();
        Self {
            folder: copy,
            tensors,
        }
    }

    /// Replaces a piece of config.json.
    fn config(&self, from: &str, to: &str) -> &Self {
        let path = self.folder.path().join("config.json");
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{from}");
        fs::write(path, text.replace(from, to)).unwrap();
        self
    }

    fn put(&mut self, name: &str, shape: &[usize], numbers: &[f32]) {
        let bytes = numbers.iter().flat_map(|v| v.to_le_bytes()).collect();
        let stored = (Dtype::F32, shape.to_vec(), bytes);
        self.tensors.insert(name.to_owned(), stored);
    }

    fn rename(&mut self, rename: impl Fn(&str) -> String) {
        let tensors = std::mem::take(&mut self.tensors).into_iter();
        self.tensors = tensors.map(|(name, t)| (rename(&name), t)).collect();
    }

    /// The first rows of a tensor only.
    fn cut(&mut self, name: &str, rows: usize) {
        let (_, shape, bytes) = self.tensors.get_mut(name).unwrap();
        bytes.truncate(bytes.len() / shape[0] * rows);
        shape[0] = rows;
    }

    fn write(&self) -> &Path {
        let views = self.tensors.iter().map(|(name, (dtype, shape, bytes))| {
            let view = TensorView::new(*dtype, shape.clone(), bytes).unwrap();
            (name.clone(), view)
        });
        let bytes = safetensors::serialize(views, None).unwrap();
        fs::write(self.folder.path().join("model.safetensors"), bytes).unwrap();
        self.folder.path()
    }

    fn problem(&self) -> String {
        let source = ModelSource::Path(self.write().to_owned());
        let problem = load_encoder(&source, &variants()[0]).err().unwrap();
        let text = problem.to_string();
        text.replace(self.folder.path().to_str().unwrap(), "DIR")
    }
}

fn copy_files(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy_files(&path, &target);
        } else {
            fs::copy(&path, target).unwrap();
        }
    }
}

#[test]
fn a_classifier_of_one_label_ranks_pairs() {
    let mut copy = Copy::of("bert_seqcls");
    copy.cut("classifier.weight", 1);
    copy.cut("classifier.bias", 1);
    copy.config(r#""id2label": {"#, r#""num_labels": 1, "unused": {"#);
    let stored = tensors("tiny/bert_seqcls/golden.safetensors");
    for options in variants() {
        let mut model = open_encoder(copy.write(), &options);
        assert_eq!(model.info.tasks(), [Task::Classify, Task::Rerank]);
        assert_eq!(model.info.score_kind, ScoreKind::Sigmoid);
        for (i, item) in Items::of("bert_seqcls").0.iter().enumerate() {
            let got = outputs_of(&mut model, &[item.input()]).remove(0);
            let expected = stored[&format!("single/{i}")][0];
            assert!(worst(&got, &[expected]) < OUTPUTS, "{i}");
            let score = label_scores(model.info.score_kind, &got)[0];
            assert!((score - 1.0 / (1.0 + (-expected).exp())).abs() < OUTPUTS);
        }
    }
}

#[test]
fn every_token_gets_its_labels() {
    let mut copy = Copy::of("bert_embed_mean");
    copy.rename(|name| format!("bert.{name}"));
    // The labels are columns 3 and 10 of the hidden state, the second with something added.
    let mut weight = [0.0; 128];
    weight[3] = 1.0;
    weight[64 + 10] = 1.0;
    copy.put("classifier.weight", &[2, 64], &weight);
    copy.put("classifier.bias", &[2], &[0.0, 0.5]);
    copy.config("BertModel", "BertForTokenClassification");
    let hidden = &tensors("tiny/bert_embed_mean/golden.safetensors")["hidden/1"];
    let rows = hidden.chunks(64);
    let expected: Vec<f32> = rows.flat_map(|row| [row[3], row[10] + 0.5]).collect();
    for options in variants() {
        let mut model = open_encoder(copy.write(), &options);
        assert_eq!(model.info.tasks(), [Task::Tag]);
        let items = Items::of("bert_embed_mean");
        let (short, item) = (items.0[0].input(), items.0[1].input());
        let got = outputs_of(&mut model, &[item, short]);
        assert!(worst(&got[0], &expected) < OUTPUTS);
        assert_eq!(got[1].len(), 2 * short.ids.len());
    }
}

#[test]
fn other_families_answer_questions_too() {
    for (name, class) in [
        ("roberta_seqcls", "RobertaForQuestionAnswering"),
        ("xlmr_seqcls", "XLMRobertaForQuestionAnswering"),
        ("distilbert_seqcls", "DistilBertForQuestionAnswering"),
    ] {
        let mut copy = Copy::of(name);
        copy.tensors.retain(|name, _| !name.contains("classifier"));
        let weight: Vec<f32> = (0..128).map(|i| (i % 7) as f32 / 7.0 - 0.4).collect();
        copy.put("qa_outputs.weight", &[2, 64], &weight);
        copy.put("qa_outputs.bias", &[2], &[1.0, -1.0]);
        let before = class.replace("QuestionAnswering", "SequenceClassification");
        copy.config(&before, class);
        for options in variants() {
            let mut model = open_encoder(copy.write(), &options);
            assert_eq!(model.info.tasks(), [Task::Answer]);
            let items = Items::of(name);
            let item = items.0[1].input();
            let hidden = model.encoder.hidden(item).unwrap();
            let column = |row: usize, bias: f32| {
                let weight = &weight[64 * row..64 * row + 64];
                let dot = move |h: &[f32]| h.iter().zip(weight).map(|(a, b)| a * b).sum::<f32>();
                hidden.chunks(64).map(move |h| dot(h) + bias)
            };
            let expected: Vec<f32> = column(0, 1.0).chain(column(1, -1.0)).collect();
            let got = outputs_of(&mut model, &[item]).remove(0);
            assert!(worst(&got, &expected) < OUTPUTS, "{name}");
        }
    }
}

#[test]
fn names_of_old_and_of_pre_trained_checkpoints_are_read() {
    for name in ["bert_embed_mean", "bert_embed_cls"] {
        let mut copy = Copy::of(name);
        copy.rename(|name| {
            let name = name.replace("LayerNorm.weight", "LayerNorm.gamma");
            format!("bert.{}", name.replace("LayerNorm.bias", "LayerNorm.beta"))
        });
        copy.put("cls.predictions.bias", &[420], &[0.0; 420]);
        copy.put("cls.predictions.transform.dense.bias", &[64], &[0.0; 64]);
        let ids = (0..128i64).flat_map(i64::to_le_bytes).collect();
        let stored = (Dtype::I64, vec![1, 128], ids);
        copy.tensors
            .insert("bert.embeddings.position_ids".to_owned(), stored);
        copy.config("BertModel", "BertForMaskedLM");
        let mut model = open_encoder(copy.write(), &variants()[0]);
        let stored = tensors(&format!("tiny/{name}/golden.safetensors"));
        for (i, item) in Items::of(name).0.iter().enumerate() {
            let got = outputs_of(&mut model, &[item.input()]).remove(0);
            let off = worst(&got, &stored[&format!("single/{i}")]);
            assert!(off < tolerance(name), "{name} {i}: off by {off}");
        }
    }
}

#[test]
fn a_padding_id_inside_a_text_takes_the_padding_position() {
    let mut model = open_encoder(&folder("roberta_seqcls"), &variants()[0]);
    let mut hidden = |ids: &[u32]| {
        let input = prony_models::EncoderInput {
            ids,
            token_types: &[],
        };
        model.encoder.hidden(input).unwrap()
    };
    // The tokens behind it keep the positions they had without it. Attention still sees it, so
    // the numbers differ; a second text with the id elsewhere tells positions from neighbours:
    // both have the same set of (token, position) pairs but for the order of the rows.
    let (a, b) = (hidden(&[0, 1, 88, 261, 2]), hidden(&[0, 88, 1, 261, 2]));
    let row = |all: &[f32], i: usize| all[64 * i..64 * i + 64].to_vec();
    for (in_a, in_b) in [(0, 0), (1, 2), (2, 1), (3, 3), (4, 4)] {
        let off = worst(&row(&a, in_a), &row(&b, in_b));
        assert!(off < 1e-5, "row {in_a}: off by {off}");
    }
}

#[test]
fn texts_follow_the_rules_of_the_folder() {
    let copy = Copy::of("bert_embed_mean");
    let file = |name: &str, text: &str| fs::write(copy.folder.path().join(name), text).unwrap();
    let ids = |text: &str| {
        let model = open_encoder(copy.folder.path(), &variants()[0]);
        let one = prony_models::encoder_tokenizer::EncoderText::One(text);
        (
            model.info.max_tokens,
            model.tokenizer.encode(one).unwrap().ids,
        )
    };
    let (max_tokens, plain) = ids("the bread");
    assert_eq!((max_tokens, &plain[..]), (24, &[2, 107, 183, 3][..]));
    file("sentence_bert_config.json", r#"{"max_seq_length": 4}"#);
    assert_eq!(ids("the bread the bread"), (4, plain.clone()));
    // Past the positions the model ends, whatever is asked for.
    file("sentence_bert_config.json", r#"{"max_seq_length": 9999}"#);
    assert_eq!(ids("the bread"), (128, plain.clone()));
    fs::remove_file(copy.folder.path().join("sentence_bert_config.json")).unwrap();
    file("tokenizer_config.json", r#"{"model_max_length": 100}"#);
    assert_eq!(ids("the bread").0, 100);
    file("tokenizer_config.json", r#"{"model_max_length": 1e30}"#);
    assert_eq!(ids("the bread").0, 128);
    let prompts = r#"{"prompts": {"p": "the "}, "default_prompt_name": "p"}"#;
    file("config_sentence_transformers.json", prompts);
    assert_eq!(ids("bread").1, plain);
    file("sentence_bert_config.json", r#"{"max_seq_length": 3}"#);
    // Three special tokens in a pair leave no room.
    assert_eq!(
        copy.problem(),
        "DIR/tokenizer.json: tokenizer: 3 tokens allowed: must be more than the 3 special ones"
    );
}

#[test]
fn a_folder_that_does_not_fit_is_refused_in_one_line() {
    let mut copy = Copy::of("bert_seqcls");
    copy.tensors.remove("classifier.bias");
    copy.cut("bert.embeddings.token_type_embeddings.weight", 1);
    copy.put("bert.extra", &[1], &[0.0]);
    assert_eq!(
        copy.problem(),
        "DIR: 1 missing tensors: classifier.bias; 1 mis-shaped tensors: tensor \
         bert.embeddings.token_type_embeddings.weight: expected [2, 64], got [1, 64]; 1 unused \
         tensors: bert.extra"
    );
    let copy = Copy::of("bert_seqcls");
    copy.config("BertForSequenceClassification", "LlamaForCausalLM");
    let problem = copy.problem();
    assert!(
        problem.starts_with("architecture LlamaForCausalLM is not supported"),
        "{problem}"
    );
    let copy = Copy::of("bert_seqcls");
    copy.config("gelu", "swish");
    assert!(
        copy.problem()
            .starts_with("DIR/config.json: hidden_act swish: must be")
    );
    let copy = Copy::of("bert_seqcls");
    fs::write(copy.folder.path().join("modules.json"), "{").unwrap();
    assert!(copy.problem().starts_with("DIR/modules.json: "));
    fs::remove_file(copy.folder.path().join("tokenizer.json")).unwrap();
    fs::remove_file(copy.folder.path().join("modules.json")).unwrap();
    assert_eq!(copy.problem(), "DIR: no tokenizer.json in this folder");
}
