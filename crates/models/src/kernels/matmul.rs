//! Rows of activations times a packed weight matrix, with the finish of the layer fused in.

use super::memory::{Rows, Shared};
use super::rows::{LANES, Row, RowBf16, RowF32};
use crate::device::Dtype;
use crate::parallel::Team;

/// A weight matrix of `outputs` rows and `inputs` columns, packed for the tile kernel.
///
/// Panel `p` holds outputs `16 p .. 16 p + 16`: for each input one row of 16 weights. Outputs are
/// filled up with zeros to whole panels.
pub struct PackedMatrix {
    outputs: usize,
    inputs: usize,
    panels: Panels,
}

enum Panels {
    F32(Rows<RowF32>),
    Bf16(Rows<RowBf16>),
}

impl PackedMatrix {
    /// A matrix of zeros, to be filled by [`PackedMatrix::set_output`].
    pub fn zeros(dtype: Dtype, outputs: usize, inputs: usize) -> Self {
        let n_rows = outputs.div_ceil(LANES) * inputs;
        let panels = match dtype {
            Dtype::F32 => Panels::F32(Rows::zeros(n_rows)),
            Dtype::Bf16 => Panels::Bf16(Rows::zeros(n_rows)),
        };
        Self {
            outputs,
            inputs,
            panels,
        }
    }

    /// Number of outputs, without the filling.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Number of inputs.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Memory held. Unit: bytes.
    pub fn bytes(&self) -> usize {
        match &self.panels {
            Panels::F32(rows) => size_of_val::<[RowF32]>(rows),
            Panels::Bf16(rows) => size_of_val::<[RowBf16]>(rows),
        }
    }

    /// Sets the weights of one output. Shape: `[inputs]`.
    ///
    /// # Panics
    /// On an output or a length that the matrix does not have.
    pub fn set_output(&mut self, output: usize, weights: &[f32]) {
        assert!(
            output < self.outputs && weights.len() == self.inputs,
            "set_output out of shape"
        );
        let (start, lane) = (output / LANES * self.inputs, output % LANES);
        fn fill<R: Row>(rows: &mut [R], lane: usize, weights: &[f32]) {
            for (row, w) in rows.iter_mut().zip(weights) {
                row.set(lane, *w);
            }
        }
        match &mut self.panels {
            Panels::F32(rows) => fill(&mut rows[start..], lane, weights),
            Panels::Bf16(rows) => fill(&mut rows[start..], lane, weights),
        }
    }

    /// Reads the weights of one output back: a tied embedding is looked up here.
    ///
    /// # Panics
    /// On an output or a length that the matrix does not have.
    pub fn read_output(&self, output: usize, out: &mut [f32]) {
        assert!(
            output < self.outputs && out.len() == self.inputs,
            "read_output out of shape"
        );
        let (start, lane) = (output / LANES * self.inputs, output % LANES);
        fn copy<R: Row>(rows: &[R], lane: usize, out: &mut [f32]) {
            for (o, row) in out.iter_mut().zip(rows) {
                *o = row.get(lane);
            }
        }
        match &self.panels {
            Panels::F32(rows) => copy(&rows[start..], lane, out),
            Panels::Bf16(rows) => copy(&rows[start..], lane, out),
        }
    }
}

/// What happens to a product before it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// `out = product`.
    Store,
    /// `out += product`: the residual stream takes the result of a block.
    Add,
    /// `out = silu(gate) * up`, where even panels hold gate and odd panels up.
    Gate,
}

/// One product: what is multiplied and how it ends.
pub struct Matmul<'a> {
    /// Shape: `[rows, inputs]`.
    pub x: &'a [f32],
    /// The weights.
    pub w: &'a PackedMatrix,
    /// Added to the product first. Shape: `[outputs]`.
    pub bias: Option<&'a [f32]>,
    /// The finish.
    pub finish: Finish,
}

