//! Our own loops for x86-64 processors with AVX2 and FMA, on f32 activations.
//!
//! One micro-kernel serves everything that is a product: linears (weights packed in panels of 16
//! columns), attention scores (a block of 16 keys is such a panel) and attention outputs (a block
//! of values is another). Every output element is one chain of fused multiply-adds in index order,
//! whatever the tile shape, the number of rows or threads; so a row's result does not depend on
//! its neighbours, bit for bit. LibTorch's kernels do not promise that, and for few rows they
//! leave half of the memory bandwidth unused.
//!
//! On other processors and devices the layers use LibTorch's operators instead.

pub mod cpu;

pub mod memory;

pub mod rows;

mod tile;

mod elementwise;

pub mod tiles;

pub mod packed;

mod finish;

mod matmul_rows;

mod activations;

mod amx;

mod dot_avx512;

mod dot_avx2;

mod matmul_tiles;

mod matmul_nibbles;

pub mod matmul;

pub mod attention;

mod attention_avx2;

pub mod encoder_rows;

pub mod bidirectional;

mod bidirectional_avx2;

mod amx_product;

mod wide;

mod bidirectional_amx;

/// True where this processor can run the kernels.
pub fn available() -> bool {
    cpu::Isa::best().is_some()
}

/// `elementwise::rms_norm` for callers that are not compiled for AVX2.
///
/// # Panics
/// On a processor without AVX2 and FMA, or on slices of different lengths.
pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    assert!(available(), "the processor has AVX2 and FMA");
    assert!(
        x.len() == weight.len() && x.len() == out.len(),
        "rms_norm out of shape"
    );
    #[cfg(target_arch = "x86_64")]
    #[allow(unsafe_code, reason = "calls a function compiled for AVX2")]
    // SAFETY: asserted above.
    unsafe {
        elementwise::rms_norm(x, weight, eps, out);
    }
}

/// Sum of exp(x - max) over the numbers in `x`, in f64; NaN counts as nothing.
pub fn sum_exp(x: &[f32], max: f32) -> f64 {
    #[cfg(target_arch = "x86_64")]
    if available() {
        #[allow(unsafe_code, reason = "calls a function compiled for AVX2")]
        // SAFETY: just checked.
        return unsafe { elementwise::sum_exp(x, max) };
    }
    x.iter()
        .filter(|l| !l.is_nan())
        .map(|&l| f64::from((l - max).exp()))
        .sum()
}
