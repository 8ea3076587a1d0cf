//! Sixteen numbers side by side: the unit in which weights, keys and values are stored and loaded.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    __m256, __m256i, _mm256_and_si256, _mm256_castsi256_ps, _mm256_load_ps, _mm256_load_si256,
    _mm256_set1_epi32, _mm256_slli_epi32,
};

use half::bf16;

use super::memory::Plain;

/// Numbers in a row.
pub const LANES: usize = 16;

/// A row of [`LANES`] numbers in some format, readable as two AVX registers.
pub trait Row: Plain {
    /// All lanes 0.
    const ZERO: Self;

    /// Writes one lane, rounding to nearest even where the format is narrower than f32.
    fn set(&mut self, lane: usize, value: f32);

    /// Reads one lane.
    fn get(&self, lane: usize) -> f32;

    /// Lanes 0..8 and 8..16.
    #[cfg(target_arch = "x86_64")]
    #[allow(
        unsafe_code,
        reason = "a trait method cannot carry target features safely"
    )]
    /// # Safety
    /// The processor has AVX2.
    unsafe fn load(&self) -> [__m256; 2];
}

/// f32 lanes in order: one cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub struct RowF32([f32; LANES]);

/// bf16 lanes: half a cache line.
///
/// Lane `i` and lane `i + 8` share a 32-bit word, low half and high half. As a bf16 is the upper
/// half of an f32, a shift gives the first eight lanes and a mask the others.
#[derive(Clone, Copy)]
#[repr(C, align(32))]
pub struct RowBf16([u16; LANES]);

impl Plain for RowF32 {}

impl Plain for RowBf16 {}

impl Row for RowF32 {
    const ZERO: Self = Self([0.0; LANES]);

    #[inline]
    fn set(&mut self, lane: usize, value: f32) {
        self.0[lane] = value;
    }

    #[inline]
    fn get(&self, lane: usize) -> f32 {
        self.0[lane]
    }

    #[cfg(target_arch = "x86_64")]
    #[allow(unsafe_code, reason = "see the trait")]
    #[inline(always)]
    unsafe fn load(&self) -> [__m256; 2] {
        // SAFETY: both halves lie inside the array, whose alignment is 64.
        unsafe {
            [
                _mm256_load_ps(self.0.as_ptr()),
                _mm256_load_ps(self.0.as_ptr().add(8)),
            ]
        }
    }
}

/// Where bf16 lane `lane` is stored.
const fn bf16_slot(lane: usize) -> usize {
    2 * (lane % 8) + lane / 8
}

impl Row for RowBf16 {
    const ZERO: Self = Self([0; LANES]);

    #[inline]
    fn set(&mut self, lane: usize, value: f32) {
        self.0[bf16_slot(lane)] = bf16::from_f32(value).to_bits();
    }

    #[inline]
    fn get(&self, lane: usize) -> f32 {
        bf16::from_bits(self.0[bf16_slot(lane)]).to_f32()
    }

    #[cfg(target_arch = "x86_64")]
    #[allow(unsafe_code, reason = "see the trait")]
    #[inline(always)]
    unsafe fn load(&self) -> [__m256; 2] {
        // SAFETY: the array is 32 bytes long and aligned to 32; the caller vouches for AVX2.
        unsafe {
            let words = _mm256_load_si256(self.0.as_ptr().cast::<__m256i>());
            let low = _mm256_slli_epi32::<16>(words);
            let high = _mm256_and_si256(words, _mm256_set1_epi32(0xffff_0000_u32 as i32));
            [_mm256_castsi256_ps(low), _mm256_castsi256_ps(high)]
        }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    fn loaded<R: Row>(values: [f32; LANES]) -> [f32; LANES] {
        let mut row = R::ZERO;
        for (lane, v) in values.into_iter().enumerate() {
            row.set(lane, v);
            assert_eq!(row.get(lane), v);
        }
        assert!(crate::kernels::available(), "this test needs AVX2");
        // SAFETY: checked above; a register pair and an array of 16 f32 have the same layout.
        #[allow(unsafe_code, reason = "tests the unsafe load")]
        unsafe {
            std::mem::transmute::<[__m256; 2], [f32; LANES]>(row.load())
        }
    }

    #[test]
    fn lanes_come_back_in_order() {
        // All exact in bf16 (8 bits of mantissa).
        let values: [f32; LANES] = std::array::from_fn(|i| i as f32 * 1.25 - 7.5);
        assert_eq!(loaded::<RowF32>(values), values);
        assert_eq!(loaded::<RowBf16>(values), values);
    }
}
