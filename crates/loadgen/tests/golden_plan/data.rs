//! Reading the golden files: where they are, and how long lists are compared.

use std::path::PathBuf;

use prony_loadgen::settings::TestSettings;
use prony_loadgen::settings::fields::field;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// A file or folder under `tests/golden/loadgen`.
pub(crate) fn golden_path(relative: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/golden/loadgen")
        .join(relative)
}

/// One golden JSON file.
pub(crate) fn golden_json(relative: &str) -> Value {
    let path = golden_path(relative);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Settings from a JSON object of field names and values, the rest default.
pub(crate) fn settings_from(object: &Value) -> TestSettings {
    let mut settings = TestSettings::default();
    for (name, value) in object.as_object().expect("settings are an object") {
        let Some(field) = field(name) else {
            assert!(
                matches!(name.as_str(), "qsl_total" | "qsl_perf"),
                "unknown setting {name}"
            );
            continue;
        };
        let text = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        field
            .set_text(&mut settings, &text)
            .expect("golden values are of the field's kind");
    }
    settings
}

/// Compares a list with its golden form: in full, or as length, ends and hash.
pub(crate) fn assert_list<T: Into<i128> + Copy>(what: &str, got: &[T], golden: &Value) {
    let got: Vec<i128> = got.iter().map(|v| (*v).into()).collect();
    let numbers = |list: &Value| -> Vec<i128> {
        let list = list.as_array().expect("a list");
        list.iter()
            .map(|v| v.as_i64().expect("an integer").into())
            .collect()
    };
    if golden.is_array() {
        assert_eq!(got, numbers(golden), "{what}");
        return;
    }
    assert_eq!(
        got.len() as u64,
        golden["len"].as_u64().expect("len"),
        "{what}: length"
    );
    let (head, tail) = (numbers(&golden["head"]), numbers(&golden["tail"]));
    assert_eq!(got[..head.len()], head, "{what}: head");
    assert_eq!(got[got.len() - tail.len()..], tail, "{what}: tail");
    assert_eq!(
        sha256_csv(&got),
        golden["sha256_csv"].as_str().expect("hash"),
        "{what}: hash"
    );
}

/// SHA-256 of the numbers in decimal, joined by commas.
pub(crate) fn sha256_csv(numbers: &[i128]) -> String {
    let text: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    Sha256::digest(text.join(","))
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect()
}
