//! A SUT made of arithmetic: answers at computed times, and misbehaves on request.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::clock::{Clock, Nanos};
use crate::incident::FailureKind;
use crate::sample::{QuerySample, SampleId};
use crate::sut::{Responder, SystemUnderTest};
use crate::testing::clock::VirtualClock;

/// How long answers take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// Answered inside `issue`, in no time.
    Immediate,
    /// Every sample takes this long, however many there are.
    Fixed(Nanos),
    /// `servers` samples at a time, each `per_sample`; the others queue.
    Queueing {
        /// How many are served at a time.
        servers: usize,
        /// Service time of one sample.
        per_sample: Nanos,
    },
}

/// What goes wrong with chosen samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Never answered.
    Lose,
    /// Answered twice.
    Double,
    /// Answered this much later than it should be.
    Delay(Nanos),
    /// Reported as failed.
    Fail(FailureKind),
    /// An answer for a sample that does not exist comes as well.
    Unknown,
    /// A second first token comes.
    FirstTokenTwice,
    /// The first token comes after the answer.
    FirstTokenLate,
    /// No first token comes.
    NoFirstToken,
    /// This token count is reported.
    Tokens(i64),
}

/// A deterministic SUT on a [`VirtualClock`].
pub struct SimulatedSut {
    clock: VirtualClock,
    service: Service,
    first_token: Option<Nanos>,
    n_tokens: i64,
    /// By position in issue order, from 0.
    faults: BTreeMap<u64, Fault>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    seen: u64,
    issued: Vec<Vec<QuerySample>>,
    flushed_after: Vec<usize>,
    /// When each server is free again.
    free_at: Vec<Nanos>,
}

impl SimulatedSut {
    /// A SUT that answers every sample well, with the sample's index as 4 little-endian bytes.
    #[must_use]
    pub fn new(clock: &VirtualClock, service: Service) -> Self {
        Self {
            clock: clock.clone(),
            service,
            first_token: None,
            n_tokens: 0,
            faults: BTreeMap::new(),
            state: Mutex::default(),
        }
    }

    /// Reports a first token `after` the start of service and `n_tokens` at the end.
    #[must_use]
    pub fn with_tokens(mut self, after: Nanos, n_tokens: i64) -> Self {
        self.first_token = Some(after);
        self.n_tokens = n_tokens;
        self
    }

    /// Misbehaves on the sample that is issued as number `nth`, from 0.
    #[must_use]
    pub fn with_fault(mut self, nth: u64, fault: Fault) -> Self {
        self.faults.insert(nth, fault);
        self
    }

    /// Every query seen so far, in order.
    #[must_use]
    pub fn issued(&self) -> Vec<Vec<QuerySample>> {
        self.lock().issued.clone()
    }

    /// How many queries it had seen at each flush.
    #[must_use]
    pub fn flushed_after(&self) -> Vec<usize> {
        self.lock().flushed_after.clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When service of the next sample starts and ends.
    fn serve(&self, state: &mut State) -> (Nanos, Nanos) {
        let now = self.clock.now();
        match self.service {
            Service::Immediate => (now, now),
            Service::Fixed(time) => (now, now + time),
            Service::Queueing {
                servers,
                per_sample,
            } => {
                state.free_at.resize(servers.max(1), Nanos::ZERO);
                let server = (0..state.free_at.len()).min_by_key(|s| state.free_at[*s]);
                let server = server.unwrap_or(0);
                let start = state.free_at[server].max(now);
                state.free_at[server] = start + per_sample;
                (start, start + per_sample)
            }
        }
    }

    /// Plans everything that will be heard of one sample.
    fn answer(&self, sample: QuerySample, responder: &Responder, state: &mut State) {
        let fault = self.faults.get(&state.seen).copied();
        state.seen += 1;
        let (start, mut done) = self.serve(state);
        if fault == Some(Fault::Lose) {
            return;
        }
        if let Some(Fault::Delay(delay)) = fault {
            done += delay;
        }
        let n_tokens = match fault {
            Some(Fault::Tokens(n)) => n,
            _ => self.n_tokens,
        };
        self.first_tokens(sample, (start, done), fault, responder);
        let times = 1 + usize::from(fault == Some(Fault::Double));
        for _ in 0..times {
            let answer = move |responder: &Responder| match fault {
                Some(Fault::Fail(kind)) => responder.fail(sample.id, done, kind, "simulated"),
                _ => {
                    let data = sample.index.0.to_le_bytes();
                    responder.complete(sample.id, done, &data, n_tokens);
                }
            };
            self.when(done, responder, answer);
        }
        if fault == Some(Fault::Unknown) {
            let id = SampleId(std::num::NonZeroU64::MAX);
            self.when(done, responder, move |r| {
                r.complete(id, done, &[], n_tokens);
            });
        }
    }

    fn first_tokens(
        &self,
        sample: QuerySample,
        (start, done): (Nanos, Nanos),
        fault: Option<Fault>,
        responder: &Responder,
    ) {
        let Some(after) = self.first_token else {
            return;
        };
        let (times, at) = match fault {
            Some(Fault::NoFirstToken) => (0, done),
            Some(Fault::FirstTokenLate) => (1, done + Nanos(1)),
            Some(Fault::FirstTokenTwice) => (2, start + after),
            _ => (1, start + after),
        };
        for _ in 0..times {
            self.when(at, responder, move |r| r.first_token(sample.id, at, &[]));
        }
    }

    /// Plans a report, or makes it at once if it is due.
    fn when(
        &self,
        at: Nanos,
        responder: &Responder,
        report: impl FnOnce(&Responder) + Send + 'static,
    ) {
        if self.service == Service::Immediate && at <= self.clock.now() {
            return report(responder);
        }
        let responder = responder.clone();
        self.clock.at(at, move || report(&responder));
    }
}

impl SystemUnderTest for SimulatedSut {
    fn name(&self) -> &str {
        "SimulatedSut"
    }

    fn issue(&self, samples: &[QuerySample], responder: &Responder) {
        let mut state = self.lock();
        state.issued.push(samples.to_vec());
        for sample in samples {
            self.answer(*sample, responder, &mut state);
        }
    }

    fn flush(&self) {
        let mut state = self.lock();
        let seen = state.issued.len();
        state.flushed_after.push(seen);
    }
}
