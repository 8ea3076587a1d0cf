//! One piece of [`super::bidirectional`] in f32 on AVX2, by the tile kernel.

#![cfg(target_arch = "x86_64")]
#![allow(
    unsafe_code,
    reason = "calls the tile kernel; shapes are checked in `Bidirectional::run`"
)]

use std::cell::RefCell;
use std::ops::Range;

use super::bidirectional::{Job, Piece};
use super::elementwise::softmax_weights;
use super::rows::{LANES, Row, RowF32};
use super::tile::{Operands, accumulate, store, zeros};

/// Tallest tile.
const MAX_TILE: usize = 6;

/// Packed head and scores of a thread, kept between pieces.
#[derive(Default)]
struct Scratch {
    /// Panels of 16 keys, `dim` rows each.
    keys: Vec<RowF32>,
    /// Panels of 16 columns, a row for each token.
    values: Vec<RowF32>,
    /// `MAX_TILE` rows, one number for each key.
    scores: Vec<f32>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

impl Job<'_> {
    /// A piece with every product in f32.
    pub(super) fn run_f32(&self, piece: &Piece) {
        SCRATCH.with_borrow_mut(|scratch| {
            for head in piece.heads.clone() {
                // SAFETY: `Bidirectional::run` asserted AVX2 and FMA.
                unsafe { self.head(piece, head, scratch) };
            }
        });
    }

    #[target_feature(enable = "avx2,fma")]
    fn head(&self, piece: &Piece, head: usize, scratch: &mut Scratch) {
        self.pack(&piece.text, head, scratch);
        for first in piece.queries.clone().step_by(MAX_TILE) {
            match (piece.queries.end - first).min(MAX_TILE) {
                1 => self.tile::<1>(&piece.text, first, head, scratch),
                2 => self.tile::<2>(&piece.text, first, head, scratch),
                3 => self.tile::<3>(&piece.text, first, head, scratch),
                4 => self.tile::<4>(&piece.text, first, head, scratch),
                5 => self.tile::<5>(&piece.text, first, head, scratch),
                _ => self.tile::<6>(&piece.text, first, head, scratch),
            }
        }
    }

    /// Lanes past the last token or column are zeros: they are multiplied, never used.
    fn pack(&self, text: &Range<usize>, head: usize, scratch: &mut Scratch) {
        let (n, dim) = (text.len(), self.dim);
        scratch.keys.clear();
        scratch.keys.resize(n.div_ceil(LANES) * dim, RowF32::ZERO);
        scratch.values.clear();
        scratch.values.resize(dim.div_ceil(LANES) * n, RowF32::ZERO);
        for (token, row) in text.clone().enumerate() {
            let panel = &mut scratch.keys[token / LANES * dim..][..dim];
            for (out, k) in panel.iter_mut().zip(self.numbers(row, 1, head)) {
                out.set(token % LANES, *k);
            }
            let columns = self.numbers(row, 2, head).chunks(LANES);
            for (panel, part) in columns.enumerate() {
                let out = &mut scratch.values[panel * n + token];
                for (lane, v) in part.iter().enumerate() {
                    out.set(lane, *v);
                }
            }
        }
        scratch.scores.clear();
        scratch
            .scores
            .resize(MAX_TILE * n.next_multiple_of(LANES), 0.0);
    }

    /// `MR` queries from row `first` on.
    #[target_feature(enable = "avx2,fma")]
    fn tile<const MR: usize>(
        &self,
        text: &Range<usize>,
        first: usize,
        head: usize,
        scratch: &mut Scratch,
    ) {
        let (n, dim, width) = (text.len(), self.dim, self.heads * self.dim);
        let stride = n.next_multiple_of(LANES);
        // All rows of the tile are inside: the last one is looked up too.
        let last = self.numbers(first + MR - 1, 0, head);
        let a = self.numbers(first, 0, head).as_ptr();
        debug_assert_eq!(a.wrapping_add((MR - 1) * 3 * width), last.as_ptr());
        for (p, panel) in scratch.keys.chunks_exact(dim).enumerate() {
            let mut sums = zeros::<MR, 1>();
            let operands = Operands {
                a,
                a_stride: 3 * width,
                panels: [panel.as_ptr()],
                ahead: [],
            };
            let out = &mut scratch.scores[p * LANES..];
            assert!(
                out.len() >= (MR - 1) * stride + LANES,
                "scores out of shape"
            );
            // SAFETY: MR rows of q hold dim numbers each, the panel dim rows; the scores hold
            // MR rows of 16 numbers, `stride` apart, as asserted.
            unsafe {
                accumulate(&mut sums, &operands, dim);
                store(&sums, out.as_mut_ptr(), stride);
            }
        }
        let scale = 1.0 / (dim as f32).sqrt();
        let mut norm = [0.0; MR];
        for (m, norm) in norm.iter_mut().enumerate() {
            *norm = softmax_weights(&mut scratch.scores[m * stride..][..n], scale);
        }
        for (p, panel) in scratch.values.chunks_exact(n).enumerate() {
            let mut sums = zeros::<MR, 1>();
            let operands = Operands {
                a: scratch.scores.as_ptr(),
                a_stride: stride,
                panels: [panel.as_ptr()],
                ahead: [],
            };
            let mut rows = [[0.0f32; LANES]; MR];
            // SAFETY: MR rows of n scores, `stride` apart; a panel of n rows; MR rows of 16.
            unsafe {
                accumulate(&mut sums, &operands, n);
                store(&sums, rows.as_mut_ptr().cast(), LANES);
            }
            let columns = LANES.min(dim - p * LANES);
            for (m, row) in rows.iter().enumerate() {
                let start = (first + m) * width + head * dim + p * LANES;
                // SAFETY: pieces have different rows or different heads.
                let out = unsafe { self.out.part(start, columns) };
                for (o, v) in out.iter_mut().zip(row) {
                    *o = v * norm[m];
                }
            }
        }
    }
}
