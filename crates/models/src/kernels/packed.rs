//! Weight matrices, packed once at load in the order in which the products read them.

use super::cpu::Isa;
use super::memory::Rows;
use super::rows::{LANES, Row, RowBf16, RowF32};
use super::tiles::{Kind, Tiles};
use crate::device::Dtype;
use crate::quant::{GROUP, NibbleGroup, Quant};

/// What a product computes with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// f32 weights and activations.
    F32,
    /// bf16 weights; activations are rounded to bf16 too where the processor has AVX-512.
    Bf16,
    /// Weights of 8 bits, one scale an output; activations of 16 bits, one scale a row.
    Int8,
    /// Weights of 8 bits, one scale an output; activations of 8 bits, one scale a row.
    Int8Dynamic,
    /// Weights of 4 bits in groups of 32; activations of 16 bits, one scale a row.
    Int4,
}

impl Format {
    /// The format of a model's matrices.
    pub fn of(dtype: Dtype, quant: Quant) -> Self {
        match (quant, dtype) {
            (Quant::None, Dtype::F32) => Self::F32,
            (Quant::None, Dtype::Bf16) => Self::Bf16,
            (Quant::Int8, _) => Self::Int8,
            (Quant::Int8Dynamic, _) => Self::Int8Dynamic,
            (Quant::Int4, _) => Self::Int4,
        }
    }

    /// The format of the embedding and the output matrix: as the others, but of 8 bits where
    /// those have 4. A token's whole meaning hangs on one row of it.
    pub fn of_vocabulary(dtype: Dtype, quant: Quant) -> Self {
        match Self::of(dtype, quant) {
            Self::Int4 => Self::Int8,
            other => other,
        }
    }
}

/// A weight matrix of `outputs` rows and `inputs` columns.
pub struct PackedMatrix {
    outputs: usize,
    inputs: usize,
    format: Format,
    pub(super) store: Store,
}

/// The weights.
pub(super) enum Store {
    /// Panel `p` holds outputs `16 p .. 16 p + 16`: for each input one row of 16 weights. Outputs
    /// are filled up with zeros to whole panels.
    F32(Rows<RowF32>),
    /// As `F32`, for processors without AVX-512.
    Bf16(Rows<RowBf16>),
    /// Everything else.
    Tiles(Tiles),
}

impl PackedMatrix {
    /// A matrix of zeros for this processor, to be filled by [`PackedMatrix::set_output`].
    pub fn zeros(format: Format, outputs: usize, inputs: usize) -> Self {
        let isa = Isa::best().unwrap_or(Isa::Avx2);
        Self::zeros_for(isa, format, outputs, inputs)
    }

    /// [`PackedMatrix::zeros`] for a level of instructions and those above it.
    pub fn zeros_for(isa: Isa, format: Format, outputs: usize, inputs: usize) -> Self {
        let n_rows = outputs.div_ceil(LANES) * inputs;
        let tiles = |kind| Store::Tiles(Tiles::zeros(kind, outputs, inputs));
        let store = match format {
            Format::F32 => Store::F32(Rows::zeros(n_rows)),
            Format::Bf16 if isa == Isa::Avx2 => Store::Bf16(Rows::zeros(n_rows)),
            Format::Bf16 => tiles(Kind::Bf16),
            Format::Int8 | Format::Int8Dynamic => tiles(Kind::Byte),
            Format::Int4 => tiles(Kind::Nibble),
        };
        Self {
            outputs,
            inputs,
            format,
            store,
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

    /// The format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Memory held. Unit: bytes.
    pub fn bytes(&self) -> usize {
        match &self.store {
            Store::F32(rows) => size_of_val::<[RowF32]>(rows),
            Store::Bf16(rows) => size_of_val::<[RowBf16]>(rows),
            Store::Tiles(tiles) => tiles.bytes(),
        }
    }

    /// Sets the weights of one output, rounded to what the format holds. Shape: `[inputs]`.
    ///
    /// # Panics
    /// On an output or a length that the matrix does not have.
    pub fn set_output(&mut self, output: usize, weights: &[f32]) {
        self.check(output, weights.len());
        let (start, lane) = (output / LANES * self.inputs, output % LANES);
        fn fill<R: Row>(rows: &mut [R], lane: usize, weights: &[f32]) {
            for (row, w) in rows.iter_mut().zip(weights) {
                row.set(lane, *w);
            }
        }
        match &mut self.store {
            Store::F32(rows) => fill(&mut rows[start..], lane, weights),
            Store::Bf16(rows) => fill(&mut rows[start..], lane, weights),
            Store::Tiles(tiles) => tiles.set_output(output, weights),
        }
    }

    /// Sets the weights of one output to groups that are quantised already.
    ///
    /// # Panics
    /// If the format is not [`Format::Int4`], and on an output or a length that the matrix does
    /// not have.
    pub fn set_output_groups(&mut self, output: usize, groups: &[NibbleGroup]) {
        self.check(output, groups.len() * GROUP);
        let Store::Tiles(tiles) = &mut self.store else {
            panic!("{:?} has no groups", self.format);
        };
        for (g, group) in groups.iter().enumerate() {
            tiles.set_group(output, g, group);
        }
    }

    /// Reads the weights of one output back: a tied embedding is looked up here.
    ///
    /// # Panics
    /// On an output or a length that the matrix does not have.
    pub fn read_output(&self, output: usize, out: &mut [f32]) {
        self.check(output, out.len());
        let (start, lane) = (output / LANES * self.inputs, output % LANES);
        fn copy<R: Row>(rows: &[R], lane: usize, out: &mut [f32]) {
            for (o, row) in out.iter_mut().zip(rows) {
                *o = row.get(lane);
            }
        }
        match &self.store {
            Store::F32(rows) => copy(&rows[start..], lane, out),
            Store::Bf16(rows) => copy(&rows[start..], lane, out),
            Store::Tiles(tiles) => tiles.read_output(output, out),
        }
    }

    fn check(&self, output: usize, n_weights: usize) {
        assert!(
            output < self.outputs && n_weights == self.inputs,
            "output {output} of {n_weights} weights in a matrix of {} x {}",
            self.outputs,
            self.inputs
        );
    }
}
