//! The pool on paper, and against a model of it under random use.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

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
    b.advance(&[0; 16]);
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
    a.advance(&[0; 33]);
    a.truncate(2);
    assert_eq!((a.len(), a.capacity(), a.is_empty()), (2, 48, false));
}

#[test]
fn a_sequence_knows_its_pool() {
    let (pool, other) = (BlockPool::new(16), BlockPool::new(16));
    let a = pool.sequence(1).unwrap();
    assert!(a.belongs_to(&pool) && a.belongs_to(&pool.clone()) && !a.belongs_to(&other));
}

/// A sequence of `root` over `tokens`, all of them written.
fn written(pool: &BlockPool, root: u64, tokens: &[u32]) -> Sequence {
    let mut seq = pool.sharing_sequence(root, tokens);
    seq.reserve(tokens.len()).unwrap();
    let known = seq.len();
    seq.advance(&tokens[known..]);
    seq
}

/// `n` tokens of which each names its position and `text`.
fn text(text: u32, n: u32) -> Vec<u32> {
    (0..n).map(|t| 1000 * text + t).collect()
}

#[test]
fn sequences_share_the_full_blocks_they_begin_with() {
    let pool = BlockPool::new(160);
    let tokens = text(1, 40);
    let a = written(&pool, 0, &tokens);
    let known = KnownPrefix {
        tokens: 32,
        owned_tokens: 32,
    };
    assert_eq!(pool.known_prefix(0, &tokens), known);
    let b = written(&pool, 0, &tokens);
    assert_eq!(a.blocks()[..2], b.blocks()[..2]);
    // The third block is partly full: each has its own.
    assert_ne!(a.blocks()[2], b.blocks()[2]);
    assert_eq!(pool.free_tokens(), 160 - 4 * 16);
    // Another beginning, the same tokens at another place, and another root share nothing.
    let later = [&text(2, 16)[..], &tokens[16..]].concat();
    for (root, tokens) in [(0, &later), (0, &tokens[16..].to_vec()), (1, &tokens)] {
        assert_eq!(pool.known_prefix(root, tokens), KnownPrefix::default());
    }
    drop(a);
    assert_eq!(pool.free_tokens(), 160 - 3 * 16);
    drop(b);
    assert_eq!(pool.free_tokens(), 160);
}

#[test]
fn the_last_token_is_never_taken_as_known() {
    let pool = BlockPool::new(160);
    drop(written(&pool, 0, &text(1, 40)));
    for (n, known) in [(0, 0), (1, 0), (16, 0), (17, 16), (32, 16), (33, 32)] {
        assert_eq!(pool.sharing_sequence(0, &text(1, n)).len(), known, "{n}");
    }
}

#[test]
fn what_a_sequence_goes_on_to_write_is_found_too() {
    let pool = BlockPool::new(160);
    let tokens = text(1, 40);
    let mut a = pool.sharing_sequence(0, &tokens[..10]);
    for token in &tokens {
        a.reserve(a.len() + 1).unwrap();
        a.advance(&[*token]);
    }
    drop(a);
    let known = KnownPrefix {
        tokens: 32,
        owned_tokens: 0,
    };
    assert_eq!(pool.known_prefix(0, &tokens), known);
}

#[test]
fn of_idle_blocks_the_longest_unused_go_first_and_ends_before_beginnings() {
    let pool = BlockPool::new(96);
    let known = |t| pool.known_prefix(0, &text(t, 33)).tokens;
    drop(written(&pool, 0, &text(1, 33)));
    drop(written(&pool, 0, &text(2, 33)));
    // The first is used again, so the second is now the longest unused.
    drop(pool.sharing_sequence(0, &text(1, 33)));
    assert_eq!((known(1), known(2)), (32, 32));
    let _three_blocks = pool.sequence(48).unwrap();
    assert_eq!((known(1), known(2)), (32, 16));
    let _two_more = pool.sequence(32).unwrap();
    assert_eq!((known(1), known(2)), (16, 0));
}

#[test]
fn a_sequence_of_its_own_shares_nothing() {
    let pool = BlockPool::new(96);
    let mut own = pool.sequence(33).unwrap();
    own.advance(&text(1, 33));
    assert_eq!(pool.known_prefix(0, &text(1, 33)), KnownPrefix::default());
    drop(own);
    assert_eq!(pool.known_prefix(0, &text(1, 33)), KnownPrefix::default());
}

#[test]
#[should_panic(expected = "truncate of a sequence that shares")]
fn a_sequence_that_shares_cannot_be_cut() {
    let pool = BlockPool::new(96);
    written(&pool, 0, &text(1, 33)).truncate(5);
}

