//! One golden log folder, read and split.

use prony_loadgen::report::keys::LINE_MARKER;
use prony_loadgen::settings::TestSettings;
use prony_loadgen::settings::fields::field;
use serde_json::Value;

use crate::data::{golden_json, golden_path, settings_from};

/// A line of the detail log.
pub(crate) struct Line {
    pub(crate) key: String,
    /// The value as printed.
    pub(crate) raw: String,
    /// The whole line as JSON.
    pub(crate) json: Value,
}

impl Line {
    pub(crate) fn parse(text: &str) -> Self {
        let object = text.strip_prefix(LINE_MARKER).expect("the marker");
        let json: Value = serde_json::from_str(object).expect("strict JSON");
        let from = object.find("\"value\": ").expect("a value") + "\"value\": ".len();
        let to = object.rfind(", \"time_ms\": ").expect("a time");
        Self {
            key: json["key"].as_str().expect("a key").to_owned(),
            raw: object[from..to].to_owned(),
            json,
        }
    }

    /// The line with what no two runs have in common replaced: times, source lines, processes.
    pub(crate) fn masked(text: &str) -> String {
        let mut masked = String::new();
        let mut rest = text;
        for (label, end) in [
            ("\"time_ms\": ", ","),
            ("\"file\": ", ","),
            ("\"line_no\": ", ","),
            ("\"pid\": ", ","),
            ("\"tid\": ", "}"),
        ] {
            let at = rest.rfind(label).expect("every line has all fields") + label.len();
            let to = at + rest[at..].find(end).expect("a field ends");
            masked.push_str(&rest[..at]);
            masked.push('_');
            rest = &rest[to..];
        }
        masked + rest
    }

    pub(crate) fn text(&self) -> &str {
        self.json["value"].as_str().expect("a text")
    }

    pub(crate) fn count(&self) -> u64 {
        self.json["value"].as_u64().expect("a count")
    }
}

/// A golden log folder.
pub(crate) struct Folder {
    pub(crate) name: String,
    pub(crate) case: Value,
    pub(crate) lines: Vec<Line>,
    pub(crate) detail: String,
    pub(crate) summary: String,
    pub(crate) accuracy: String,
    /// None where the run wrote no trace.
    pub(crate) trace: Option<String>,
}

/// Every golden folder, sorted by name.
pub(crate) fn folders() -> Vec<Folder> {
    let entries = std::fs::read_dir(golden_path("logs")).expect("golden folder");
    let mut names: Vec<_> = entries
        .map(|entry| {
            entry
                .expect("entry")
                .file_name()
                .into_string()
                .expect("ASCII")
        })
        .collect();
    names.sort_unstable();
    assert_eq!(names.len(), 45);
    names.iter().map(|name| Folder::read(name)).collect()
}

impl Folder {
    fn read(name: &str) -> Self {
        let read =
            |file: &str| std::fs::read_to_string(golden_path(&format!("logs/{name}/{file}")));
        let detail = read("mlperf_log_detail.txt").expect("detail log");
        Self {
            name: name.to_owned(),
            case: golden_json(&format!("logs/{name}/case.json"))["case"].clone(),
            lines: detail.lines().map(Line::parse).collect(),
            detail,
            summary: read("mlperf_log_summary.txt").expect("summary"),
            accuracy: read("mlperf_log_accuracy.json").expect("accuracy log"),
            trace: read("mlperf_log_trace.json").ok(),
        }
    }

    /// The last line with this key.
    pub(crate) fn line(&self, key: &str) -> Option<&Line> {
        self.lines.iter().rev().find(|line| line.key == key)
    }

    /// Settings of the case; where configuration files changed them, as the log says.
    pub(crate) fn settings(&self) -> TestSettings {
        let mut settings = settings_from(&self.case["settings"]);
        for line in &self.lines {
            let Some(name) = line.key.strip_prefix("requested_") else {
                continue;
            };
            let name = if name == "test_mode" { "mode" } else { name };
            if let Some(field) = field(name) {
                let text = line.json["value"]
                    .as_str()
                    .map_or(line.raw.as_str(), |text| text);
                field
                    .set_text(&mut settings, text)
                    .expect("a value of the field's kind");
            }
        }
        settings
    }

    pub(crate) fn qsl(&self, count: &str) -> u64 {
        self.case["qsl"][count].as_u64().expect("a count")
    }
}
