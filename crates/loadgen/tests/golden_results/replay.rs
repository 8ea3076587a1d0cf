//! A golden run written again by our log writers, from facts read out of its logs.

use std::iter::Peekable;
use std::slice::Iter;

use prony_loadgen::clock::Nanos;
use prony_loadgen::report::detail::DetailLog;
use prony_loadgen::report::entries::{self, BuildInfo, Preamble};
use prony_loadgen::report::summary::{PhaseResult, summary_text};
use prony_loadgen::report::{messages, results};
use prony_loadgen::scenario::Scenario;
use prony_loadgen::settings::EffectiveSettings;
use prony_loadgen::verdict::{OutcomeCounts, Verdict};

use crate::figures::figures;
use crate::folder::{Folder, Line};

const AT: Nanos = Nanos(1_234_567);

/// Warning of the reference's own logger, which ours has no cause for.
pub(crate) fn is_logger_warning(line: &Line) -> bool {
    line.key == "warning_generic_message" && line.text().starts_with("Logging allocation detected")
}

/// Our detail log and summary of the run.
pub(crate) struct Replayed {
    pub(crate) detail: DetailLog,
    pub(crate) summary: String,
    /// SingleStream or MultiStream.
    pub(crate) is_stream: bool,
}

pub(crate) fn replay(folder: &Folder) -> Replayed {
    let mut run = Replay {
        folder,
        log: DetailLog::new(1, 1),
        effective: EffectiveSettings::derive(
            &folder.settings(),
            folder.qsl("total"),
            folder.qsl("perf"),
        ),
        results: None,
    };
    let mut lines = folder.lines.iter().peekable();
    while let Some(line) = lines.next() {
        run.line(line, &mut lines);
    }
    let (n_warnings, n_errors) = (run.log.n_warnings(), run.log.n_errors());
    let results = run.results.unwrap_or_default();
    Replayed {
        summary: results + &summary_text(None, n_warnings, n_errors),
        is_stream: matches!(
            run.effective.0.scenario,
            Scenario::SingleStream | Scenario::MultiStream
        ),
        detail: run.log,
    }
}

struct Replay<'a> {
    folder: &'a Folder,
    log: DetailLog,
    effective: (
        EffectiveSettings,
        Vec<prony_loadgen::settings::SettingsNote>,
    ),
    results: Option<String>,
}

impl Replay<'_> {
    /// Writes what our runtime would write at this point, and passes over the lines it covers.
    fn line(&mut self, line: &Line, rest: &mut Peekable<Iter<'_, Line>>) {
        let before = self.log.lines().count();
        match line.key.as_str() {
            "loadgen_version" => self.preamble(),
            "requested_scenario" => {
                entries::requested(&mut self.log, AT, &self.effective.0.requested);
            }
            "effective_scenario" => entries::effective(&mut self.log, AT, &self.effective.0),
            "loaded_qsl_set" => {
                let samples = line.json["value"].as_array().expect("a list").iter();
                let samples = samples
                    .map(|v| v.as_u64().expect("an index") as u32)
                    .collect();
                entries::loaded_set(&mut self.log, AT, samples);
            }
            "generated_query_count" => {
                let per_query = rest.next().expect("samples per query").count();
                let duration = rest.next().expect("duration").json["value"].as_i64();
                let duration = Nanos(duration.expect("ns"));
                entries::generated(&mut self.log, AT, line.count(), per_query, duration);
                return;
            }
            "logger_swap_request_slots_retry_count" => self.phase_end(rest),
            "result_validity" => self.results(),
            "warning_generic_message" if is_logger_warning(line) => return,
            "warning_generic_message" => self.log.warning(AT, our_wording(line.text())),
            "generic_message" => self.log.message(AT, our_wording(line.text())),
            "error_invalid_test_settings" => self.settings_note(line),
            "error_runtime" => self
                .log
                .error(AT, "error_runtime", our_wording(line.text())),
            "error_invalid_config" => {
                self.log
                    .error(AT, "error_invalid_config", our_wording(line.text()));
            }
            other => panic!("{}: {other} is out of order", self.folder.name),
        }
        for _ in before + 1..self.log.lines().count() {
            rest.next();
        }
    }

    fn preamble(&mut self) {
        let folder = self.folder;
        let text = |key: &str| folder.line(key).expect("a line").text().to_owned();
        let count = |key: &str| folder.line(key).expect("a line").count();
        let sha1 = folder.line("loadgen_file_sha1").expect("a line");
        let pairs = sha1.json["value"].as_object().expect("a map").iter();
        let build = BuildInfo {
            version: text("loadgen_version"),
            build_date_local: text("loadgen_build_date_local"),
            build_date_utc: text("loadgen_build_date_utc"),
            git_commit_date: text("loadgen_git_commit_date"),
            git_log_message: text("loadgen_git_log_message"),
            git_status_message: text("loadgen_git_status_message"),
            file_sha1: pairs
                .map(|(k, v)| (k.clone(), v.as_str().expect("hash").to_owned()))
                .collect(),
        };
        let preamble = Preamble {
            build: &build,
            started_unix_ns: unix_ns(&text("test_datetime").replace('T', " ").replace('Z', ".000")),
            sut_name: &text("sut_name"),
            get_sut_name_duration_ns: count("get_sut_name_duration_ns") as i64,
            qsl_name: &text("qsl_name"),
            qsl_total_count: folder.qsl("total"),
            qsl_performance_count: folder.qsl("perf"),
        };
        entries::preamble(&mut self.log, AT, &preamble);
    }

    /// `line` and the five counters after it are zeros; then come begin and end.
    fn phase_end(&mut self, rest: &Peekable<Iter<'_, Line>>) {
        let following: Vec<&Line> = rest.clone().take(7).collect();
        let begin = unix_ns(&month_first(following[5].text()));
        let end = unix_ns(&month_first(following[6].text()));
        entries::phase_end(&mut self.log, AT, begin, Nanos(end - begin));
    }

    fn settings_note(&mut self, line: &Line) {
        let note = self.effective.1.remove(0);
        assert_eq!(note.text, line.text(), "{}", self.folder.name);
        self.log.error(AT, note.key, our_wording(&note.text));
    }

    fn results(&mut self) {
        let mut eff = self.effective.0.clone();
        // FindPeakPerformance reports the settings of its best trial; the summary names them.
        let target = self
            .folder
            .summary
            .lines()
            .find_map(|line| line.strip_prefix("target_qps : "));
        eff.target_qps = target.expect("a rate").parse().expect("a number");
        let (metrics, data) = figures(self.folder, &eff);
        let counts = OutcomeCounts {
            n_errors: self.log.n_errors(),
            ..OutcomeCounts::default()
        };
        let verdict = Verdict::judge(&metrics, &data, &eff, counts);
        let result = PhaseResult {
            sut_name: self.folder.line("sut_name").expect("a name").text(),
            eff: &eff,
            metrics: &metrics,
            verdict: &verdict,
            queries_issued: data.queries_issued,
        };
        results::results(&mut self.log, AT, &result);
        self.results = Some(prony_loadgen::report::summary::results_text(&result));
    }
}

