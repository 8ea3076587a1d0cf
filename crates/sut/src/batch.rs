//! Decides what the next step computes. Pure: state and `now` in, decision out; no model, no clock.
//!
//! Every sequence that is decoding gets its one token first; what is left of the step's token
//! budget goes to prompts, oldest first, in chunks. So a long prompt delays the others by one
//! chunk a step, never by its whole length.
//!
//! Sequences take cache block by block as they grow. A new one starts when its whole prompt fits
//! beside what the running ones are known to need; how long texts get is not known, and when the
//! cache runs out the youngest gives its blocks back and is computed again later. Sequences start
//! strictly in order: the first that does not fit holds the ones behind it, which is what keeps
//! large requests from starving.

use std::time::Instant;

/// Bounds of one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepLimits {
    /// Most sequences at once.
    pub max_rows: usize,
    /// Most tokens in a step; at least `max_rows`.
    pub max_tokens: usize,
}

/// What a step may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Most tokens; at least the number of seats.
    pub max_tokens: usize,
    /// Most prompt tokens beside decoding rows.
    pub max_chunk: usize,
    /// Tokens of cache that nobody owns: whole blocks.
    pub kv_free: usize,
    /// Tokens of a block.
    pub kv_block: usize,
}

impl Room {
    /// Cache that `n` more tokens after `n_fed` take: whole blocks, none where the last one has
    /// room.
    fn growth(&self, n_fed: usize, n: usize) -> usize {
        (n_fed + n).next_multiple_of(self.kv_block) - n_fed.next_multiple_of(self.kv_block)
    }

    /// How many more tokens after `n_fed` go into the rest of the last block and `free` more.
    fn fitting(&self, n_fed: usize, free: usize) -> usize {
        n_fed.next_multiple_of(self.kv_block) - n_fed + free
    }
}

/// A running sequence as the planner sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seat {
    /// Tokens in the cache.
    pub n_fed: usize,
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

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Compute.
    Step(StepPlan),
    /// The cache has run out: this seat gives its blocks back. Then plan again.
    Preempt(usize),
}

/// Whether a sequence that takes `needed` tokens of cache for what is known of it starts beside
/// the seats.
#[must_use]
pub fn may_start(seats: &[Seat], needed: usize, room: Room) -> bool {
    // Alone it always fits: admission has seen to that.
    if seats.is_empty() {
        return true;
    }
    let promised: usize = seats
        .iter()
        .map(|seat| room.growth(seat.n_fed, seat.n_unfed))
        .sum();
    // A block for each to grow into: without, the newcomer would be sent away in the next step.
    let growth = (seats.len() + 1) * room.kv_block;
    needed + promised + growth <= room.kv_free
}

/// Whether a text should wait because a running prompt is about to compute more of its beginning
/// than the `n_known` tokens that are in the cache. `running` gives each prompt's ids and how many
/// of them are in the cache.
pub fn awaits_prefix<'a>(
    ids: &[u32],
    n_known: usize,
    running: impl IntoIterator<Item = (&'a [u32], usize)>,
    kv_block: usize,
) -> bool {
    running.into_iter().any(|(others, n_fed)| {
        let both = ids.len().saturating_sub(1).min(others.len());
        let same = ids[..both].iter().zip(others).take_while(|(a, b)| a == b);
        let shared = same.count() / kv_block * kv_block;
        shared > n_known && n_fed < shared
    })
}

/// Plans one step over the running sequences, which stand in the order of their age.
///
/// # Panics
/// When a single sequence does not fit the whole cache: admission refuses those.
#[must_use]
pub fn plan(seats: &[Seat], room: Room, now: Instant) -> Decision {
    let is_ready = |seat: &Seat| seat.ready_at.is_none_or(|at| at <= now);
    let ready = || seats.iter().enumerate().filter(|(_, seat)| is_ready(seat));
    let mut rows = Vec::with_capacity(seats.len());
    let mut kv_free = room.kv_free;
    // A prompt's last token is a row of one as well; it needs no case of its own.
    for (seat, state) in ready().filter(|(_, seat)| seat.n_unfed == 1) {
        let growth = room.growth(state.n_fed, 1);
        if growth > kv_free {
            return Decision::Preempt(youngest(seats));
        }
        kv_free -= growth;
        rows.push(PlannedRow {
            seat,
            n_tokens: 1,
            draw: true,
        });
    }
    let mut budget = room.max_tokens - rows.len();
    if !rows.is_empty() {
        budget = budget.min(room.max_chunk);
    }
    for (seat, state) in ready().filter(|(_, seat)| seat.n_unfed > 1) {
        // Where the blocks run out, the older prompt has taken the last: the younger ones only fill
        // what they own.
        let fitting = room.fitting(state.n_fed, kv_free);
        let n_tokens = state.n_unfed.min(budget).min(fitting);
        if n_tokens > 0 {
            budget -= n_tokens;
            kv_free -= room.growth(state.n_fed, n_tokens);
            rows.push(PlannedRow {
                seat,
                n_tokens,
                draw: n_tokens == state.n_unfed,
            });
        } else if rows.is_empty() {
            return Decision::Preempt(youngest(seats));
        }
        if budget == 0 {
            break;
        }
    }
    let wake_at = if rows.is_empty() {
        seats.iter().filter_map(|seat| seat.ready_at).min()
    } else {
        None
    };
    Decision::Step(StepPlan { rows, wake_at })
}

/// Whose blocks to take back.
fn youngest(seats: &[Seat]) -> usize {
    let owner = seats.iter().rposition(|seat| seat.n_fed > 0);
    let only_one = seats.iter().filter(|seat| seat.n_fed > 0).count() < 2;
    assert!(!only_one, "a sequence outgrew the whole cache");
    owner.expect("two own blocks")
}

#[cfg(test)]
mod tests;
