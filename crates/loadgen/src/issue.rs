//! The issuing thread: wait as the scenario says, stamp, issue, look at the stop rules.
//!
//! One short function per scenario. Between "due" and "issued" there is no allocation, no lock,
//! no formatting and no log line. What to issue was planned before; what comes back goes to the
//! recorder without passing here.

mod rules;

mod queries;

mod spin;

use std::sync::Arc;

use crate::clock::{Bell, Clock, FineTimers, Nanos, TimeSource, Wait, WaitPolicy, Wake};
use crate::progress::{Cancel, Counters};
use crate::recorder::Recorder;
use crate::sample::QuerySample;
use crate::scenario::Scenario;
use crate::schedule::ThreadShare;
use crate::sut::{Responder, SystemUnderTest};

pub use rules::EndReason;

pub(crate) use queries::Queries;
pub(crate) use rules::StopRules;

use rules::Standing;
use spin::Spin;

/// What the issuing functions share.
pub(crate) struct Issuer<'a> {
    pub(crate) scenario: Scenario,
    pub(crate) queries: &'a Queries,
    pub(crate) coalesce: bool,
    pub(crate) rules: StopRules,
    pub(crate) wait: WaitPolicy,
    pub(crate) recorder: &'a Arc<Recorder>,
    pub(crate) responder: &'a Responder,
    pub(crate) sut: &'a dyn SystemUnderTest,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) time: TimeSource,
    pub(crate) cancel: &'a Cancel,
}

/// How issuing went: each thread's end, and the moment all times are relative to.
pub(crate) struct Issued {
    pub(crate) start: Nanos,
    /// One per issuing thread, in thread order.
    pub(crate) ends: Vec<EndReason>,
}

