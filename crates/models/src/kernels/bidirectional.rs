//! Attention of every token of a text to every token of the same text.
//!
//! Texts of a batch stand one behind the other without padding. A piece of work is one head of one
//! text and some of its queries: keys and values of the head are packed as panels for the tile
//! kernel, then scores, softmax and weighted sums follow a few queries at a time. A text's result
//! does not depend on its neighbours, bit for bit.

use std::ops::Range;

use super::memory::Shared;
use crate::parallel::Team;

/// Queries of one piece: keys are packed anew in each, which 128 queries make cheap.
const QUERIES_PER_PIECE: usize = 128;

/// Multiplications worth a claim; the pieces of short texts take several heads.
const WORK_PER_PIECE: usize = 1 << 17;

/// Rows of one text in a batch.
pub type TextRows = Range<usize>;

/// One attention over a batch.
pub struct Bidirectional<'a> {
    /// The rows of each text.
    pub texts: &'a [TextRows],
    /// Heads.
    pub heads: usize,
    /// Width of a head.
    pub head_dim: usize,
}

/// One head range of one text and the queries a piece answers.
#[derive(Clone)]
struct Piece {
    text: TextRows,
    queries: Range<usize>,
    heads: Range<usize>,
}

impl Bidirectional<'_> {
    /// Shapes: `qkv: [rows, 3 * heads * head_dim]`, `out: [rows, heads * head_dim]`.
    ///
    /// # Panics
    /// On shapes that do not fit, and on a processor without AVX2 and FMA.
    pub fn run(&self, team: &Team, qkv: &[f32], out: &mut [f32]) {
        assert!(super::available(), "the processor has AVX2 and FMA");
        let width = self.heads * self.head_dim;
        let n_rows = out.len() / width;
        assert_eq!(out.len(), n_rows * width, "out out of shape");
        assert_eq!(qkv.len(), 3 * n_rows * width, "qkv out of shape");
        let fits = |text: &TextRows| text.start <= text.end && text.end <= n_rows;
        assert!(self.texts.iter().all(fits), "text out of rows");
        let pieces: Vec<Piece> = self.texts.iter().flat_map(|t| self.pieces(t)).collect();
        let out = Shared::new(out);
        let job = Job {
            heads: self.heads,
            dim: self.head_dim,
            qkv,
            out: &out,
        };
        // Long texts stand at the end of a batch and go first, so that none is left for the end.
        team.run(pieces.len(), &|i| job.run(&pieces[pieces.len() - 1 - i]));
    }

    fn pieces(&self, text: &TextRows) -> Vec<Piece> {
        let n = text.len();
        let per_head = n * n.min(QUERIES_PER_PIECE) * self.head_dim * 2;
        let n_heads = (WORK_PER_PIECE / per_head.max(1)).clamp(1, self.heads);
        let mut pieces = Vec::new();
        for start in text.clone().step_by(QUERIES_PER_PIECE) {
            for head in (0..self.heads).step_by(n_heads) {
                pieces.push(Piece {
                    text: text.clone(),
                    queries: start..(start + QUERIES_PER_PIECE).min(text.end),
                    heads: head..(head + n_heads).min(self.heads),
                });
            }
        }
        pieces
    }
}

struct Job<'a> {
    heads: usize,
    dim: usize,
    qkv: &'a [f32],
    out: &'a Shared<'a, f32>,
}

#[cfg(not(target_arch = "x86_64"))]
impl Job<'_> {
    fn run(&self, _: &Piece) {
        unreachable!("`available` is false on this processor");
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    #![allow(
        unsafe_code,
        reason = "calls the tile kernel; shapes are checked in `Bidirectional::run`"
    )]

    use std::cell::RefCell;
    use std::ops::Range;

    use super::super::elementwise::softmax_weights;
    use super::super::rows::{LANES, Row, RowF32};
    use super::super::tile::{Operands, accumulate, store, zeros};
    use super::{Job, Piece};

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
        pub(super) fn run(&self, piece: &Piece) {
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

        /// One row of q (`part` 0), k (1) or v (2).
        fn numbers(&self, row: usize, part: usize, head: usize) -> &[f32] {
            let start = ((3 * row + part) * self.heads + head) * self.dim;
            &self.qkv[start..start + self.dim]
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(texts: &[TextRows], heads: usize, dim: usize, qkv: &[f32]) -> Vec<f32> {
        let width = heads * dim;
        let at = |row: usize, part: usize, column: usize| {
            f64::from(qkv[(3 * row + part) * width + column])
        };
        let mut out = vec![0.0; qkv.len() / 3];
        for text in texts {
            for (row, head) in text.clone().flat_map(|r| (0..heads).map(move |h| (r, h))) {
                let columns = head * dim..(head + 1) * dim;
                let score = |key: usize| {
                    let dot: f64 = columns.clone().map(|c| at(row, 0, c) * at(key, 1, c)).sum();
                    (dot / (dim as f64).sqrt()).exp()
                };
                let weights: Vec<f64> = text.clone().map(score).collect();
                let total: f64 = weights.iter().sum();
                for c in columns.clone() {
                    let pairs = text.clone().zip(&weights);
                    let sum: f64 = pairs.map(|(key, w)| w * at(key, 2, c)).sum();
                    out[row * width + c] = (sum / total) as f32;
                }
            }
        }
        out
    }

    fn numbers(n: usize) -> Vec<f32> {
        let number = |i: usize| ((i * 7919 + i / 13) % 2003) as f32 / 500.0 - 2.0;
        (0..n).map(number).collect()
    }

    #[test]
    fn ragged_texts_and_odd_widths_are_the_formula() {
        let team = Team::new(2);
        for (heads, head_dim) in [(1, 1), (3, 8), (2, 16), (4, 20), (12, 32), (2, 64)] {
            let texts = [0..1, 1..8, 8..24, 24..41, 41..181];
            let qkv = numbers(181 * 3 * heads * head_dim);
            let job = Bidirectional {
                texts: &texts,
                heads,
                head_dim,
            };
            let mut out = vec![f32::NAN; 181 * heads * head_dim];
            job.run(&team, &qkv, &mut out);
            let expected = plain(&texts, heads, head_dim, &qkv);
            for (i, (a, b)) in out.iter().zip(&expected).enumerate() {
                assert!(
                    (a - b).abs() < 1e-5,
                    "{heads}x{head_dim} at {i}: {a} for {b}"
                );
            }
        }
    }

    #[test]
    fn a_text_is_the_same_alone_and_in_company() {
        let (team, heads, head_dim) = (Team::new(2), 2, 32);
        let row = 3 * heads * head_dim;
        let qkv = numbers(200 * row);
        let run = |texts: &[TextRows], qkv: &[f32]| {
            let mut out = vec![0.0; qkv.len() / 3];
            let job = Bidirectional {
                texts,
                heads,
                head_dim,
            };
            job.run(&team, qkv, &mut out);
            out
        };
        let together = run(&[0..30, 30..167, 167..200], &qkv);
        let one = std::slice::from_ref(&(0..137));
        let alone = run(one, &qkv[30 * row..167 * row]);
        assert_eq!(together[30 * row / 3..167 * row / 3], alone);
    }
}