/// One thing done to the pool. Few texts and roots, so that beginnings often coincide.
#[derive(Debug, Clone)]
enum Act {
    Open { root: u64, tokens: Vec<u32> },
    Grow { seq: usize, tokens: Vec<u32> },
    Drop { seq: usize },
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    // A token repeated in runs of a whole block: equal blocks at all places.
    let tokens = prop::collection::vec((0..2u32, 1..20usize), 0..4).prop_map(|runs| {
        let run = |(token, n): (u32, usize)| std::iter::repeat_n(token, n);
        runs.into_iter().flat_map(run).collect::<Vec<_>>()
    });
    let act = prop_oneof![
        (0..2u64, tokens.clone()).prop_map(|(root, tokens)| Act::Open { root, tokens }),
        (any::<usize>(), tokens).prop_map(|(seq, tokens)| Act::Grow { seq, tokens }),
        any::<usize>().prop_map(|seq| Act::Drop { seq }),
    ];
    prop::collection::vec(act, 1..80)
}

/// Beside the pool: what each live sequence should hold, and what was written to each slot.
struct Model {
    pool: BlockPool,
    live: Vec<(Sequence, u64, Vec<u32>)>,
    memory: BTreeMap<(u32, usize), (u64, u32)>,
}

impl Model {
    /// Writes tokens as a step does: reserve, write, count. Nothing happens where there is no room.
    fn write(&mut self, seq: usize, tokens: &[u32]) {
        let needed = |s: &Sequence| (s.len() + tokens.len()).div_ceil(BLOCK_TOKENS);
        let (sequence, root, expected) = &mut self.live[seq];
        let missing = needed(sequence).saturating_sub(sequence.blocks().len()) * BLOCK_TOKENS;
        let fits = missing <= self.pool.free_tokens();
        assert_eq!(
            sequence.reserve(sequence.len() + tokens.len()).is_ok(),
            fits
        );
        if !fits {
            return;
        }
        for (t, &token) in (sequence.len()..).zip(tokens) {
            let slot = (sequence.blocks()[t / BLOCK_TOKENS], t % BLOCK_TOKENS);
            self.memory.insert(slot, (*root, token));
        }
        sequence.advance(tokens);
        expected.extend(tokens);
    }

    fn apply(&mut self, act: Act) {
        match act {
            Act::Open { root, tokens } => {
                let known = self.pool.known_prefix(root, &tokens);
                let free = self.pool.free_tokens();
                let sequence = self.pool.sharing_sequence(root, &tokens);
                assert_eq!(sequence.len(), known.tokens);
                let taken = free - self.pool.free_tokens();
                assert_eq!(taken, known.tokens - known.owned_tokens);
                let rest = tokens[known.tokens..].to_vec();
                let expected = tokens[..known.tokens].to_vec();
                self.live.push((sequence, root, expected));
                self.write(self.live.len() - 1, &rest);
            }
            Act::Grow { seq, tokens } if !self.live.is_empty() => {
                self.write(seq % self.live.len(), &tokens);
            }
            Act::Drop { seq } if !self.live.is_empty() => {
                self.live.swap_remove(seq % self.live.len());
            }
            Act::Grow { .. } | Act::Drop { .. } => {}
        }
    }

    /// Every sequence reads back what was written for it, and no block is lost or lent twice.
    fn check(&self) {
        let mut owned: BTreeSet<u32> = BTreeSet::new();
        for (sequence, root, expected) in &self.live {
            assert_eq!(sequence.len(), expected.len());
            for (t, &token) in expected.iter().enumerate() {
                let slot = (sequence.blocks()[t / BLOCK_TOKENS], t % BLOCK_TOKENS);
                assert_eq!(self.memory[&slot], (*root, token), "token {t}");
            }
            owned.extend(sequence.blocks().iter().copied());
        }
        let free = self.pool.free_tokens() / BLOCK_TOKENS;
        assert_eq!(free + owned.len(), self.pool.n_blocks());
    }
}

proptest! {
    #[test]
    fn whatever_is_done_no_block_is_lost_lent_twice_or_read_wrong(acts in acts()) {
        let mut model = Model {
            pool: BlockPool::new(8 * BLOCK_TOKENS),
            live: Vec::new(),
            memory: BTreeMap::new(),
        };
        for act in acts {
            model.apply(act);
            model.check();
        }
        model.live.clear();
        prop_assert_eq!(model.pool.free_tokens(), model.pool.capacity_tokens());
    }
}
