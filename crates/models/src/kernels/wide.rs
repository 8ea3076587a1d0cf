//! AVX-512 in small pieces: a cache line of numbers, rounding to bf16, powers of two, a
//! transposition.

#![cfg(target_arch = "x86_64")]
#![allow(
    unsafe_code,
    reason = "vector loads and stores; each states its bounds"
)]

use std::arch::x86_64::{
    __m256bh, __m256i, __m512, __m512bh, __m512i, __mmask16, _mm512_cvtepu16_epi32,
    _mm512_cvtne2ps_pbh, _mm512_cvtneps_pbh, _mm512_fmadd_ps, _mm512_load_ps, _mm512_mask_blend_ps,
    _mm512_maskz_loadu_ps, _mm512_roundscale_ps, _mm512_scalef_ps, _mm512_set1_ps,
    _mm512_shuffle_i32x4, _mm512_store_ps, _mm512_store_si512, _mm512_sub_ps,
    _mm512_unpackhi_epi32, _mm512_unpackhi_epi64, _mm512_unpacklo_epi32, _mm512_unpacklo_epi64,
};
use std::mem::transmute;

/// Numbers of f32 in a line.
const LANES: usize = 16;

/// A cache line, which is a row of a tile.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Line([u8; LINE]);

/// Its bytes.
pub(super) const LINE: usize = 64;

impl Line {
    /// All bits 0.
    pub(super) const ZERO: Self = Self([0; LINE]);

    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn set(&mut self, value: __m512i) {
        // SAFETY: 64 bytes, aligned to 64.
        unsafe { _mm512_store_si512(self.0.as_mut_ptr().cast(), value) };
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn f32(&self) -> __m512 {
        // SAFETY: 64 bytes, aligned to 64; every pattern of bits is a number.
        unsafe { _mm512_load_ps(self.0.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn set_f32(&mut self, value: __m512) {
        // SAFETY: 64 bytes, aligned to 64.
        unsafe { _mm512_store_ps(self.0.as_mut_ptr().cast(), value) };
    }
}

/// The first `n` of 16 lanes.
pub(super) fn mask(n: usize) -> __mmask16 {
    if n >= LANES { !0 } else { (1 << n) - 1 }
}

/// Up to 32 numbers, the rest zeros.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn load(numbers: &[f32]) -> [__m512; 2] {
    let n = numbers.len();
    let start = numbers.as_ptr();
    // SAFETY: the masks name the numbers of the slice only.
    unsafe {
        [
            _mm512_maskz_loadu_ps(mask(n), start),
            _mm512_maskz_loadu_ps(mask(n.saturating_sub(LANES)), start.wrapping_add(LANES)),
        ]
    }
}

/// 32 numbers in bf16, rounded to nearest even.
#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
pub(super) fn narrow(low: __m512, high: __m512) -> __m512i {
    let both = _mm512_cvtne2ps_pbh(high, low);
    // SAFETY: 64 bytes each, every pattern of bits is valid.
    unsafe { transmute::<__m512bh, __m512i>(both) }
}

/// 16 numbers in bf16, each in the lower half of 32 bits.
#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
pub(super) fn narrow_apart(numbers: __m512) -> __m512i {
    let together = _mm512_cvtneps_pbh(numbers);
    // SAFETY: 32 bytes each, every pattern of bits is valid.
    _mm512_cvtepu16_epi32(unsafe { transmute::<__m256bh, __m256i>(together) })
}

/// Where `mask` is set `a`, elsewhere `b`.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn select(mask: __mmask16, a: __m512, b: __m512) -> __m512 {
    _mm512_mask_blend_ps(mask, b, a)
}

/// 2^x for x up to 0, to 3e-6 of itself: the weight is rounded to bf16 next, 700 times coarser.
///
/// A fit of 2^r on -0.5..0.5 with degree 4 that is exact at 0, weighted for the relative error.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn exp2(x: __m512) -> __m512 {
    let n = _mm512_roundscale_ps::<0>(x);
    let r = _mm512_sub_ps(x, n);
    let mut p = _mm512_set1_ps(0.009_582_851);
    for c in [0.055_906_426, 0.240_240_99, 0.693_124_2, 1.0] {
        p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(c));
    }
    _mm512_scalef_ps(p, n)
}

/// Rows of 16 words to columns.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn transpose(rows: [__m512i; LANES]) -> [__m512i; LANES] {
    let mut pairs = rows;
    for i in (0..LANES).step_by(2) {
        pairs[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
        pairs[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
    }
    // fours[i + j], i a multiple of 4: in each quarter q, column 4 q + j of rows i..i + 4.
    let mut fours = pairs;
    for i in (0..LANES).step_by(4) {
        for j in 0..2 {
            let (a, b) = (pairs[i + j], pairs[i + j + 2]);
            fours[i + 2 * j] = _mm512_unpacklo_epi64(a, b);
            fours[i + 2 * j + 1] = _mm512_unpackhi_epi64(a, b);
        }
    }
    let mut columns = fours;
    for j in 0..4 {
        let [a, b, c, d] = [fours[j], fours[4 + j], fours[8 + j], fours[12 + j]];
        let even = [
            _mm512_shuffle_i32x4::<0x88>(a, b),
            _mm512_shuffle_i32x4::<0x88>(c, d),
        ];
        let odd = [
            _mm512_shuffle_i32x4::<0xdd>(a, b),
            _mm512_shuffle_i32x4::<0xdd>(c, d),
        ];
        columns[j] = _mm512_shuffle_i32x4::<0x88>(even[0], even[1]);
        columns[8 + j] = _mm512_shuffle_i32x4::<0xdd>(even[0], even[1]);
        columns[4 + j] = _mm512_shuffle_i32x4::<0x88>(odd[0], odd[1]);
        columns[12 + j] = _mm512_shuffle_i32x4::<0xdd>(odd[0], odd[1]);
    }
    columns
}
