//! Layer norm, in place.

use std::sync::Arc;

use tch::Tensor;

use super::{Compute, numbers, numbers_mut, shape};
use crate::error::ModelError;
use crate::kernels::encoder_rows;
use crate::kernels::memory::Shared;
use crate::weights::{Taken, Weights};

/// Numbers that one piece of the loop takes.
const PIECE: usize = 8192;

/// `(x - mean) / sqrt(variance + eps) * weight + bias` along rows.
pub struct LayerNorm {
    compute: Arc<Compute>,
    weight: Tensor,
    bias: Tensor,
    eps: f64,
}

/// Tensors of a [`LayerNorm`].
pub struct LayerNormParts {
    /// Factors.
    pub weight: Taken,
    /// Summands.
    pub bias: Taken,
}

impl LayerNorm {
    /// Reads both vectors.
    ///
    /// # Errors
    /// What reading a tensor can give; see [`Weights::read`].
    pub fn read(
        compute: &Arc<Compute>,
        weights: &Weights,
        parts: &LayerNormParts,
        eps: f64,
    ) -> Result<Self, ModelError> {
        let vector = |part: &Taken| -> Result<Tensor, ModelError> {
            Ok(Tensor::f_from_slice(&weights.read_all(part)?)?
                .f_to_kind(compute.kind())?
                .f_to_device(compute.device.torch())?)
        };
        Ok(Self {
            compute: Arc::clone(compute),
            weight: vector(&parts.weight)?,
            bias: vector(&parts.bias)?,
            eps,
        })
    }

    /// Memory both vectors take. Unit: bytes.
    pub fn bytes(&self) -> usize {
        2 * self.weight.numel() * self.weight.kind().elt_size_in_bytes()
    }

    /// Shape: `[rows, hidden]`.
    pub fn apply(&self, x: &mut Tensor) {
        let (rows, cols) = shape(x);
        assert_eq!(
            self.weight.numel(),
            cols,
            "input has another width than the norm"
        );
        let Some(team) = &self.compute.team else {
            let (weight, bias) = (Some(&self.weight), Some(&self.bias));
            *x = x.layer_norm([cols as i64], weight, bias, self.eps, false);
            return;
        };
        let norm = self.own();
        let shared = Shared::new(numbers_mut(x));
        let per_piece = (PIECE / cols).max(1);
        team.run(rows.div_ceil(per_piece), &|piece| {
            for row in piece * per_piece..((piece + 1) * per_piece).min(rows) {
                #[allow(unsafe_code, reason = "pieces of one tensor")]
                // SAFETY: every row is in one piece.
                let row = unsafe { shared.part(row * cols, cols) };
                norm.apply(row);
            }
        });
    }

    /// The norm for our own loops: tensors must not be shared by threads, slices may.
    pub(super) fn own(&self) -> OwnNorm<'_> {
        OwnNorm {
            weight: numbers(&self.weight),
            bias: numbers(&self.bias),
            eps: self.eps as f32,
        }
    }
}

/// A [`LayerNorm`] as slices.
#[derive(Clone, Copy)]
pub(super) struct OwnNorm<'a> {
    weight: &'a [f32],
    bias: &'a [f32],
    eps: f32,
}

impl OwnNorm<'_> {
    /// One row, in place.
    pub(super) fn apply(self, row: &mut [f32]) {
        encoder_rows::layer_norm(row, self.weight, self.bias, self.eps);
    }
}
