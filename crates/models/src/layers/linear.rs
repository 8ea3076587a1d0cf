//! Matrices of weights, and the linear layer: `x W^T + b`.

use std::sync::Arc;

use tch::Tensor;

use super::{Compute, numbers, numbers_mut, shape};
use crate::config::Activation;
use crate::error::ModelError;
use crate::kernels::matmul::{Finish, Format, Matmul, PackedMatrix};
use crate::kernels::rows::LANES;
use crate::weights::{Taken, Weights};

/// Weights of one linear layer, or an embedding. Shape: `[outputs, inputs]`.
pub enum Matrix {
    /// For our own loops.
    Packed(Arc<PackedMatrix>),
    /// For LibTorch's operators.
    Torch(Tensor),
}

impl Matrix {
    /// Reads `parts`, one below the other: fused projections read the input once.
    ///
    /// # Errors
    /// What reading a tensor can give; see [`Weights::read`].
    pub fn read(
        compute: &Compute,
        weights: &Weights,
        parts: &[&Taken],
    ) -> Result<Self, ModelError> {
        Self::read_as(compute, compute.format(), weights, parts)
    }

    fn read_vocabulary(
        compute: &Compute,
        weights: &Weights,
        part: &Taken,
    ) -> Result<Self, ModelError> {
        Self::read_as(compute, compute.vocabulary_format(), weights, &[part])
    }

    /// Embedding and output matrix, which may be one, and the memory of both. Unit: bytes.
    ///
    /// # Errors
    /// As [`Matrix::read`].
    pub fn read_tables(
        compute: &Compute,
        weights: &Weights,
        embedding: &Taken,
        head: Option<&Taken>,
    ) -> Result<(Self, Self, usize), ModelError> {
        let embedding = Self::read_vocabulary(compute, weights, embedding)?;
        let Some(head) = head else {
            let (shared, bytes) = (embedding.share(), embedding.bytes());
            return Ok((embedding, shared, bytes));
        };
        let head = Self::read_vocabulary(compute, weights, head)?;
        let bytes = embedding.bytes() + head.bytes();
        Ok((embedding, head, bytes))
    }

    fn read_as(
        compute: &Compute,
        format: Format,
        weights: &Weights,
        parts: &[&Taken],
    ) -> Result<Self, ModelError> {
        let rows: usize = parts.iter().map(|p| p.rows()).sum();
        let starts = parts.iter().scan(0, |next, part| {
            let start = *next;
            *next += part.rows();
            Some(move |row: usize| start + row)
        });
        let to = (format, rows);
        Self::read_to(compute, weights, parts, to, starts)
    }

    /// Reads a gate and an up projection for [`Finish::Gate`]: their panels alternate. For
    /// LibTorch's operators gate stands above up.
    ///
    /// # Errors
    /// As [`Matrix::read`].
    pub fn read_gated(
        compute: &Compute,
        weights: &Weights,
        gate: &Taken,
        up: &Taken,
    ) -> Result<Self, ModelError> {
        if compute.team.is_none() {
            return Self::read(compute, weights, &[gate, up]);
        }
        let rows = 2 * gate.rows().next_multiple_of(LANES);
        let places = [0, LANES].map(|half| move |row: usize| gated_place(row, half));
        Self::read_to(
            compute,
            weights,
            &[gate, up],
            (compute.format(), rows),
            places,
        )
    }

    fn read_to<F: Fn(usize) -> usize>(
        compute: &Compute,
        weights: &Weights,
        parts: &[&Taken],
        (format, rows): (Format, usize),
        places: impl IntoIterator<Item = F>,
    ) -> Result<Self, ModelError> {
        let cols = parts[0].cols();
        assert!(
            parts.iter().all(|p| p.cols() == cols),
            "fused parts have one width"
        );
        if compute.team.is_some() {
            let mut packed = PackedMatrix::zeros(format, rows, cols);
            for (part, place) in parts.iter().zip(places) {
                pack(&mut packed, weights, part, place)?;
            }
            return Ok(Self::Packed(Arc::new(packed)));
        }
        let options = (compute.dtype.kind(), compute.device.torch());
        let tensor = Tensor::f_empty([rows as i64, cols as i64], options)?;
        let mut next = 0;
        for part in parts {
            let mut copied = Ok(());
            weights.read(part, |start, piece| {
                let n = (piece.len() / cols) as i64;
                let copy = || -> Result<(), tch::TchError> {
                    let piece = Tensor::f_from_slice(piece)?.f_view([n, cols as i64])?;
                    tensor
                        .f_narrow(0, (next + start) as i64, n)?
                        .f_copy_(&piece)
                };
                if copied.is_ok() {
                    copied = copy();
                }
            })?;
            copied?;
            next += part.rows();
        }
        Ok(Self::Torch(tensor))
    }

