//! How many prompt tokens may ride in a step that others decode in: as many as the target time
//! between two tokens leaves room for.
//!
//! A feedback rule, not a model of the machine: a step's time grows with the tokens in it, so
//! scaling the chunk by target / measured walks towards the target whatever the steps cost. Only
//! steps that mix both kinds count; a prompt alone delays nobody and is never cut for this.

use std::time::Duration;

/// Chunks are whole cache blocks, and no chunk is smaller than one: below, a prompt would need so
/// many steps that everybody waits longer for its end.
const LEAST_CHUNK: usize = 16;

/// Before anything was measured. A modest one: the first stream must not pay for a bad guess.
const FIRST_CHUNK: usize = 64;

/// The chunk, adapted from step to step.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    target: Duration,
    max_chunk: usize,
    /// Invariant: from [`LEAST_CHUNK`] to `max_chunk`.
    chunk: usize,
}

impl Pace {
    /// Steps that mix prompts with decoding should take no longer than `target`.
    #[must_use]
    pub fn new(target: Duration, max_chunk: usize) -> Self {
        let max_chunk = max_chunk.max(LEAST_CHUNK);
        Pace {
            target,
            max_chunk,
            chunk: FIRST_CHUNK.min(max_chunk),
        }
    }

    /// Most prompt tokens in the next step that also decodes.
    #[must_use]
    pub fn chunk(&self) -> usize {
        self.chunk
    }

    /// A step that also decoded took this long with `n_prompt` prompt tokens in it.
    pub fn observe(&mut self, n_prompt: usize, took: Duration) {
        // A chunk that was not full says nothing about a larger one.
        if n_prompt == 0 || (took <= self.target && n_prompt < self.chunk) {
            return;
        }
        let fitting = n_prompt as f64 * self.target.as_secs_f64() / took.as_secs_f64().max(1e-9);
        // At most by half or double a step: one disturbed measurement must not undo many good ones.
        let fitting = (fitting as usize).clamp(self.chunk / 2, self.chunk * 2);
        let whole_blocks = fitting / LEAST_CHUNK * LEAST_CHUNK;
        self.chunk = whole_blocks.clamp(LEAST_CHUNK, self.max_chunk);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Duration = Duration::from_millis(100);

    /// The chunk after each of some steps that took `fixed + n x per_token` microseconds.
    fn check(max_chunk: usize, (fixed, per_token): (u64, u64), expected: &[usize]) {
        let mut pace = Pace::new(TARGET, max_chunk);
        let chunks: Vec<usize> = (0..expected.len())
            .map(|_| {
                let took = fixed + per_token * pace.chunk() as u64;
                pace.observe(pace.chunk(), Duration::from_micros(took));
                pace.chunk()
            })
            .collect();
        assert_eq!(chunks, expected, "{fixed} + {per_token} n");
    }

    #[test]
    fn the_chunk_walks_to_the_target_and_stays() {
        // 20 ms + 0.5 ms a token: 160 tokens fill 100 ms.
        check(1024, (20_000, 500), &[112, 144, 144, 144]);
        // A slow machine: 64 tokens would take 1.3 s, 16 still take too long.
        check(1024, (20_000, 20_000), &[32, 16, 16]);
        // Decoding alone takes longer than the target.
        check(1024, (200_000, 100), &[32, 16, 16]);
        // A fast one: as much as a step may hold.
        check(300, (0, 1), &[128, 256, 300, 300]);
        check(8, (0, 1), &[16]);
    }

    #[test]
    fn a_short_prompt_says_nothing_about_longer_ones_unless_it_took_too_long() {
        let mut pace = Pace::new(TARGET, 1024);
        pace.observe(5, Duration::from_millis(1));
        pace.observe(0, Duration::from_secs(1));
        assert_eq!(pace.chunk(), 64);
        pace.observe(60, Duration::from_millis(120));
        assert_eq!(pace.chunk(), 48);
    }

    #[test]
    fn one_disturbed_step_halves_and_the_next_good_one_mends_it() {
        let mut pace = Pace::new(TARGET, 1024);
        pace.observe(64, Duration::from_secs(60));
        assert_eq!(pace.chunk(), 32);
        pace.observe(32, Duration::from_millis(40));
        assert_eq!(pace.chunk(), 64);
    }
}
