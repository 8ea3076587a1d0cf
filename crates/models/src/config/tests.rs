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
