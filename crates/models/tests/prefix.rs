//! What the cache may not change: a prefix computed for somebody else, a sequence computed again,
//! and a format of its own.

#![allow(
    clippy::unwrap_used,
    reason = "clippy knows a test only by its attribute"
)]

mod golden;

use golden::{golden, ids_of, open, options, worst};
use prony_models::{
    Decoder, Dtype, LoadOptions, LoadedModel, NextToken, Sampler, Scoring, Sequence, StepRow,
};

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

/// Tokens drawn after a prompt.
const N: usize = 12;

/// A prompt of 50 tokens: three full blocks and the start of a fourth.
fn prompt() -> Vec<u32> {
    (0..50).map(|t| 7 + 11 * t % 450).collect()
}

fn options_of(own_kernels: bool) -> LoadOptions {
    LoadOptions {
        own_kernels,
        kv_capacity_tokens: 512,
        ..options(Dtype::F32)
    }
}

/// Feeds what the sequence lacks of `ids`, draws until `n` tokens have been drawn in all.
fn go_on(
    decoder: &mut dyn Decoder,
    seq: &mut Sequence,
    (ids, n): (&[u32], usize),
) -> Vec<NextToken> {
    let mut sampler = Sampler::greedy();
    let mut tokens = ids[seq.len()..].to_vec();
    let mut out = Vec::new();
    while out.len() < n {
        let mut rows = [StepRow {
            seq: &mut *seq,
            tokens: &tokens,
            sampler: Some(&mut sampler),
            scoring: None,
        }];
        let next = decoder.step(&mut rows).unwrap().remove(0).unwrap();
        tokens = vec![next.id];
        out.push(next);
    }
    out
}

fn check_same(what: &str, got: &[NextToken], expected: &[NextToken], allowed: f32) {
    assert_eq!(ids_of(got), ids_of(expected), "{what}");
    let logprobs = |tokens: &[NextToken]| tokens.iter().map(|t| t.logprob).collect::<Vec<_>>();
    let off = worst(&logprobs(got), &logprobs(expected));
    assert!(off <= allowed, "{what}: off by {off}");
}

#[test]
fn a_prefix_of_somebody_else_and_a_second_computation_change_nothing() {
    for name in CHECKPOINTS {
        for own_kernels in [true, false] {
            let mut model = open(&golden(&format!("tiny/{name}")), &options_of(own_kernels));
            let decoder = &mut *model.decoder;
            // Our own loops give every row the same bits in any company; LibTorch's do not.
            let allowed = if own_kernels { 0.0 } else { 5e-5 };
            let prompt = prompt();
            let mut alone = decoder.new_sequence(100).unwrap();
            let expected = go_on(decoder, &mut alone, (&prompt, N));
            let mut first = decoder.sharing_sequence(0, &prompt);
            assert_eq!(first.len(), 0, "{name}");
            let drawn = go_on(decoder, &mut first, (&prompt, N));
            check_same(name, &drawn, &expected, allowed);
            // While the first is still there, and once it is gone.
            let mut second = decoder.sharing_sequence(0, &prompt);
            drop(first);
            let mut third = decoder.sharing_sequence(0, &prompt);
            for seq in [&mut second, &mut third] {
                assert_eq!(seq.len(), 48, "{name}");
                let drawn = go_on(decoder, seq, (&prompt, N));
                check_same(name, &drawn, &expected, allowed);
            }
            drop((second, third));
            // Evicted after five tokens and computed again, with what is known and without.
            let mut so_far = prompt.clone();
            so_far.extend(ids_of(&expected[..5]));
            for (root, known) in [(0, 48), (1, 0)] {
                let mut again = decoder.sharing_sequence(root, &so_far);
                assert_eq!(again.len(), known, "{name}");
                let drawn = go_on(decoder, &mut again, (&so_far, N - 5));
                check_same(name, &drawn, &expected[5..], allowed);
            }
            drop(alone);
            assert_eq!(decoder.kv_free_tokens(), 512, "{name}");
        }
    }
}

