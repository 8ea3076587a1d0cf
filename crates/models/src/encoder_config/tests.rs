//! Configurations as hub folders write them, and wrong ones.

use std::fmt::Write as _;

use super::*;

/// Keys that every BERT has.
const SIZES: &str = r#""vocab_size": 100, "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4"#;

fn parse(keys: &str) -> Result<EncoderConfig, ModelError> {
    EncoderConfig::parse(Path::new("config.json"), &format!("{{{keys}}}"))
}

fn bert(class: &str, keys: &str) -> EncoderConfig {
    parse(&format!(r#""architectures": ["{class}"], {SIZES}{keys}"#)).unwrap()
}

fn problem(keys: &str) -> String {
    parse(keys).unwrap_err().to_string()
}

#[test]
fn defaults_are_those_of_the_reference() {
    let config = bert("BertModel", "");
    assert_eq!(
        (config.n_positions, config.n_token_types, config.pad_id),
        (512, 2, 0)
    );
    assert_eq!(config.layer_norm_eps, 1e-12);
    assert_eq!(config.activation, Activation::Gelu);
    assert_eq!((config.max_tokens(), config.head_dim()), (512, 16));
    let config = bert("RobertaModel", "");
    assert_eq!((config.first_position, config.max_tokens()), (2, 510));
}

#[test]
fn class_names_say_wiring_and_head() {
    let check = |class: &str, expected: Option<(Family, HeadKind)>| {
        assert_eq!(known(class), expected, "{class}");
    };
    use HeadKind::*;
    check("BertModel", Some((Family::Bert, Embedding)));
    check("BertForMaskedLM", Some((Family::Bert, Embedding)));
    check(
        "DistilBertForTokenClassification",
        Some((Family::DistilBert, TokenClassification)),
    );
    check(
        "XLMRobertaForQuestionAnswering",
        Some((Family::Roberta, QuestionAnswering)),
    );
    check(
        "RobertaForSequenceClassification",
        Some((Family::Roberta, SequenceClassification)),
    );
    check("BertForNextSentencePrediction", None);
    check("BertLMHeadModel", None);
    check("LlamaForCausalLM", None);
    check("", None);
}

#[test]
fn distilbert_names_its_sizes_differently() {
    let config = parse(
        r#""architectures": ["DistilBertModel"], "vocab_size": 9, "dim": 8, "hidden_dim": 16,
           "n_layers": 1, "n_heads": 2, "activation": "relu", "layer_norm_eps": 1e-3,
           "type_vocab_size": 2"#,
    )
    .unwrap();
    assert_eq!((config.hidden_size, config.intermediate_size), (8, 16));
    assert_eq!(config.activation, Activation::Relu);
    // Keys that DistilBERT does not read.
    assert_eq!((config.layer_norm_eps, config.n_token_types), (1e-12, 0));
}

#[test]
fn labels_come_in_order_of_their_index() {
    let mut map = String::new();
    // Text order would put 10 before 2.
    for i in (0..11).rev() {
        let comma = if i == 0 { "" } else { "," };
        write!(map, r#""{i}": "l{i}"{comma}"#).unwrap();
    }
    let keys = format!(r#", "id2label": {{{map}}}"#);
    let config = bert("BertForSequenceClassification", &keys);
    let expected: Vec<String> = (0..11).map(|i| format!("l{i}")).collect();
    assert_eq!(config.labels, expected);
    assert!(bert("BertModel", &keys).labels.is_empty());
    let numbered = bert("BertForTokenClassification", r#", "num_labels": 3"#);
    assert_eq!(numbered.labels, ["LABEL_0", "LABEL_1", "LABEL_2"]);
    assert_eq!(bert("BertForTokenClassification", "").labels.len(), 2);
}

#[test]
fn scores_follow_the_kind_of_problem() {
    let check = |keys: &str, expected: ScoreKind| {
        let config = bert("BertForSequenceClassification", keys);
        assert_eq!(config.score_kind, expected, "{keys}");
    };
    check("", ScoreKind::Softmax);
    check(r#", "num_labels": 1"#, ScoreKind::Sigmoid);
    check(
        r#", "problem_type": "multi_label_classification""#,
        ScoreKind::Sigmoid,
    );
    check(
        r#", "num_labels": 1, "problem_type": "regression""#,
        ScoreKind::Identity,
    );
    check(
        r#", "num_labels": 1, "sentence_transformers":
           {"activation_fn": "torch.nn.modules.linear.Identity", "version": "5.0"}"#,
        ScoreKind::Identity,
    );
    check(
        r#", "sbert_ce_default_activation_function": "torch.nn.modules.activation.Sigmoid""#,
        ScoreKind::Sigmoid,
    );
}

#[test]
fn everything_wrong_is_named_at_once() {
    let class = r#""architectures": ["BertForSequenceClassification"]"#;
    assert_eq!(
        problem(&format!(
            r#"{class}, "vocab_size": 0, "hidden_size": 63, "num_attention_heads": 4,
               "num_hidden_layers": 1, "hidden_act": "mish", "is_decoder": true,
               "position_embedding_type": "relative_key", "layer_norm_eps": 0.0,
               "id2label": {{"0": "a", "2": "b"}},
               "sbert_ce_default_activation_function": "torch.nn.Tanh""#
        )),
        "config.json: id2label: keys must be 0, 1, 2 without a gap; activation_fn Tanh: must be \
         Sigmoid or Identity; intermediate_size is missing; hidden_act mish: must be gelu, \
         gelu_new, gelu_pytorch_tanh, gelu_fast or relu; position_embedding_type relative_key: \
         must be absolute; is_decoder true: must be false; vocab_size 0: must be 1 to 2^30; \
         hidden_size 63 is not a multiple of num_attention_heads 4; layer_norm_eps 0: must be a \
         positive number"
    );
    let roberta = format!(
        r#""architectures": ["RobertaModel"], {SIZES}, "pad_token_id": 512,
           "max_position_embeddings": 512"#
    );
    assert_eq!(
        problem(&roberta),
        "config.json: pad_token_id 512: positions start behind it, and max_position_embeddings \
         is 512"
    );
    assert!(problem("").starts_with("architecture  is not supported"));
    assert!(problem(r#""architectures": 3"#).starts_with("config.json: invalid type"));
}
