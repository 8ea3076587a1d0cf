//! One piece of [`super::bidirectional`] with its products in bf16 on Intel's tiles.
//!
//! Queries, keys, values and softmax weights are rounded to bf16, sums are f32. For a head of 32 a
//! tile of scores is one instruction, so the softmax between the products is most of the work:
//! it runs in powers of two, whose factor is folded into the queries.

#![cfg(target_arch = "x86_64")]
#![allow(
    unsafe_code,
    reason = "vector stores and tile products; shapes are checked in `Bidirectional::run`"
)]

use std::arch::x86_64::{
    _mm512_add_ps, _mm512_mask_storeu_ps, _mm512_max_ps, _mm512_mul_ps, _mm512_or_si512,
    _mm512_reduce_add_ps, _mm512_reduce_max_ps, _mm512_set1_ps, _mm512_setzero_ps,
    _mm512_setzero_si512, _mm512_slli_epi32, _mm512_sub_ps,
};
use std::cell::RefCell;
use std::ops::Range;

use super::amx::Tiles;
use super::amx_product::{PAIRED, TILE, TILE_BYTES, TileProduct, product};
use super::bidirectional::{Job, Piece};
use super::wide::{LINE, Line, exp2, load, mask, narrow, narrow_apart, select, transpose};

/// Packed head and scores of a thread, kept between pieces.
#[derive(Default)]
struct Scratch {
    /// For each token a row of bf16, filled up with zeros to a multiple of 32.
    queries: Vec<Line>,
    /// For each 16 keys a tile for each 32 numbers of the head.
    keys: Vec<Line>,
    /// For each 32 keys a tile for each 16 columns of the head.
    values: Vec<Line>,
    /// Scores of 16 queries in f32, and later their outputs.
    scores: Vec<Line>,
    /// Softmax weights of 16 queries in bf16.
    weights: Vec<Line>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Sizes of a head in tiles.
#[derive(Clone, Copy)]
struct Sizes {
    /// Tokens of the text.
    n: usize,
    /// Numbers of the head.
    dim: usize,
    /// Sums of 32 numbers that a score takes.
    dim_sums: usize,
    /// Groups of 16 columns of the head.
    dim_columns: usize,
    /// Groups of 16 keys.
    key_columns: usize,
    /// Groups of 32 keys.
    key_sums: usize,
}

impl Sizes {
    fn of(n: usize, dim: usize) -> Self {
        Self {
            n,
            dim,
            dim_sums: dim.div_ceil(PAIRED),
            dim_columns: dim.div_ceil(TILE),
            key_columns: n.div_ceil(TILE),
            key_sums: n.div_ceil(PAIRED),
        }
    }
}

impl Job<'_> {
    /// A piece with the operands of its products in bf16.
    pub(super) fn run_bf16(&self, piece: &Piece) {
        SCRATCH.with_borrow_mut(|scratch| {
            // SAFETY: `Bidirectional::run` calls this where the level is `Isa::Amx`, which implies
            // every feature below.
            unsafe { self.heads(piece, scratch) };
        });
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
    fn heads(&self, piece: &Piece, scratch: &mut Scratch) {
        // SAFETY: as in `run_bf16`.
        let tiles = unsafe { Tiles::full() };
        let sizes = Sizes::of(piece.text.len(), self.dim);
        scratch.fit(sizes, piece.queries.len());
        for head in piece.heads.clone() {
            self.pack_queries(&piece.queries, head, sizes, scratch);
            self.pack_keys(&piece.text, head, sizes, scratch);
            self.pack_values(&piece.text, head, sizes, scratch);
            for first in (0..piece.queries.len()).step_by(TILE) {
                scratch.scores(&tiles, sizes, first);
                let n_rows = TILE.min(piece.queries.len() - first);
                let norm = scratch.softmax(sizes, n_rows);
                scratch.outputs(&tiles, sizes);
                self.write(piece.queries.start + first, head, &norm[..n_rows], scratch);
            }
        }
    }

    /// Rows of q in bf16, scaled so that a power of two of a score is its softmax weight.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
    fn pack_queries(&self, rows: &Range<usize>, head: usize, sizes: Sizes, scratch: &mut Scratch) {
        let scale = std::f32::consts::LOG2_E / (sizes.dim as f32).sqrt();
        let scale = _mm512_set1_ps(scale);
        let out = scratch.queries.chunks_exact_mut(sizes.dim_sums);
        for (row, lines) in rows.clone().zip(out) {
            let q = self.numbers(row, 0, head);
            for (part, line) in q.chunks(PAIRED).zip(lines) {
                let [low, high] = load(part);
                line.set(narrow(
                    _mm512_mul_ps(low, scale),
                    _mm512_mul_ps(high, scale),
                ));
            }
        }
    }

    /// For each 16 keys and 32 numbers a tile whose rows are pairs of numbers, a pair a key.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
    fn pack_keys(&self, text: &Range<usize>, head: usize, sizes: Sizes, scratch: &mut Scratch) {
        let mut tiles = scratch.keys.chunks_exact_mut(TILE);
        for first in text.clone().step_by(TILE) {
            let n = TILE.min(text.end - first);
            for part in (0..sizes.dim).step_by(PAIRED) {
                let width = PAIRED.min(sizes.dim - part);
                let mut rows = [_mm512_setzero_si512(); TILE];
                for (i, out) in rows[..n].iter_mut().enumerate() {
                    let k = &self.numbers(first + i, 1, head)[part..part + width];
                    let [low, high] = load(k);
                    *out = narrow(low, high);
                }
                let tile = tiles.next().expect("a tile for each part of each 16 keys");
                for (line, column) in tile.iter_mut().zip(transpose(rows)) {
                    line.set(column);
                }
            }
        }
    }

    /// For each 32 keys and 16 columns a tile whose rows are pairs of keys, a pair a column.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
    fn pack_values(&self, text: &Range<usize>, head: usize, sizes: Sizes, scratch: &mut Scratch) {
        let per_sum = sizes.dim_columns * TILE;
        let groups = scratch.values.chunks_exact_mut(per_sum);
        for (first, group) in text.clone().step_by(PAIRED).zip(groups) {
            for pair in 0..TILE {
                let row = first + 2 * pair;
                for column in 0..sizes.dim_columns {
                    let start = column * TILE;
                    let end = (start + TILE).min(sizes.dim);
                    let number = |row: usize| {
                        if row < text.end {
                            load(&self.numbers(row, 2, head)[start..end])[0]
                        } else {
                            _mm512_setzero_ps()
                        }
                    };
                    let even = narrow_apart(number(row));
                    let odd = _mm512_slli_epi32::<16>(narrow_apart(number(row + 1)));
                    group[column * TILE + pair].set(_mm512_or_si512(even, odd));
                }
            }
        }
    }

    /// Scales the outputs of some queries and puts them in place.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
    fn write(&self, first: usize, head: usize, norm: &[f32], scratch: &Scratch) {
        let columns = self.dim.div_ceil(TILE);
        let width = self.heads * self.dim;
        for (m, norm) in norm.iter().enumerate() {
            let start = (first + m) * width + head * self.dim;
            // SAFETY: pieces have different rows or different heads.
            let out = unsafe { self.out.part(start, self.dim) };
            let norm = _mm512_set1_ps(*norm);
            let lines = &scratch.scores[m * columns..(m + 1) * columns];
            for (part, line) in out.chunks_mut(TILE).zip(lines) {
                let scaled = _mm512_mul_ps(line.f32(), norm);
                // SAFETY: the mask names the numbers of the part.
                unsafe { _mm512_mask_storeu_ps(part.as_mut_ptr(), mask(part.len()), scaled) };
            }
        }
    }
}

impl Scratch {
    /// Room for a head; what is not written later stays zero or is never used.
    fn fit(&mut self, sizes: Sizes, n_queries: usize) {
        let zero = Line::ZERO;
        let set = |lines: &mut Vec<Line>, n: usize| {
            lines.clear();
            lines.resize(n, zero);
        };
        let rows = n_queries.next_multiple_of(TILE);
        set(&mut self.queries, rows * sizes.dim_sums);
        set(&mut self.keys, sizes.key_columns * sizes.dim_sums * TILE);
        set(&mut self.values, sizes.key_sums * sizes.dim_columns * TILE);
        set(
            &mut self.scores,
            TILE * sizes.key_columns.max(sizes.dim_columns),
        );
        set(&mut self.weights, TILE * sizes.key_sums);
    }

