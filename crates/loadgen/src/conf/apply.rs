//! From entries to settings: look-up order, conversions, and a note of where each value came from.

use crate::conf::keys::{ConfKind, KEY_RULES, KeyRule, Reading};
use crate::conf::number::{integer_prefix, real_prefix};
use crate::conf::parse::{Entries, Entry};
use crate::scenario::{Mode, Scenario};
use crate::settings::fields::{Value, field};
use crate::settings::{NoteKind, SettingsNote, TestSettings};

/// Log key of everything wrong with a configuration file.
pub(crate) const ERROR_INVALID_CONFIG: &str = "error_invalid_config";

/// Whom the entries are looked up for.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    /// Name of the model, `*` for none in particular.
    pub model: &'a str,
    /// The run's scenario.
    pub scenario: Scenario,
}

/// A field that was set, and the entry that did it.
#[derive(Debug, Clone, PartialEq)]
pub struct Applied {
    /// Field of `TestSettings`.
    pub field: &'static str,
    /// The full key that matched.
    pub key: String,
    /// The entry under it.
    pub entry: Entry,
}

/// Sets every field that `entries` have a key for; returns which, and what the reference logs.
pub fn apply(
    settings: &mut TestSettings,
    entries: &Entries,
    kind: ConfKind,
    target: Target<'_>,
) -> (Vec<Applied>, Vec<SettingsNote>) {
    let (mut applied, mut notes) = (Vec::new(), Vec::new());
    for rule in KEY_RULES {
        if rule.mlperf_only && kind != ConfKind::Mlperf || !is_on(settings, rule.only_if) {
            continue;
        }
        let Some((key, entry)) = look_up(entries, rule, target) else {
            continue;
        };
        match convert(rule.reading, &entry.value) {
            Some(value) => {
                let field = field(rule.field).expect("every rule names a field");
                field.set(settings, value);
                applied.push(Applied {
                    field: field.name,
                    key,
                    entry: entry.clone(),
                });
            }
            None => notes.push(SettingsNote {
                kind: NoteKind::Error,
                key: ERROR_INVALID_CONFIG,
                text: "Invalid value passed to Mode key in config.".to_owned(),
            }),
        }
    }
    (applied, notes)
}

fn is_on(settings: &TestSettings, switch: Option<&str>) -> bool {
    switch
        .and_then(field)
        .is_none_or(|f| f.get(settings) == Value::Flag(true))
}

/// The exact key, then any model, then any scenario, then neither.
fn look_up<'e>(
    entries: &'e Entries,
    rule: &KeyRule,
    target: Target<'_>,
) -> Option<(String, &'e Entry)> {
    let scenario = rule.under.unwrap_or(target.scenario).conf_name();
    let owners = [
        (target.model, scenario),
        ("*", scenario),
        (target.model, "*"),
        ("*", "*"),
    ];
    owners.into_iter().find_map(|(model, scenario)| {
        let full_key = format!("{model}.{scenario}.{}", rule.key);
        entries.get(&full_key).map(|entry| (full_key, entry))
    })
}

/// The value in the field's unit; `None` for a mode that does not exist.
fn convert(reading: Reading, text: &str) -> Option<Value> {
    let integer = integer_prefix(text).0;
    let real = real_prefix(text).0;
    Some(match reading {
        Reading::Count => Value::Count(integer),
        Reading::Count32 => Value::Count(i64::from(integer as i32) as u64),
        Reading::Real => Value::Real(real),
        Reading::Percent => Value::Real(real * 0.01),
        Reading::RealMs => Value::Real(real * 1e6),
        Reading::WholeMs => Value::Count(integer.wrapping_mul(1_000_000)),
        Reading::NotZero => Value::Flag(integer != 0),
        Reading::One => Value::Flag(integer == 1),
        Reading::Mode => Value::Mode(match integer {
            0 => Mode::SubmissionRun,
            1 => Mode::AccuracyOnly,
            2 => Mode::PerformanceOnly,
            3 => Mode::FindPeakPerformance,
            _ => return None,
        }),
    })
}
