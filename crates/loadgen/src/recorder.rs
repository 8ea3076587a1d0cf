//! What happened to every sample: one preallocated slot each, written without locks while the
//! run is on and read when it is over.
//!
//! A structure of arrays. Everything is allocated, and touched so that no page fault is left,
//! before the first query; recording an answer allocates nothing unless its data are to be
//! logged. Formatting, sorting and judging happen elsewhere, after the phase.

mod kept;

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU8, Ordering};

use crate::clock::{Bell, Nanos};
use crate::incident::{FailureKind, Incident, Incidents};
use crate::progress::Counters;
use crate::sample::SampleId;

pub use kept::KeptAnswer;

pub(crate) use kept::Keep;

use kept::KeptAnswers;

/// What became of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SampleStatus {
    /// Answered.
    Completed,
    /// Reported as failed.
    Failed(FailureKind),
    /// No answer within the time-out for lost samples.
    Lost,
    /// The run was called off before it was answered.
    Canceled,
}

/// Life of a slot. A slot only ever moves down this list, except that ISSUED may go to any end.
mod state {
    pub(super) const PLANNED: u8 = 0;
    pub(super) const ISSUED: u8 = 1;
    /// Somebody won the right to write the columns and is doing so.
    pub(super) const CLAIMED: u8 = 2;
    pub(super) const COMPLETED: u8 = 3;
    pub(super) const LOST: u8 = 4;
    pub(super) const CANCELED: u8 = 5;
    /// Plus the kind's number.
    pub(super) const FAILED: u8 = 16;
}

/// A time that was never written.
const UNSET: i64 = i64::MIN;

/// What a recorder is made for.
pub(crate) struct RecorderPlan {
    pub(crate) first_id: NonZeroU64,
    pub(crate) n_queries: usize,
    pub(crate) samples_per_query: usize,
    pub(crate) token_mode: bool,
    pub(crate) keep: Keep,
    pub(crate) start: Nanos,
}

/// The slots of one phase.
#[derive(Debug)]
pub(crate) struct Recorder {
    first_id: u64,
    samples_per_query: usize,
    /// Per query; everything else is per sample.
    issued_ns: Box<[AtomicI64]>,
    sent_ns: Box<[AtomicI64]>,
    done_ns: Box<[AtomicI64]>,
    status: Box<[AtomicU8]>,
    tokens: Option<TokenColumns>,
    keep: Keep,
    kept: KeptAnswers,
    incidents: Arc<Incidents>,
    counters: Arc<Counters>,
    bell: Arc<Bell>,
}

#[derive(Debug)]
struct TokenColumns {
    first_ns: Box<[AtomicI64]>,
    n_tokens: Box<[AtomicI64]>,
}

impl Recorder {
    /// Allocates and touches every slot.
    pub(crate) fn new(plan: RecorderPlan, incidents: Arc<Incidents>, bell: Arc<Bell>) -> Self {
        let slots = plan.n_queries * plan.samples_per_query;
        let times = |n: usize| -> Box<[AtomicI64]> {
            // Not zero, so that the pages are written now and not on the timed path.
            (0..n).map(|_| AtomicI64::new(UNSET)).collect()
        };
        Self {
            first_id: plan.first_id.get(),
            samples_per_query: plan.samples_per_query,
            issued_ns: times(plan.n_queries),
            sent_ns: times(slots),
            done_ns: times(slots),
            status: (0..slots).map(|_| AtomicU8::new(state::PLANNED)).collect(),
            tokens: plan.token_mode.then(|| TokenColumns {
                first_ns: times(slots),
                n_tokens: times(slots),
            }),
            kept: KeptAnswers::with_room_for(plan.keep.count(slots)),
            keep: plan.keep,
            incidents,
            counters: Arc::new(Counters::new(plan.start)),
            bell,
        }
    }

    /// Number of slots.
    pub(crate) fn slots(&self) -> usize {
        self.status.len()
    }

    pub(crate) fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    pub(crate) fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    /// The id of a slot.
    #[inline]
    pub(crate) fn id(&self, slot: usize) -> SampleId {
        let id = self.first_id + slot as u64;
        SampleId(NonZeroU64::new(id).expect("ids count up from a number above 0"))
    }

    /// Marks query `query` as handed out at `at`. Only its issuing thread calls this.
    ///
    /// Relaxed throughout: the SUT learns of the samples from the same thread afterwards, and
    /// whoever it passes an id to has synchronised with it.
    #[inline]
    pub(crate) fn issue(&self, query: usize, at: Nanos) {
        self.issued_ns[query].store(at.0, Ordering::Relaxed);
        let first = query * self.samples_per_query;
        for status in &self.status[first..first + self.samples_per_query] {
            status.store(state::ISSUED, Ordering::Relaxed);
        }
    }