    /// Scores of the 16 queries from `first` on.
    fn scores(&mut self, tiles: &Tiles, sizes: Sizes, first: usize) {
        let a = &self.queries[first * sizes.dim_sums..][..TILE * sizes.dim_sums];
        assert_eq!(self.keys.len(), sizes.key_columns * sizes.dim_sums * TILE);
        assert!(
            self.scores.len() >= TILE * sizes.key_columns,
            "scores out of shape"
        );
        let job = TileProduct {
            a: a.as_ptr().cast(),
            a_stride: sizes.dim_sums * LINE,
            b: self.keys.as_ptr().cast(),
            b_next_sum: TILE_BYTES,
            b_next_column: sizes.dim_sums * TILE_BYTES,
            n_sum: sizes.dim_sums,
            out: self.scores.as_mut_ptr().cast(),
            out_stride: sizes.key_columns * LINE,
        };
        // SAFETY: 16 rows of queries, a tile for each sum and each 16 keys, 16 rows of scores with
        // a line for each 16 keys: all as asserted.
        unsafe { product(tiles, job, sizes.key_columns) };
    }

    /// Turns the first `n_rows` rows of scores into weights; returns one over the sum of each.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
    fn softmax(&mut self, sizes: Sizes, n_rows: usize) -> [f32; TILE] {
        let mut norm = [0.0; TILE];
        // Keys past the last are not there: less than every score, and no power of two is left.
        let absent = _mm512_set1_ps(-1e30);
        let last = mask(sizes.n - (sizes.key_columns - 1) * TILE);
        let rows = self.scores.chunks_exact_mut(sizes.key_columns);
        let outs = self.weights.chunks_exact_mut(sizes.key_sums);
        for ((row, out), norm) in rows.zip(outs).zip(&mut norm[..n_rows]) {
            let end = row.len() - 1;
            row[end].set_f32(select(last, row[end].f32(), absent));
            let mut max = row[0].f32();
            for line in &row[1..] {
                max = _mm512_max_ps(max, line.f32());
            }
            let max = _mm512_set1_ps(_mm512_reduce_max_ps(max));
            let mut sum = _mm512_setzero_ps();
            for (pair, out) in row.chunks(2).zip(out) {
                let low = exp2(_mm512_sub_ps(pair[0].f32(), max));
                sum = _mm512_add_ps(sum, low);
                let high = match pair.get(1) {
                    Some(line) => exp2(_mm512_sub_ps(line.f32(), max)),
                    None => _mm512_setzero_ps(),
                };
                sum = _mm512_add_ps(sum, high);
                out.set(narrow(low, high));
            }
            *norm = 1.0 / _mm512_reduce_add_ps(sum);
        }
        norm
    }

    /// Weighted sums of the values, where the scores were.
    fn outputs(&mut self, tiles: &Tiles, sizes: Sizes) {
        assert_eq!(self.weights.len(), TILE * sizes.key_sums);
        assert_eq!(self.values.len(), sizes.key_sums * sizes.dim_columns * TILE);
        assert!(
            self.scores.len() >= TILE * sizes.dim_columns,
            "outputs out of shape"
        );
        let job = TileProduct {
            a: self.weights.as_ptr().cast(),
            a_stride: sizes.key_sums * LINE,
            b: self.values.as_ptr().cast(),
            b_next_sum: sizes.dim_columns * TILE_BYTES,
            b_next_column: TILE_BYTES,
            n_sum: sizes.key_sums,
            out: self.scores.as_mut_ptr().cast(),
            out_stride: sizes.dim_columns * LINE,
        };
        // SAFETY: 16 rows of weights, a tile for each 32 keys and 16 columns, 16 rows of outputs
        // with a line for each 16 columns: all as asserted.
        unsafe { product(tiles, job, sizes.dim_columns) };
    }
}
