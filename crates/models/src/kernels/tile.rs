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

/// Rows ahead of the one in use that are fetched from memory; 8 to 32 measured equal, none 15 %
/// slower when one row streams all weights.
const PREFETCH: usize = 16;

/// A tile of zeros.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(super) fn zeros<const MR: usize, const NP: usize>() -> Sums<MR, NP> {
    [[[_mm256_setzero_ps(); 2]; NP]; MR]
}

/// Adds `len` products to each sum.
///
/// # Safety
/// `a` points to `MR` rows of `len` readable numbers, `a_stride` apart; each of `panels` to `len`
/// readable rows.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn accumulate<R: Row, const MR: usize, const NP: usize>(
    sums: &mut Sums<MR, NP>,
    a: *const f32,
    a_stride: usize,
    panels: [*const R; NP],
    len: usize,
) {
    for k in 0..len {
        for n in 0..NP {
            // SAFETY: k < len. A prefetch never faults, so it may point past the end.
            let b = unsafe {
                if MR == 1 {
                    let ahead = panels[n].wrapping_add(k + PREFETCH);
                    _mm_prefetch::<_MM_HINT_T0>(ahead.cast::<i8>());
                }
                (*panels[n].add(k)).load()
            };
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
