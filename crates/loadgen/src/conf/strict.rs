//! A parser that refuses what the reference passes over: typos, glued `=`, comments after values.
//!
//! Every file it accepts means the same to the reference; the reverse does not hold. Problems come
//! with line and column, all of them at once.

use crate::conf::keys::{ConfKind, KEY_RULES, KEYS_READ_BY_NOTHING, KeyRule, Reading};
use crate::conf::mlperf::model_names;
use crate::conf::parse::{Entries, Entry, Fault, Word, words};
use crate::error::ConfProblem;
use crate::scenario::Scenario;
use crate::settings::fields::nearest;

/// Reads a file's text for a run of `model`.
///
/// # Errors
/// Every problem of the file, in the order of lines.
pub fn parse(text: &str, kind: ConfKind, model: &str) -> Result<Entries, Vec<ConfProblem>> {
    let mut entries = Entries::new();
    let mut problems = Vec::new();
    for (line, content) in (1..).zip(text.split('\n')) {
        let result = parse_line(content).and_then(|found| {
            let Some(Assignment { key, value }) = found else {
                return Ok(());
            };
            let rules = check_key(&key, kind, model)?;
            check_value(&value, &rules)?;
            if let Some(earlier) = entries.get(key.text) {
                return Err(key.problem(format!(
                    "{} is set in line {} already",
                    key.text, earlier.line
                )));
            }
            entries.insert(
                key.text.to_owned(),
                Entry {
                    value: value.text.to_owned(),
                    line,
                },
            );
            Ok(())
        });
        if let Err(Fault { column, text }) = result {
            problems.push(ConfProblem { line, column, text });
        }
    }
    if problems.is_empty() {
        Ok(entries)
    } else {
        Err(problems)
    }
}

struct Assignment<'a> {
    key: Word<'a>,
    value: Word<'a>,
}

fn parse_line(content: &str) -> Result<Option<Assignment<'_>>, Fault> {
    let words = words(content);
    let Some(&key) = words.first() else {
        return Ok(None);
    };
    if key.text == "#" || key.text.starts_with('#') && words.len() == 1 {
        return Ok(None);
    }
    if key.text.starts_with('#') {
        return Err(key.problem("put a space after the # of a comment".to_owned()));
    }
    if let Some(at) = key.text.find('=') {
        return Err(key.problem_at(at, "put spaces around =".to_owned()));
    }
    let Some(&equals) = words.get(1) else {
        return Err(key.problem(format!("{} has no = and no value", key.text)));
    };
    if equals.text.starts_with('=') && equals.text != "=" {
        return Err(equals.problem("put spaces around =".to_owned()));
    }
    if equals.text != "=" {
        return Err(equals.problem(format!("expected =, found {}", equals.text)));
    }
    let Some(&value) = words.get(2) else {
        return Err(equals.problem("no value after =".to_owned()));
    };
    let stray = words[2..]
        .iter()
        .find_map(|word| Some((word, word.text.find('#')?)));
    if let Some((word, at)) = stray {
        return Err(word.problem_at(at, "a comment must have its own line".to_owned()));
    }
    match words.get(3) {
        Some(more) => Err(more.problem(format!("one value only, found {} too", more.text))),
        None => Ok(Some(Assignment { key, value })),
    }
}