impl Issuer<'_> {
    /// Issues the phase's queries on `threads` threads (Server only, else one), flushes, and waits
    /// for the answers. The last end is the one of the waiting, if that was cut short.
    pub(crate) fn run(&self, threads: usize) -> Issued {
        let _timers = FineTimers::on_this_thread();
        let mut ends = Vec::with_capacity(threads + 2);
        let start = match self.scenario {
            Scenario::SingleStream | Scenario::MultiStream => self.one_after_the_other(&mut ends),
            Scenario::Server => self.on_schedule(threads.max(1), &mut ends),
            Scenario::Offline => self.all_at_once(&mut ends),
        };
        self.sut.flush();
        if !ends.iter().any(|end| end.abandons_answers())
            && let Err(end) = self.wait_for_answers(self.counters().issued(), start)
        {
            ends.push(end);
        }
        Issued { start, ends }
    }

    /// SingleStream and MultiStream: the next query when the last one is wholly answered.
    fn one_after_the_other(&self, ends: &mut Vec<EndReason>) -> Nanos {
        let spq = self.queries.samples_per_query();
        let mut batch = Vec::with_capacity(spq);
        let start = self.time.now();
        for query in 0..self.queries.len() {
            if let Err(end) = self.wait_for_answers((query * spq) as u64, start) {
                ends.push(end);
                return start;
            }
            let now = self.time.now();
            batch.clear();
            self.issue(query, now, &mut batch);
            self.hand_over(&batch);
            if let Some(end) = self.stop(query as u64 + 1, &self.rules, now - start) {
                ends.push(end);
                return start;
            }
        }
        ends.push(self.exhausted());
        start
    }

    /// Server: each query when it is due, whatever became of the others.
    fn on_schedule(&self, threads: usize, ends: &mut Vec<EndReason>) -> Nanos {
        let mut lanes: Vec<Lane> = (0..threads).map(|k| self.lane(k, threads)).collect();
        if threads > 1 && !self.clock.single_threaded() {
            return self.run_threads(lanes, ends);
        }
        let start = self.time.now();
        if let [lane] = lanes.as_mut_slice() {
            ends.push(self.run_lane(lane, start, self.recorder.bell()));
        } else {
            self.interleave(&mut lanes, start, ends);
        }
        start
    }

    /// Offline: one query with everything, at once.
    fn all_at_once(&self, ends: &mut Vec<EndReason>) -> Nanos {
        let mut batch = Vec::with_capacity(self.queries.samples_per_query());
        // The stamp is not known yet; marking and building now keeps both out of the measured time.
        self.issue(0, Nanos::ZERO, &mut batch);
        let start = self.time.now();
        self.recorder.issued_at(0, start);
        self.hand_over(&batch);
        let end = self.stop(1, &self.rules, Nanos::ZERO);
        ends.push(end.unwrap_or_else(|| self.exhausted()));
        start
    }

    /// One thread a lane; the start is set a little ahead, so that all of them are up by then.
    fn run_threads(&self, lanes: Vec<Lane>, ends: &mut Vec<EndReason>) -> Nanos {
        let start = self.time.now() + THREAD_START;
        std::thread::scope(|scope| {
            let issue = |mut lane: Lane| {
                let _timers = FineTimers::on_this_thread();
                let bell = Arc::new(Bell::for_this_thread());
                let _rings = self.cancel.rings(&bell);
                self.run_lane(&mut lane, start, &bell)
            };
            let threads: Vec<_> = lanes
                .into_iter()
                .map(|lane| scope.spawn(move || issue(lane)))
                .collect();
            ends.extend(threads.into_iter().map(|thread| match thread.join() {
                Ok(end) => end,
                Err(panic) => std::panic::resume_unwind(panic),
            }));
        });
        start
    }

    /// The threads' work on one thread, in the order of the schedule: what virtual time needs.
    fn interleave(&self, lanes: &mut [Lane], start: Nanos, ends: &mut Vec<EndReason>) {
        let mut ended = vec![None; lanes.len()];
        loop {
            let open = lanes.iter_mut().filter(|lane| ended[lane.number].is_none());
            let Some(lane) = open.min_by_key(|lane| lane.next) else {
                ends.extend(ended.into_iter().flatten());
                return;
            };
            ended[lane.number] = self.step(lane, start, self.recorder.bell());
        }
    }

    fn run_lane(&self, lane: &mut Lane, start: Nanos, bell: &Bell) -> EndReason {
        loop {
            if let Some(end) = self.step(lane, start, bell) {
                return end;
            }
        }
    }

    /// Issues the lane's next query, and with coalescing all that are due with it.
    #[inline]
    fn step(&self, lane: &mut Lane, start: Nanos, bell: &Bell) -> Option<EndReason> {
        let n = self.queries.len();
        if lane.next >= n {
            return Some(self.exhausted());
        }
        let due = start + self.queries.due(lane.next);
        let now = match self.wait_until(due, start, bell, lane.spin.stretch()) {
            Ok(now) => now,
            Err(end) => return Some(end),
        };
        lane.spin.issued(now - due);
        lane.batch.clear();
        loop {
            self.issue(lane.next, now, &mut lane.batch);
            lane.next += lane.stride;
            lane.issued += 1;
            let joins = self.coalesce
                && lane.next < n
                && lane.batch.len() < lane.batch.capacity()
                && start + self.queries.due(lane.next) <= now;
            if !joins {
                break;
            }
        }
        self.hand_over(&lane.batch);
        self.stop(lane.issued, &lane.rules, now - start)
    }

    /// Marks query `query` as issued at `now` and adds its samples to `batch`.
    #[inline]
    fn issue(&self, query: usize, now: Nanos, batch: &mut Vec<QuerySample>) {
        self.recorder.issue(query, now);
        let mut slot = query * self.queries.samples_per_query();
        self.queries.for_each_sample(query, |index| {
            let id = self.recorder.id(slot);
            batch.push(QuerySample { id, index });
            slot += 1;
        });
    }

    #[inline]
    fn hand_over(&self, batch: &[QuerySample]) {
        self.counters().add_issued(batch.len() as u64);
        self.sut.issue(batch, self.responder);
    }

    /// Thread `thread`'s share of the queries and of the counts in the rules.
    fn lane(&self, thread: usize, n_threads: usize) -> Lane {
        let share = ThreadShare { thread, n_threads };
        let rules = self.rules.of_thread(share);
        // A share of 0 would read as "no limit".
        let nothing_left = self.rules.max_query_count != 0 && rules.max_query_count == 0;
        Lane {
            number: thread,
            next: if nothing_left {
                self.queries.len()
            } else {
                thread
            },
            stride: n_threads,
            issued: 0,
            rules,
            spin: Spin::new(self.wait.spin),
            batch: Vec::with_capacity(if self.coalesce { MAX_COALESCED } else { 1 }),
        }
    }

    #[inline]
    fn stop(&self, issued: u64, rules: &StopRules, duration: Nanos) -> Option<EndReason> {
        // One sample a query in Server, the only scenario that looks at it.
        let outstanding = match rules.max_async_queries {
            0 => 0,
            _ => self
                .counters()
                .issued()
                .saturating_sub(self.counters().answered()),
        };
        let standing = Standing {
            issued,
            outstanding,
            duration,
        };
        rules.stop(self.scenario, standing)
    }

    fn exhausted(&self) -> EndReason {
        self.rules.exhausted(self.scenario)
    }

    /// Waits until `due` and returns the time then; overdue queries do not wait.
    #[inline]
    fn wait_until(
        &self,
        due: Nanos,
        start: Nanos,
        bell: &Bell,
        spin: Nanos,
    ) -> Result<Nanos, EndReason> {
        if self.cancel.is_canceled() {
            return Err(EndReason::Canceled);
        }
        let now = self.time.now();
        if self
            .rules
            .time_limit
            .is_some_and(|limit| now > start + limit)
        {
            return Err(EndReason::TimeLimit);
        }
        if now >= due {
            return Ok(now);
        }
        let wait = Wait {
            until: Some(due),
            spin,
            spin_first: Nanos::ZERO,
            bell,
            ready: &|| self.cancel.is_canceled(),
        };
        match self.clock.wait(&wait) {
            Wake::Ready => Err(EndReason::Canceled),
            Wake::Due | Wake::Stuck => Ok(self.time.now()),
        }
    }

    /// Waits until `wanted` samples are answered, the run is called off, or nothing was heard for
    /// the time-out.
    #[inline]
    fn wait_for_answers(&self, wanted: u64, start: Nanos) -> Result<(), EndReason> {
        if self.cancel.is_canceled() {
            return Err(EndReason::Canceled);
        }
        if self.counters().answered() >= wanted && self.rules.time_limit.is_none() {
            return Ok(());
        }
        self.wait_longer_for_answers(wanted, start)
    }

    fn wait_longer_for_answers(&self, wanted: u64, start: Nanos) -> Result<(), EndReason> {
        let counters = self.counters();
        let limit = self.rules.time_limit.map(|limit| start + limit);
        let mut silence = Silence::from(self.time.now(), counters);
        counters.wake_at(Some(wanted));
        let end = loop {
            let timeout = self.rules.lost_sample_timeout;
            let silent = timeout.map(|timeout| silence.since + timeout);
            let wait = Wait {
                until: [limit, silent].into_iter().flatten().min(),
                spin: Nanos::ZERO,
                spin_first: self.wait.spin_for_answer,
                bell: self.recorder.bell(),
                ready: &|| counters.answered() >= wanted || self.cancel.is_canceled(),
            };
            let wake = self.clock.wait(&wait);
            let now = self.time.now();
            if self.cancel.is_canceled() {
                break Err(EndReason::Canceled);
            }
            if limit.is_some_and(|limit| now >= limit) {
                break Err(EndReason::TimeLimit);
            }
            match wake {
                Wake::Ready => break Ok(()),
                Wake::Stuck => break Err(EndReason::Lost),
                Wake::Due => {
                    silence.listen(now, counters);
                    if timeout.is_some_and(|timeout| now >= silence.since + timeout) {
                        break Err(EndReason::Lost);
                    }
                }
            }
        };
        counters.wake_at(None);
        end
    }

    #[inline]
    fn counters(&self) -> &Counters {
        self.recorder.counters()
    }
}

