//! The gated MLP: `down(silu(gate(x)) * up(x))`.

use std::sync::Arc;

use tch::Tensor;

use super::Compute;
use super::linear::Linear;
use crate::error::ModelError;
use crate::weights::{Taken, Weights};

/// Gate, up and down projections; gate and up fused.
pub struct GatedMlp {
    gate_up: Linear,
    down: Linear,
    inner: usize,
}

/// Tensors of a [`GatedMlp`].
pub struct GatedMlpParts {
    /// `gate_proj`.
    pub gate: Taken,
    /// `up_proj`.
    pub up: Taken,
    /// `down_proj`.
    pub down: Taken,
    /// Biases of gate, up and down.
    pub biases: Option<[Taken; 3]>,
}

impl GatedMlp {
    /// Reads the projections.
    ///
    /// # Errors
    /// What reading a tensor can give; see [`Weights::read`].
    pub fn read(
        compute: &Arc<Compute>,
        weights: &Weights,
        parts: &GatedMlpParts,
    ) -> Result<Self, ModelError> {
        let GatedMlpParts {
            gate,
            up,
            down,
            biases,
        } = parts;
        let gated = biases.as_ref().map(|[gate, up, _]| [gate, up]);
        let down_bias: Vec<&Taken> = biases.iter().map(|[_, _, down]| down).collect();
        Ok(Self {
            gate_up: Linear::read_gated(compute, weights, [gate, up], gated)?,
            down: Linear::read(compute, weights, &[down], &down_bias)?,
            inner: gate.rows(),
        })
    }

    /// Memory the weights take. Unit: bytes.
    pub fn bytes(&self) -> usize {
        self.gate_up.bytes() + self.down.bytes()
    }

    /// Adds the result for `x` to the residual stream. Shapes: `[rows, hidden]` both.
    pub fn forward_add(&self, x: &Tensor, residual: &mut Tensor) {
        let inner = self.gate_up.forward_gated(x, self.inner);
        self.down.forward_add(&inner, residual);
    }
}
