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
    flushes: u64,
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

    /// How often it was flushed.
    #[must_use]
    pub fn flushes(&self) -> u64 {
        self.lock().flushes
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When service of the next sample starts and ends.
    fn serve(&self, state: &mut State) -> (Nanos, Nanos) {
        let now = self.clock.now();
        match self.service {
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
        if let Some(after) = self.first_token {
            let at = match fault {
                Some(Fault::NoFirstToken) => None,
                Some(Fault::FirstTokenLate) => Some(done + Nanos(1)),
                _ => Some(start + after),
            };
            let times = 1 + usize::from(fault == Some(Fault::FirstTokenTwice));
            for at in std::iter::repeat_n(at, times).flatten() {
                let responder = responder.clone();
                self.clock
                    .at(at, move || responder.first_token(sample.id, at, &[]));
            }
        }
        let n_tokens = match fault {
            Some(Fault::Tokens(n)) => n,
            _ => self.n_tokens,
        };
        let times = 1 + usize::from(fault == Some(Fault::Double));
        for _ in 0..times {
            let responder = responder.clone();
            self.clock.at(done, move || match fault {
                Some(Fault::Fail(kind)) => responder.fail(sample.id, done, kind, "simulated"),
                _ => {
                    let data = sample.index.0.to_le_bytes();
                    responder.complete(sample.id, done, &data, n_tokens);
                }
            });
        }
        if fault == Some(Fault::Unknown) {
            let responder = responder.clone();
            let id = SampleId(std::num::NonZeroU64::MAX);
            self.clock
                .at(done, move || responder.complete(id, done, &[], n_tokens));
        }
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
        self.lock().flushes += 1;
    }
}