/// Since when nothing was heard from the SUT.
struct Silence {
    since: Nanos,
    /// The latest stamp that was looked at.
    stamp: Nanos,
}

impl Silence {
    fn from(now: Nanos, counters: &Counters) -> Self {
        Self {
            since: now,
            stamp: counters.last_activity(),
        }
    }

    /// Stamps are the SUT's word: one that lies ahead counts as heard now, and only once, or the
    /// wait for a lost sample would last until that time comes.
    fn listen(&mut self, now: Nanos, counters: &Counters) {
        let stamp = counters.last_activity();
        if stamp != self.stamp {
            self.stamp = stamp;
            self.since = stamp.min(now).max(self.since);
        }
    }
}

/// One issuing thread's share of a Server schedule: queries k, k+K, k+2K, …
struct Lane {
    number: usize,
    next: usize,
    stride: usize,
    issued: u64,
    rules: StopRules,
    spin: Spin,
    batch: Vec<QuerySample>,
}

/// How far ahead of now several issuing threads start: more than it takes to start them.
const THREAD_START: Nanos = Nanos::from_ms(5);

/// Most queries coalesced into one call; beyond it the rest goes in the next call at once. A
/// bound, so that the buffer is never grown while the run is on.
const MAX_COALESCED: usize = 1 << 16;
