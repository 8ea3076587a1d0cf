//! Folders as sentence-transformers writes them, and wrong ones.

use std::fs;

use super::*;

const MODULES: &str = r#"[
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}
]"#;

/// Settings of a folder with these files, or the message with the folder's name left out.
fn read(files: &[(&str, &str)]) -> Result<SentenceSettings, String> {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let name = folder.path().to_str().unwrap().to_owned();
    SentenceSettings::read(folder.path()).map_err(|e| e.to_string().replace(&name, "DIR"))
}

#[test]
fn a_folder_that_says_nothing_gets_the_mean() {
    let settings = read(&[]).unwrap();
    assert_eq!(settings, SentenceSettings::default());
    assert_eq!(settings.pooling.modes, [PoolingMode::Mean]);
    assert!(!settings.pooling.normalize);
}

#[test]
fn modes_are_read_from_flags_and_from_names() {
    let check = |config: &str, expected: &[PoolingMode]| {
        let files = [("modules.json", MODULES), ("1_Pooling/config.json", config)];
        assert_eq!(read(&files).unwrap().pooling.modes, expected, "{config}");
    };
    check(
        r#"{"word_embedding_dimension": 8, "pooling_mode_cls_token": true,
            "pooling_mode_mean_tokens": false}"#,
        &[PoolingMode::Cls],
    );
    check(
        r#"{"pooling_mode_mean_tokens": true, "pooling_mode_max_tokens": true}"#,
        &[PoolingMode::Max, PoolingMode::Mean],
    );
    check(
        r#"{"embedding_dimension": 8, "pooling_mode": "lasttoken"}"#,
        &[PoolingMode::LastToken],
    );
    check(
        r#"{"pooling_mode": ["weightedmean", "cls"]}"#,
        &[PoolingMode::Cls, PoolingMode::WeightedMean],
    );
}

#[test]
fn length_case_and_prompt_stand_in_files_of_their_own() {
    let settings = read(&[
        (
            "sentence_roberta_config.json",
            r#"{"max_seq_length": 75, "do_lower_case": true}"#,
        ),
        (
            "config_sentence_transformers.json",
            r#"{"prompts": {"query": "query: ", "document": ""}, "default_prompt_name": "query"}"#,
        ),
    ])
    .unwrap();
    assert_eq!(
        (settings.max_seq_length, settings.lower_case),
        (Some(75), true)
    );
    assert_eq!(settings.default_prompt.as_deref(), Some("query: "));
    let none = r#"{"prompts": {}, "default_prompt_name": null}"#;
    let settings = read(&[("config_sentence_transformers.json", none)]).unwrap();
    assert_eq!(settings.default_prompt, None);
}

#[test]
fn what_is_not_built_here_is_refused() {
    let check = |files: &[(&str, &str)], expected: &str| {
        assert_eq!(read(files).unwrap_err(), expected);
    };
    let chain = |class: &str, path: &str| format!(r#"[{{"type": "{class}", "path": "{path}"}}]"#);
    check(
        &[(
            "modules.json",
            &chain("sentence_transformers.models.Dense", "2_Dense"),
        )],
        "DIR/modules.json: module sentence_transformers.models.Dense: must be Transformer, \
         Pooling or Normalize",
    );
    check(
        &[("modules.json", &chain("x.Transformer", "0_Transformer"))],
        "DIR/modules.json: the model is in 0_Transformer: name that folder",
    );
    check(
        &[("modules.json", &chain("x.Pooling", "../other"))],
        "DIR/modules.json: path ../other: must be inside the folder",
    );
    check(
        &[("modules.json", MODULES)],
        "DIR/1_Pooling: no config.json in this folder",
    );
    let pooling = |config: &str, problem: &str| {
        check(
            &[("modules.json", MODULES), ("1_Pooling/config.json", config)],
            &format!("DIR/1_Pooling/config.json: {problem}"),
        );
    };
    pooling("{}", "no pooling mode is switched on");
    pooling(
        r#"{"pooling_mode": "attention"}"#,
        "pooling_mode attention is not known",
    );
    check(
        &[("sentence_bert_config.json", r#"{"max_seq_length": 0}"#)],
        "DIR/sentence_bert_config.json: max_seq_length 0: must be at least 1",
    );
    check(
        &[(
            "config_sentence_transformers.json",
            r#"{"default_prompt_name": "q"}"#,
        )],
        "DIR/config_sentence_transformers.json: default_prompt_name q: no such prompt",
    );
    let bad = read(&[("modules.json", "[")]).unwrap_err();
    assert!(bad.starts_with("DIR/modules.json: EOF"), "{bad}");
}