    /// A matrix of numbers that are already in memory, in another order than stored.
    /// Shape: `rows: [outputs, inputs]`.
    ///
    /// # Errors
    /// [`ModelError::Torch`] if the device has no room.
    pub fn of_rows(compute: &Compute, rows: &[f32], inputs: usize) -> Result<Self, ModelError> {
        let outputs = rows.len() / inputs;
        assert_eq!(rows.len(), outputs * inputs, "rows out of shape");
        if compute.team.is_some() {
            let mut packed = PackedMatrix::zeros(compute.format(), outputs, inputs);
            for (output, row) in rows.chunks_exact(inputs).enumerate() {
                packed.set_output(output, row);
            }
            return Ok(Self::Packed(Arc::new(packed)));
        }
        Ok(Self::Torch(
            Tensor::f_from_slice(rows)?
                .f_view([outputs as i64, inputs as i64])?
                .f_to_kind(compute.dtype.kind())?
                .f_to_device(compute.device.torch())?,
        ))
    }

    /// A matrix of zeros, whose pages are not touched.
    ///
    /// # Errors
    /// [`ModelError::Torch`] if the device has no room.
    pub fn zeros(compute: &Compute, outputs: usize, inputs: usize) -> Result<Self, ModelError> {
        if compute.team.is_some() {
            let packed = PackedMatrix::zeros(compute.format(), outputs, inputs);
            return Ok(Self::Packed(Arc::new(packed)));
        }
        let options = (compute.dtype.kind(), compute.device.torch());
        let shape = [outputs as i64, inputs as i64];
        Ok(Self::Torch(Tensor::f_zeros(shape, options)?))
    }

    /// Another owner of the same weights: a tied head. (Not an `Arc` around the whole: LibTorch's
    /// tensors may move between threads but not be shared by them.)
    fn share(&self) -> Self {
        match self {
            Self::Packed(packed) => Self::Packed(Arc::clone(packed)),
            Self::Torch(tensor) => Self::Torch(tensor.shallow_clone()),
        }
    }

    /// Memory held. Unit: bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Packed(packed) => packed.bytes(),
            Self::Torch(tensor) => tensor.numel() * tensor.kind().elt_size_in_bytes(),
        }
    }

    fn outputs(&self) -> usize {
        match self {
            Self::Packed(packed) => packed.outputs(),
            Self::Torch(tensor) => tensor.size()[0] as usize,
        }
    }
}

/// Puts the rows of a tensor where `place` says, as they are stored where the formats agree.
fn pack(
    packed: &mut PackedMatrix,
    weights: &Weights,
    part: &Taken,
    place: impl Fn(usize) -> usize,
) -> Result<(), ModelError> {
    if packed.format() == Format::Int4 {
        let set = |row, groups: &[_]| packed.set_output_groups(place(row), groups);
        if weights.read_groups(part, set)? {
            return Ok(());
        }
    }
    let cols = part.cols();
    weights.read(part, |start, piece| {
        for (i, row) in piece.chunks_exact(cols).enumerate() {
            packed.set_output(place(start + i), row);
        }
    })
}

/// Where row `row` of a gate (`half` 0) or up (`half` 16) projection goes.
fn gated_place(row: usize, half: usize) -> usize {
    row / LANES * 2 * LANES + half + row % LANES
}

/// A linear layer.
pub struct Linear {
    compute: Arc<Compute>,
    weights: Matrix,
    bias: Option<Tensor>,
}

impl Linear {
    /// A layer over weights, with its bias in the same order of outputs.
    pub fn new(compute: &Arc<Compute>, weights: Matrix, bias: Option<&[f32]>) -> Self {
        let bias = bias.map(|b| {
            assert_eq!(b.len(), weights.outputs(), "bias out of shape");
            Tensor::from_slice(b)
                .to_kind(compute.kind())
                .to_device(compute.device.torch())
        });
        Self {
            compute: Arc::clone(compute),
            weights,
            bias,
        }
    }

