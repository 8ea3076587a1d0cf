//! Products with weights in rows: f32 everywhere, bf16 on processors without AVX-512.

#![cfg(target_arch = "x86_64")]
#![allow(
    unsafe_code,
    reason = "calls the tile kernel; bounds are checked in `Matmul::run_on`"
)]

use std::ops::Range;

use super::finish::{Finish, Output};
use super::rows::{LANES, Row};
use super::tile::{Operands, accumulate, store, zeros};
use crate::parallel::Team;

/// Widest group of panels and tallest tile.
const MAX_GROUP: usize = 4;
const MAX_TILE: usize = 6;

/// Rows ahead of the one in use that are fetched from memory while one row streams all
/// weights: 8 to 32 measured equal, none 15 % slower.
const PREFETCH: usize = 16;

/// Products of one tile before the finish.
type Scratch = [f32; MAX_TILE * MAX_GROUP * LANES];

/// Computes `x` times `rows` into `output`. Shapes: `x: [rows, inputs]`, weights: `outputs`.
pub(super) fn run<R: Row>(
    (x, inputs): (&[f32], usize),
    (rows, outputs): (&[R], usize),
    team: &Team,
    output: Output<'_>,
) {
    let n_panels = outputs.div_ceil(LANES);
    let per_piece = panels_per_piece(n_panels, team.threads());
    let job = Job {
        x,
        inputs,
        m: x.len() / inputs,
        output,
    };
    team.run(n_panels.div_ceil(per_piece), &|piece| {
        let first = piece * per_piece;
        job.piece(rows, first..(first + per_piece).min(n_panels));
    });
}

/// Panels one thread claims at once: eight pieces a thread leave a late thread little to delay,
/// and whole groups of four suit the widest tile.
fn panels_per_piece(n_panels: usize, threads: usize) -> usize {
    (n_panels / (threads * 8)).next_multiple_of(4).clamp(4, 64)
}

/// Rows of the next tile when `left` rows remain: at most 6 (twelve of the sixteen registers hold
/// sums), the last two tiles evened out.
fn tile_rows(left: usize) -> usize {
    match left {
        0..=6 => left,
        7..=11 => left.div_ceil(2),
        _ => 6,
    }
}

struct Job<'a> {
    x: &'a [f32],
    inputs: usize,
    m: usize,
    output: Output<'a>,
}

impl Job<'_> {
    pub(super) fn piece<R: Row>(&self, rows: &[R], panels: Range<usize>) {
        // SAFETY: `Matmul::run_on` asserted AVX2 and FMA.
        unsafe { self.piece_avx2(rows, panels) }
    }

    #[target_feature(enable = "avx2,fma")]
    fn piece_avx2<R: Row>(&self, rows: &[R], panels: Range<usize>) {
        // Few rows: wide groups keep enough sums in flight to hide the latency of an addition.
        let widest = match self.m {
            1 => 4,
            2 | 3 => 2,
            _ if self.output.finish == Finish::Gate => 2,
            _ => 1,
        };
        let mut scratch: Scratch = [0.0; MAX_TILE * MAX_GROUP * LANES];
        let mut panel = panels.start;
        while panel < panels.end {
            let group = widest.min(panels.end - panel);
            let mut first = 0;
            while first < self.m {
                let height = tile_rows(self.m - first);
                self.products(rows, (first, height), (panel, group), &mut scratch);
                for m in 0..height {
                    let products = &scratch[m * group * LANES..(m + 1) * group * LANES];
                    // SAFETY: pieces have different panels, hence different outputs.
                    unsafe { self.finish(first + m, panel * LANES, products) };
                }
                first += height;
            }
            panel += group;
        }
    }

    /// # Safety
    /// These outputs belong to this piece.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn finish(&self, row: usize, start: usize, products: &[f32]) {
        let (pairs, last) = products.as_chunks::<{ 2 * LANES }>();
        // SAFETY: the caller's word.
        unsafe {
            for (i, pair) in pairs.iter().enumerate() {
                self.output.write(row, start + i * 2 * LANES, &mut [*pair]);
            }
            if let Some(last) = last.first_chunk::<LANES>() {
                let start = start + pairs.len() * 2 * LANES;
                self.output.write(row, start, &mut [*last]);
            }
        }
    }

    /// Rows `first..first + height` times panels `panel..panel + group`, into `scratch` as
    /// `height` rows of `group * LANES`.
    #[target_feature(enable = "avx2,fma")]
    fn products<R: Row>(
        &self,
        rows: &[R],
        (first, height): (usize, usize),
        (panel, group): (usize, usize),
        scratch: &mut Scratch,
    ) {
        let k = self.inputs;
        let x = &self.x[first * k..(first + height) * k];
        let weights = &rows[panel * k..(panel + group) * k];
        let start = |p: usize| weights[p * k..].as_ptr();
        let out = scratch.as_mut_ptr();
        // A tile of MR rows and NP panels from panel $p of the group on.
        macro_rules! tile {
            ($mr:literal, $np:literal, $p:expr) => {
                tile!($mr, $np, $p, [])
            };
            ($mr:literal, $np:literal, $p:expr, $ahead:expr) => {{
                let mut sums = zeros::<$mr, $np>();
                let panels = std::array::from_fn(|n| start($p + n));
                let a = x.as_ptr();
                let operands = Operands {
                    a,
                    a_stride: k,
                    panels,
                    ahead: $ahead,
                };
                // SAFETY: x holds $mr = height rows of k, weights hold group panels of k rows;
                // scratch holds MAX_TILE rows of MAX_GROUP * LANES.
                unsafe {
                    accumulate(&mut sums, &operands, k);
                    store(&sums, out.add($p * LANES), group * LANES);
                }
            }};
        }
        match (height, group) {
            (1, 4) => {
                let ahead = std::array::from_fn(|n| start(n).wrapping_add(PREFETCH));
                tile!(1, 4, 0, [ahead]);
            }
            (2, 2) => tile!(2, 2, 0),
            (3, 2) => tile!(3, 2, 0),
            _ => {
                for p in 0..group {
                    match height {
                        1 => tile!(1, 1, p),
                        2 => tile!(2, 1, p),
                        3 => tile!(3, 1, p),
                        4 => tile!(4, 1, p),
                        5 => tile!(5, 1, p),
                        _ => tile!(6, 1, p),
                    }
                }
            }
        }
    }
}
