//! Answers kept for the accuracy log: which, and their bytes.
//!
//! The only part of recording that locks and allocates, and only for answers that are logged.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::sample::SampleIndex;

/// Which answers are kept for the accuracy log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Keep {
    /// None: a performance run without log sampling.
    Nothing,
    /// All: an accuracy run.
    Everything,
    /// Those whose bit is set, one bit a slot.
    Chosen(Vec<u64>),
}

impl Keep {
    #[inline]
    pub(super) fn wants(&self, slot: usize) -> bool {
        match self {
            Self::Nothing => false,
            Self::Everything => true,
            Self::Chosen(bits) => bits[slot / 64] >> (slot % 64) & 1 == 1,
        }
    }

    pub(super) fn count(&self, slots: usize) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Everything => slots,
            Self::Chosen(bits) => bits.iter().map(|word| word.count_ones() as usize).sum(),
        }
    }
}

/// An answer kept for the accuracy log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptAnswer {
    /// Which sample of the phase, in issue-plan order.
    pub slot: usize,
    /// Which item of the data set it asked for.
    pub index: SampleIndex,
    /// The answer's bytes.
    pub data: Box<[u8]>,
    /// The first token's bytes, if it was reported.
    pub token_data: Box<[u8]>,
    /// Output tokens, as reported.
    pub n_tokens: i64,
}

/// The kept answers of a phase, in order of completion.
#[derive(Debug)]
pub(super) struct KeptAnswers {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    answers: Vec<KeptAnswer>,
    /// Of samples not answered yet.
    first_tokens: BTreeMap<usize, Box<[u8]>>,
}

impl KeptAnswers {
    pub(super) fn with_room_for(n: usize) -> Self {
        Self {
            inner: Mutex::new(Inner {
                answers: Vec::with_capacity(n),
                first_tokens: BTreeMap::new(),
            }),
        }
    }

    #[cold]
    pub(super) fn first_token(&self, slot: usize, data: &[u8]) {
        let data = data.into();
        self.lock().first_tokens.insert(slot, data);
    }

    #[cold]
    pub(super) fn answer(&self, slot: usize, data: &[u8], n_tokens: i64) {
        let data = data.into();
        let mut inner = self.lock();
        let token_data = inner.first_tokens.remove(&slot).unwrap_or_default();
        inner.answers.push(KeptAnswer {
            slot,
            // Filled in after the phase, from the plan.
            index: SampleIndex(0),
            data,
            token_data,
            n_tokens,
        });
    }

    pub(super) fn take(&self) -> Vec<KeptAnswer> {
        std::mem::take(&mut self.lock().answers)
    }

    /// Answers are pushed whole, so a panic elsewhere leaves nothing half-written.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
