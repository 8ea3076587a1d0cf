//! The micro-kernel: a few rows times one or more panels, accumulated in registers.
//!
//! `out[m][n] += sum over k of a[m][k] * panel[k][n]`, one fused multiply-add at a time in order
//! of `k`. The tile shape decides speed only, never a bit of the result.

#![cfg(target_arch = "x86_64")]
#![allow(
    unsafe_code,
    reason = "raw loads; every caller checks its bounds once, outside the loop"
)]

use std::arch::x86_64::{
    __m256, _MM_HINT_T0, _mm_prefetch, _mm256_broadcast_ss, _mm256_fmadd_ps, _mm256_setzero_ps,
    _mm256_storeu_ps,
};

use super::rows::{LANES, Row};

/// Sums of a tile: `MR` rows of `NP` panels, each panel two registers.
pub(super) type Sums<const MR: usize, const NP: usize> = [[[__m256; 2]; NP]; MR];

/// A tile of zeros.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(super) fn zeros<const MR: usize, const NP: usize>() -> Sums<MR, NP> {
    [[[_mm256_setzero_ps(); 2]; NP]; MR]
}

/// What a tile is made of.
#[derive(Clone, Copy)]
pub(super) struct Operands<R, const NP: usize, const AHEAD: usize> {
    /// First number of the first row of `a`.
    pub(super) a: *const f32,
    /// Numbers between two rows of `a`.
    pub(super) a_stride: usize,
    /// First row of each panel.
    pub(super) panels: [*const R; NP],
    /// Rows that are fetched into the cache meanwhile, one of each for every product: what the
    /// next tiles read. The processor's own prefetcher stops at every panel's end.
    pub(super) ahead: [[*const R; NP]; AHEAD],
}

/// Adds `len` products to each sum.
///
/// # Safety
/// `a` points to `MR` rows of `len` readable numbers; each of `panels` to `len` readable rows.
/// `ahead` may point anywhere.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn accumulate<R: Row, const MR: usize, const NP: usize, const AHEAD: usize>(
    sums: &mut Sums<MR, NP>,
    operands: &Operands<R, NP, AHEAD>,
    len: usize,
) {
    let Operands {
        a,
        a_stride,
        panels,
        ahead,
    } = *operands;
    for k in 0..len {
        for row in ahead.as_flattened() {
            // A prefetch never faults, wherever it points.
            _mm_prefetch::<_MM_HINT_T0>(row.wrapping_add(k).cast::<i8>());
        }
        for n in 0..NP {
            // SAFETY: k < len.
            let b = unsafe { (*panels[n].add(k)).load() };
            for (m, sums) in sums.iter_mut().enumerate() {
                // SAFETY: m < MR and k < len.
                let a = unsafe { _mm256_broadcast_ss(&*a.add(m * a_stride + k)) };
                sums[n][0] = _mm256_fmadd_ps(a, b[0], sums[n][0]);
                sums[n][1] = _mm256_fmadd_ps(a, b[1], sums[n][1]);
            }
        }
    }
}

/// Writes the sums as rows of `NP * LANES` numbers, `stride` apart.
///
/// # Safety
/// `out` points to `MR` such rows, writable.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn store<const MR: usize, const NP: usize>(
    sums: &Sums<MR, NP>,
    out: *mut f32,
    stride: usize,
) {
    for (m, row) in sums.iter().enumerate() {
        for (n, pair) in row.iter().enumerate() {
            // SAFETY: m < MR and n < NP.
            unsafe {
                let at = out.add(m * stride + n * LANES);
                _mm256_storeu_ps(at, pair[0]);
                _mm256_storeu_ps(at.add(8), pair[1]);
            }
        }
    }
}
