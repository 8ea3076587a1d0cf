//! Who owns which block of the key/value cache: counts of owners, shared prefixes, free on drop.
//!
//! A sequence owns whole blocks of [`BLOCK_TOKENS`] slots and grows by filling the last one, so
//! appending never copies and sequences of different lengths never pad each other. A block that is
//! full is never written again, so sequences that begin with the same tokens share such blocks;
//! a block that is partly full belongs to one sequence alone, and nothing ever has to be copied.
//! When its last owner goes, a full block keeps its content until the block is needed, the longest
//! unused first. This file does the book-keeping only; the numbers live in the decoder's memory,
//! indexed by block.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::ModelError;

mod blocks;

use blocks::{Before, Blocks, Name};

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
    blocks: Mutex<Blocks>,
}

impl Shared {
    /// A panic under the lock is a broken count, which ends the engine; a drop on the way out must
    /// not panic again.
    fn blocks(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is known of a sequence's first tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KnownPrefix {
    /// Tokens whose keys and values need not be computed: whole blocks, and never the last token,
    /// because somebody has to compute what follows it.
    pub tokens: usize,
    /// How many of them are in blocks that other sequences own just now. Sharing those takes
    /// nothing from [`BlockPool::free_tokens`]; the others are counted there until they are taken.
    pub owned_tokens: usize,
}

impl BlockPool {
    /// A pool with room for at least `capacity_tokens` tokens.
    ///
    /// # Panics
    /// For 2^36 tokens or more: loading has refused that many for lack of memory.
    pub fn new(capacity_tokens: usize) -> Self {
        let n_blocks = capacity_tokens.div_ceil(BLOCK_TOKENS);
        let n_blocks = u32::try_from(n_blocks).expect("fewer than 2^32 blocks");
        Self {
            shared: Arc::new(Shared {
                n_blocks: n_blocks as usize,
                blocks: Mutex::new(Blocks::new(n_blocks)),
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
        self.shared.blocks().n_available() * BLOCK_TOKENS
    }

    /// A sequence of its own that owns blocks for `max_tokens` tokens from the start, so that it
    /// cannot run out half-way. It shares nothing.
    ///
    /// # Errors
    /// [`ModelError::KvExhausted`]; then nothing was taken.
    pub fn sequence(&self, max_tokens: usize) -> Result<Sequence, ModelError> {
        let mut sequence = self.empty(None);
        sequence.reserve(max_tokens)?;
        Ok(sequence)
    }

    /// How much of `tokens` is known already; sharing it takes nothing yet.
    pub fn known_prefix(&self, root: u64, tokens: &[u32]) -> KnownPrefix {
        let mut known = KnownPrefix::default();
        walk(&self.shared.blocks(), root, tokens, |_, is_owned| {
            known.tokens += BLOCK_TOKENS;
            known.owned_tokens += if is_owned { BLOCK_TOKENS } else { 0 };
        });
        known
    }

    /// A sequence that begins with as much of `tokens` as is known, and whose own full blocks
    /// others of the same `root` will find. Its length says where to go on computing.
    pub fn sharing_sequence(&self, root: u64, tokens: &[u32]) -> Sequence {
        let mut blocks = self.shared.blocks();
        let mut known = Vec::new();
        let before = walk(&blocks, root, tokens, |block, _| known.push(block));
        known.iter().for_each(|&block| blocks.share(block));
        drop(blocks);
        let mut sequence = self.empty(Some(before));
        sequence.len = known.len() * BLOCK_TOKENS;
        sequence.blocks = known;
        sequence
    }

    fn empty(&self, before: Option<Before>) -> Sequence {
        Sequence {
            blocks: Vec::new(),
            len: 0,
            chain: before.map(|before| Chain {
                before,
                tail: [0; BLOCK_TOKENS],
            }),
            shared: Arc::clone(&self.shared),
        }
    }
}

/// Calls `visit` with each known block of `tokens` and whether it is owned, and returns what stands
/// before the first unknown one.
fn walk(blocks: &Blocks, root: u64, tokens: &[u32], mut visit: impl FnMut(u32, bool)) -> Before {
    let mut before = Before::Root(root);
    let all_but_last = &tokens[..tokens.len().saturating_sub(1)];
    for tokens in all_but_last.as_chunks::<BLOCK_TOKENS>().0 {
        let name = Name {
            before,
            tokens: *tokens,
        };
        let Some((block, is_owned, number)) = blocks.find(&name) else {
            break;
        };
        visit(block, is_owned);
        before = Before::Content(number);
    }
    before
}

/// One prompt and its output inside a decoder: how many tokens it has, and which blocks hold them.
///
/// Dropping it gives its blocks back at once.
#[derive(Debug)]
pub struct Sequence {
    /// Invariant: all but the full ones are in no other sequence.
    blocks: Vec<u32>,
    /// Invariant: at most `blocks.len() * BLOCK_TOKENS`.
    len: usize,
    /// `None` for a sequence that shares nothing.
    chain: Option<Chain>,
    shared: Arc<Shared>,
}

/// What a sequence's next full block will be called.
#[derive(Debug)]
struct Chain {
    before: Before,
    /// The tokens of the last block; those up to `len % BLOCK_TOKENS` count.
    tail: [u32; BLOCK_TOKENS],
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
        if needed == 0 {
            return Ok(());
        }
        let mut blocks = self.shared.blocks();
        let available = blocks.n_available();
        if needed > available {
            return Err(ModelError::KvExhausted {
                needed: needed * BLOCK_TOKENS,
                free: available * BLOCK_TOKENS,
                capacity: self.shared.n_blocks * BLOCK_TOKENS,
            });
        }
        self.blocks.extend((0..needed).map(|_| blocks.take()));
        Ok(())
    }

    /// Counts `tokens` as written after those that were there.
    ///
    /// # Panics
    /// If they were not reserved: their keys would lie in blocks of somebody else.
    pub(crate) fn advance(&mut self, tokens: &[u32]) {
        assert!(
            self.len + tokens.len() <= self.capacity(),
            "advance past the reserved blocks"
        );
        let Some(chain) = &mut self.chain else {
            self.len += tokens.len();
            return;
        };
        for &token in tokens {
            chain.tail[self.len % BLOCK_TOKENS] = token;
            self.len += 1;
            if self.len.is_multiple_of(BLOCK_TOKENS) {
                let name = Name {
                    before: chain.before,
                    tokens: chain.tail,
                };
                let block = self.blocks[self.len / BLOCK_TOKENS - 1];
                let number = self.shared.blocks().name(block, name);
                chain.before = Before::Content(number);
            }
        }
    }

    /// Forgets the last tokens so that `len` remain; the blocks stay owned.
    ///
    /// # Panics
    /// If the sequence is shorter than that, or shares: others may hold the blocks that the next
    /// tokens would be written to.
    pub fn truncate(&mut self, len: usize) {
        assert!(len <= self.len, "truncate to {len}, length {}", self.len);
        assert!(self.chain.is_none(), "truncate of a sequence that shares");
        self.len = len;
    }

    /// True where `pool` lent the blocks: a sequence of another decoder must never be stepped.
    pub(crate) fn belongs_to(&self, pool: &BlockPool) -> bool {
        Arc::ptr_eq(&self.shared, &pool.shared)
    }
}

impl Drop for Sequence {
    fn drop(&mut self) {
        let mut blocks = self.shared.blocks();
        // The last one first: of a prefix that is no longer used, the end is forgotten before the
        // beginning, without which it could not be found.
        for &block in self.blocks.iter().rev() {
            blocks.give_back(block);
        }
    }
}

#[cfg(test)]
mod tests;
