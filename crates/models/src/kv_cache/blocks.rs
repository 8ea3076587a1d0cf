//! The state of every block: free, owned by so many sequences, or idle with a known content.
//!
//! A full block's content is named by the tokens in it and by what stands before them. The index
//! compares those names, not hashes of them, so no prompt can be taken for another one. Pure
//! book-keeping behind the pool's lock; panics here are broken counts, never a request's fault.

use std::collections::{BTreeMap, HashMap};

use super::BLOCK_TOKENS;

/// What stands before a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Before {
    /// Nothing. Sequences of different roots share no block, whatever their tokens.
    Root(u64),
    /// The content that was given this number; numbers are never given twice.
    Content(u64),
}

/// A full block's content: the same name means the same keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Name {
    pub(super) before: Before,
    pub(super) tokens: [u32; BLOCK_TOKENS],
}

#[derive(Debug, Default, Clone)]
struct Block {
    /// Sequences that hold it.
    n_owners: u32,
    /// Its content and that content's number, once it is full and nobody else holds the same.
    content: Option<(Name, u64)>,
    /// When its last owner let go of it; the key in `idle`.
    idle_since: u64,
}

/// All blocks of a pool.
#[derive(Debug)]
pub(super) struct Blocks {
    blocks: Vec<Block>,
    /// Invariant: those without owners and without content. A stack: block 0 goes out first, and
    /// freed blocks are reused while warm.
    free: Vec<u32>,
    /// Invariant: those without owners and with content, the longest unused first.
    idle: BTreeMap<u64, u32>,
    /// Invariant: exactly the contents of the blocks.
    index: HashMap<Name, u32>,
    /// Source of content numbers and of idle times.
    counter: u64,
}

impl Blocks {
    pub(super) fn new(n_blocks: u32) -> Self {
        Self {
            blocks: vec![Block::default(); n_blocks as usize],
            free: (0..n_blocks).rev().collect(),
            idle: BTreeMap::new(),
            index: HashMap::new(),
            counter: 0,
        }
    }

    /// Blocks that can be taken: the free ones, and the idle ones, whose content is then lost.
    pub(super) fn n_available(&self) -> usize {
        self.free.len() + self.idle.len()
    }

    /// Lends a block to a first owner.
    pub(super) fn take(&mut self) -> u32 {
        let block = self.free.pop().unwrap_or_else(|| {
            let (_, block) = self.idle.pop_first().expect("the caller has counted");
            let content = self.blocks[block as usize].content.take();
            let (name, _) = content.expect("an idle block has a content");
            self.index.remove(&name);
            block
        });
        self.blocks[block as usize].n_owners = 1;
        block
    }

    /// Lends a block that was found in the index to one owner more.
    pub(super) fn share(&mut self, block: u32) {
        let state = &mut self.blocks[block as usize];
        if state.n_owners == 0 {
            self.idle.remove(&state.idle_since);
        }
        state.n_owners += 1;
    }

    /// An owner lets go of a block.
    pub(super) fn give_back(&mut self, block: u32) {
        let state = &mut self.blocks[block as usize];
        assert!(state.n_owners > 0, "block {block} given back twice");
        state.n_owners -= 1;
        if state.n_owners > 0 {
            return;
        }
        if state.content.is_none() {
            self.free.push(block);
            return;
        }
        self.counter += 1;
        state.idle_since = self.counter;
        self.idle.insert(self.counter, block);
    }

    /// The block with this content, whether somebody owns it, and the content's number.
    pub(super) fn find(&self, name: &Name) -> Option<(u32, bool, u64)> {
        let block = *self.index.get(name)?;
        let state = &self.blocks[block as usize];
        let (_, number) = state.content.as_ref().expect("an indexed block has one");
        Some((block, state.n_owners > 0, *number))
    }

    /// Notes that an owned block is full with this content, and returns the content's number.
    ///
    /// Where another block holds the same already, that one stays the one to be found.
    pub(super) fn name(&mut self, block: u32, name: Name) -> u64 {
        if let Some((_, _, number)) = self.find(&name) {
            return number;
        }
        self.counter += 1;
        self.blocks[block as usize].content = Some((name, self.counter));
        self.index.insert(name, block);
        self.counter
    }
}
