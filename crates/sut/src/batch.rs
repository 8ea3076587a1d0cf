//! Decides what the next step computes. Pure: state and `now` in, plan out; no model, no clock.
//!
//! Every sequence that is decoding gets its one token first; what is left of the step's token
//! budget goes to prompts, oldest first, in chunks. So a long prompt delays the others by one
//! chunk a step, never by its whole length. Sequences start strictly in order of arrival: the
//! first that does not fit the cache holds the ones behind it, which is what keeps large requests
//! from starving.

use std::time::Instant;

/// Bounds of one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepLimits {
    /// Most sequences at once.
    pub max_rows: usize,
    /// Most tokens in a step; at least `max_rows`.
    pub max_tokens: usize,
}

/// A running sequence as the planner sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seat {
    /// Tokens known but not computed: the rest of the prompt, or the one token drawn last.
    pub n_unfed: usize,
    /// Not before this time (a backend that imitates a slower one sets it).
    pub ready_at: Option<Instant>,
}

/// One row of the next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannedRow {
    /// Index of the seat.
    pub seat: usize,
    /// How many of its unfed tokens.
    pub n_tokens: usize,
    /// Whether those are all, so that the next token can be drawn.
    pub draw: bool,
}

/// What the next step computes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StepPlan {
    /// The rows, in the order of the seats within decoding and prefilling.
    pub rows: Vec<PlannedRow>,
    /// When a seat that had to wait becomes ready, if there is no row to compute now.
    pub wake_at: Option<Instant>,
}

/// How many of the waiting sequences (given by the cache each needs, oldest first) start now.
#[must_use]
pub fn n_starts(
    n_running: usize,
    kv_free: usize,
    waiting: impl IntoIterator<Item = usize>,
    limits: StepLimits,
) -> usize {
    let mut left = kv_free;
    waiting
        .into_iter()
        .take(limits.max_rows.saturating_sub(n_running))
        .take_while(|&needed| {
            let fits = needed <= left;
            if fits {
                left -= needed;
            }
            fits
        })
        .count()
}

/// Plans one step over the running sequences, which stand in the order they started.
#[must_use]
pub fn plan(seats: &[Seat], limits: StepLimits, now: Instant) -> StepPlan {
    let is_ready = |seat: &Seat| seat.ready_at.is_none_or(|at| at <= now);
    let ready = || seats.iter().enumerate().filter(|(_, seat)| is_ready(seat));
    let mut rows = Vec::with_capacity(seats.len());
    // A prompt's last token is a row of one as well; it needs no case of its own.
    for (seat, _) in ready().filter(|(_, seat)| seat.n_unfed == 1) {
        rows.push(PlannedRow {
            seat,
            n_tokens: 1,
            draw: true,
        });
    }
    rows.truncate(limits.max_tokens);
    let mut budget = limits.max_tokens - rows.len();
    for (seat, state) in ready().filter(|(_, seat)| seat.n_unfed > 1) {
        if budget == 0 {
            break;
        }
        let n_tokens = state.n_unfed.min(budget);
        budget -= n_tokens;
        rows.push(PlannedRow {
            seat,
            n_tokens,
            draw: n_tokens == state.n_unfed,
        });
    }
    let wake_at = if rows.is_empty() {
        seats.iter().filter_map(|seat| seat.ready_at).min()
    } else {
        None
    };
    StepPlan { rows, wake_at }
}

#[cfg(test)]
mod tests;
