//! Configurations of Llama's style: defaults, both styles, every problem named.

use super::*;

const SMALL: &str = r#""architectures": ["LlamaForCausalLM"], "vocab_size": 512,
    "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2,
    "num_attention_heads": 4"#;

fn parse(more: &str) -> Result<ModelConfig, String> {
    let text = format!("{{{SMALL}{more}}}");
    ModelConfig::parse(Path::new("config.json"), &text).map_err(|e| e.to_string())
}

#[test]
fn defaults_are_filled() {
    let config = parse("").unwrap();
    assert_eq!(
        (config.n_kv_heads, config.head_dim, config.max_positions),
        (4, 16, 2048)
    );
    assert_eq!(
        config.rope,
        RopeConfig {
            theta: 1e4,
            scaling: RopeScaling::None
        }
    );
    assert_eq!((config.norm_eps, config.tie_word_embeddings), (1e-6, false));
}

#[test]
fn both_styles_give_the_same() {
    let scaling = r#""factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32"#;
    let new = format!(
        r#", "dtype": "bfloat16", "eos_token_id": [2, 5],
        "rope_parameters": {{"rope_type": "llama3", "rope_theta": 5e5, {scaling}}}"#
    );
    let old = format!(
        r#", "torch_dtype": "bfloat16", "eos_token_id": [2, 5], "rope_theta": 5e5,
        "rope_scaling": {{"type": "llama3", {scaling}}}"#
    );
    let config = parse(&new).unwrap();
    assert_eq!(config, parse(&old).unwrap());
    assert_eq!(
        (config.dtype, config.eos_ids),
        (Some(Dtype::Bf16), vec![2, 5])
    );
    let expected = RopeScaling::Llama3 {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_positions: 32.0,
    };
    assert_eq!(
        config.rope,
        RopeConfig {
            theta: 5e5,
            scaling: expected
        }
    );
}

#[test]
fn every_problem_is_named() {
    let cases = [
        (
            r#", "num_key_value_heads": 3"#,
            "config.json: num_attention_heads 4 is not a multiple of num_key_value_heads 3",
        ),
        (
            r#", "head_dim": 15, "rms_norm_eps": 0.0"#,
            "config.json: 15 rotated numbers of a head of 15: rotary pairs need an even number \
          of them; \
          norm_eps 0: must be a positive number",
        ),
        (
            r#", "hidden_act": "gelu""#,
            "config.json: hidden_act gelu: must be silu",
        ),
        (
            r#", "rope_scaling": {"type": "yarn", "factor": 2.0}"#,
            "config.json: rope_type yarn: must be default, linear or llama3",
        ),
        (
            r#", "rope_scaling": {"type": "linear"}"#,
            "config.json: rope factor is missing",
        ),
        (
            r#", "partial_rotary_factor": 0.5"#,
            "config.json: partial_rotary_factor 0.5: must be 1",
        ),
        (
            r#", "max_position_embeddings": 0"#,
            "config.json: max_position_embeddings 0: must be 1 to 2^30",
        ),
    ];
    for (more, expected) in cases {
        assert_eq!(parse(more).unwrap_err(), expected);
    }
    let empty = ModelConfig::parse(Path::new("c.json"), "{}")
        .unwrap_err()
        .to_string();
    assert!(empty.starts_with("c.json: vocab_size is missing; hidden_size is missing;"));
    let wrong = ModelConfig::parse(Path::new("c.json"), r#"{"vocab_size": -1}"#).unwrap_err();
    assert!(
        wrong
            .to_string()
            .starts_with("c.json: invalid value: integer `-1`"),
        "{wrong}"
    );
}

const QWEN2: &str = r#""architectures": ["Qwen2ForCausalLM"], "vocab_size": 512,
    "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 4,
    "num_attention_heads": 4, "sliding_window": 8"#;

fn windows(text: &str) -> Result<Vec<Option<usize>>, String> {
    let config = ModelConfig::parse(Path::new("config.json"), &format!("{{{text}}}"));
    let config = config.map_err(|e| e.to_string())?;
    Ok((0..config.n_layers).map(|i| config.window_of(i)).collect())
}

/// What transformers' `Qwen2Config` makes of the same keys.
#[test]
fn a_window_holds_for_the_layers_that_have_it() {
    let (all, one) = (None, Some(8));
    let cases = [
        ("", [all; 4]),
        (
            r#", "use_sliding_window": false, "max_window_layers": 0"#,
            [all; 4],
        ),
        // The default of the class is more layers than there are.
        (r#", "use_sliding_window": true"#, [all; 4]),
        (
            r#", "use_sliding_window": true, "max_window_layers": 3"#,
            [all, all, all, one],
        ),
        (
            r#", "use_sliding_window": true, "max_window_layers": 3, "layer_types":
            ["sliding_attention", "full_attention", "full_attention", "sliding_attention"]"#,
            [one, all, all, one],
        ),
    ];
    for (more, expected) in cases {
        assert_eq!(
            windows(&format!("{QWEN2}{more}")).unwrap(),
            expected,
            "{more}"
        );
    }
    let mistral = QWEN2.replace("Qwen2", "Mistral");
    assert_eq!(windows(&mistral).unwrap(), [one; 4]);
    // Llama's class knows no window.
    assert_eq!(windows(&QWEN2.replace("Qwen2", "Llama")).unwrap(), [all; 4]);
}

#[test]
fn layer_types_that_make_no_sense_are_refused() {
    let cases = [
        (
            r#", "layer_types": ["full_attention"]"#,
            "config.json: layer_types names 1 layers, num_hidden_layers 4",
        ),
        (
            r#", "layer_types": ["full_attention", "sliding_attention", "x", "x"]"#,
            "config.json: layer_types sliding_attention: there is no window",
        ),
        (
            r#", "use_sliding_window": true, "layer_types": ["chunked_attention", "x", "x", "x"]"#,
            "config.json: layer_types chunked_attention: must be full_attention or \
             sliding_attention",
        ),
    ];
    for (more, expected) in cases {
        assert_eq!(windows(&format!("{QWEN2}{more}")).unwrap_err(), expected);
    }
}

#[test]
fn more_layers_than_any_model_has_are_refused_before_their_tensors_are_listed() {
    let text = QWEN2.replace(
        "\"num_hidden_layers\": 4",
        "\"num_hidden_layers\": 1000000000",
    );
    assert_eq!(
        windows(&text).unwrap_err(),
        "config.json: num_hidden_layers 1000000000: must be at most 4096"
    );
}

#[test]
fn stretched_positions_without_a_wiring_are_refused_by_name() {
    for (name, scaling) in [
        ("dynamic", r#"{"type": "dynamic", "factor": 2.0}"#),
        ("yarn", r#"{"rope_type": "yarn", "factor": 4.0}"#),
        (
            "longrope",
            r#"{"type": "longrope", "long_factor": [1.0], "short_factor": [1.0]}"#,
        ),
    ] {
        let problem = parse(&format!(r#", "rope_scaling": {scaling}"#)).unwrap_err();
        let expected = format!("config.json: rope_type {name}: must be default, linear or llama3");
        assert_eq!(problem, expected);
    }
}
