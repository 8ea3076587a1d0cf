//! What is honoured, what is refused and in which words.

use super::*;

fn check(raw: RawParams, expected: &str) {
    let shown = match raw.validate() {
        Ok(p) => format!(
            "t={} k={} p={} seed={} eos={}",
            p.sampling.temperature,
            p.sampling.top_k,
            p.sampling.top_p,
            p.sampling.seed,
            !p.ignore_eos
        ),
        Err(e) => e.message,
    };
    assert_eq!(shown, expected);
}

fn raw() -> RawParams {
    RawParams {
        seed: Some(7),
        ..RawParams::default()
    }
}

#[test]
fn defaults_are_openais_and_values_are_checked() {
    check(raw(), "t=1 k=0 p=1 seed=7 eos=true");
    check(
        RawParams {
            temperature: Some(0.0),
            top_k: Some(-1),
            top_p: Some(0.5),
            ..raw()
        },
        "t=0 k=0 p=0.5 seed=7 eos=true",
    );
    check(
        RawParams {
            seed: Some(-1),
            ..raw()
        },
        "t=1 k=0 p=1 seed=18446744073709551615 eos=true",
    );
    let t = |t| RawParams {
        temperature: Some(t),
        ..raw()
    };
    check(t(2.5), "temperature: 2.5, must be from 0 to 2");
    check(t(f64::NAN), "temperature: NaN, must be from 0 to 2");
    check(
        RawParams {
            top_p: Some(0.0),
            ..raw()
        },
        "top_p: 0, must be above 0 and at most 1",
    );
    check(
        RawParams {
            top_k: Some(-2),
            ..raw()
        },
        "top_k: -2, must be -1 or 0 (all), or a positive number",
    );
    check(
        RawParams {
            stop: vec![String::new()],
            ..raw()
        },
        "stop: a string of 0 bytes, must be 1 to 1024",
    );
    check(
        RawParams {
            presence_penalty: Some(2.5),
            ..raw()
        },
        "presence_penalty: 2.5, must be from -2 to 2",
    );
    check(
        RawParams {
            repetition_penalty: Some(1.0),
            ..raw()
        },
        "t=1 k=0 p=1 seed=7 eos=true",
    );
}

#[test]
fn what_is_asked_beside_the_text_is_checked_too() {
    check(
        RawParams {
            logprobs: Some(("top_logprobs", 21)),
            ..raw()
        },
        "top_logprobs: 21, must be at most 20",
    );
    check(
        RawParams {
            priority: Some(-101),
            ..raw()
        },
        "priority: -101, must be from -100 to 100",
    );
    check(
        RawParams {
            deadline_ms: Some(0),
            ..raw()
        },
        "deadline_ms: 0, must be from 1 to 86400000",
    );
}

#[test]
fn what_would_change_the_answer_is_refused_not_ignored() {
    let min_p = RawParams {
        min_p: Some(1.5),
        ..raw()
    };
    check(min_p, "min_p: 1.5, must be from 0 to 1");
    let biased = |text: &str| RawParams {
        logit_bias: serde_json::from_str(text).unwrap(),
        ..raw()
    };
    let params = biased(r#"{"5": -100, "70": 1.5}"#).validate().unwrap();
    assert_eq!(params.sampling.logit_bias, [(5, -100.0), (70, 1.5)]);
    for (text, expected) in [
        (r#"{"x": 1}"#, r#""x": 1"#),
        (r#"{"5": 101}"#, r#""5": 101"#),
    ] {
        let expected =
            format!("logit_bias: {expected}, must be a token id and a number from -100 to 100");
        check(biased(text), &expected);
    }
    let stop_token_ids = RawParams {
        has_stop_token_ids: true,
        ..raw()
    };
    check(stop_token_ids, "stop_token_ids: not supported; use stop");
}

#[test]
fn requests_without_a_seed_differ() {
    let seed = || RawParams::default().validate().unwrap().sampling.seed;
    assert_ne!(seed(), seed());
}

#[test]
fn one_answer_unless_more_are_asked_for() {
    assert_eq!((answers(None), answers(Some(128))), (Ok(1), Ok(128)));
    let refused = |n| answers(Some(n)).unwrap_err().message;
    assert_eq!(refused(0), "n: 0, must be from 1 to 128");
    assert_eq!(refused(129), "n: 129, must be from 1 to 128");
}

#[test]
fn token_counts() {
    assert_eq!(max_tokens("max_tokens", None), Ok(None));
    assert_eq!(max_tokens("max_tokens", Some(3)), Ok(Some(3)));
    assert!(max_tokens("max_tokens", Some(0)).is_err());
    assert!(max_tokens("max_tokens", Some(u64::MAX)).is_ok());
}
