//! The flags of the scheduler: batches, cache and queue.

use std::time::Duration;

use super::{MAX_KV_TOKENS, at_least_one, duration, refused, within};
use crate::error::SutError;

/// The flags about batches, cache and queue, not yet checked against each other.
#[derive(Debug, clap::Args)]
pub struct ScheduleArgs {
    /// Most sequences computed together
    #[arg(long, default_value_t = 32)]
    pub max_batch_rows: usize,
    /// Most tokens in one step, decoding rows and prompt chunks together
    #[arg(long, default_value_t = 256)]
    pub max_batch_tokens: usize,
    /// Tokens the key/value cache holds, all sequences together
    #[arg(long, default_value_t = 16_384)]
    pub kv_tokens: usize,
    /// Most sequences waiting; over it requests get 429
    #[arg(long, default_value_t = 1024)]
    pub max_queue: usize,
    /// Most prompt tokens waiting; over it requests get 429
    #[arg(long, default_value_t = 1 << 20)]
    pub max_queue_tokens: usize,
    /// Time between two tokens that prompt chunks beside decoding sequences are cut to keep
    #[arg(long, default_value = "100ms", value_parser = duration)]
    pub target_itl: Duration,
    /// Compute every prompt anew: MLPerf's rules allow no request to profit from an earlier one
    #[arg(long)]
    pub no_prefix_cache: bool,
}

/// How sequences are scheduled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// Time that a step with decoding sequences and a prompt's chunk in it should take.
    pub target_itl: Duration,
    /// Whether a prompt may begin with what was computed for an earlier request.
    pub prefix_cache: bool,
}

/// Bounds of batches, cache and queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most sequences computed together.
    pub max_batch_rows: usize,
    /// Most tokens in one step. Invariant: at least `max_batch_rows`, so that every decoding row
    /// moves in every step.
    pub max_batch_tokens: usize,
    /// Tokens the key/value cache holds.
    pub kv_tokens: usize,
    /// Most sequences waiting. When full, requests are refused with 429.
    pub max_queue: usize,
    /// Most prompt tokens waiting. When full, requests are refused with 429.
    pub max_queue_tokens: usize,
}

impl ScheduleArgs {
    /// Checks the flags against each other.
    ///
    /// # Errors
    /// [`SutError::Flag`] for the first flag that cannot be honored.
    pub fn validate(&self) -> Result<(Limits, Schedule), SutError> {
        at_least_one("--max-batch-rows", self.max_batch_rows)?;
        within("--kv-tokens", self.kv_tokens, MAX_KV_TOKENS)?;
        at_least_one("--max-queue", self.max_queue)?;
        at_least_one("--max-queue-tokens", self.max_queue_tokens)?;
        if self.max_batch_tokens < self.max_batch_rows {
            return Err(refused(
                "--max-batch-tokens",
                self.max_batch_tokens,
                format!(
                    "must be at least --max-batch-rows ({})",
                    self.max_batch_rows
                ),
            ));
        }
        let limits = Limits {
            max_batch_rows: self.max_batch_rows,
            max_batch_tokens: self.max_batch_tokens,
            kv_tokens: self.kv_tokens,
            max_queue: self.max_queue,
            max_queue_tokens: self.max_queue_tokens,
        };
        let schedule = Schedule {
            target_itl: self.target_itl,
            prefix_cache: !self.no_prefix_cache,
        };
        Ok((limits, schedule))
    }
}
