//! The end of a product: bias, and how it goes into the output.

use super::memory::Shared;
use super::rows::LANES;
use crate::config::Activation;

/// What happens to a product before it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// `out = product`.
    Store,
    /// `out += product`: the residual stream takes the result of a block.
    Add,
    /// `out = silu(gate) * up`, where even runs of 16 outputs hold gate and odd ones up.
    Gate,
    /// `out = activation(product)`: the first matrix of an MLP without a gate.
    Bend(Activation),
}

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
    /// Writes the products of rows from `first` on, of each from output `start` on: whole runs of
    /// 16, and whole pairs of runs for [`Finish::Gate`]. What lies past the last column is
    /// dropped. `products` is used up.
    ///
    /// One loop for each thing to do, over all rows and of a width that the compiler knows: it
    /// makes vectors of them and keeps the constants of a curve in registers.
    ///
    /// # Safety
    /// The processor has AVX2 and FMA, and nobody else writes to these outputs of these rows.
    #[inline(always)]
    #[allow(unsafe_code, reason = "one output, many pieces")]
    pub(super) unsafe fn write<const N: usize>(
        &self,
        first: usize,
        start: usize,
        products: &mut [[f32; N]],
    ) {
        if let Some(bias) = self.bias {
            let bias = padded::<N>(&bias[start..]);
            for row in products.iter_mut() {
                for (p, b) in row.iter_mut().zip(&bias) {
                    *p += b;
                }
            }
        }
        // SAFETY: the caller's word.
        unsafe { self.bend(products) };
        let (start, n) = if self.finish == Finish::Gate {
            (start / 2, N / 2)
        } else {
            (start, N)
        };
        let width = n.min(self.cols - start);
        for (m, row) in products.iter_mut().enumerate() {
            // SAFETY: the caller's word.
            let out = unsafe { self.out.part((first + m) * self.cols + start, width) };
            if self.finish == Finish::Add {
                // Not `*o += p`: the compiler cannot tell that they are apart, and adds one by one.
                for (p, o) in row.iter_mut().zip(&padded::<N>(out)) {
                    *p += o;
                }
            }
            match out.first_chunk_mut::<N>() {
                Some(out) => *out = *row,
                None => out.copy_from_slice(&row[..width]),
            }
        }
    }

    /// # Safety
    /// The processor has AVX2 and FMA.
    #[inline(always)]
    #[allow(unsafe_code, reason = "calls functions compiled for AVX2")]
    unsafe fn bend<const N: usize>(&self, products: &mut [[f32; N]]) {
        use super::elementwise::{gelu, gelu_tanh, silu};
        // SAFETY: the caller's word.
        unsafe {
            match self.finish {
                Finish::Store | Finish::Add => {}
                Finish::Gate => {
                    for row in products {
                        for i in 0..N / 2 {
                            let gate = i / LANES * 2 * LANES + i % LANES;
                            row[i] = silu(row[gate]) * row[gate + LANES];
                        }
                    }
                }
                Finish::Bend(Activation::Gelu) => {
                    for p in products.as_flattened_mut() {
                        *p = gelu(*p);
                    }
                }
                Finish::Bend(Activation::GeluTanh) => {
                    for p in products.as_flattened_mut() {
                        *p = gelu_tanh(*p);
                    }
                }
                Finish::Bend(Activation::Relu) => {
                    for p in products.as_flattened_mut() {
                        // Written with a comparison, not max: that keeps NaN.
                        *p = if *p < 0.0 { 0.0 } else { *p };
                    }
                }
            }
        }
    }
}

/// The first `N` numbers, filled up with zeros.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn padded<const N: usize>(numbers: &[f32]) -> [f32; N] {
    if let Some(all) = numbers.first_chunk::<N>() {
        return *all;
    }
    let mut some = [0.0; N];
    some[..numbers.len()].copy_from_slice(numbers);
    some
}
