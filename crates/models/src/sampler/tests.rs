//! The sampler against known answers, hand-worked cuts, and its own promises.

use super::*;

fn params(temperature: f32, top_k: usize, top_p: f32, seed: u64) -> SamplingParams {
    SamplingParams {
        temperature,
        top_k,
        top_p,
        min_p: 0.0,
        seed,
    }
}

/// Known answers of Random123 1.14, file `kat_vectors`, lines `philox4x32 10`.
#[test]
fn philox_gives_the_published_words() {
    let cases = [
        (
            [0; 4],
            [0; 2],
            [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8],
        ),
        (
            [u32::MAX; 4],
            [u32::MAX; 2],
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd],
        ),
        (
            [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
            [0xa409_3822, 0x299f_31d0],
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
        ),
    ];
    for (counter, key, expected) in cases {
        assert_eq!(philox4x32(counter, key), expected);
    }
}

/// Runs a sampler over the same logits and writes the ids down.
fn draws(p: SamplingParams, logits: &[f32], n: usize) -> Vec<u32> {
    let mut sampler = Sampler::new(p).unwrap();
    (0..n)
        .map(|_| sampler.next_token(logits).unwrap().id)
        .collect()
}

#[test]
fn greedy_takes_the_first_of_the_largest_numbers() {
    let nan = f32::NAN;
    let cases: [(&[f32], u32); 5] = [
        (&[1.0, 3.0, 2.0], 1),
        (&[3.0, 1.0, 3.0], 0),
        (&[nan, -5.0, nan, -4.0], 3),
        (&[f32::NEG_INFINITY, -1e30], 1),
        (&[-0.0, 0.0], 0),
    ];
    for (logits, expected) in cases {
        assert_eq!(
            draws(SamplingParams::default(), logits, 1),
            [expected],
            "{logits:?}"
        );
        // With top_k = 1 nothing else can be drawn at any temperature.
        assert_eq!(
            draws(params(5.0, 1, 1.0, 9), logits, 1),
            [expected],
            "{logits:?}"
        );
    }
    let broken = Sampler::greedy().next_token(&[nan, nan]).unwrap_err();
    assert_eq!(
        broken.to_string(),
        "the largest of 2 logits is not a finite number"
    );
}

/// logits ln(1), ln(2), ln(5): probabilities 1/8, 2/8, 5/8, whatever the temperature.
#[test]
fn logprob_is_that_of_the_model() {
    let logits = [1f32.ln(), 2f32.ln(), 5f32.ln()];
    let greedy = Sampler::greedy().next_token(&logits).unwrap();
    assert_eq!(greedy.id, 2);
    assert!((greedy.logprob - (5.0f32 / 8.0).ln()).abs() < 1e-6);
    let mut hot = Sampler::new(params(10.0, 0, 1.0, 1)).unwrap();
    for _ in 0..20 {
        let next = hot.next_token(&logits).unwrap();
        let expected = [1.0f32, 2.0, 5.0][next.id as usize] / 8.0;
        assert!((next.logprob - expected.ln()).abs() < 1e-6);
    }
}

/// Weights 5, 2, 1 (of 8): cumulated shares 0.625, 0.875, 1.
#[test]
fn cuts_keep_what_they_say() {
    let logits = [1f32.ln(), 5f32.ln(), 2f32.ln()];
    let cases = [
        (params(1.0, 0, 1.0, 3), vec![0, 1, 2]),
        (params(1.0, 2, 1.0, 3), vec![1, 2]),
        (params(1.0, 0, 0.62, 3), vec![1]),
        (params(1.0, 0, 0.63, 3), vec![1, 2]),
        (params(1.0, 0, 0.88, 3), vec![0, 1, 2]),
        // After top_k = 2 the shares are 5/7 = 0.714 and 1: top_p works on what top_k left.
        (params(1.0, 2, 0.70, 3), vec![1]),
        (params(1.0, 2, 0.72, 3), vec![1, 2]),
        // At temperature 1/2 the weights are 1, 25, 4: share of the first 25/30 = 0.833.
        (params(0.5, 0, 0.83, 3), vec![1]),
        (params(0.5, 0, 0.84, 3), vec![1, 2]),
    ];
    for (p, expected) in cases {
        let mut seen = draws(p, &logits, 400);
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen, expected, "{p:?}");
    }
}

#[test]
fn frequencies_follow_the_probabilities() {
    let logits = [1f32.ln(), 2f32.ln(), 5f32.ln()];
    let n = 8000;
    let mut count = [0usize; 3];
    for id in draws(params(1.0, 0, 1.0, 42), &logits, n) {
        count[id as usize] += 1;
    }
    for (id, share) in [(0, 0.125), (1, 0.25), (2, 0.625)] {
        let expected = share * n as f64;
        // Five standard deviations of a binomial count.
        let slack = 5.0 * (expected * (1.0 - share)).sqrt();
        assert!((count[id] as f64 - expected).abs() < slack, "{count:?}");
    }
}

#[test]
fn a_stream_depends_on_its_seed_and_position_only() {
    let logits: Vec<f32> = (0..50).map(|i| (i as f32 * 0.7).sin()).collect();
    let alone = draws(params(1.0, 0, 1.0, 7), &logits, 32);
    assert_eq!(alone, draws(params(1.0, 0, 1.0, 7), &logits, 32));
    assert_ne!(alone, draws(params(1.0, 0, 1.0, 8), &logits, 32));
    // Interleaved with a neighbour's draws.
    let mut a = Sampler::new(params(1.0, 0, 1.0, 7)).unwrap();
    let mut b = Sampler::new(params(0.5, 5, 0.9, 1)).unwrap();
    let mixed: Vec<u32> = (0..32)
        .map(|_| {
            b.next_token(&logits).unwrap();
            a.next_token(&logits).unwrap().id
        })
        .collect();
    assert_eq!(alone, mixed);
}

