//! Models that cannot be served: one line that names the file and what is wrong, exit code 3.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use e2e::process;
use e2e::source::root;

const DEADLINE: Duration = Duration::from_secs(60);

/// A copy of a small good checkpoint, to be broken.
fn copy_of_a_good_model(folder: &Path) -> PathBuf {
    let source = root().join("tests/golden/models/tiny/llama_gqa_tied");
    let copy = folder.join("model");
    fs::create_dir(&copy).expect("a folder");
    for entry in fs::read_dir(source).expect("golden data") {
        let entry = entry.expect("an entry");
        fs::copy(entry.path(), copy.join(entry.file_name())).expect("copied");
    }
    copy
}

/// What `prony-sut serve --model PATH --print-plan` says, and its exit code.
fn serve(model: &Path) -> (Option<i32>, String) {
    let model = model.to_string_lossy();
    let args = ["serve", "--model", &model, "--port", "0", "--print-plan"];
    let output = process::run("prony-sut", &args, DEADLINE);
    (
        output.status.code(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

/// Breaks a good model with `damage`; the one line must hold all of `needles`.
fn check(damage: impl FnOnce(&Path), needles: &[&str]) {
    let folder = tempfile::tempdir().expect("a folder");
    let model = copy_of_a_good_model(folder.path());
    damage(&model);
    refused(&model, needles);
}

fn refused(model: &Path, needles: &[&str]) {
    let (code, stderr) = serve(model);
    assert_eq!(code, Some(3), "{needles:?}: {stderr}");
    assert_eq!(stderr.trim().lines().count(), 1, "{needles:?}: {stderr}");
    for needle in needles {
        assert!(stderr.contains(needle), "{needle}: {stderr}");
    }
}

fn replace_in(file: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(file).expect("a text");
    assert!(text.contains(from), "{from} is not in {}", file.display());
    fs::write(file, text.replace(from, to)).expect("written");
}

#[test]
fn the_undamaged_copy_is_served() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = copy_of_a_good_model(folder.path());
    let (code, stderr) = serve(&model);
    assert_eq!(code, Some(0), "{stderr}");
}

#[test]
fn damaged_weights() {
    let truncate = |model: &Path| {
        let file = model.join("model.safetensors");
        let bytes = fs::read(&file).expect("weights");
        fs::write(&file, &bytes[..bytes.len() / 2]).expect("written");
    };
    check(truncate, &["model.safetensors"]);
    let claim_too_much = |model: &Path| {
        let file = model.join("model.safetensors");
        let mut bytes = fs::read(&file).expect("weights");
        bytes[..8].copy_from_slice(&(u64::MAX / 2).to_le_bytes());
        fs::write(&file, bytes).expect("written");
    };
    check(claim_too_much, &["model.safetensors", "header"]);
}

#[test]
fn configurations_that_do_not_fit_the_weights() {
    let more_layers = |model: &Path| {
        replace_in(
            &model.join("config.json"),
            "\"num_hidden_layers\": 2",
            "\"num_hidden_layers\": 3",
        );
    };
    check(
        more_layers,
        &["missing", "model.layers.2.self_attn.q_proj.weight"],
    );
    let wider = |model: &Path| {
        replace_in(
            &model.join("config.json"),
            "\"vocab_size\": 512",
            "\"vocab_size\": 640",
        );
    };
    check(
        wider,
        &[
            "model.embed_tokens.weight",
            "expected [640, 64]",
            "got [512, 64]",
        ],
    );
    let stranger = |model: &Path| {
        replace_in(
            &model.join("config.json"),
            "LlamaForCausalLM",
            "MambaForCausalLM",
        );
    };
    check(stranger, &["MambaForCausalLM", "LlamaForCausalLM"]);
    let endless = |model: &Path| {
        let text = r#"{"eos_token_id": [2, 4000000000]}"#;
        fs::write(model.join("generation_config.json"), text).expect("written");
    };
    check(
        endless,
        &["generation_config.json", "eos_token_id 4000000000"],
    );
    let no_text = |model: &Path| {
        fs::write(model.join("generation_config.json"), b"\xff").expect("written");
    };
    check(no_text, &["generation_config.json", "UTF-8"]);
    let no_template = |model: &Path| {
        fs::write(model.join("chat_template.jinja"), b"\xff").expect("written");
    };
    check(no_template, &["chat_template.jinja", "UTF-8"]);
    let no_json = |model: &Path| fs::write(model.join("config.json"), "{").expect("written");
    check(no_json, &["config.json"]);
}

#[test]
fn files_that_are_not_there_or_not_what_they_seem() {
    let no_config = |model: &Path| fs::remove_file(model.join("config.json")).expect("removed");
    check(no_config, &["config.json"]);
    let no_tokenizer =
        |model: &Path| fs::remove_file(model.join("tokenizer.json")).expect("removed");
    check(no_tokenizer, &["tokenizer.json"]);
    let pickled = |model: &Path| {
        fs::rename(
            model.join("model.safetensors"),
            model.join("pytorch_model.bin"),
        )
        .expect("renamed");
    };
    check(pickled, &["pytorch_model.bin", "safetensors"]);
    let folder = tempfile::tempdir().expect("a folder");
    let garbage = folder.path().join("garbage.gguf");
    fs::write(&garbage, "hello").expect("written");
    refused(&garbage, &["garbage.gguf", "magic"]);
    let gguf = root().join(".models/SmolLM2-135M-Instruct/SmolLM2-135M-Instruct.Q4_1.gguf");
    let half = folder.path().join("half.gguf");
    let bytes = fs::read(gguf).expect("run scripts/setup.sh");
    fs::write(&half, &bytes[..bytes.len() / 2]).expect("written");
    refused(&half, &["half.gguf", "tensor"]);
}

/// The keys of another kind of model are not what is wrong with it.
#[test]
fn another_kind_of_model_is_named_before_its_keys_are_read() {
    check(
        |model| {
            let config = model.join("config.json");
            replace_in(&config, "LlamaForCausalLM", "BertModel");
            replace_in(&config, "\"silu\"", "\"gelu\"");
        },
        &["architecture BertModel is not supported"],
    );
}

#[test]
fn inspecting_tells_sizes_without_reading_weights() {
    let model = root().join("tests/golden/models/tiny/llama_gqa_tied");
    let model = model.to_string_lossy();
    let args = ["inspect", &model, "--kv-tokens", "64", "--json"];
    let output = process::run("prony-sut", &args, DEADLINE);
    assert_eq!(output.status.code(), Some(0));
    let seen: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(seen["architecture"], "LlamaForCausalLM");
    let number = |name: &str| {
        seen[name]
            .as_u64()
            .unwrap_or_else(|| panic!("{name}: {seen}"))
    };
    assert_eq!(number("kv_bytes"), 64 * number("kv_bytes_per_token"));
    assert!(number("weight_bytes") >= 4 * number("n_parameters"));
    assert!(number("available_bytes") > number("weight_bytes"));

    let missing = ["inspect", "/nowhere/model"];
    let output = process::run("prony-sut", &missing, DEADLINE);
    assert_eq!(output.status.code(), Some(3));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(stderr.trim().lines().count(), 1, "{stderr}");
    assert!(stderr.contains("/nowhere/model"), "{stderr}");
}

#[test]
fn a_cache_larger_than_what_is_free_is_refused_unless_forced() {
    let model = root().join("tests/golden/models/tiny/llama_gqa_tied");
    let model = model.to_string_lossy();
    let inspect = ["inspect", &model, "--json"];
    let output = process::run("prony-sut", &inspect, DEADLINE);
    let seen: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let number = |name: &str| {
        seen[name]
            .as_u64()
            .unwrap_or_else(|| panic!("{name}: {seen}"))
    };
    // Address space that the system gives, but memory that is not free.
    let tokens = number("available_bytes") / number("kv_bytes_per_token") + 1000;
    let tokens = tokens.to_string();
    let serve = [
        "serve",
        "--model",
        &model,
        "--port",
        "0",
        "--print-plan",
        "--kv-tokens",
        &tokens,
    ];
    let output = process::run("prony-sut", &serve, DEADLINE);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    for needle in ["key/value cache do not fit into the", "that are free"] {
        assert!(stderr.contains(needle), "{needle}: {stderr}");
    }
    let forced = [&serve[..], &["--force"]].concat();
    let output = process::run("prony-sut", &forced, DEADLINE);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
}
