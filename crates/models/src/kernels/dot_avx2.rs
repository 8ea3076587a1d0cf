//! Products of integers on AVX2, bit for bit those of wider instructions.
//!
//! AVX2's own byte product saturates, so bytes are widened to 16 bits first.

#![cfg(target_arch = "x86_64")]
#![allow(unsafe_code, reason = "raw loads; every function states what it reads")]

use std::arch::x86_64::{
    __m256i, _mm_cvtepi8_epi16, _mm_load_si128, _mm_loadu_si32, _mm256_add_epi32,
    _mm256_broadcastq_epi64, _mm256_cvtepu8_epi16, _mm256_hadd_epi32, _mm256_madd_epi16,
    _mm256_permute4x64_epi64, _mm256_setzero_si256, _mm256_storeu_si256,
};

use super::tiles::Line;

/// One line of activations (from byte `at`) times `n` lines of 16 outputs: sums of 16 outputs,
/// added to `sums` in pairs that [`outputs`] closes.
///
/// # Safety
/// The processor has AVX2; `b` points to `n` lines and `a` to `4 * n` bytes.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) unsafe fn bytes(a: *const u8, b: *const Line, n: usize, sums: &mut [__m256i; 4]) {
    for line in 0..n {
        // SAFETY: line < n; a line is four times 16 bytes, aligned to 64.
        unsafe {
            let four = _mm_cvtepi8_epi16(_mm_loadu_si32(a.add(line * 4)));
            let x = _mm256_broadcastq_epi64(four);
            for (i, sum) in sums.iter_mut().enumerate() {
                let w = _mm_load_si128(b.add(line).cast::<u8>().add(i * 16).cast());
                let products = _mm256_madd_epi16(_mm256_cvtepu8_epi16(w), x);
                *sum = _mm256_add_epi32(*sum, products);
            }
        }
    }
}

/// Sums to begin with.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn none() -> [__m256i; 4] {
    [_mm256_setzero_si256(); 4]
}

/// The 16 outputs in order.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn outputs(sums: &[__m256i; 4]) -> [i32; 16] {
    let mut out = [0; 16];
    for (pair, out) in sums.chunks_exact(2).zip(out.chunks_exact_mut(8)) {
        // Adds neighbours; its halves come out as 0 1 | 4 5 | 2 3 | 6 7.
        let added = _mm256_hadd_epi32(pair[0], pair[1]);
        let ordered = _mm256_permute4x64_epi64::<0b11_01_10_00>(added);
        // SAFETY: eight numbers.
        unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), ordered) };
    }
    out
}
