//! Who owns which block of the key/value cache: a free list, and handles that give back on drop.
//!
//! A sequence owns whole blocks of [`BLOCK_TOKENS`] slots and grows by filling the last one, so
//! appending never copies and sequences of different lengths never pad each other. This file does
//! the book-keeping only; the numbers live in the decoder's memory, indexed by block.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::ModelError;

/// Token slots in one block.
///
/// 16 wastes at most 15 slots a sequence and keeps a block of one head (16 x 64 numbers) within a
/// page; the paged-attention paper found 16 a good middle too (Kwon et al., SOSP 2023, 7.2).
pub const BLOCK_TOKENS: usize = 16;

/// All blocks of one decoder.
#[derive(Debug, Clone)]
pub struct BlockPool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    n_blocks: usize,
    free: Mutex<Vec<u32>>,
}

impl Shared {
    /// A panic elsewhere cannot leave the list half changed (push and drain are single calls), so
    /// a poisoned lock is still good.
    fn free(&self) -> MutexGuard<'_, Vec<u32>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BlockPool {
    /// A pool with room for at least `capacity_tokens` tokens.
    ///
    /// # Panics
    /// For 2^36 tokens or more: loading has refused that many for lack of memory.
    pub fn new(capacity_tokens: usize) -> Self {
        let n_blocks = capacity_tokens.div_ceil(BLOCK_TOKENS);
        let n_blocks = u32::try_from(n_blocks).expect("fewer than 2^32 blocks");
        // The list is a stack: block 0 goes out first, and freed blocks are reused while warm.
        let free = (0..n_blocks).rev().collect();
        Self {
            shared: Arc::new(Shared {
                n_blocks: n_blocks as usize,
                free: Mutex::new(free),
            }),
        }
    }

    /// Number of blocks, free or not.
    pub fn n_blocks(&self) -> usize {
        self.shared.n_blocks
    }

    /// Tokens that fit an empty pool.
    pub fn capacity_tokens(&self) -> usize {
        self.shared.n_blocks * BLOCK_TOKENS
    }

    /// Tokens that fit the blocks nobody owns.
    pub fn free_tokens(&self) -> usize {
        self.shared.free().len() * BLOCK_TOKENS
    }

    /// A sequence that owns blocks for `max_tokens` tokens from the start, so that it cannot run
    /// out half-way.
    ///
    /// # Errors
    /// [`ModelError::KvExhausted`]; then nothing was taken.
    pub fn sequence(&self, max_tokens: usize) -> Result<Sequence, ModelError> {
        let mut sequence = Sequence {
            blocks: Vec::new(),
            len: 0,
            shared: Arc::clone(&self.shared),
        };
        sequence.reserve(max_tokens)?;
        Ok(sequence)
    }
}

/// One prompt and its output inside a decoder: how many tokens it has, and which blocks hold them.
///
/// Dropping it frees its blocks at once.
#[derive(Debug)]
pub struct Sequence {
    /// Invariant: no block is in two sequences or in a sequence and the free list.
    blocks: Vec<u32>,
    /// Invariant: at most `blocks.len() * BLOCK_TOKENS`.
    len: usize,
    shared: Arc<Shared>,
}

impl Sequence {
    /// Tokens whose keys and values are in the cache.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True before the first step.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Tokens that fit the blocks owned now.
    pub fn capacity(&self) -> usize {
        self.blocks.len() * BLOCK_TOKENS
    }

    /// The blocks in token order: token `t` is in slot `t % BLOCK_TOKENS` of block
    /// `t / BLOCK_TOKENS`.
    pub(crate) fn blocks(&self) -> &[u32] {
        &self.blocks
    }

    /// Takes blocks until `tokens` tokens fit in all.
    ///
    /// # Errors
    /// [`ModelError::KvExhausted`]; then nothing was taken.
    pub(crate) fn reserve(&mut self, tokens: usize) -> Result<(), ModelError> {
        let needed = tokens
            .div_ceil(BLOCK_TOKENS)
            .saturating_sub(self.blocks.len());
        let mut free = self.shared.free();
        if needed > free.len() {
            return Err(ModelError::KvExhausted {
                needed: needed * BLOCK_TOKENS,
                free: free.len() * BLOCK_TOKENS,
                capacity: self.shared.n_blocks * BLOCK_TOKENS,
            });
        }
        let kept = free.len() - needed;
        self.blocks.extend(free.drain(kept..).rev());
        Ok(())
    }

    /// Counts `tokens` more tokens as written.
    ///
    /// # Panics
    /// If they were not reserved: their keys would lie in blocks of somebody else.
    pub(crate) fn advance(&mut self, tokens: usize) {
        assert!(
            self.len + tokens <= self.capacity(),
            "advance past the reserved blocks"
        );
        self.len += tokens;
    }

    /// Forgets the last tokens so that `len` remain; the blocks stay owned.
    ///
    /// # Panics
    /// If the sequence is shorter than that.
    pub fn truncate(&mut self, len: usize) {
        assert!(len <= self.len, "truncate to {len}, length {}", self.len);
        self.len = len;
    }

    /// True where `pool` lent the blocks: a sequence of another decoder must never be stepped.
    pub(crate) fn belongs_to(&self, pool: &BlockPool) -> bool {
        Arc::ptr_eq(&self.shared, &pool.shared)
    }
}

impl Drop for Sequence {
    fn drop(&mut self) {
        let mut free = self.shared.free();
        free.extend(self.blocks.iter().rev());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_lent_once_and_come_back_on_drop() {
        let pool = BlockPool::new(100);
        assert_eq!(
            (pool.n_blocks(), pool.capacity_tokens(), pool.free_tokens()),
            (7, 112, 112)
        );
        let a = pool.sequence(17).unwrap();
        let mut b = pool.sequence(1).unwrap();
        assert_eq!((a.blocks(), b.blocks()), (&[0, 1][..], &[2][..]));
        b.advance(16);
        b.reserve(17).unwrap();
        assert_eq!(b.blocks(), [2, 3]);
        assert_eq!(pool.free_tokens(), 48);
        drop(a);
        assert_eq!(pool.free_tokens(), 80);
        let c = pool.sequence(40).unwrap();
        assert_eq!(c.blocks(), [0, 1, 4]);
        drop((b, c));
        assert_eq!(pool.free_tokens(), 112);
    }

    #[test]
    fn a_refused_reservation_takes_nothing() {
        let pool = BlockPool::new(32);
        let mut a = pool.sequence(16).unwrap();
        let refused = a.reserve(64).unwrap_err();
        let expected = "key/value cache: 48 tokens needed, 16 of 32 free";
        assert_eq!(refused.to_string(), expected);
        assert_eq!((a.capacity(), pool.free_tokens()), (16, 16));
        assert!(pool.sequence(17).is_err());
        assert_eq!(pool.free_tokens(), 16);
    }

    #[test]
    fn truncate_keeps_the_blocks() {
        let pool = BlockPool::new(64);
        let mut a = pool.sequence(40).unwrap();
        a.advance(33);
        a.truncate(2);
        assert_eq!((a.len(), a.capacity(), a.is_empty()), (2, 48, false));
    }

    #[test]
    fn a_sequence_knows_its_pool() {
        let (pool, other) = (BlockPool::new(16), BlockPool::new(16));
        let a = pool.sequence(1).unwrap();
        assert!(a.belongs_to(&pool) && a.belongs_to(&pool.clone()) && !a.belongs_to(&other));
    }
}
