//! The published schema and the record have the same fields, everywhere.

use prony_report::run_record::{
    Assertion, Distribution, FailureCount, Figures, RunRecord, SCHEMA_VERSION, SamplePoint, Series,
    Verdict,
};
use serde_json::Value;

fn schema() -> Value {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/schema/run_record.schema.json"
    );
    serde_json::from_str(&std::fs::read_to_string(path).expect("the schema is there"))
        .expect("the schema is JSON")
}

/// A record in which every list has an entry and every optional object is there.
fn full_record() -> Value {
    let distribution = Some(Distribution::default());
    let record = RunRecord {
        schema_version: SCHEMA_VERSION,
        failures: vec![FailureCount::default()],
        verdict: Verdict {
            assertions: vec![Assertion::default()],
            ..Verdict::default()
        },
        figures: Figures {
            latency_ms: distribution,
            service_time_ms: distribution,
            ttft_ms: distribution,
            tpot_ms: distribution,
            itl_ms: distribution,
            send_lag_ms: distribution,
            ..Figures::default()
        },
        series: Series {
            samples: vec![SamplePoint::default()],
            ..Series::default()
        },
        ..RunRecord::default()
    };
    serde_json::from_str(&record.to_json()).expect("a record is JSON")
}

/// Walks record and schema together; returns what does not fit.
fn compare(value: &Value, part: &Value, root: &Value, path: &str, misfits: &mut Vec<String>) {
    let part = resolve(part, root);
    match value {
        Value::Object(entries) => {
            let Some(known) = part["properties"].as_object() else {
                return; // A map: its keys are data.
            };
            for (key, value) in entries {
                match known.get(key) {
                    Some(part) => compare(value, part, root, &format!("{path}.{key}"), misfits),
                    None => misfits.push(format!("{path}.{key} is not in the schema")),
                }
            }
            let missing = known.keys().filter(|key| !entries.contains_key(*key));
            misfits.extend(missing.map(|key| format!("{path}.{key} is not in the record")));
        }
        Value::Array(list) => {
            for item in list {
                compare(item, &part["items"], root, path, misfits);
            }
        }
        Value::String(_) => expect_type(part, "string", path, misfits),
        Value::Bool(_) => expect_type(part, "boolean", path, misfits),
        Value::Null | Value::Number(_) => {}
    }
}

fn resolve<'a>(part: &'a Value, root: &'a Value) -> &'a Value {
    let part = part["anyOf"].get(0).unwrap_or(part);
    match part["$ref"].as_str() {
        Some(reference) => root
            .pointer(reference.trim_start_matches('#'))
            .expect("a definition"),
        None => part,
    }
}

fn expect_type(part: &Value, name: &str, path: &str, misfits: &mut Vec<String>) {
    let is_named = part["type"] == name || part["type"][0] == name;
    if !is_named {
        misfits.push(format!(
            "{path} is a {name}, the schema says {}",
            part["type"]
        ));
    }
}

#[test]
fn the_schema_has_every_field_and_no_other() {
    let schema = schema();
    let mut misfits = Vec::new();
    compare(&full_record(), &schema, &schema, "record", &mut misfits);
    assert!(misfits.is_empty(), "{}", misfits.join("\n"));
    assert_eq!(
        schema["properties"]["schema_version"]["const"],
        SCHEMA_VERSION
    );
}
