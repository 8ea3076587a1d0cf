//! Causal attention over the blocks of the key/value cache, without gathering a copy.
//!
//! Keys of a block lie as `[head_dim]` rows of 16 tokens, values as `[head_dim / 16]` panels of 16
//! token rows: both are panels of the tile kernel, so scores and outputs are two products. A token
//! is written once, in place.

use std::ops::Range;

use super::memory::{Rows, Shared};
use super::rows::{LANES, Row, RowBf16, RowF32};
use crate::config::ModelConfig;
use crate::device::Dtype;
use crate::kv_cache::BLOCK_TOKENS;
use crate::parallel::Team;

// The cache's block is the kernel's panel.
const _: () = assert!(BLOCK_TOKENS == LANES);

/// Query rows that one piece of the loop takes: enough work to be worth a claim.
const ROWS_PER_PIECE: usize = 24;

/// Heads and their width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heads {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Width of a head, a multiple of 16.
    pub head_dim: usize,
}

impl Heads {
    /// The heads of a model.
    pub fn of(config: &ModelConfig) -> Self {
        Self {
            heads: config.n_heads,
            kv_heads: config.n_kv_heads,
            head_dim: config.head_dim,
        }
    }

    /// Width of a row of queries, keys and values side by side.
    pub fn qkv_width(&self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.head_dim
    }
}

/// Keys and values of one layer, all blocks.
pub struct LayerCache {
    heads: Heads,
    numbers: Numbers,
}

enum Numbers {
    F32 {
        keys: Rows<RowF32>,
        values: Rows<RowF32>,
    },
    Bf16 {
        keys: Rows<RowBf16>,
        values: Rows<RowBf16>,
    },
}

impl LayerCache {
    /// An empty cache; memory is used as it fills.
    ///
    /// # Panics
    /// If the head width is not a multiple of 16.
    pub fn new(dtype: Dtype, heads: Heads, n_blocks: usize) -> Self {
        assert_eq!(
            heads.head_dim % LANES,
            0,
            "head width {} is not whole panels",
            heads.head_dim
        );
        let n = n_blocks * heads.kv_heads * heads.head_dim;
        let numbers = match dtype {
            Dtype::F32 => Numbers::F32 {
                keys: Rows::zeros(n),
                values: Rows::zeros(n),
            },
            Dtype::Bf16 => Numbers::Bf16 {
                keys: Rows::zeros(n),
                values: Rows::zeros(n),
            },
        };
        Self { heads, numbers }
    }
}

/// Rows of one sequence in a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// Its first row in the step.
    pub first_row: usize,
    /// Its rows.
    pub n_rows: usize,
    /// Tokens it had before the step: row `r` of the span is at position `past + r`.
    pub past: usize,
    /// Its blocks in token order.
    pub blocks: Vec<u32>,
}

impl Span {
    /// The rows, cut where a new block begins: two threads never write to one block.
    fn rows_by_block(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        let mut start = 0;
        std::iter::from_fn(move || {
            if start == self.n_rows {
                return None;
            }
            let room = LANES - (self.past + start) % LANES;
            let rows = start..(start + room).min(self.n_rows);
            start = rows.end;
            Some(rows)
        })
    }
}

/// One attention over a step's rows.
pub struct Attention<'a> {
    /// The rows of each sequence.
    pub spans: &'a [Span],
    /// Rotary angles. Shape: `[rows, head_dim / 2]` each.
    pub cos: &'a [f32],
    /// See `cos`.
    pub sin: &'a [f32],
    /// Factor on the scores: 1 / sqrt(head_dim) for Llama.
    pub scale: f32,
    /// Keys a query sees, its own included; `usize::MAX` where it sees all before it.
    pub window: usize,
}

