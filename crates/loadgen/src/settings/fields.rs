//! Every field of `TestSettings` by its name: one table for `--set`, `explain`, conf files and
//! JSON.
//!
//! Adding a field to `TestSettings` means adding a line to the table; a test counts them.

use std::fmt;

use crate::error::RefusedSetting;
use crate::scenario::{Mode, Scenario};
use crate::settings::TestSettings;

/// The value of a field, of whatever type it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// A scenario, spelled without a space.
    Scenario(Scenario),
    /// A test mode.
    Mode(Mode),
    /// A real number: rates, expected latencies, percentiles.
    Real(f64),
    /// A count, seed, duration or whole latency.
    Count(u64),
    /// A small signed number.
    Signed(i32),
    /// A switch.
    Flag(bool),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scenario(v) => f.write_str(v.conf_name()),
            Self::Mode(v) => v.fmt(f),
            Self::Real(v) => v.fmt(f),
            Self::Count(v) => v.fmt(f),
            Self::Signed(v) => v.fmt(f),
            Self::Flag(v) => v.fmt(f),
        }
    }
}

impl Value {
    /// Reads `text` as the same kind of value as `self`; the error says what would have been one.
    fn parse_alike(self, text: &str) -> Result<Self, String> {
        let bad = |what: &str| what.to_owned();
        match self {
            Self::Scenario(_) => Scenario::ALL
                .into_iter()
                .find(|s| s.conf_name() == text)
                .map(Self::Scenario)
                .ok_or_else(|| bad("one of SingleStream, MultiStream, Server, Offline")),
            Self::Mode(_) => ALL_MODES
                .into_iter()
                .find(|m| m.to_string() == text)
                .map(Self::Mode)
                .ok_or_else(|| {
                    bad("one of SubmissionRun, AccuracyOnly, PerformanceOnly, FindPeakPerformance")
                }),
            Self::Real(_) => text.parse().map(Self::Real).map_err(|_| bad("a number")),
            Self::Count(_) => text
                .parse()
                .map(Self::Count)
                .map_err(|_| bad("a whole number from 0 to 18446744073709551615")),
            Self::Signed(_) => text
                .parse()
                .map(Self::Signed)
                .map_err(|_| bad("a whole number of 32 bits")),
            Self::Flag(_) => match text {
                "true" | "1" => Ok(Self::Flag(true)),
                "false" | "0" => Ok(Self::Flag(false)),
                _ => Err(bad("true, false, 1 or 0")),
            },
        }
    }
}

const ALL_MODES: [Mode; 4] = [
    Mode::SubmissionRun,
    Mode::AccuracyOnly,
    Mode::PerformanceOnly,
    Mode::FindPeakPerformance,
];

/// One field of `TestSettings`.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// Its name in the reference's C++ interface.
    pub name: &'static str,
    /// Its name in the reference's Python interface, where that differs.
    pub python_name: Option<&'static str>,
    /// Unit of the value, empty for counts, seeds and switches.
    pub unit: &'static str,
    get: fn(&TestSettings) -> Value,
    set: fn(&mut TestSettings, Value) -> bool,
}

impl Field {
    /// The field's value.
    #[must_use]
    pub fn get(&self, settings: &TestSettings) -> Value {
        (self.get)(settings)
    }

    /// Sets the field.
    ///
    /// # Panics
    /// If `value` is of another kind than the field: a bug in the caller's table.
    pub fn set(&self, settings: &mut TestSettings, value: Value) {
        assert!(
            (self.set)(settings, value),
            "{}: {value:?} is of another kind",
            self.name
        );
    }

    /// Sets the field from text.
    ///
    /// # Errors
    /// What the field takes, if `text` is not that.
    pub fn set_text(
        &self,
        settings: &mut TestSettings,
        text: &str,
    ) -> Result<Value, RefusedSetting> {
        let value = self
            .get(settings)
            .parse_alike(text)
            .map_err(|allowed| RefusedSetting {
                name: self.name.to_owned(),
                value: text.to_owned(),
                allowed,
            })?;
        self.set(settings, value);
        Ok(value)
    }
}

/// The field called `name`, by either of its names.
#[must_use]
pub fn field(name: &str) -> Option<&'static Field> {
    FIELDS
        .iter()
        .find(|f| f.name == name || f.python_name == Some(name))
}

/// Applies one `name=value`, as `--set` takes it.
///
/// # Errors
/// If there is no `=`, no such field, or the value is not of the field's kind.
pub fn set_assignment(
    settings: &mut TestSettings,
    assignment: &str,
) -> Result<(&'static Field, Value), RefusedSetting> {
    let refuse = |name: &str, value: &str, allowed: String| RefusedSetting {
        name: name.to_owned(),
        value: value.to_owned(),
        allowed,
    };
    let Some((name, value)) = assignment.split_once('=') else {
        return Err(refuse(assignment, "", "name=value".to_owned()));
    };
    let (name, value) = (name.trim(), value.trim());
    let Some(field) = field(name) else {
        let allowed = match nearest_name(name) {
            Some(near) => format!("no such setting; did you mean {near}?"),
            None => "no such setting".to_owned(),
        };
        return Err(refuse(name, value, allowed));
    };
    field.set_text(settings, value).map(|set| (field, set))
}

