//! `mlperf_log_detail.txt`: one JSON object a line, gathered in memory, written after the run.
//!
//! Counts errors as the reference does, but keeps only the first lines of a message that repeats:
//! a SUT that forgets `n_tokens` would otherwise fill the disk. What is logged, and in which
//! order, is decided by `entries.rs` and the runtime.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::panic::Location;

use crate::clock::Nanos;

use super::format::{general, json_string};
use super::keys::{self, detail as key};

/// Lines kept of one error or warning text.
pub const KEPT_PER_TEXT: u64 = 10;

/// Error and warning lines kept in all, for texts that differ in a number each time.
const KEPT_IN_ALL: u64 = 1000;

/// A value of the detail log.
#[derive(Debug, Clone, PartialEq)]
pub enum LogValue {
    /// Quoted and escaped.
    Text(String),
    /// `true` or `false`.
    Bool(bool),
    /// A count.
    U64(u64),
    /// A latency or difference.
    I64(i64),
    /// Six significant digits; `null` where there is no number to print.
    F64(f64),
    /// `[1,2,3]`.
    List(Vec<u32>),
    /// `{"a":"b"}`.
    Map(Vec<(String, String)>),
}

impl LogValue {
    /// The JSON text of the value.
    #[must_use]
    pub fn json(&self) -> String {
        match self {
            Self::Text(text) => json_string(text),
            Self::Bool(value) => value.to_string(),
            Self::U64(value) => value.to_string(),
            Self::I64(value) => value.to_string(),
            // The reference prints bare nan and inf, which no JSON parser takes.
            Self::F64(value) if !value.is_finite() => "null".to_owned(),
            Self::F64(value) => general(*value),
            Self::List(values) => {
                // Not a text each: sets have millions of samples.
                let mut text = String::from("[");
                for (i, value) in values.iter().enumerate() {
                    let comma = if i == 0 { "" } else { "," };
                    let _ = write!(text, "{comma}{value}");
                }
                text + "]"
            }
            Self::Map(pairs) => {
                let texts: Vec<_> = pairs
                    .iter()
                    .map(|(k, v)| format!("{}:{}", json_string(k), json_string(v)))
                    .collect();
                format!("{{{}}}", texts.join(","))
            }
        }
    }
}

impl From<&str> for LogValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for LogValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<bool> for LogValue {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<u64> for LogValue {
    fn from(value: u64) -> Self {
        Self::U64(value)
    }
}

impl From<i64> for LogValue {
    fn from(value: i64) -> Self {
        Self::I64(value)
    }
}

impl From<f64> for LogValue {
    fn from(value: f64) -> Self {
        Self::F64(value)
    }
}

/// How a line is marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Severity {
    Plain,
    Warning,
    Error,
}

#[derive(Debug, Clone)]
struct Entry {
    at: Nanos,
    key: &'static str,
    value: LogValue,
    severity: Severity,
    logged_in: &'static Location<'static>,
}

/// How often a text was reported, and how many of its lines were kept.
#[derive(Debug, Clone)]
struct Repeat {
    key: &'static str,
    text: String,
    n: u64,
    n_kept: u64,
}

/// An error or warning, `n` times.
struct Report {
    key: &'static str,
    severity: Severity,
    text: String,
    n: u64,
}

/// Stands for every text that came when no more lines were kept.
const OTHER_TEXTS: &str = "other messages";

/// The detail log of one test, in memory.
#[derive(Debug, Clone, Default)]
pub struct DetailLog {
    pid: u32,
    tid: u32,
    entries: Vec<Entry>,
    repeats: Vec<Repeat>,
    /// Index into `repeats` by text; texts past the overall bound share one entry.
    repeat_of: HashMap<(Severity, String), usize>,
    n_kept: u64,
    n_errors: u64,
    n_warnings: u64,
}

impl DetailLog {
    /// An empty log whose lines carry these process and thread numbers.
    #[must_use]
    pub fn new(pid: u32, tid: u32) -> Self {
        Self {
            pid,
            tid,
            ..Self::default()
        }
    }

    /// Adds a line stamped `at` (since the start of the test).
    #[track_caller]
    pub fn push(&mut self, at: Nanos, key: &'static str, value: impl Into<LogValue>) {
        self.add(at, key, value.into(), Severity::Plain);
    }