/// `MM-DD-YYYY HH…` as `YYYY-MM-DD HH…`.
fn month_first(text: &str) -> String {
    format!("{}-{}{}", &text[6..10], &text[..5], &text[10..])
}

/// Nanoseconds since 1970 of `YYYY-MM-DD HH:MM:SS.mmm`, counted day by day.
fn unix_ns(text: &str) -> i64 {
    let numbers: Vec<i64> = text
        .split(|c: char| !c.is_ascii_digit())
        .map(|digits| digits.parse().expect("a number"))
        .collect();
    let leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let february = if leap(numbers[0]) { 29 } else { 28 };
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let days_before: i64 = (1970..numbers[0])
        .map(|year| 365 + i64::from(leap(year)))
        .sum();
    let days_in_year: i64 = months[..numbers[1] as usize - 1].iter().sum();
    let days = days_before + days_in_year + numbers[2] - 1;
    let seconds = ((days * 24 + numbers[3]) * 60 + numbers[4]) * 60 + numbers[5];
    seconds * 1_000_000_000 + numbers[6] * 1_000_000
}

/// The message of ours that says the same, built from the numbers in the text alone.
fn our_wording(text: &str) -> String {
    let is_part = |c: char| c.is_ascii_digit() || c == '.' || c == '-';
    let numbers: Vec<f64> = text
        .split(|c: char| !is_part(c))
        .filter_map(|number| number.trim_end_matches('.').parse().ok())
        .collect();
    let n = |i: usize| numbers.get(i).copied().unwrap_or(0.0);
    let (first, second) = (n(0) as u64, n(1) as u64);
    let reason = text.rsplit("msg: ").next().unwrap_or_default();
    let ours = [
        messages::STARTING_PERFORMANCE.to_owned(),
        messages::STARTING_ACCURACY.to_owned(),
        messages::STARTING_FIND_PEAK.to_owned(),
        messages::ENDING_NATURALLY.to_owned(),
        messages::RAN_OUT.to_owned(),
        messages::AUDIT_CONFIG_FOUND.to_owned(),
        messages::TEST05.to_owned(),
        messages::N_TOKENS_ZERO.to_owned(),
        messages::N_TOKENS_ONE.to_owned(),
        messages::N_TOKENS_NEGATIVE.to_owned(),
        messages::FIND_PEAK_SERVER_ONLY.to_owned(),
        messages::SAME_AND_UNIQUE.to_owned(),
        messages::issue_threads_mismatch(first, second),
        messages::max_duration_reached(first as usize, second as i64),
        messages::max_query_count_reached(first as usize, second),
        messages::too_many_outstanding(first as usize, second, n(2) as u64),
        messages::invalid_rate("server_target_qps", n(0), n(1)),
        messages::same_index_too_large(first, second),
        messages::find_peak_base(n(0)),
        messages::find_peak_widening(n(0), n(1)),
        messages::find_peak_bounds(n(0), n(1)),
        messages::find_peak_bisecting(n(0), n(1), n(2)),
        messages::find_peak_found(n(0)),
        messages::find_peak_base_fails(reason),
    ];
    let found = ours.iter().find(|message| message.as_str() == text);
    found
        .unwrap_or_else(|| panic!("no message of ours reads {text:?}"))
        .clone()
}
