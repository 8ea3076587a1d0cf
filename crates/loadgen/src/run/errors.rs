//! What went wrong in a phase, as the lines of the detail log.
//!
//! One line an event, in the order they happened, as the reference writes them; the detail log
//! itself drops repetitions but counts them.

use std::borrow::Cow;

use crate::clock::Nanos;
use crate::incident::{FailureKind, Incident};
use crate::issue::EndReason;
use crate::outcome::{LostSample, PhaseOutcome};
use crate::recorder::{NEVER, SampleStatus};
use crate::report::detail::{DetailLog, KEPT_PER_TEXT};
use crate::report::keys::{detail as key, message};
use crate::scenario::Scenario;

/// Lost samples named in the error line; all of them are in the outcome.
const NAMED: usize = 10;

/// An error text, when it was due and how often.
type Event = (i64, Cow<'static, str>, u64);

/// Stands behind every stamped event: repetitions whose times were not kept.
const UNSTAMPED: i64 = i64::MAX;

/// Adds the phase's error lines and why it ended.
pub(super) fn log(detail: &mut DetailLog, at: Nanos, phase: &PhaseOutcome) {
    let mut events = token_faults(phase);
    events.extend(incidents(phase));
    events.extend(failures(phase));
    // Stable: simultaneous events stay in the order given.
    events.sort_by_key(|(at, ..)| *at);
    for (_, text, n) in events {
        detail.errors(at, key::ERROR_RUNTIME, text, n);
    }
    for (thread, end) in phase.ends.iter().enumerate() {
        match end_text(thread, *end) {
            Some(EndText::Message(text)) => detail.message(at, text),
            Some(EndText::Error(text)) => detail.error(at, key::ERROR_RUNTIME, text),
            None => {}
        }
    }
    if !phase.lost.is_empty() {
        detail.error(at, key::ERROR_RUNTIME, lost_text(phase));
    }
}

/// How many of the error lines are about failed samples, which have a verdict rule of their own.
pub(super) fn failure_lines(phase: &PhaseOutcome) -> u64 {
    phase.incidents.failed()
}

/// Token mode's complaints about answers, by the time of the answer; as many of each as the
/// detail log keeps lines of, the rest as a number.
fn token_faults(phase: &PhaseOutcome) -> Vec<Event> {
    let columns = &phase.columns;
    let mut events = Vec::new();
    if !phase.effective.requested.use_token_latencies {
        return events;
    }
    let first_token_needed = phase.effective.scenario != Scenario::Offline;
    let mut counts = [
        (message::NO_FIRST_TOKEN, 0),
        (message::N_TOKENS_ZERO, 0),
        (message::N_TOKENS_ONE, 0),
        (message::N_TOKENS_NEGATIVE, 0),
    ];
    let mut complain = |kind: usize, done_ns: i64| {
        let (text, n) = &mut counts[kind];
        *n += 1;
        if *n <= KEPT_PER_TEXT {
            events.push((done_ns, Cow::Borrowed(*text), 1));
        }
    };
    for sample in 0..columns.status.len() {
        if columns.status[sample] != SampleStatus::Completed {
            continue;
        }
        let done_ns = columns.done_ns[sample];
        if first_token_needed && columns.first_token_ns[sample] == NEVER {
            complain(0, done_ns);
        }
        match columns.n_tokens[sample] {
            0 => complain(1, done_ns),
            1 => complain(2, done_ns),
            n if n < 0 => complain(3, done_ns),
            _ => {}
        }
    }
    for (text, n) in counts {
        let rest: u64 = n;
        events.extend(repeated(text, rest.saturating_sub(KEPT_PER_TEXT)));
    }
    events
}

/// `n` more of the same; nothing if there are none.
fn repeated(text: impl Into<Cow<'static, str>>, n: u64) -> Option<Event> {
    (n > 0).then(|| (UNSTAMPED, text.into(), n))
}

/// Answers that fit no open sample. Those beyond the kept ones come last, without a time.
fn incidents(phase: &PhaseOutcome) -> Vec<Event> {
    let report = &phase.incidents;
    let mut events: Vec<Event> = Vec::new();
    for kind in Incident::ALL {
        let kept = report.first_incidents.iter().filter(|i| i.incident == kind);
        let n_kept = kept.clone().count() as u64;
        events.extend(kept.map(|i| ((i.at - phase.start).0, kind.message().into(), 1)));
        let rest = report.incidents[kind as usize].saturating_sub(n_kept);
        events.extend(repeated(kind.message(), rest));
    }
    events
}

fn failures(phase: &PhaseOutcome) -> Vec<Event> {
    let report = &phase.incidents;
    let mut events: Vec<Event> = Vec::new();
    for kind in FailureKind::ALL {
        let kept = report.first_failures.iter().filter(|f| f.kind == kind);
        let n_kept = kept.clone().count() as u64;
        events.extend(kept.map(|f| {
            let text = format!("Sample failed: {}: {}", kind.name(), f.detail);
            ((f.at - phase.start).0, text.into(), 1)
        }));
        let rest = report.failures[kind as usize].saturating_sub(n_kept);
        events.extend(repeated(format!("Sample failed: {}", kind.name()), rest));
    }
    events
}

enum EndText {
    Message(&'static str),
    Error(String),
}

fn end_text(thread: usize, end: EndReason) -> Option<EndText> {
    Some(match end {
        EndReason::AllIssued => return None,
        EndReason::Natural => EndText::Message(message::ENDING_NATURALLY),
        EndReason::RanOut => EndText::Error(message::RAN_OUT.to_owned()),
        EndReason::TooManyOutstanding {
            issued,
            outstanding,
        } => EndText::Error(message::too_many_outstanding(thread, issued, outstanding)),
        EndReason::MaxQueryCount { issued } => {
            EndText::Error(message::max_query_count_reached(thread, issued))
        }
        EndReason::MaxDuration { duration } => {
            EndText::Error(message::max_duration_reached(thread, duration.0))
        }
        // The reference knows none of these: it has no limit to waiting and no way to cancel.
        EndReason::Canceled => EndText::Error("Ending early: The run was canceled.".to_owned()),
        EndReason::TimeLimit => {
            EndText::Error("Ending early: The phase's time limit passed.".to_owned())
        }
        EndReason::Lost => {
            EndText::Error("Ending early: No answer came within the time-out.".to_owned())
        }
    })
}

/// The reference's text and count, then ours: which samples.
fn lost_text(phase: &PhaseOutcome) -> String {
    let name = |lost: &LostSample| format!("seq_id {} qsl_idx {}", lost.seq, lost.index.0);
    let names: Vec<String> = phase.lost.iter().take(NAMED).map(name).collect();
    let more = match phase.lost.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "Encountered incomplete samples at the end of a series of queries. count: {} ({}{more})",
        phase.lost.len(),
        names.join(", ")
    )
}