/// The rules that read this key; at least one.
fn check_key(key: &Word<'_>, kind: ConfKind, model: &str) -> Result<Vec<&'static KeyRule>, Fault> {
    // From the right: model names have dots in them (wan-2.2-t2v-a14b).
    let parts: Vec<&str> = key.text.rsplitn(3, '.').collect();
    let [name, scenario, owner] = parts[..] else {
        return Err(key.problem(format!("{}: expected model.scenario.key", key.text)));
    };
    check_model(key, owner, model)?;
    let scenario_at = owner.len() + 1;
    let under = check_scenario(key, scenario, scenario_at)?;
    let name_at = scenario_at + scenario.len() + 1;
    let rules: Vec<&KeyRule> = KEY_RULES.iter().filter(|rule| rule.key == name).collect();
    if rules.is_empty() {
        return Err(key.problem_at(name_at, unknown_key(name)));
    }
    if kind != ConfKind::Mlperf && rules.iter().all(|rule| rule.mlperf_only) {
        let text = format!("{name} comes with the round (--round) and is not read from this file");
        return Err(key.problem_at(name_at, text));
    }
    let read = |rule: &&KeyRule| under.is_none() || rule.under.is_none() || rule.under == under;
    let reading: Vec<&KeyRule> = rules.iter().copied().filter(read).collect();
    if reading.is_empty() {
        let scenarios: Vec<&str> = rules
            .iter()
            .filter_map(|rule| rule.under)
            .map(Scenario::conf_name)
            .collect();
        let text = format!("{name} is read under {} only", scenarios.join(", "));
        return Err(key.problem_at(scenario_at, text));
    }
    Ok(reading)
}

fn check_model(key: &Word<'_>, owner: &str, model: &str) -> Result<(), Fault> {
    if owner == "*" || owner == model || model_names().any(|name| name == owner) {
        return Ok(());
    }
    let known = model_names().map(|name| name as &str).chain([model]);
    Err(key.problem(format!("no model {owner}{}", did_you_mean(owner, known))))
}

/// The scenario, `None` for any.
fn check_scenario(key: &Word<'_>, scenario: &str, at: usize) -> Result<Option<Scenario>, Fault> {
    if scenario == "*" {
        return Ok(None);
    }
    let found = Scenario::ALL
        .into_iter()
        .find(|s| s.conf_name() == scenario);
    found.map(Some).ok_or_else(|| {
        let known = Scenario::ALL.into_iter().map(Scenario::conf_name);
        key.problem_at(
            at,
            format!("no scenario {scenario}{}", did_you_mean(scenario, known)),
        )
    })
}

fn unknown_key(name: &str) -> String {
    if KEYS_READ_BY_NOTHING.contains(&name) {
        return format!("{name} is read by nothing");
    }
    format!(
        "no key {name}{}",
        did_you_mean(name, KEY_RULES.iter().map(|rule| rule.key))
    )
}

fn did_you_mean<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> String {
    match nearest(word, known) {
        Some(near) => format!("; did you mean {near}?"),
        None => String::new(),
    }
}

/// Checks that every rule that may read the value takes it as it is written.
fn check_value(value: &Word<'_>, rules: &[&KeyRule]) -> Result<(), Fault> {
    for rule in rules {
        let text = value.text;
        let ok = match rule.reading {
            Reading::Count | Reading::WholeMs => whole(text).is_some(),
            Reading::Count32 => whole(text).is_some_and(|n| i32::try_from(n).is_ok()),
            Reading::Real | Reading::RealMs => plain_real(text).is_some(),
            Reading::Percent => plain_real(text).is_some_and(|p| (0.0..=100.0).contains(&p)),
            Reading::NotZero | Reading::One => matches!(text, "0" | "1"),
            Reading::Mode => matches!(text, "0" | "1" | "2" | "3"),
        };
        if !ok {
            let expected = expected(rule.reading);
            return Err(value.problem(format!("{} takes {expected}, not {text}", rule.key)));
        }
    }
    Ok(())
}

fn expected(reading: Reading) -> &'static str {
    match reading {
        Reading::Count => "a whole number without leading zeros",
        Reading::Count32 => "a whole number of at most 2147483647",
        Reading::WholeMs => "whole milliseconds",
        Reading::Real => "a number",
        Reading::RealMs => "milliseconds",
        Reading::Percent => "a percentage from 0 to 100",
        Reading::NotZero | Reading::One => "0 or 1",
        Reading::Mode => "0 (submission), 1 (accuracy), 2 (performance) or 3 (find peak)",
    }
}

/// A decimal integer; a leading zero would make it octal to the reference.
fn whole(text: &str) -> Option<u64> {
    let plain = text == "0" || !text.starts_with('0');
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    if plain && digits {
        text.parse().ok()
    } else {
        None
    }
}

/// A finite decimal number, not negative.
fn plain_real(text: &str) -> Option<f64> {
    let digits = text
        .bytes()
        .all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'));
    if !digits || text.starts_with(['+', '-']) {
        return None;
    }
    text.parse().ok().filter(|v: &f64| v.is_finite())
}
