//! Rows of activations times a packed weight matrix, with the finish of the layer fused in.

use super::cpu::Isa;
pub use super::finish::Finish;
use super::finish::Output;
use super::memory::Shared;
use super::packed::Store;
pub use super::packed::{Format, PackedMatrix};
use super::rows::LANES;
use crate::parallel::Team;

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
        let isa = Isa::best().expect("the processor has AVX2 and FMA");
        self.run_on(isa, team, out);
    }

    /// [`Matmul::run`] with the instructions of `isa`: for tests that hold them against each
    /// other.
    ///
    /// # Panics
    /// As [`Matmul::run`], and on a processor without `isa` or a matrix packed for a higher one.
    pub fn run_on(&self, isa: Isa, team: &Team, out: &mut [f32]) {
        assert!(
            Isa::all().any(|here| here == isa),
            "the processor has {isa}"
        );
        let (inputs, outputs) = (self.w.inputs(), self.w.outputs());
        let m = self.x.len() / inputs;
        assert_eq!(self.x.len(), m * inputs, "x is not whole rows");
        assert!(
            self.bias.is_none_or(|b| b.len() == outputs),
            "bias out of shape"
        );
        if m == 0 {
            return;
        }
        let cols = out.len() / m;
        let expected = if self.finish == Finish::Gate {
            outputs / 2
        } else {
            outputs
        };
        assert!(out.len() == m * cols, "out is not whole rows");
        assert!(
            cols <= expected && cols.div_ceil(LANES) == expected.div_ceil(LANES),
            "out has {cols} columns, the product {expected}"
        );
        let output = Output {
            finish: self.finish,
            bias: self.bias,
            cols,
            out: Shared::new(out),
        };
        self.dispatch(isa, team, output);
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn dispatch(&self, _: Isa, _: &Team, _: Output<'_>) {
        unreachable!("no level of instructions is here");
    }

    #[cfg(target_arch = "x86_64")]
    fn dispatch(&self, isa: Isa, team: &Team, output: Output<'_>) {
        use super::{matmul_rows, matmul_tiles};
        let x = (self.x, self.w.inputs());
        match &self.w.store {
            Store::F32(rows) => matmul_rows::run(x, (rows, self.w.outputs()), team, output),
            Store::Bf16(rows) => matmul_rows::run(x, (rows, self.w.outputs()), team, output),
            Store::Tiles(tiles) => {
                assert!(
                    isa != Isa::Avx2 || self.w.format() != Format::Bf16,
                    "bf16 tiles need AVX-512"
                );
                let planes = match self.w.format() {
                    Format::Int8 | Format::Int4 => 2,
                    Format::F32 | Format::Bf16 | Format::Int8Dynamic => 1,
                };
                matmul_tiles::run(isa, x, (tiles, planes), team, output);
            }
        }
    }
}

#[cfg(test)]
#[path = "matmul_tests.rs"]
mod tests;
