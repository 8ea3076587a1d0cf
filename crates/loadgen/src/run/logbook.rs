//! The detail log of a run as it goes along, and the four files at its end.
//!
//! Only between phases: while one is on, nothing is written. Which lines there are and in which
//! order is the reference's (spec 15.2); their wording is `report`'s.

use crate::clock::{Clock, Nanos};
use crate::error::LoadgenError;
use crate::options::RunOptions;
use crate::outcome::PhaseOutcome;
use crate::report::accuracy::{AccuracyEntry, TokenFields};
use crate::report::detail::DetailLog;
use crate::report::entries::{self, Preamble};
use crate::report::keys::message;
use crate::report::summary::{PhaseResult, summary_text};
use crate::report::trace::{SampleTrace, Span};
use crate::report::{LogFiles, LogPaths, results};
use crate::run::errors;
use crate::sample::{QuerySampleLibrary, SampleIndex};
use crate::scenario::{Mode, Phase, Scenario};
use crate::settings::EffectiveSettings;
use crate::settings::derive::{NoteKind, SettingsNote};
use crate::sut::SystemUnderTest;

/// The log of one run.
pub(super) struct Logbook<'a> {
    pub(super) detail: DetailLog,
    files: Option<LogFiles>,
    own_keys: bool,
    clock: &'a dyn Clock,
    /// Start of the log on the run's clock, and as wall-clock time.
    origin: Nanos,
    origin_unix_ns: i64,
    sut_name: String,
    tid: u32,
}

impl<'a> Logbook<'a> {
    /// Opens the files, if any are wanted, and writes the preamble.
    pub(super) fn open(
        options: &RunOptions,
        qsl: &dyn QuerySampleLibrary,
        sut: &dyn SystemUnderTest,
        clock: &'a dyn Clock,
    ) -> Result<Self, LoadgenError> {
        let (origin, origin_unix_ns) = (clock.now(), clock.unix_ns());
        let files = match &options.log {
            Some(settings) => Some(LogFiles::create(settings, origin_unix_ns)?),
            None => None,
        };
        // Virtual runs carry no number that differs from process to process.
        let (pid, tid) = if clock.single_threaded() {
            (1, 1)
        } else {
            (std::process::id(), crate::clock::thread_number())
        };
        let asked = clock.now();
        let sut_name = sut.name().to_owned();
        let named = clock.now();
        let mut book = Self {
            detail: DetailLog::new(pid, tid),
            files,
            own_keys: options.log.as_ref().is_some_and(|log| log.own_keys),
            clock,
            origin,
            origin_unix_ns,
            sut_name,
            tid,
        };
        let preamble = Preamble {
            build: &options.build,
            started_unix_ns: origin_unix_ns,
            sut_name: &book.sut_name,
            get_sut_name_duration_ns: (named - asked).0,
            qsl_name: qsl.name(),
            qsl_total_count: qsl.total_sample_count() as u64,
            qsl_performance_count: qsl.performance_sample_count() as u64,
        };
        entries::preamble(&mut book.detail, named - origin, &preamble);
        Ok(book)
    }

    /// Now, since the start of the log.
    fn at(&self) -> Nanos {
        self.clock.now() - self.origin
    }

    /// Notes about the settings.
    pub(super) fn notes(&mut self, notes: &[SettingsNote]) {
        let at = self.at();
        for note in notes {
            match note.kind {
                NoteKind::Error => self.detail.error(at, note.key, note.text.as_str()),
                NoteKind::Warning => self.detail.warning(at, note.text.as_str()),
            }
        }
    }

    /// Requested and effective settings.
    pub(super) fn settings(&mut self, effective: &EffectiveSettings) {
        let at = self.at();
        entries::requested(&mut self.detail, at, &effective.requested);
        entries::effective(&mut self.detail, at, effective);
    }

    pub(super) fn message(&mut self, text: impl Into<String>) {
        let at = self.at();
        self.detail.message(at, text);
    }

    pub(super) fn error(&mut self, key: &'static str, text: impl Into<String>) {
        let at = self.at();
        self.detail.error(at, key, text);
    }

    pub(super) fn starting(&mut self, phase: Phase, mode: Mode) {
        self.message(match (phase, mode) {
            (Phase::Accuracy, _) => message::STARTING_ACCURACY,
            (Phase::Performance, Mode::FindPeakPerformance) => message::STARTING_FIND_PEAK,
            (Phase::Performance, _) => message::STARTING_PERFORMANCE,
        });
    }

    pub(super) fn loaded_set(&mut self, set: &[SampleIndex]) {
        let at = self.at();
        let indices = set.iter().map(|index| index.0).collect();
        entries::loaded_set(&mut self.detail, at, indices);
    }

    pub(super) fn generated(&mut self, n_queries: usize, per_query: usize, duration: Nanos) {
        let at = self.at();
        let (n_queries, per_query) = (n_queries as u64, per_query as u64);
        entries::generated(&mut self.detail, at, n_queries, per_query, duration);
    }