impl Matmul<'_> {
    /// Computes all rows into `out`. Shape: `[rows, outputs]`, half of the outputs for
    /// [`Finish::Gate`] (their filling is left out).
    ///
    /// # Panics
    /// On shapes that do not fit, and on a processor without AVX2 and FMA.
    pub fn run(&self, team: &Team, out: &mut [f32]) {
        assert!(super::available(), "the processor has AVX2 and FMA");
        let (inputs, outputs) = (self.w.inputs, self.w.outputs);
        let m = self.x.len() / inputs;
        assert_eq!(self.x.len(), m * inputs, "x is not whole rows");
        assert!(
            self.bias.is_none_or(|b| b.len() == outputs),
            "bias out of shape"
        );
        if m == 0 {
            return;
        }
        let out_cols = out.len() / m;
        let expected = if self.finish == Finish::Gate {
            outputs / 2
        } else {
            outputs
        };
        assert!(out.len() == m * out_cols, "out is not whole rows");
        assert!(
            out_cols <= expected && out_cols.div_ceil(LANES) == expected.div_ceil(LANES),
            "out has {out_cols} columns, the product {expected}"
        );
        let n_panels = outputs.div_ceil(LANES);
        let per_piece = panels_per_piece(n_panels, team.threads());
        let out = Shared::new(out);
        let job = Job {
            matmul: self,
            m,
            out_cols,
            out: &out,
        };
        team.run(n_panels.div_ceil(per_piece), &|piece| {
            let first = piece * per_piece;
            let panels = first..(first + per_piece).min(n_panels);
            match &self.w.panels {
                Panels::F32(rows) => job.piece(rows, panels),
                Panels::Bf16(rows) => job.piece(rows, panels),
            }
        });
    }
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
    matmul: &'a Matmul<'a>,
    m: usize,
    out_cols: usize,
    out: &'a Shared<'a, f32>,
}

#[cfg(not(target_arch = "x86_64"))]
impl Job<'_> {
    fn piece<R: Row>(&self, _rows: &[R], _panels: std::ops::Range<usize>) {
        unreachable!("`available` is false on this processor");
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    #![allow(
        unsafe_code,
        reason = "calls the tile kernel; bounds are checked in `Matmul::run`"
    )]

    use std::ops::Range;

    use super::super::elementwise::silu;
    use super::super::tile::{Operands, accumulate, store, zeros};
    use super::{Finish, Job, LANES, Row, tile_rows};

    /// Widest group of panels and tallest tile.
    const MAX_GROUP: usize = 4;
    const MAX_TILE: usize = 6;

    /// Rows ahead of the one in use that are fetched from memory while one row streams all
    /// weights: 8 to 32 measured equal, none 15 % slower.
    const PREFETCH: usize = 16;

    /// Products of one tile before the finish.
    type Scratch = [f32; MAX_TILE * MAX_GROUP * LANES];

    impl Job<'_> {
        pub(super) fn piece<R: Row>(&self, rows: &[R], panels: Range<usize>) {
            // SAFETY: `Matmul::run` asserted AVX2 and FMA.
            unsafe { self.piece_avx2(rows, panels) }
        }

        #[target_feature(enable = "avx2,fma")]
        fn piece_avx2<R: Row>(&self, rows: &[R], panels: Range<usize>) {
            // Few rows: wide groups keep enough sums in flight to hide the latency of an addition.
            let widest = match self.m {
                1 => 4,
                2 | 3 => 2,
                _ if self.matmul.finish == Finish::Gate => 2,
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
                        self.finish(first + m, panel, products);
                    }
                    first += height;
                }
                panel += group;
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
            let k = self.matmul.w.inputs;
            let x = &self.matmul.x[first * k..(first + height) * k];
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

        /// Writes the products of one row from panel `panel` on.
        #[target_feature(enable = "avx2,fma")]
        fn finish(&self, row: usize, panel: usize, products: &[f32]) {
            let start = panel * LANES;
            let mut biased = [0.0; MAX_GROUP * LANES];
            let biased = &mut biased[..products.len()];
            biased.copy_from_slice(products);
            if let Some(bias) = self.matmul.bias {
                for (p, b) in biased.iter_mut().zip(&bias[start..]) {
                    *p += b;
                }
            }
            let gated = self.matmul.finish == Finish::Gate;
            let start = if gated { start / 2 } else { start };
            let width = if gated {
                products.len() / 2
            } else {
                products.len()
            };
            let width = width.min(self.out_cols - start);
            // SAFETY: pieces have different panels, hence different columns of every row.
            let out = unsafe { self.out.part(row * self.out_cols + start, width) };
            match self.matmul.finish {
                Finish::Store => out.copy_from_slice(&biased[..width]),
                Finish::Add => out.iter_mut().zip(biased.iter()).for_each(|(o, p)| *o += p),
                Finish::Gate => {
                    let pairs = biased.chunks_exact(2 * LANES);
                    for (out, pair) in out.chunks_mut(LANES).zip(pairs) {
                        let (gate, up) = pair.split_at(LANES);
                        for ((o, g), u) in out.iter_mut().zip(gate).zip(up) {
                            *o = silu(*g) * u;
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "matmul_tests.rs"]
mod tests;