#[test]
fn the_cache_has_a_format_of_its_own() {
    for name in CHECKPOINTS {
        for own_kernels in [true, false] {
            let folder = golden(&format!("tiny/{name}"));
            let mut wide = open(&folder, &options_of(own_kernels));
            let narrow = LoadOptions {
                kv_dtype: Some(Dtype::Bf16),
                ..options_of(own_kernels)
            };
            let mut narrow = open(&folder, &narrow);
            let bytes = |model: &LoadedModel| model.info.kv_bytes_per_token;
            assert_eq!(bytes(&wide), 2 * bytes(&narrow), "{name}");
            let logits = |decoder: &mut dyn Decoder| {
                let mut seq = decoder.new_sequence(50).unwrap();
                // In chunks: the later ones read what the earlier ones rounded.
                let chunks = prompt();
                let chunks = chunks.chunks(20);
                chunks
                    .flat_map(|chunk| decoder.logits(&mut seq, chunk).unwrap())
                    .collect::<Vec<f32>>()
            };
            let (wide, narrow) = (logits(&mut *wide.decoder), logits(&mut *narrow.decoder));
            let off = worst(&wide, &narrow);
            // Rounding keys and values to bf16 moves logits of these random models by less than
            // rounding the weights does, and it must move them.
            assert!(off > 0.0 && off < 0.5, "{name}: off by {off}");
        }
    }
}

#[test]
fn scores_of_a_prompt_are_those_of_its_logits_however_it_is_cut() {
    for own_kernels in [true, false] {
        let folder = golden("tiny/llama_gqa_tied");
        let mut model = open(&folder, &options_of(own_kernels));
        let vocab = model.info.vocab_size;
        let decoder = &mut *model.decoder;
        let prompt = prompt();
        let mut seq = decoder.new_sequence(50).unwrap();
        let logits = decoder.logits(&mut seq, &prompt).unwrap();
        let logits: Vec<&[f32]> = logits.chunks(vocab).collect();
        let of = |(logits, &id): (&&[f32], &u32)| prony_models::sampler::score(logits, id, 2);
        let followers = logits.iter().zip(&prompt[1..]);
        let expected: Vec<NextToken> = followers.map(|pair| of(pair).unwrap()).collect();
        for chunk in [50, 20, 7] {
            let mut seq = decoder.new_sequence(50).unwrap();
            // Company that scores nothing, to see that rows are told apart.
            let mut other = decoder.new_sequence(50).unwrap();
            let mut scores = Vec::new();
            let mut last = None;
            for tokens in prompt.chunks(chunk) {
                let end = seq.len() + tokens.len();
                let mut sampler = Sampler::greedy();
                let mut rows = [
                    StepRow {
                        seq: &mut other,
                        tokens: &[5],
                        sampler: Some(&mut Sampler::greedy()),
                        scoring: None,
                    },
                    StepRow {
                        seq: &mut seq,
                        tokens,
                        sampler: (end == 50).then_some(&mut sampler),
                        scoring: Some(Scoring {
                            followers: &prompt[end + 1 - tokens.len()..(end + 1).min(50)],
                            n_top: 2,
                            out: &mut scores,
                        }),
                    },
                ];
                last = decoder.step(&mut rows).unwrap().remove(1);
            }
            let allowed = if own_kernels { 0.0 } else { 5e-5 };
            check_same("scores", &scores, &expected, allowed);
            let second =
                |tokens: &[NextToken]| tokens.iter().map(|t| t.top[1].0).collect::<Vec<_>>();
            assert_eq!(second(&scores), second(&expected));
            let mut alone = decoder.new_sequence(60).unwrap();
            let drawn = go_on(decoder, &mut alone, (&prompt, 1));
            assert_eq!(last.map(|t| t.id), Some(drawn[0].id));
        }
    }
}
