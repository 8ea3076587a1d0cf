//! The parts that models are wired from, each on LibTorch tensors.
//!
//! A layer runs our own loops (`kernels`) where [`Compute::team`] is there, and LibTorch's
//! operators elsewhere: on accelerators, on processors without AVX2, or when asked to. Both are
//! held against the same golden numbers. Shapes are asserted on entry.

use tch::{Kind, Tensor};

use crate::device::{Device, Dtype};
use crate::kernels::matmul::Format;
use crate::parallel::Team;
use crate::quant::Quant;

pub mod linear;

pub mod embedding;

pub mod norm;

pub mod rope;

pub mod attention;

pub mod mlp;

pub mod layer_norm;

pub mod encoder_embedding;

pub mod bidirectional;

/// Where and how the layers of a model compute; one for all of them.
pub struct Compute {
    /// Where the tensors are.
    pub device: Device,
    /// Format of the weights.
    pub dtype: Dtype,
    /// Format of the key/value cache.
    pub kv_dtype: Dtype,
    /// How matrices are quantised; only our own loops do it.
    pub quant: Quant,
    /// Threads of our own loops; `None` means LibTorch's operators.
    pub team: Option<Team>,
}

impl Compute {
    /// Format of activations. Our own loops keep them in f32 at every weight format: that costs
    /// nothing next to the weights and rounds once instead of at every operator.
    pub fn kind(&self) -> Kind {
        if self.team.is_some() {
            Kind::Float
        } else {
            self.dtype.kind()
        }
    }

    /// Threads on the processor, the calling one included.
    pub fn threads(&self) -> usize {
        let torch = || usize::try_from(tch::get_num_threads()).unwrap_or(1);
        self.team.as_ref().map_or_else(torch, Team::threads)
    }

    /// Format of matrices for our own loops.
    pub(crate) fn format(&self) -> Format {
        Format::of(self.dtype, self.quant)
    }

    /// Format of an embedding or output matrix for our own loops.
    pub(crate) fn vocabulary_format(&self) -> Format {
        Format::of_vocabulary(self.dtype, self.quant)
    }

    /// A tensor of activations whose numbers are not set yet.
    pub fn empty(&self, rows: usize, cols: usize) -> Tensor {
        Tensor::empty(
            [rows as i64, cols as i64],
            (self.kind(), self.device.torch()),
        )
    }
}

/// Rows and columns of a matrix of activations.
pub(crate) fn shape(x: &Tensor) -> (usize, usize) {
    let (rows, cols) = x.size2().expect("activations are a matrix");
    (rows as usize, cols as usize)
}

/// The numbers of a tensor of the CPU.
///
/// # Panics
/// If it is not f32, contiguous and on the CPU.
#[allow(unsafe_code, reason = "tch hands out a raw pointer")]
pub(crate) fn numbers(x: &Tensor) -> &[f32] {
    assert!(is_plain(x), "tensor is not contiguous f32 on the CPU");
    // SAFETY: contiguous f32 of `numel` elements that live as long as the tensor borrowed here.
    // Nobody writes to them meanwhile: `numbers_mut` needs `&mut`, and layers never keep views of
    // a tensor they hand on.
    unsafe { std::slice::from_raw_parts(x.data_ptr().cast::<f32>(), x.numel()) }
}

/// [`numbers`] to write to.
///
/// # Panics
/// As [`numbers`].
#[allow(unsafe_code, reason = "tch hands out a raw pointer")]
pub(crate) fn numbers_mut(x: &mut Tensor) -> &mut [f32] {
    assert!(is_plain(x), "tensor is not contiguous f32 on the CPU");
    // SAFETY: as in `numbers`; the borrow is exclusive.
    unsafe { std::slice::from_raw_parts_mut(x.data_ptr().cast::<f32>(), x.numel()) }
}

fn is_plain(x: &Tensor) -> bool {
    x.kind() == Kind::Float && x.device() == tch::Device::Cpu && x.is_contiguous()
}
