//! Every golden accuracy log, byte for byte, from its answers.

use prony_loadgen::report::accuracy::{AccuracyEntry, AccuracyWriter, TokenFields};
use serde_json::Value;

use crate::folder::folders;

fn bytes(hex: &Value) -> Vec<u8> {
    let hex = hex.as_str().expect("digits");
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("two digits");
    (0..hex.len()).step_by(2).map(byte).collect()
}

#[test]
fn every_accuracy_log_to_the_byte() {
    let mut n_entries = 0;
    for folder in folders() {
        let mut writer = AccuracyWriter::new(Vec::new()).expect("memory");
        let entries: Vec<Value> = serde_json::from_str(&folder.accuracy).expect("strict JSON");
        for entry in &entries {
            let data = bytes(&entry["data"]);
            let first = entry.get("token_data").map(bytes);
            let n_tokens = entry
                .get("token_count")
                .map(|n| n.as_i64().expect("a count"));
            let entry = AccuracyEntry {
                seq_id: entry["seq_id"].as_u64().expect("a number"),
                qsl_idx: entry["qsl_idx"].as_u64().expect("an index") as u32,
                data: &data,
                tokens: n_tokens.map(|n_tokens| TokenFields {
                    first: first.as_deref(),
                    n_tokens,
                }),
            };
            writer.push(&entry).expect("memory");
            n_entries += 1;
        }
        let text = String::from_utf8(writer.finish().expect("memory")).expect("ASCII");
        assert_eq!(text, folder.accuracy, "{}", folder.name);
    }
    assert!(n_entries > 90, "{n_entries}");
}