    /// Everything a phase logged while it ran, from errors to its power window.
    pub(super) fn phase_end(&mut self, phase: &PhaseOutcome) {
        let at = self.at();
        errors::log(&mut self.detail, at, phase);
        if let Some(text) = self.clock_check(phase) {
            self.detail.warning(at, text);
        }
        let begin_unix_ns = self.origin_unix_ns + (phase.start - self.origin).0;
        let lasted = phase.columns.done_ns.iter().copied().max().unwrap_or(0);
        entries::phase_end(&mut self.detail, at, begin_unix_ns, Nanos(lasted));
    }

    /// Whether the machine's wall clock ran as fast as the clock latencies are taken with.
    ///
    /// The reference makes this comparison between a clock and itself. Ours cannot distort a
    /// latency, so a deviation is a warning: the power window's times are off.
    fn clock_check(&self, phase: &PhaseOutcome) -> Option<String> {
        let monotonic_ns = (self.clock.now() - self.origin).0;
        let wall_ns = self.clock.unix_ns() - self.origin_unix_ns;
        let off = (wall_ns as f64 / monotonic_ns as f64 - 1.0).abs();
        // Below a second the reading of the two clocks itself is the deviation.
        let long_enough = (self.clock.now() - phase.start) >= Nanos::from_secs(1);
        (long_enough && off > 0.001).then(|| {
            format!(
                "wall clock and monotonic clock differ by {:.2} % over the run",
                off * 100.0
            )
        })
    }

    /// The result lines of a performance phase.
    pub(super) fn results(&mut self, phase: &PhaseOutcome) {
        let at = self.at();
        let Some(result) = result_of(phase, &self.sut_name) else {
            return;
        };
        results::results(&mut self.detail, at, &result);
        if self.own_keys {
            results::own_results(&mut self.detail, at, &result);
        }
    }

    /// Streams a phase's answers and trace to their files.
    pub(super) fn records(&mut self, phase: &PhaseOutcome) -> Result<(), LoadgenError> {
        let Some(files) = &mut self.files else {
            return Ok(());
        };
        let offline = phase.effective.scenario == Scenario::Offline;
        let token_mode = phase.effective.requested.use_token_latencies;
        for answer in &phase.kept {
            let entry = AccuracyEntry {
                seq_id: phase.first_sample_seq + answer.slot as u64,
                qsl_idx: answer.index.0,
                data: &answer.data,
                tokens: token_mode.then(|| TokenFields {
                    first: (!offline).then_some(&*answer.token_data),
                    n_tokens: answer.n_tokens,
                }),
            };
            files.answer(&entry)?;
        }
        let (origin, tid) = (self.origin, self.tid);
        files.trace_with(|trace| {
            for span in &phase.spans {
                trace.span(&Span {
                    name: span.name,
                    tid,
                    start: span.start - origin,
                    lasted: span.lasted,
                    args: &[],
                })?;
            }
            samples(phase, phase.start - origin).try_for_each(|sample| trace.sample(&sample))
        })
    }

    /// Writes everything out. The summary shows `reported`, if there is a result to show.
    pub(super) fn finish(
        self,
        reported: Option<&PhaseOutcome>,
    ) -> Result<(String, Option<LogPaths>), LoadgenError> {
        let (n_warnings, n_errors) = (self.detail.n_warnings(), self.detail.n_errors());
        let result = reported.and_then(|phase| result_of(phase, &self.sut_name));
        let summary = summary_text(result.as_ref(), n_warnings, n_errors);
        let paths = match self.files {
            Some(files) => Some(files.finish(&summary, &self.detail, self.origin_unix_ns)?),
            None => None,
        };
        Ok((summary, paths))
    }
}

fn result_of<'a>(phase: &'a PhaseOutcome, sut_name: &'a str) -> Option<PhaseResult<'a>> {
    let judged = phase.judged.as_ref()?;
    Some(PhaseResult {
        sut_name,
        eff: &phase.effective,
        metrics: &judged.metrics,
        verdict: &judged.verdict,
        queries_issued: phase.performance.queries_issued,
    })
}

/// Every sample of a phase for the trace, `offset` after the start of the log.
fn samples(phase: &PhaseOutcome, offset: Nanos) -> impl Iterator<Item = SampleTrace> + '_ {
    let columns = &phase.columns;
    let counters = phase.effective.scenario == Scenario::Server;
    let per_query = columns.samples_per_query;
    (0..columns.index.len()).map(move |sample| {
        let query = sample / per_query;
        let first_token_ns = columns.first_token_ns.get(sample);
        SampleTrace {
            sample_seq: phase.first_sample_seq + sample as u64,
            query_seq: phase.first_query_seq + query as u64,
            sample_idx: columns.index[sample].0,
            scheduled: offset + Nanos(columns.due_ns[query]),
            issued: offset + Nanos(columns.issued_ns[query]),
            first_token: first_token_ns
                .filter(|at| **at != crate::recorder::NEVER)
                .map(|at| offset + Nanos(*at)),
            done: offset + Nanos(columns.done_ns[sample]),
            counters,
        }
    })
}
