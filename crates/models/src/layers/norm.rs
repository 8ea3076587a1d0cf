//! RMS norm.

use std::sync::Arc;

use tch::{Kind, Tensor};

use super::{Compute, numbers, numbers_mut, shape};
use crate::error::ModelError;
use crate::kernels;
use crate::kernels::memory::Shared;
use crate::weights::{Taken, Weights};

/// Numbers above which rows are shared out among threads.
const WORTH_SHARING: usize = 8192;

/// `x / sqrt(mean(x^2) + eps) * weight` along rows.
pub struct RmsNorm {
    compute: Arc<Compute>,
    weight: Tensor,
    eps: f64,
}

impl RmsNorm {
    /// Reads the weight vector.
    ///
    /// # Errors
    /// What reading a tensor can give; see [`Weights::read`].
    pub fn read(
        compute: &Arc<Compute>,
        weights: &Weights,
        weight: &Taken,
        eps: f64,
    ) -> Result<Self, ModelError> {
        let weight = Tensor::f_from_slice(&weights.read_all(weight)?)?
            .f_to_kind(compute.kind())?
            .f_to_device(compute.device.torch())?;
        Ok(Self {
            compute: Arc::clone(compute),
            weight,
            eps,
        })
    }

    /// Memory the weight takes. Unit: bytes.
    pub fn bytes(&self) -> usize {
        self.weight.numel() * self.weight.kind().elt_size_in_bytes()
    }

    /// Shapes: `[rows, hidden]` to the same.
    pub fn forward(&self, x: &Tensor) -> Tensor {
        let (rows, cols) = shape(x);
        assert_eq!(
            self.weight.numel(),
            cols,
            "input has another width than the norm"
        );
        let Some(team) = &self.compute.team else {
            let wide = x.to_kind(Kind::Float);
            let mean = wide.square().mean_dim(&[-1i64][..], true, Kind::Float);
            return (wide * (mean + self.eps).rsqrt()).to_kind(x.kind()) * &self.weight;
        };
        let mut out = self.compute.empty(rows, cols);
        let (weight, eps) = (numbers(&self.weight), self.eps as f32);
        let x = numbers(x);
        let shared = Shared::new(numbers_mut(&mut out));
        let per_piece = (WORTH_SHARING / cols).max(1);
        team.run(rows.div_ceil(per_piece), &|piece| {
            for row in piece * per_piece..((piece + 1) * per_piece).min(rows) {
                #[allow(unsafe_code, reason = "pieces of one output")]
                // SAFETY: every row is in one piece.
                let out = unsafe { shared.part(row * cols, cols) };
                kernels::rms_norm(&x[row * cols..(row + 1) * cols], weight, eps, out);
            }
        });
        out
    }
}
