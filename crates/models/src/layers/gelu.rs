//! The curve between the two matrices of an encoder's MLP, in place.

use tch::Tensor;

use super::{Compute, numbers_mut};
use crate::config::Activation;
use crate::kernels::encoder_rows;
use crate::kernels::memory::Shared;

/// Numbers that one piece of the loop takes: enough work to be worth a claim, few enough to stay in
/// the nearest cache.
const PIECE: usize = 8192;

/// Bends every number of `x`.
pub fn activate(compute: &Compute, activation: Activation, x: &mut Tensor) {
    let Some(team) = &compute.team else {
        let _ = match activation {
            Activation::Gelu => x.gelu_("none"),
            Activation::GeluTanh => x.gelu_("tanh"),
            Activation::Relu => x.relu_(),
        };
        return;
    };
    let all = numbers_mut(x);
    let n = all.len();
    let shared = Shared::new(all);
    team.run(n.div_ceil(PIECE), &|piece| {
        let start = piece * PIECE;
        #[allow(unsafe_code, reason = "pieces of one tensor")]
        // SAFETY: pieces do not overlap.
        let part = unsafe { shared.part(start, PIECE.min(n - start)) };
        match activation {
            Activation::Gelu => encoder_rows::gelu(part),
            Activation::GeluTanh => encoder_rows::gelu_tanh(part),
            Activation::Relu => part.iter_mut().for_each(|v| *v = v.max(0.0)),
        }
    });
}