    /// Overwrites the issue time of a query; for Offline, whose marking precedes the start.
    pub(crate) fn issued_at(&self, query: usize, at: Nanos) {
        self.issued_ns[query].store(at.0, Ordering::Relaxed);
    }

    /// Stamps the sending of a sample's request.
    #[inline]
    pub(crate) fn sent(&self, id: SampleId, at: Nanos) {
        if let Some(slot) = self.slot(id, at) {
            self.sent_ns[slot].store(at.0, Ordering::Relaxed);
        }
    }

    /// Records the first token of a sample.
    pub(crate) fn first_token(&self, id: SampleId, at: Nanos, data: &[u8]) {
        let (Some(slot), Some(tokens)) = (self.slot(id, at), &self.tokens) else {
            return;
        };
        match self.status[slot].load(Ordering::Relaxed) {
            state::ISSUED => {}
            state::PLANNED => return self.incidents.note(Incident::UnknownSample, id, at),
            state::LOST => return self.incidents.note(Incident::LateSample, id, at),
            // The run was called off: what still comes is no fault of the SUT.
            state::CANCELED => return,
            _ => return self.incidents.note(Incident::FirstTokenAfterDone, id, at),
        }
        // Relaxed: the exchange only decides who is first; the value is released with the answer.
        let first = tokens.first_ns[slot].compare_exchange(
            UNSET,
            at.0,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        if first.is_err() {
            return self.incidents.note(Incident::FirstTokenTwice, id, at);
        }
        if self.keep.wants(slot) {
            self.kept.first_token(slot, data);
        }
        let issued_ns = self.issued_ns[slot / self.samples_per_query].load(Ordering::Relaxed);
        self.counters.first_token(at, at - Nanos(issued_ns));
    }

    /// Records a good answer.
    #[inline]
    pub(crate) fn complete(&self, id: SampleId, at: Nanos, data: &[u8], n_tokens: i64) {
        let Some(slot) = self.claim(id, at) else {
            return;
        };
        if self.keep.wants(slot) {
            self.kept.answer(slot, data, n_tokens);
        }
        self.finish(slot, at, n_tokens, state::COMPLETED);
    }

    /// Records a failure.
    pub(crate) fn fail(&self, id: SampleId, at: Nanos, kind: FailureKind, detail: &str) {
        let Some(slot) = self.claim(id, at) else {
            return;
        };
        self.incidents.failed(id, at, kind, detail);
        self.counters.failed_one();
        self.finish(slot, at, 0, state::FAILED + kind as u8);
    }

    /// Wins the right to end a slot, or notes why it cannot be ended.
    #[inline]
    fn claim(&self, id: SampleId, at: Nanos) -> Option<usize> {
        let slot = self.slot(id, at)?;
        // Relaxed: exclusion is all that is needed here; the columns are released by `finish`.
        let claim = self.status[slot].compare_exchange(
            state::ISSUED,
            state::CLAIMED,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        let Err(found) = claim else {
            return Some(slot);
        };
        let incident = match found {
            state::PLANNED => Incident::UnknownSample,
            state::LOST => Incident::LateSample,
            // As in `first_token`.
            state::CANCELED => return None,
            _ => Incident::CompletedTwice,
        };
        self.incidents.note(incident, id, at);
        None
    }

    #[inline]
    fn finish(&self, slot: usize, at: Nanos, n_tokens: i64, end: u8) {
        self.done_ns[slot].store(at.0, Ordering::Relaxed);
        if let Some(tokens) = &self.tokens {
            tokens.n_tokens[slot].store(n_tokens, Ordering::Relaxed);
        }
        // Release: whoever reads the end (the closing pass) also sees the columns above.
        self.status[slot].store(end, Ordering::Release);
        if self.counters.answered_one(at, n_tokens) {
            self.bell.ring();
        }
    }

    #[inline]
    fn slot(&self, id: SampleId, at: Nanos) -> Option<usize> {
        let Some(slot) = id.0.get().checked_sub(self.first_id) else {
            self.incidents.note(Incident::OldSample, id, at);
            return None;
        };
        if slot >= self.status.len() as u64 {
            self.incidents.note(Incident::UnknownSample, id, at);
            return None;
        }
        Some(slot as usize)
    }

    /// Ends every slot still open, as lost or canceled; returns them in order.
    pub(crate) fn close(&self, at: Nanos, canceled: bool) -> Vec<usize> {
        let end = if canceled {
            state::CANCELED
        } else {
            state::LOST
        };
        let close = |slot: &usize| -> bool {
            let status = &self.status[*slot];
            // Acquire on failure: pairs with `finish`.
            match status.compare_exchange(state::ISSUED, end, Ordering::Relaxed, Ordering::Acquire)
            {
                Ok(_) => {
                    self.done_ns[*slot].store(at.0, Ordering::Relaxed);
                    true
                }
                Err(_) => {
                    // Another thread is between its claim and its release: two stores away.
                    while status.load(Ordering::Acquire) == state::CLAIMED {
                        std::hint::spin_loop();
                    }
                    false
                }
            }
        };
        (0..self.status.len()).filter(close).collect()
    }

    /// One more than the number of the last query that was issued.
    pub(crate) fn issued_queries(&self) -> usize {
        let issued = |at: &AtomicI64| at.load(Ordering::Relaxed) != UNSET;
        self.issued_ns.iter().rposition(issued).map_or(0, |q| q + 1)
    }

    /// The columns of the first `n_queries` queries, relative to `start`.
    pub(crate) fn read(&self, n_queries: usize, start: Nanos) -> Recorded {
        let slots = n_queries * self.samples_per_query;
        let times = |column: &[AtomicI64], n: usize| -> Vec<i64> {
            let relative = |at: &AtomicI64| match at.load(Ordering::Relaxed) {
                UNSET => NEVER,
                at => at - start.0,
            };
            column[..n].iter().map(relative).collect()
        };
        let plain = |column: &[AtomicI64]| -> Vec<i64> {
            let read = |n: &AtomicI64| match n.load(Ordering::Relaxed) {
                UNSET => 0,
                n => n,
            };
            column[..slots].iter().map(read).collect()
        };
        let tokens = self.tokens.as_ref();
        Recorded {
            issued_ns: times(&self.issued_ns, n_queries),
            sent_ns: times(&self.sent_ns, slots),
            done_ns: times(&self.done_ns, slots),
            first_token_ns: tokens.map_or_else(Vec::new, |t| times(&t.first_ns, slots)),
            n_tokens: tokens.map_or_else(Vec::new, |t| plain(&t.n_tokens)),
            status: self.status[..slots].iter().map(read_status).collect(),
        }
    }

    /// Takes the kept answers, in order of completion.
    pub(crate) fn take_kept(&self) -> Vec<KeptAnswer> {
        self.kept.take()
    }
}

/// A time that was never stamped, in the columns of an outcome.
pub const NEVER: i64 = i64::MIN;

/// Plain copies of the columns; times in ns from the start of the phase.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Recorded {
    pub(crate) issued_ns: Vec<i64>,
    pub(crate) sent_ns: Vec<i64>,
    pub(crate) done_ns: Vec<i64>,
    pub(crate) first_token_ns: Vec<i64>,
    pub(crate) n_tokens: Vec<i64>,
    pub(crate) status: Vec<SampleStatus>,
}

fn read_status(status: &AtomicU8) -> SampleStatus {
    match status.load(Ordering::Acquire) {
        state::COMPLETED => SampleStatus::Completed,
        state::CANCELED => SampleStatus::Canceled,
        code if code >= state::FAILED => {
            let kind = FailureKind::ALL[usize::from(code - state::FAILED)];
            SampleStatus::Failed(kind)
        }
        _ => SampleStatus::Lost,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Bell;

    /// Ten samples of which all but the first are given up, and answered after that.
    fn late_answers(canceled: bool) -> u64 {
        let incidents = Arc::<Incidents>::default();
        let plan = RecorderPlan {
            first_id: NonZeroU64::MIN,
            n_queries: 10,
            samples_per_query: 1,
            token_mode: true,
            keep: Keep::Nothing,
            start: Nanos::ZERO,
        };
        let bell = Arc::new(Bell::for_this_thread());
        let recorder = Recorder::new(plan, Arc::clone(&incidents), bell);
        (0..10).for_each(|query| recorder.issue(query, Nanos(1)));
        recorder.complete(recorder.id(0), Nanos(2), &[], 2);
        assert_eq!(recorder.close(Nanos(3), canceled).len(), 9);
        for slot in 1..10 {
            recorder.first_token(recorder.id(slot), Nanos(4), &[]);
            recorder.complete(recorder.id(slot), Nanos(5), &[], 2);
        }
        incidents.take().incidents[Incident::LateSample as usize]
    }

    /// A canceled run logged as many errors as its client was quick to give up its requests.
    #[test]
    fn answers_after_cancelling_are_no_errors() {
        assert_eq!(late_answers(true), 0);
        assert_eq!(late_answers(false), 18);
    }
}