    /// Reads a layer of one or more projections side by side.
    ///
    /// # Errors
    /// As [`Matrix::read`].
    pub fn read(
        compute: &Arc<Compute>,
        weights: &Weights,
        parts: &[&Taken],
        biases: &[&Taken],
    ) -> Result<Self, ModelError> {
        let matrix = Matrix::read(compute, weights, parts)?;
        let mut bias = Vec::new();
        for part in biases {
            bias.extend(weights.read_all(part)?);
        }
        let bias = (!biases.is_empty()).then_some(&bias[..]);
        Ok(Self::new(compute, matrix, bias))
    }

    /// Reads a gate and an up projection, fused as [`Matrix::read_gated`] does.
    ///
    /// # Errors
    /// As [`Matrix::read`].
    pub fn read_gated(
        compute: &Arc<Compute>,
        weights: &Weights,
        [gate, up]: [&Taken; 2],
        biases: Option<[&Taken; 2]>,
    ) -> Result<Self, ModelError> {
        let matrix = Matrix::read_gated(compute, weights, gate, up)?;
        let Some(biases) = biases else {
            return Ok(Self::new(compute, matrix, None));
        };
        let mut placed = vec![0.0; matrix.outputs()];
        for (part, half) in biases.into_iter().zip([0, LANES]) {
            for (row, b) in weights.read_all(part)?.into_iter().enumerate() {
                let torch = if half == 0 { row } else { gate.rows() + row };
                let own = compute.team.is_some();
                placed[if own { gated_place(row, half) } else { torch }] = b;
            }
        }
        Ok(Self::new(compute, matrix, Some(&placed)))
    }

    /// Memory the weights take. Unit: bytes.
    pub fn bytes(&self) -> usize {
        self.weights.bytes()
    }

    /// Shapes: `x: [rows, inputs]` to `[rows, outputs]`.
    pub fn forward(&self, x: &Tensor) -> Tensor {
        match &self.weights {
            Matrix::Packed(w) => {
                let mut out = self.compute.empty(shape(x).0, w.outputs());
                self.run(w, x, Finish::Store, &mut out);
                out
            }
            Matrix::Torch(w) => x.linear(w, self.bias.as_ref()),
        }
    }

    /// `sum += forward(x)`: the end of a block on the residual stream.
    pub fn forward_add(&self, x: &Tensor, sum: &mut Tensor) {
        match &self.weights {
            Matrix::Packed(w) => self.run(w, x, Finish::Add, sum),
            Matrix::Torch(w) => *sum += x.linear(w, self.bias.as_ref()),
        }
    }

    /// `activation(forward(x))`: the first matrix of an MLP without a gate.
    pub fn forward_bent(&self, x: &Tensor, activation: Activation) -> Tensor {
        match &self.weights {
            Matrix::Packed(w) => {
                let mut out = self.compute.empty(shape(x).0, w.outputs());
                self.run(w, x, Finish::Bend(activation), &mut out);
                out
            }
            Matrix::Torch(w) => {
                let mut out = x.linear(w, self.bias.as_ref());
                match activation {
                    Activation::Gelu => out.gelu_("none"),
                    Activation::GeluTanh => out.gelu_("tanh"),
                    Activation::Relu => out.relu_(),
                }
            }
        }
    }

    /// `silu(gate) * up` over weights read by [`Linear::read_gated`].
    /// Shapes: `x: [rows, inputs]` to `[rows, inner]`.
    pub fn forward_gated(&self, x: &Tensor, inner: usize) -> Tensor {
        match &self.weights {
            Matrix::Packed(w) => {
                let mut out = self.compute.empty(shape(x).0, inner);
                self.run(w, x, Finish::Gate, &mut out);
                out
            }
            Matrix::Torch(w) => {
                let both = x.linear(w, self.bias.as_ref());
                let inner = inner as i64;
                both.narrow(1, 0, inner).silu() * both.narrow(1, inner, inner)
            }
        }
    }

    fn run(&self, w: &PackedMatrix, x: &Tensor, finish: Finish, out: &mut Tensor) {
        assert_eq!(
            shape(x).1,
            w.inputs(),
            "input has another width than the weights"
        );
        let team = self
            .compute
            .team
            .as_ref()
            .expect("packed weights come with a team");
        let bias = self.bias.as_ref().map(numbers);
        Matmul {
            x: numbers(x),
            w,
            bias,
            finish,
        }
        .run(team, numbers_mut(out));
    }
}