    /// Adds a `generic_message` line.
    #[track_caller]
    pub fn message(&mut self, at: Nanos, text: impl Into<String>) {
        self.push(at, key::GENERIC_MESSAGE, text.into());
    }

    /// Counts an error and keeps its line, unless the same text was kept often enough.
    #[track_caller]
    pub fn error(&mut self, at: Nanos, key: &'static str, text: impl Into<String>) {
        self.errors(at, key, text, 1);
    }

    /// Counts `n` errors of the same text, at the cost of the lines that are kept of it.
    #[track_caller]
    pub fn errors(&mut self, at: Nanos, key: &'static str, text: impl Into<String>, n: u64) {
        self.n_errors += n;
        let (severity, text) = (Severity::Error, text.into());
        self.add_bounded(
            at,
            Report {
                key,
                severity,
                text,
                n,
            },
        );
    }

    /// Counts a warning and keeps its line, unless the same text was kept often enough.
    #[track_caller]
    pub fn warning(&mut self, at: Nanos, text: impl Into<String>) {
        self.n_warnings += 1;
        let (key, severity) = (key::WARNING_GENERIC_MESSAGE, Severity::Warning);
        self.add_bounded(
            at,
            Report {
                key,
                severity,
                text: text.into(),
                n: 1,
            },
        );
    }

    /// Errors so far, those whose lines were not kept included.
    #[must_use]
    pub fn n_errors(&self) -> u64 {
        self.n_errors
    }

    /// Warnings so far, those whose lines were not kept included.
    #[must_use]
    pub fn n_warnings(&self) -> u64 {
        self.n_warnings
    }

