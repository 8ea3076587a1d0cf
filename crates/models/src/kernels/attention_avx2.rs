//! The two loops of attention on AVX2.

#![allow(
    unsafe_code,
    reason = "calls the tile kernel; shapes are checked in `Attention::run`"
)]

use std::ops::Range;

use super::attention::{Append, Attend, Span};
use super::elementwise::{rotate, softmax_weights};
use super::rows::{LANES, Row};
use super::tile::{Operands, Sums, accumulate, store, zeros};

/// Tallest tile.
const MAX_TILE: usize = 6;

impl<R: Row> Append<'_, R> {
    /// Rows of one block of one sequence.
    pub(super) fn rows(&self, span: &Span, rows: Range<usize>) {
        // SAFETY: `Attention::run` asserted AVX2 and FMA.
        unsafe { self.rows_avx2(span, rows) }
    }

    #[target_feature(enable = "avx2,fma")]
    fn rows_avx2(&self, span: &Span, rows: Range<usize>) {
        let (heads, width) = (self.heads, self.heads.qkv_width());
        let (dim, half) = (self.heads.head_dim, self.heads.head_dim / 2);
        for row in rows {
            let at = span.first_row + row;
            let cos = &self.attention.cos[at * half..(at + 1) * half];
            let sin = &self.attention.sin[at * half..(at + 1) * half];
            // SAFETY: every row is in one piece.
            let qkv = unsafe { self.qkv.part(at * width, width) };
            let (rotated, v) = qkv.split_at_mut((heads.heads + heads.kv_heads) * dim);
            for head in rotated.chunks_exact_mut(dim) {
                rotate(head, cos, sin);
            }
            let k = &rotated[heads.heads * dim..];
            let position = span.past + row;
            let block = span.blocks[position / LANES] as usize;
            let token = position % LANES;
            let start = block * heads.kv_heads * dim;
            // SAFETY: a block belongs to one sequence, and its rows are in one piece.
            let keys = unsafe { self.keys.part(start, heads.kv_heads * dim) };
            for (row, k) in keys.iter_mut().zip(k) {
                row.set(token, *k);
            }
            // SAFETY: as above.
            let values = unsafe { self.values.part(start, heads.kv_heads * dim) };
            for (panel, v) in values.chunks_exact_mut(LANES).zip(v.chunks_exact(LANES)) {
                for (lane, v) in v.iter().enumerate() {
                    panel[token].set(lane, *v);
                }
            }
        }
    }
}

/// Queries of a tile: where they start, how far apart they are, how many keys each sees.
struct Queries {
    q: *const f32,
    q_stride: usize,
    out: usize,
    out_stride: usize,
    seen: [usize; MAX_TILE],
}

