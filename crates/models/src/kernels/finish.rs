//! The end of a product: bias, and how it goes into the output.

use super::memory::Shared;
use super::rows::LANES;

/// What happens to a product before it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// `out = product`.
    Store,
    /// `out += product`: the residual stream takes the result of a block.
    Add,
    /// `out = silu(gate) * up`, where even runs of 16 outputs hold gate and odd ones up.
    Gate,
}

/// Most outputs written at once.
#[cfg(target_arch = "x86_64")]
const MAX_WIDTH: usize = 4 * LANES;

/// Where products go and how.
pub(super) struct Output<'a> {
    pub(super) finish: Finish,
    /// One an output.
    pub(super) bias: Option<&'a [f32]>,
    /// Columns of `out`.
    pub(super) cols: usize,
    pub(super) out: Shared<'a, f32>,
}

#[cfg(target_arch = "x86_64")]
impl Output<'_> {
    /// Writes the products of one row from output `start` on: whole runs of 16, at most 64, and
    /// whole pairs of runs for [`Finish::Gate`]. What lies past the last column is dropped.
    ///
    /// # Safety
    /// The processor has AVX2 and FMA, and nobody else writes to these outputs of this row.
    #[inline(always)]
    #[allow(unsafe_code, reason = "one output, many pieces")]
    pub(super) unsafe fn write(&self, row: usize, start: usize, products: &[f32]) {
        use super::elementwise::silu;
        let mut biased = [0.0; MAX_WIDTH];
        let biased = &mut biased[..products.len()];
        biased.copy_from_slice(products);
        if let Some(bias) = self.bias {
            for (p, b) in biased.iter_mut().zip(&bias[start..]) {
                *p += b;
            }
        }
        let shrink = if self.finish == Finish::Gate { 2 } else { 1 };
        let start = start / shrink;
        let width = (products.len() / shrink).min(self.cols - start);
        // SAFETY: the caller's word.
        let out = unsafe { self.out.part(row * self.cols + start, width) };
        match self.finish {
            Finish::Store => out.copy_from_slice(&biased[..width]),
            Finish::Add => {
                for (o, p) in out.iter_mut().zip(biased.iter()) {
                    *o += p;
                }
            }
            Finish::Gate => {
                let pairs = biased.chunks_exact(2 * LANES);
                for (out, pair) in out.chunks_mut(LANES).zip(pairs) {
                    let (gate, up) = pair.split_at(LANES);
                    for ((o, g), u) in out.iter_mut().zip(gate).zip(up) {
                        // SAFETY: the caller's word.
                        *o = unsafe { silu(*g) } * u;
                    }
                }
            }
        }
    }
}