    /// Key and JSON value of every line, in order.
    pub fn lines(&self) -> impl Iterator<Item = (&'static str, String)> + '_ {
        self.entries
            .iter()
            .map(|entry| (entry.key, entry.value.json()))
    }

    /// Writes every line, then one for each text of which lines were dropped.
    ///
    /// # Errors
    /// What the writer says.
    pub fn write_to(&self, out: &mut impl Write) -> io::Result<()> {
        for entry in &self.entries {
            self.write_entry(out, entry)?;
        }
        for entry in self.closing_entries() {
            self.write_entry(out, &entry)?;
        }
        out.flush()
    }

    #[track_caller]
    fn add(&mut self, at: Nanos, key: &'static str, value: LogValue, severity: Severity) {
        let logged_in = Location::caller();
        self.entries.push(Entry {
            at,
            key,
            value,
            severity,
            logged_in,
        });
    }

    #[track_caller]
    fn add_bounded(&mut self, at: Nanos, report: Report) {
        let Report {
            key,
            severity,
            text,
            n,
        } = report;
        let is_new = !self.repeat_of.contains_key(&(severity, text.clone()));
        let room = KEPT_IN_ALL - self.n_kept;
        // Past the overall bound new texts are counted together, or their table would grow on.
        let counted_as = if is_new && room == 0 {
            OTHER_TEXTS.to_owned()
        } else {
            text.clone()
        };
        let next = self.repeats.len();
        let index = *self
            .repeat_of
            .entry((severity, counted_as.clone()))
            .or_insert(next);
        if index == next {
            self.repeats.push(Repeat {
                key,
                text: counted_as,
                n: 0,
                n_kept: 0,
            });
        }
        let repeat = &mut self.repeats[index];
        let n_kept = n.min(KEPT_PER_TEXT - repeat.n_kept).min(room);
        repeat.n += n;
        repeat.n_kept += n_kept;
        self.n_kept += n_kept;
        for _ in 0..n_kept {
            self.add(at, key, LogValue::Text(text.clone()), severity);
        }
    }

    fn closing_entries(&self) -> Vec<Entry> {
        let at = self.entries.last().map_or(Nanos::ZERO, |entry| entry.at);
        let dropped = self
            .repeats
            .iter()
            .filter(|repeat| repeat.n > repeat.n_kept);
        let closing = dropped.map(|repeat| {
            let n_more = repeat.n - repeat.n_kept;
            let text = format!("{} {n_more} more times: {}", repeat.key, repeat.text);
            Entry {
                at,
                key: key::GENERIC_MESSAGE,
                value: LogValue::Text(text),
                severity: Severity::Plain,
                logged_in: Location::caller(),
            }
        });
        closing.collect()
    }

    fn write_entry(&self, out: &mut impl Write, entry: &Entry) -> io::Result<()> {
        let ns = entry.at.0.max(0);
        let file = entry.logged_in.file();
        let file = file.rsplit(['/', '\\']).next().unwrap_or(file);
        writeln!(
            out,
            "{}{{\"key\": {}, \"value\": {}, \"time_ms\": {}.{:06}, \"namespace\": \"{}\", \
             \"event_type\": \"{}\", \"metadata\": {{\"is_error\": {}, \"is_warning\": {}, \
             \"file\": \"{file}\", \"line_no\": {}, \"pid\": {}, \"tid\": {}}}}}",
            keys::LINE_MARKER,
            json_string(entry.key),
            entry.value.json(),
            ns / 1_000_000,
            ns % 1_000_000,
            keys::NAMESPACE,
            keys::EVENT_TYPE,
            entry.severity == Severity::Error,
            entry.severity == Severity::Warning,
            entry.logged_in.line(),
            self.pid,
            self.tid,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(log: &DetailLog) -> String {
        let mut bytes = Vec::new();
        log.write_to(&mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    fn parse(text: &str) -> Vec<serde_json::Value> {
        let strip = |line: &str| line.strip_prefix(keys::LINE_MARKER).unwrap().to_owned();
        text.lines()
            .map(|line| serde_json::from_str(&strip(line)).unwrap())
            .collect()
    }

    #[test]
    fn a_line_has_the_reference_layout() {
        let mut log = DetailLog::new(7, 8);
        log.push(Nanos(14_060), key::SUT_NAME, "a \"quoted\" name");
        let line = line!() - 1;
        let expected = format!(
            ":::MLLOG {{\"key\": \"sut_name\", \"value\": \"a \\\"quoted\\\" name\", \
             \"time_ms\": 0.014060, \"namespace\": \"mlperf::logging\", \
             \"event_type\": \"POINT_IN_TIME\", \"metadata\": {{\"is_error\": false, \
             \"is_warning\": false, \"file\": \"detail.rs\", \"line_no\": {line}, \
             \"pid\": 7, \"tid\": 8}}}}\n"
        );
        assert_eq!(text_of(&log), expected);
    }

    #[test]
    fn every_kind_of_value_is_json() {
        for (value, json) in [
            (LogValue::from(f64::NAN), "null"),
            (LogValue::from(f64::INFINITY), "null"),
            (LogValue::from(1_234_567.0), "1.23457e+06"),
            (LogValue::from(true), "true"),
            (LogValue::from(-3_i64), "-3"),
            (LogValue::from(u64::MAX), "18446744073709551615"),
            (LogValue::List(vec![1, 5, 13]), "[1,5,13]"),
            (LogValue::List(vec![]), "[]"),
            (
                LogValue::Map(vec![("/a".into(), "b\"".into())]),
                r#"{"/a":"b\""}"#,
            ),
        ] {
            assert_eq!(value.json(), json);
            serde_json::from_str::<serde_json::Value>(json).unwrap();
        }
    }

    #[test]
    fn repeated_errors_are_counted_but_not_all_kept() {
        let mut log = DetailLog::new(1, 1);
        for _ in 0..5000 {
            log.error(Nanos(1), key::ERROR_RUNTIME, "n_tokens missing");
        }
        log.warning(Nanos(2), "slow disk");
        assert_eq!((log.n_errors(), log.n_warnings()), (5000, 1));
        let mut at_once = DetailLog::new(1, 1);
        at_once.errors(Nanos(1), key::ERROR_RUNTIME, "n_tokens missing", 5000);
        at_once.warning(Nanos(2), "slow disk");
        assert!(log.lines().eq(at_once.lines()));
        let lines = parse(&text_of(&log));
        assert_eq!(lines.len(), 12);
        assert_eq!(lines[10]["metadata"]["is_warning"], true);
        assert_eq!(
            lines[11]["value"],
            "error_runtime 4990 more times: n_tokens missing"
        );
        assert_eq!(lines[11]["metadata"]["is_error"], false);
    }

    #[test]
    fn errors_that_differ_in_a_number_are_bounded_too() {
        let mut log = DetailLog::new(1, 1);
        for n in 0..5000 {
            log.error(Nanos(1), key::ERROR_RUNTIME, format!("sample {n} lost"));
        }
        assert_eq!(log.n_errors(), 5000);
        let lines = parse(&text_of(&log));
        assert_eq!(lines.len(), 1001);
        assert_eq!(
            lines[1000]["value"],
            "error_runtime 4000 more times: other messages"
        );
    }
}