impl<R: Row> Attend<'_, R> {
    /// All query heads of one key head for some rows of a sequence.
    pub(super) fn piece(&self, span: &Span, rows: Range<usize>, kv_head: usize) {
        // SAFETY: `Attention::run` asserted AVX2 and FMA.
        unsafe { self.piece_avx2(span, rows, kv_head) }
    }

    #[target_feature(enable = "avx2,fma")]
    fn piece_avx2(&self, span: &Span, rows: Range<usize>, kv_head: usize) {
        let (heads, dim) = (self.heads, self.heads.head_dim);
        let group = heads.heads / heads.kv_heads;
        let (width, out_width) = (heads.qkv_width(), heads.heads * dim);
        let mut scores = Vec::new();
        let mut tile = |height: usize, row: usize, head: usize, strides: (usize, usize)| {
            let at = span.first_row + row;
            let mut seen = [0; MAX_TILE];
            for (m, seen) in seen[..height].iter_mut().enumerate() {
                // Tiles of one row go over heads, all others over rows.
                let row = if strides.0 == dim { row } else { row + m };
                *seen = span.past + row + 1;
            }
            let queries = Queries {
                q: self.qkv[at * width + head * dim..].as_ptr(),
                q_stride: strides.0,
                out: at * out_width + head * dim,
                out_stride: strides.1,
                seen,
            };
            match height {
                1 => self.tile::<1, 4>(span, kv_head, &queries, &mut scores),
                2 => self.tile::<2, 2>(span, kv_head, &queries, &mut scores),
                // Two panels would spill a sum to memory in bf16.
                3 => self.tile::<3, 1>(span, kv_head, &queries, &mut scores),
                4 => self.tile::<4, 1>(span, kv_head, &queries, &mut scores),
                5 => self.tile::<5, 1>(span, kv_head, &queries, &mut scores),
                _ => self.tile::<6, 1>(span, kv_head, &queries, &mut scores),
            }
        };
        let head0 = kv_head * group;
        if rows.len() == 1 {
            // Decoding: the heads of a group share the keys they load.
            for start in (0..group).step_by(MAX_TILE) {
                let height = MAX_TILE.min(group - start);
                tile(height, rows.start, head0 + start, (dim, dim));
            }
            return;
        }
        for head in head0..head0 + group {
            for start in rows.clone().step_by(MAX_TILE) {
                tile(
                    MAX_TILE.min(rows.end - start),
                    start,
                    head,
                    (width, out_width),
                );
            }
        }
    }

    /// `MR` queries against every key they see, `NP` blocks or value panels at a time.
    #[target_feature(enable = "avx2,fma")]
    fn tile<const MR: usize, const NP: usize>(
        &self,
        span: &Span,
        kv_head: usize,
        queries: &Queries,
        scores: &mut Vec<f32>,
    ) {
        let dim = self.heads.head_dim;
        // Blocks that lie before every query's window are left out; what follows counts tokens
        // from the first block that is not.
        let window = self.attention.window;
        let oldest = queries.seen[..MR].iter().copied().min().unwrap_or(0);
        let skipped = oldest.saturating_sub(window) / LANES;
        let seen = queries.seen.map(|n| n.saturating_sub(skipped * LANES));
        let seen = &seen[..MR];
        let most = seen.iter().copied().max().unwrap_or(0);
        let blocks = &span.blocks[skipped..][..most.div_ceil(LANES)];
        let stride = blocks.len() * LANES;
        scores.clear();
        scores.resize(MR * stride, 0.0);
        let start_of = |b: u32| (b as usize * self.heads.kv_heads + kv_head) * dim;
        let mut b = 0;
        while b < blocks.len() {
            let at = scores[b * LANES..].as_mut_ptr();
            // SAFETY: the scores of MR rows end `stride` apart behind the last block.
            unsafe {
                if b + NP <= blocks.len() {
                    store(
                        &self.scores::<MR, NP>(blocks, b, start_of, queries),
                        at,
                        stride,
                    );
                    b += NP;
                } else {
                    store(
                        &self.scores::<MR, 1>(blocks, b, start_of, queries),
                        at,
                        stride,
                    );
                    b += 1;
                }
            }
        }
        let mut norm = [0.0; MR];
        for (m, norm) in norm.iter_mut().enumerate() {
            let (visible, hidden) = scores[m * stride..(m + 1) * stride].split_at_mut(seen[m]);
            let (past, visible) = visible.split_at_mut(seen[m].saturating_sub(window));
            *norm = softmax_weights(visible, self.attention.scale);
            past.fill(0.0);
            hidden.fill(0.0);
        }
        let n_panels = dim / LANES;
        let mut p = 0;
        while p < n_panels {
            if p + NP <= n_panels {
                self.outputs::<MR, NP>(blocks, (most, p), start_of, (queries, &norm, scores));
                p += NP;
            } else {
                self.outputs::<MR, 1>(blocks, (most, p), start_of, (queries, &norm, scores));
                p += 1;
            }
        }
    }

    /// Products of the queries with the keys of blocks `b..b + NP`.
    #[target_feature(enable = "avx2,fma")]
    fn scores<const MR: usize, const NP: usize>(
        &self,
        blocks: &[u32],
        b: usize,
        start_of: impl Fn(u32) -> usize,
        queries: &Queries,
    ) -> Sums<MR, NP> {
        let dim = self.heads.head_dim;
        // Past the last block the pointer only serves to fetch ahead.
        let start = |rows: &[R], b: usize| {
            rows[start_of(blocks[b.min(blocks.len() - 1)])..][..dim].as_ptr()
        };
        let operands = Operands {
            a: queries.q,
            a_stride: queries.q_stride,
            panels: std::array::from_fn(|n| start(self.keys, b + n)),
            ahead: [
                std::array::from_fn(|n| start(self.keys, b + n + NP)),
                std::array::from_fn(|n| start(self.values, b + n)),
            ],
        };
        let mut sums = zeros::<MR, NP>();
        // SAFETY: `queries` has MR rows of dim numbers and every block dim rows of keys.
        unsafe { accumulate(&mut sums, &operands, dim) };
        sums
    }

    /// Weighted sums of the values: panels `p..p + NP` of the head.
    #[target_feature(enable = "avx2,fma")]
    fn outputs<const MR: usize, const NP: usize>(
        &self,
        blocks: &[u32],
        (most, p): (usize, usize),
        start_of: impl Fn(u32) -> usize,
        (queries, norm, scores): (&Queries, &[f32; MR], &[f32]),
    ) {
        let stride = blocks.len() * LANES;
        let mut sums = zeros::<MR, NP>();
        for (b, block) in blocks.iter().enumerate() {
            // Slots past the last token were never written: their numbers must not be touched,
            // not even times 0.
            let tokens = LANES.min(most - b * LANES);
            let values = &self.values[start_of(*block)..][..self.heads.head_dim];
            let panels = std::array::from_fn(|n| values[(p + n) * LANES..].as_ptr());
            // SAFETY: MR rows of scores, `stride` apart, hold `tokens` numbers from this block
            // on; every panel has 16 rows.
            unsafe {
                let a = scores[b * LANES..].as_ptr();
                let operands = Operands {
                    a,
                    a_stride: stride,
                    panels,
                    ahead: [],
                };
                accumulate(&mut sums, &operands, tokens);
            }
        }
        let mut rows = [[[0.0f32; LANES]; NP]; MR];
        // SAFETY: the array has MR rows of NP * LANES numbers.
        unsafe { store(&sums, rows.as_mut_ptr().cast(), NP * LANES) };
        for (m, row) in rows.iter().enumerate() {
            let start = queries.out + m * queries.out_stride + p * LANES;
            // SAFETY: pieces have different rows or different heads.
            let out = unsafe { self.out.part(start, NP * LANES) };
            for (o, v) in out.iter_mut().zip(row.as_flattened()) {
                *o = v * norm[m];
            }
        }
    }
}
