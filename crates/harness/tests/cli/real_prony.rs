//! Starts the real `prony` in a folder of its own and reads what it left there.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::fake_server::{FakeServer, Script, Trouble};

/// A scenario of twelve queries, one after the other, as fast as they are answered.
pub(crate) const SCENARIO: &str = r#"
name = "test"
[endpoint]
url = "http://127.0.0.1:1"
api = "openai-chat"
[generation]
max_tokens = 5
[client]
timeout = "5s"
[settings]
scenario = "SingleStream"
min_duration = "0s"
min_query_count = 12
max_query_count = 12
single_stream_target_latency_percentile = 0.5
"#;

pub(crate) struct Ran {
    pub(crate) output: Output,
    pub(crate) folder: PathBuf,
    _dir: tempfile::TempDir,
}

impl Ran {
    pub(crate) fn code(&self) -> i32 {
        self.output.status.code().unwrap_or(-1)
    }

    pub(crate) fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    pub(crate) fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    pub(crate) fn record(&self) -> Value {
        let text = std::fs::read_to_string(self.folder.join("run.json"))
            .unwrap_or_else(|error| panic!("{error}: {}", self.stderr()));
        serde_json::from_str(&text).expect("run.json is JSON")
    }

    pub(crate) fn figure(&self, pointer: &str) -> f64 {
        let record = self.record();
        let value = record.pointer(pointer).and_then(Value::as_f64);
        value.unwrap_or_else(|| panic!("no {pointer} in {record}"))
    }
}

pub(crate) fn prony(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_prony"))
        .args(args)
        .output()
        .expect("prony starts")
}

pub(crate) fn run_with(scenario: &str, server: &FakeServer, more: &[&str]) -> Ran {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("test.toml");
    std::fs::write(&file, scenario).expect("written");
    let folder = dir.path().join("out");
    let url = server.url();
    let mut args = vec![
        "run",
        path(&file),
        "--endpoint",
        &url,
        "--out",
        path(&folder),
    ];
    args.extend(more);
    Ran {
        output: prony(&args),
        folder,
        _dir: dir,
    }
}

pub(crate) fn run(script: Script) -> Ran {
    run_with(SCENARIO, &FakeServer::start(script), &[])
}

pub(crate) fn path(path: &Path) -> &str {
    path.to_str().expect("temporary folders have plain names")
}

pub(crate) fn trouble(trouble: Trouble, every: u64) -> Ran {
    run(Script {
        trouble,
        every,
        ..Script::default()
    })
}

/// Failures of a run: kind, count, first detail.
pub(crate) fn failures(ran: &Ran) -> Vec<(String, u64, String)> {
    let record = ran.record();
    let list = record["failures"].as_array().expect("a list").iter();
    list.map(|f| {
        let text = |key: &str| f[key].as_str().unwrap_or_default().to_owned();
        (
            text("kind"),
            f["count"].as_u64().unwrap_or(0),
            text("first_detail"),
        )
    })
    .collect()
}
