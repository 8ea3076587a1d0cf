//! The `[settings]` table: the reference's `TestSettings` by the reference's names.
//!
//! A time may be written in either of two ways, both with its unit: `min_duration = "30s"`, or
//! under the reference's own name `min_duration_ms = 30000`. A bare number under a name without
//! unit is refused.

use prony_loadgen::scenario::{Mode, Scenario};
use prony_loadgen::settings::TestSettings;
use prony_loadgen::settings::fields::{FIELDS, Field, Value as FieldValue};

use crate::duration;
use crate::section::Section;
use crate::toml_tree::{Node, Value};

/// Reads the table; a setting that is not there keeps the reference's default.
pub(crate) fn read(section: Section<'_>) -> TestSettings {
    let mut settings = TestSettings::default();
    for field in FIELDS {
        let short = short_name(field);
        if let Some(short) = short
            && let Some(node) = section.node(short)
            && let Some(value) = time_value(&section, field, short, node)
        {
            field.set(&mut settings, value);
        }
        // A time whose name has no unit can only be given with one.
        if short == Some(field.name) {
            continue;
        }
        if let Some(node) = section.node(field.name)
            && let Some(value) = plain_value(&section, field, node, &settings)
        {
            field.set(&mut settings, value);
        }
    }
    section.finish();
    settings
}

/// The name a time goes by when its value carries the unit.
fn short_name(field: &Field) -> Option<&'static str> {
    match field.unit {
        "ns" => Some(field.name.strip_suffix("_ns").unwrap_or(field.name)),
        "ms" => Some(field.name.strip_suffix("_ms").unwrap_or(field.name)),
        _ => None,
    }
}

fn time_value(section: &Section<'_>, field: &Field, key: &str, node: &Node) -> Option<FieldValue> {
    let parsed = match &node.value {
        Value::Text(text) => duration::parse(text),
        _ => Err("a duration with its unit, such as \"120s\" or \"50ms\""),
    };
    let time = match parsed {
        Ok(time) => time,
        Err(expected) => return section.refuse(key, node, expected),
    };
    let divisor = if field.unit == "ms" { 1_000_000 } else { 1 };
    if time.0 % divisor != 0 {
        return section.refuse(key, node, "whole milliseconds");
    }
    let value = time.0 / divisor;
    Some(match field.get(&TestSettings::default()) {
        FieldValue::Real(_) => FieldValue::Real(value as f64),
        _ => FieldValue::Count(value.unsigned_abs()),
    })
}

fn plain_value(
    section: &Section<'_>,
    field: &Field,
    node: &Node,
    settings: &TestSettings,
) -> Option<FieldValue> {
    let (found, expected) = match field.get(settings) {
        FieldValue::Scenario(_) => {
            let names = Scenario::ALL.map(|s| (s.conf_name(), FieldValue::Scenario(s)));
            return section.choice(field.name, &names);
        }
        FieldValue::Mode(_) => {
            let names = [
                ("SubmissionRun", FieldValue::Mode(Mode::SubmissionRun)),
                ("AccuracyOnly", FieldValue::Mode(Mode::AccuracyOnly)),
                ("PerformanceOnly", FieldValue::Mode(Mode::PerformanceOnly)),
            ];
            return section.choice(field.name, &names);
        }
        FieldValue::Real(_) => (real(&node.value).map(FieldValue::Real), "a number"),
        FieldValue::Count(_) => {
            let count = whole(&node.value).and_then(|n| u64::try_from(n).ok());
            (count.map(FieldValue::Count), "a whole number from 0")
        }
        FieldValue::Signed(_) => {
            let signed = whole(&node.value).and_then(|n| i32::try_from(n).ok());
            (signed.map(FieldValue::Signed), "a whole number of 32 bits")
        }
        FieldValue::Flag(_) => match node.value {
            Value::Flag(flag) => (Some(FieldValue::Flag(flag)), ""),
            _ => (None, "true or false"),
        },
    };
    let unit = if field.unit.is_empty() {
        String::new()
    } else {
        format!(" ({})", field.unit)
    };
    found.or_else(|| section.refuse(field.name, node, &format!("{expected}{unit}")))
}

fn real(value: &Value) -> Option<f64> {
    match value {
        Value::Real(value) => Some(*value),
        Value::Integer(value) => Some(*value as f64),
        _ => None,
    }
}

fn whole(value: &Value) -> Option<i128> {
    match value {
        Value::Integer(value) => Some(*value),
        _ => None,
    }
}
