//! The real model behind the real server: the reference's greedy tokens over HTTP, alone and in a
//! full batch, chat by the model's own template, and a load run over it.

use std::fs;
use std::thread;
use std::time::Duration;

use e2e::process::{self, Server};
use e2e::raw_http::request;
use e2e::source::root;
use serde_json::{Value, json};

const MODEL: &str = ".models/SmolLM2-135M-Instruct";

/// Below this lead of the best token over the second, the reference itself could have gone the
/// other way with another order of summation; from there on texts may differ.
const TIE: f64 = 0.002;

const EOS: u64 = 2;

fn start() -> Server {
    let model = root().join(MODEL);
    assert!(model.exists(), "{MODEL}: run scripts/setup.sh");
    Server::start(&["--model", &model.to_string_lossy(), "--dtype", "f32"])
}

fn golden_prompts() -> Vec<Value> {
    let path = root().join("tests/golden/models/smollm2/golden.json");
    let text = fs::read_to_string(path).expect("golden data");
    let golden: Value = serde_json::from_str(&text).expect("JSON");
    golden["prompts"].as_array().expect("prompts").clone()
}

fn without_eos(ids: &Value) -> Vec<u64> {
    let ids = ids.as_array().expect("a list of ids").iter();
    ids.map(|id| id.as_u64().expect("an id"))
        .filter(|id| *id != EOS)
        .collect()
}

/// Ids that the server answers greedily to the ids of a golden prompt.
fn greedy(address: &str, prompt: &Value) -> Vec<u64> {
    let body = json!({
        "model": "SmolLM2-135M-Instruct",
        "prompt": prompt["ids"],
        "max_tokens": prompt["greedy"].as_array().expect("greedy").len(),
        "temperature": 0,
        "return_token_ids": true,
    });
    let answer = request(address, "POST", "/v1/completions", Some(&body.to_string()));
    assert_eq!(answer.status, 200, "{}", answer.text());
    without_eos(&answer.json()["choices"][0]["token_ids"])
}

/// Checks ids against the reference, up to the first step at which it was a tie.
fn check(prompt: &Value, ids: &[u64]) {
    let margins = prompt["margins"].as_array().expect("margins");
    let decided = margins
        .iter()
        .position(|m| m.as_f64().expect("a margin") < TIE);
    let expected = without_eos(&prompt["greedy"]);
    let n = decided.unwrap_or(expected.len().max(ids.len()));
    let (got, want) = (&ids[..n.min(ids.len())], &expected[..n.min(expected.len())]);
    assert_eq!(got, want, "{}", prompt["name"]);
}

#[test]
fn greedy_tokens_equal_the_reference_alone_and_in_a_full_batch() {
    let server = start();
    let prompts = golden_prompts();
    assert_eq!(prompts.len(), 24);
    // Six alone: the models crate checks all of them, here it is the server's turn.
    for prompt in prompts.iter().step_by(4) {
        check(prompt, &greedy(server.address(), prompt));
    }
    thread::scope(|scope| {
        for prompt in &prompts {
            scope.spawn(|| check(prompt, &greedy(server.address(), prompt)));
        }
    });
}

#[test]
fn chat_is_rendered_by_the_models_own_template() {
    let server = start();
    let body = json!({
        "model": "SmolLM2-135M-Instruct",
        "messages": [{"role": "user", "content": "What is the capital of France?"}],
        "temperature": 0,
        "max_tokens": 24,
    });
    let answer = request(
        server.address(),
        "POST",
        "/v1/chat/completions",
        Some(&body.to_string()),
    );
    assert_eq!(answer.status, 200, "{}", answer.text());
    let answer = answer.json();
    let text = answer["choices"][0]["message"]["content"]
        .as_str()
        .expect("content");
    assert!(text.contains("Paris"), "{text}");
    // The template's default system message is part of the prompt.
    assert!(
        answer["usage"]["prompt_tokens"].as_u64().expect("usage") > 20,
        "{answer}"
    );
}

#[test]
fn the_demo_suite_runs_against_the_model() {
    let server = start();
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("demo").to_string_lossy().into_owned();
    let args = [
        "suite",
        "scenarios/suites/demo.toml",
        "--endpoint",
        &server.url,
        "--quick",
        "--quiet",
        "--out",
        &out,
    ];
    let output = process::run("prony", &args, Duration::from_secs(180));
    let stdout = String::from_utf8_lossy(&output.stdout);
    // A slow machine may miss the time limits, which is a result (1); a failure is not.
    let code = output.status.code();
    assert!(matches!(code, Some(0 | 1 | 4)), "{code:?}: {stdout}");
    for name in ["singlestream", "server", "offline"] {
        let path = folder.path().join(format!("demo/smollm2-{name}/run.json"));
        let record: Value =
            serde_json::from_slice(&fs::read(path).expect("a record")).expect("JSON");
        assert!(record.to_string().contains("SmolLM2"), "{name}");
    }
    assert!(stdout.contains("smollm2-offline"), "{stdout}");
}
