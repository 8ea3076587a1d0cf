//! How likely tokens are under the model itself: before temperature, cuts and penalties.

use super::{NextToken, argmax};
use crate::error::ModelError;
use crate::kernels::sum_exp;

/// One row of logits, ready to tell the probability of any token.
#[derive(Debug, Clone, Copy)]
pub(super) struct Likelihood<'a> {
    logits: &'a [f32],
    /// The most likely token.
    pub(super) best: usize,
    log_sum: f64,
}

impl<'a> Likelihood<'a> {
    /// # Errors
    /// [`ModelError::NoLogits`] where no logit is a number or the largest is infinite, as a model
    /// that overflows gives them: no probability belongs to those.
    pub(super) fn of(logits: &'a [f32]) -> Result<Self, ModelError> {
        let best = argmax(logits).filter(|&best| logits[best].is_finite());
        let best = best.ok_or(ModelError::NoLogits {
            vocab_size: logits.len(),
        })?;
        let log_sum = sum_exp(logits, logits[best]).ln();
        Ok(Self {
            logits,
            best,
            log_sum,
        })
    }

    /// Token `id`, its log-probability, and the `n_top` most likely tokens.
    pub(super) fn token(&self, id: usize, n_top: usize) -> NextToken {
        NextToken {
            id: id as u32,
            logprob: self.logprob(id),
            top: self.top(n_top),
        }
    }

    fn logprob(&self, id: usize) -> f32 {
        let below = f64::from(self.logits[id] - self.logits[self.best]);
        (below - self.log_sum) as f32
    }

    /// The most likely first, the lower id first among equals.
    fn top(&self, n: usize) -> Vec<(u32, f32)> {
        if n == 0 {
            return Vec::new();
        }
        let is_number = |&id: &usize| !self.logits[id].is_nan();
        let mut ids: Vec<usize> = (0..self.logits.len()).filter(is_number).collect();
        let order = |a: &usize, b: &usize| {
            let (left, right) = (self.logits[*a], self.logits[*b]);
            right.total_cmp(&left).then(a.cmp(b))
        };
        if n < ids.len() {
            ids.select_nth_unstable_by(n - 1, order);
            ids.truncate(n);
        }
        ids.sort_unstable_by(order);
        let entry = |id: usize| (id as u32, self.logprob(id));
        ids.into_iter().map(entry).collect()
    }
}
