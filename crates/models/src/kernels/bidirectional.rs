//! Attention of every token of a text to every token of the same text.
//!
//! Texts of a batch stand one behind the other without padding. A piece of work is some heads of
//! one text and some of its queries: keys and values of a head are packed for the products, then
//! scores, softmax and weighted sums follow a few queries at a time. A text's result does not
//! depend on its neighbours, bit for bit. The pieces themselves are in `bidirectional_avx2`
//! (products in f32) and `bidirectional_amx` (in bf16).

use std::ops::Range;

use super::cpu::Isa;
use super::memory::Shared;
use crate::device::Dtype;
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
    /// Format that the operands of products may be rounded to, where the processor is faster so.
    pub dtype: Dtype,
}

/// One head range of one text and the queries a piece answers.
#[derive(Clone)]
pub(super) struct Piece {
    pub(super) text: TextRows,
    pub(super) queries: Range<usize>,
    pub(super) heads: Range<usize>,
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
        let narrow = self.dtype == Dtype::Bf16 && Isa::best() == Some(Isa::Amx);
        team.run(pieces.len(), &|i| {
            let piece = &pieces[pieces.len() - 1 - i];
            if narrow {
                job.run_bf16(piece);
            } else {
                job.run_f32(piece);
            }
        });
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

/// What all pieces share; shapes are checked.
pub(super) struct Job<'a> {
    pub(super) heads: usize,
    pub(super) dim: usize,
    pub(super) qkv: &'a [f32],
    pub(super) out: &'a Shared<'a, f32>,
}

#[cfg(target_arch = "x86_64")]
impl Job<'_> {
    /// One row of q (`part` 0), k (1) or v (2).
    pub(super) fn numbers(&self, row: usize, part: usize, head: usize) -> &[f32] {
        let start = ((3 * row + part) * self.heads + head) * self.dim;
        &self.qkv[start..start + self.dim]
    }
}

#[cfg(not(target_arch = "x86_64"))]
impl Job<'_> {
    fn run_f32(&self, _: &Piece) {
        unreachable!("`available` is false on this processor");
    }

    fn run_bf16(&self, _: &Piece) {
        unreachable!("`available` is false on this processor");
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

    fn run(job: &Bidirectional<'_>, team: &Team, qkv: &[f32]) -> Vec<f32> {
        let mut out = vec![f32::NAN; qkv.len() / 3];
        job.run(team, qkv, &mut out);
        out
    }

    fn numbers(n: usize) -> Vec<f32> {
        let number = |i: usize| ((i * 7919 + i / 13) % 2003) as f32 / 500.0 - 2.0;
        (0..n).map(number).collect()
    }

    #[test]
    fn ragged_texts_and_odd_widths_are_the_formula() {
        let team = Team::new(2);
        for (heads, head_dim) in [
            (1, 1),
            (3, 8),
            (2, 16),
            (4, 20),
            (12, 32),
            (2, 64),
            (1, 100),
        ] {
            let texts = [0..1, 1..8, 8..24, 24..41, 41..181];
            let qkv = numbers(181 * 3 * heads * head_dim);
            let expected = plain(&texts, heads, head_dim, &qkv);
            // Values are up to 2, and bf16 has 8 bits.
            for (dtype, allowed) in [(Dtype::F32, 1e-5), (Dtype::Bf16, 2e-2)] {
                let job = Bidirectional {
                    texts: &texts,
                    heads,
                    head_dim,
                    dtype,
                };
                let out = run(&job, &team, &qkv);
                for (i, (a, b)) in out.iter().zip(&expected).enumerate() {
                    let off = (a - b).abs();
                    assert!(
                        off < allowed,
                        "{dtype} {heads}x{head_dim} at {i}: {a} for {b}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_text_is_the_same_alone_and_in_company() {
        let (team, heads, head_dim) = (Team::new(2), 2, 32);
        let row = 3 * heads * head_dim;
        let qkv = numbers(200 * row);
        for dtype in [Dtype::F32, Dtype::Bf16] {
            let run = |texts: &[TextRows], qkv: &[f32]| {
                let job = Bidirectional {
                    texts,
                    heads,
                    head_dim,
                    dtype,
                };
                run(&job, &team, qkv)
            };
            let together = run(&[0..30, 30..167, 167..200], &qkv);
            let one = std::slice::from_ref(&(0..137));
            let alone = run(one, &qkv[30 * row..167 * row]);
            assert_eq!(together[30 * row / 3..167 * row / 3], alone, "{dtype}");
        }
    }
}
