//! Every value and where it came from: first the settings as given, then what the run makes of
//! them.

use std::io::{self, Write};

use serde_json::{Value as Json, json};

use crate::conf::Configured;
use crate::conf::origin::Origin;
use crate::plan::json::value_json;
use crate::settings::EffectiveSettings;
use crate::settings::effective::{Effective, Rule, effective_values};
use crate::settings::fields::{FIELDS, Field, Value};

/// One line of the explanation.
#[derive(Debug, Clone, PartialEq)]
pub struct Explained {
    /// Field, or log key of an effective value.
    pub name: &'static str,
    /// Its value.
    pub value: Value,
    /// Unit, or empty.
    pub unit: &'static str,
    /// Where it came from, in words.
    pub origin: String,
}

/// The requested settings with their origins, in the order of `TestSettings`.
#[must_use]
pub fn explain_requested(configured: &Configured) -> Vec<Explained> {
    let line = |field: &'static Field| Explained {
        name: field.name,
        value: field.get(&configured.settings),
        unit: field.unit,
        origin: configured.origin(field.name).to_string(),
    };
    FIELDS.iter().map(line).collect()
}

/// The effective settings: the field each follows and that field's origin, or the scenario's rule.
#[must_use]
pub fn explain_effective(configured: &Configured, eff: &EffectiveSettings) -> Vec<Explained> {
    let origin_of = |entry: &Effective| match entry.rule {
        Rule::Field(name) if name == entry.key => configured.origin(name).to_string(),
        Rule::Field(name) => format!("{name}: {}", configured.origin(name)),
        Rule::Derived(words) => format!("scenario rule: {words}"),
    };
    let line = |entry: Effective| Explained {
        name: entry.key,
        value: entry.value,
        unit: "",
        origin: origin_of(&entry),
    };
    effective_values(eff).into_iter().map(line).collect()
}

/// Writes both lists as text; values nobody set are left out unless `all`.
///
/// # Errors
/// Whatever `out` reports.
pub fn write_text(
    configured: &Configured,
    eff: &EffectiveSettings,
    all: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(out, "settings")?;
    let default = Origin::Default.to_string();
    let requested = explain_requested(configured);
    let n_default = requested
        .iter()
        .filter(|line| line.origin == default)
        .count();
    for line in requested
        .iter()
        .filter(|line| all || line.origin != default)
    {
        write_line(out, line)?;
    }
    if !all {
        writeln!(
            out,
            "  ({n_default} more at their defaults; --all shows them)"
        )?;
    }
    writeln!(out)?;
    writeln!(out, "effective")?;
    for line in explain_effective(configured, eff) {
        write_line(out, &line)?;
    }
    for note in &configured.notes {
        writeln!(out, "note: {}", note.text)?;
    }
    Ok(())
}

fn write_line(out: &mut dyn Write, line: &Explained) -> io::Result<()> {
    let value = if line.unit.is_empty() || line.unit == "fraction" {
        line.value.to_string()
    } else {
        format!("{} {}", line.value, line.unit)
    };
    writeln!(out, "  {:<40} {value:<24} {}", line.name, line.origin)
}

/// Both lists as JSON.
#[must_use]
pub fn to_json(configured: &Configured, eff: &EffectiveSettings) -> Json {
    let list = |lines: Vec<Explained>| -> Vec<Json> {
        let line = |l: &Explained| {
            let value = value_json(l.value);
            json!({ "name": l.name, "value": value, "unit": l.unit, "origin": l.origin })
        };
        lines.iter().map(line).collect()
    };
    let notes: Vec<&str> = configured
        .notes
        .iter()
        .map(|note| note.text.as_str())
        .collect();
    json!({
        "settings": list(explain_requested(configured)),
        "effective": list(explain_effective(configured, eff)),
        "notes": notes,
    })
}