/// The field name with the fewest edits from `name`, if that is few enough to be a typo.
fn nearest_name(name: &str) -> Option<&'static str> {
    nearest(
        name,
        FIELDS
            .iter()
            .flat_map(|f| [Some(f.name), f.python_name].into_iter().flatten()),
    )
}

/// The candidate nearest to `word`, at most a third of its letters away.
#[must_use]
pub fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let limit = word.chars().count() / 3 + 1;
    candidates
        .map(|c| (edit_distance(word, c), c))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, c)| c)
}

/// Levenshtein distance, one row at a time.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let replace = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = replace.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

macro_rules! field {
    ($name:ident, $kind:ident, $unit:literal) => {
        field!($name, $kind, $unit, None)
    };
    ($name:ident, $kind:ident, $unit:literal, $python:expr) => {
        Field {
            name: stringify!($name),
            python_name: $python,
            unit: $unit,
            get: |s| Value::$kind(s.$name),
            set: |s, value| match value {
                Value::$kind(v) => {
                    s.$name = v;
                    true
                }
                _ => false,
            },
        }
    };
}

/// Every field, in the order of `TestSettings`.
pub const FIELDS: &[Field] = &[
    field!(scenario, Scenario, ""),
    field!(mode, Mode, ""),
    field!(single_stream_expected_latency_ns, Real, "ns"),
    field!(single_stream_target_latency_percentile, Real, "fraction"),
    field!(multi_stream_expected_latency_ns, Real, "ns"),
    field!(multi_stream_target_latency_percentile, Real, "fraction"),
    field!(multi_stream_samples_per_query, Count, ""),
    field!(server_target_qps, Real, "queries/s"),
    field!(server_target_latency_ns, Count, "ns"),
    field!(server_target_latency_percentile, Real, "fraction"),
    field!(server_coalesce_queries, Flag, ""),
    field!(server_find_peak_qps_decimals_of_precision, Signed, ""),
    field!(server_find_peak_qps_boundary_step_size, Real, ""),
    field!(server_max_async_queries, Count, ""),
    field!(server_num_issue_query_threads, Count, ""),
    field!(offline_expected_qps, Real, "samples/s"),
    field!(sample_concatenate_permutation, Flag, ""),
    field!(min_duration_ms, Count, "ms"),
    field!(max_duration_ms, Count, "ms"),
    field!(min_query_count, Count, ""),
    field!(max_query_count, Count, ""),
    field!(qsl_rng_seed, Count, ""),
    field!(sample_index_rng_seed, Count, ""),
    field!(schedule_rng_seed, Count, ""),
    field!(accuracy_log_rng_seed, Count, ""),
    field!(accuracy_log_probability, Real, "fraction"),
    field!(accuracy_log_sampling_target, Count, ""),
    field!(test05, Flag, ""),
    field!(test05_qsl_rng_seed, Count, ""),
    field!(test05_sample_index_rng_seed, Count, ""),
    field!(test05_schedule_rng_seed, Count, ""),
    field!(print_timestamps, Flag, ""),
    field!(performance_issue_unique, Flag, ""),
    field!(performance_issue_same, Flag, ""),
    field!(performance_issue_same_index, Count, ""),
    field!(performance_sample_count_override, Count, ""),
    field!(accuracy_sample_count_override, Count, ""),
    field!(use_token_latencies, Flag, ""),
    field!(server_ttft_latency, Count, "ns", Some("ttft_latency")),
    field!(server_tpot_latency, Count, "ns", Some("tpot_latency")),
    field!(infer_token_latencies, Flag, ""),
    field!(token_latency_scaling_factor, Count, ""),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// `Debug` prints one `name: value` per field, so a field missing above shows here.
    #[test]
    fn the_table_has_every_field() {
        let settings = TestSettings::default();
        let debug = format!("{settings:?}");
        let inner = debug.split_once('{').expect("a struct").1;
        let names: Vec<&str> = inner
            .split(", ")
            .filter_map(|part| Some(part.split_once(':')?.0.trim()))
            .collect();
        let table: Vec<&str> = FIELDS.iter().map(|f| f.name).collect();
        assert_eq!(table, names);
    }

    #[test]
    fn text_goes_in_and_comes_out() {
        for (assignment, expected) in [
            ("scenario=Server", "Server"),
            ("mode=AccuracyOnly", "AccuracyOnly"),
            ("server_target_qps=0.5", "0.5"),
            ("ttft_latency=450000000", "450000000"),
            ("server_tpot_latency = 40", "40"),
            ("test05=1", "true"),
            ("server_find_peak_qps_decimals_of_precision=-3", "-3"),
        ] {
            let mut settings = TestSettings::default();
            let (field, _) = set_assignment(&mut settings, assignment).expect(assignment);
            assert_eq!(field.get(&settings).to_string(), expected, "{assignment}");
        }
    }

    #[test]
    fn bad_assignments_say_what_is_allowed() {
        for (assignment, allowed) in [
            ("min_query_count", "name=value"),
            (
                "min_query_cuont=1",
                "no such setting; did you mean min_query_count?",
            ),
            ("xyzzy=1", "no such setting"),
            (
                "min_query_count=-1",
                "a whole number from 0 to 18446744073709551615",
            ),
            ("test05=yes", "true, false, 1 or 0"),
            ("server_target_qps=fast", "a number"),
        ] {
            let refused = set_assignment(&mut TestSettings::default(), assignment);
            assert_eq!(
                refused.expect_err(assignment).allowed,
                allowed,
                "{assignment}"
            );
        }
    }
}