impl Attention<'_> {
    /// Rotates queries and keys, appends keys and values to the cache, attends.
    /// Shapes: `qkv: [rows, qkv_width]` (queries are rotated in place), `out: [rows, heads *
    /// head_dim]`.
    ///
    /// # Panics
    /// On shapes that do not fit, blocks the cache lacks, and a processor without AVX2 and FMA.
    pub fn run(&self, team: &Team, cache: &mut LayerCache, qkv: &mut [f32], out: &mut [f32]) {
        assert!(super::available(), "the processor has AVX2 and FMA");
        let heads = cache.heads;
        let n_rows = qkv.len() / heads.qkv_width();
        assert_eq!(qkv.len(), n_rows * heads.qkv_width(), "qkv out of shape");
        assert_eq!(
            out.len(),
            n_rows * heads.heads * heads.head_dim,
            "out out of shape"
        );
        assert_eq!(
            self.cos.len(),
            n_rows * heads.head_dim / 2,
            "cos out of shape"
        );
        assert_eq!(self.sin.len(), self.cos.len(), "sin out of shape");
        for span in self.spans {
            assert!(span.first_row + span.n_rows <= n_rows, "span out of rows");
            assert!(
                span.past + span.n_rows <= span.blocks.len() * LANES,
                "span out of blocks"
            );
        }
        match &mut cache.numbers {
            Numbers::F32 { keys, values } => self.run_on(team, heads, (keys, values), (qkv, out)),
            Numbers::Bf16 { keys, values } => self.run_on(team, heads, (keys, values), (qkv, out)),
        }
    }

    fn run_on<R: Row>(
        &self,
        team: &Team,
        heads: Heads,
        (keys, values): (&mut [R], &mut [R]),
        (qkv, out): (&mut [f32], &mut [f32]),
    ) {
        let appends: Vec<(usize, Range<usize>)> = self
            .spans
            .iter()
            .enumerate()
            .flat_map(|(s, span)| span.rows_by_block().map(move |rows| (s, rows)))
            .collect();
        {
            let job = Append {
                attention: self,
                heads,
                keys: Shared::new(keys),
                values: Shared::new(values),
                qkv: Shared::new(qkv),
            };
            // A handful of rows is not worth waking anyone.
            let per_piece = if appends.len() < 4 {
                appends.len().max(1)
            } else {
                1
            };
            team.run(appends.len().div_ceil(per_piece), &|piece| {
                for (span, rows) in appends.iter().skip(piece * per_piece).take(per_piece) {
                    job.rows(&self.spans[*span], rows.clone());
                }
            });
        }
        let pieces: Vec<(usize, usize, usize)> = self
            .spans
            .iter()
            .enumerate()
            .flat_map(|(s, span)| {
                let starts = (0..span.n_rows).step_by(ROWS_PER_PIECE);
                starts.flat_map(move |r| (0..heads.kv_heads).map(move |g| (s, r, g)))
            })
            .collect();
        let job = Attend {
            attention: self,
            heads,
            keys,
            values,
            qkv,
            out: Shared::new(out),
        };
        // Late rows see the most keys: they go first, so that no long piece is left for the end.
        team.run(pieces.len(), &|piece| {
            let (span, row, kv_head) = pieces[pieces.len() - 1 - piece];
            let span = &self.spans[span];
            job.piece(span, row..(row + ROWS_PER_PIECE).min(span.n_rows), kv_head);
        });
    }
}

/// First loop: rotate and append.
pub(super) struct Append<'a, R> {
    pub(super) attention: &'a Attention<'a>,
    pub(super) heads: Heads,
    pub(super) keys: Shared<'a, R>,
    pub(super) values: Shared<'a, R>,
    pub(super) qkv: Shared<'a, f32>,
}

/// Second loop: scores, weights, outputs.
pub(super) struct Attend<'a, R> {
    pub(super) attention: &'a Attention<'a>,
    pub(super) heads: Heads,
    pub(super) keys: &'a [R],
    pub(super) values: &'a [R],
    pub(super) qkv: &'a [f32],
    pub(super) out: Shared<'a, f32>,
}

#[cfg(not(target_arch = "x86_64"))]
mod other {
    use super::{Append, Attend, Row, Span};

    impl<R: Row> Append<'_, R> {
        pub(super) fn rows(&self, _: &Span, _: std::ops::Range<usize>) {
            unreachable!("`available` is false on this processor");
        }
    }

    impl<R: Row> Attend<'_, R> {
        pub(super) fn piece(&self, _: &Span, _: std::ops::Range<usize>, _: usize) {
            unreachable!("`available` is false on this processor");
        }
    }
}

#[cfg(test)]
#[path = "attention_tests.rs"]
mod tests;