#[test]
fn impossible_parameters_are_refused() {
    let cases = [
        (
            params(-0.5, 0, 1.0, 0),
            "temperature -0.5: must be finite and not negative",
        ),
        (
            params(f32::NAN, 0, 1.0, 0),
            "temperature NaN: must be finite and not negative",
        ),
        (
            params(1.0, 0, 0.0, 0),
            "top_p 0: must be above 0 and at most 1",
        ),
        (
            params(1.0, 0, 1.5, 0),
            "top_p 1.5: must be above 0 and at most 1",
        ),
    ];
    for (p, expected) in cases {
        assert_eq!(Sampler::new(p).unwrap_err().to_string(), expected);
    }
}

#[test]
fn infinite_logits_are_a_broken_model_not_a_panic() {
    let params = SamplingParams {
        temperature: 1.0,
        ..SamplingParams::default()
    };
    for logits in [[0.0, f32::INFINITY], [f32::NEG_INFINITY; 2]] {
        for mut sampler in [Sampler::greedy(), Sampler::new(params).unwrap()] {
            let refused = sampler.next_token(&logits);
            assert!(
                matches!(refused, Err(ModelError::NoLogits { vocab_size: 2 })),
                "{refused:?}"
            );
        }
    }
    // Tokens that are ruled out are fine as long as one is not.
    let mut sampler = Sampler::new(params).unwrap();
    let next = sampler.next_token(&[f32::NEG_INFINITY, 1.0]).unwrap();
    assert_eq!((next.id, next.logprob), (1, 0.0));
}

/// Probabilities 1/8, 2/8, 5/8: the second is 0.4 times as likely as the third.
#[test]
fn min_p_cuts_by_the_share_of_the_most_likely() {
    let logits = [1f32.ln(), 2f32.ln(), 5f32.ln()];
    let ids = |min_p: f32| {
        let params = SamplingParams {
            min_p,
            ..params(1.0, 0, 1.0, 3)
        };
        let mut ids = draws(params, &logits, 200);
        ids.sort_unstable();
        ids.dedup();
        ids
    };
    assert_eq!(ids(0.19), [0, 1, 2]);
    assert_eq!(ids(0.39), [1, 2]);
    assert_eq!(ids(0.41), [2]);
}

#[test]
fn a_presence_penalty_moves_greedy_on_and_keeps_the_models_logprob() {
    let penalties = Penalties {
        presence: 1.0,
        ..Penalties::default()
    };
    let mut sampler = Sampler::greedy().with_penalties(penalties, &[]).unwrap();
    let logits = [2.0, 1.5, 0.0];
    let ids: Vec<u32> = (0..4)
        .map(|_| sampler.next_token(&logits).unwrap().id)
        .collect();
    // 2 · then 1 against 1.5 · then 1 against 0.5 · and penalties do not add up.
    assert_eq!(ids, [0, 1, 0, 0]);
    let plain = Sampler::greedy().next_token(&logits).unwrap();
    assert_eq!(sampler.next_token(&logits).unwrap(), plain);
}

#[test]
fn penalties_without_sense_are_refused() {
    let refused = |penalties: Penalties| {
        let refused = Sampler::greedy().with_penalties(penalties, &[]);
        refused.unwrap_err().to_string()
    };
    let zero = Penalties {
        repetition: 0.0,
        ..Penalties::default()
    };
    assert_eq!(refused(zero), "repetition_penalty 0: must be above 0");
    let bias = Penalties {
        logit_bias: vec![(1, f32::NAN)],
        ..Penalties::default()
    };
    assert_eq!(refused(bias), "logit_bias NaN: must be finite");
}

#[test]
fn the_likeliest_tokens_come_with_their_logarithms() {
    // Shares 4, 1, 4, 1 of 10; NaN is no candidate.
    let logits = [4f32.ln(), 0.0, 4f32.ln(), 0.0, f32::NAN];
    let check = |n: usize, expected: &[(u32, f32)]| {
        let next = Sampler::greedy().with_top(n).next_token(&logits).unwrap();
        assert_eq!(next.id, 0);
        let (ids, shares): (Vec<u32>, Vec<f32>) = next.top.iter().copied().unzip();
        let expected: (Vec<u32>, Vec<f32>) = expected.iter().copied().unzip();
        assert_eq!(ids, expected.0);
        for (share, expected) in shares.iter().zip(expected.1) {
            assert!((share.exp() - expected).abs() < 1e-6, "{n}: {shares:?}");
        }
    };
    check(0, &[]);
    check(1, &[(0, 0.4)]);
    check(3, &[(0, 0.4), (2, 0.4), (1, 0.1)]);
    check(9, &[(0, 0.4), (2, 0.4), (1, 0.1), (3, 0.1)]);
}

#[test]
fn what_is_told_is_the_models_own_whatever_changes_the_draw() {
    let logits = [1.0, 0.0];
    let penalties = Penalties {
        logit_bias: vec![(1, 50.0)],
        ..Penalties::default()
    };
    let biased = Sampler::greedy().with_penalties(penalties, &[]).unwrap();
    let next = biased.with_top(1).next_token(&logits).unwrap();
    assert_eq!((next.id, next.top[0].0), (1, 0));
    assert_eq!(next, score(&logits, 1, 1).unwrap());
    let error = score(&logits, 2, 1).unwrap_err().to_string();
    assert_eq!(error, "token id 2: the vocabulary has 2");
}
