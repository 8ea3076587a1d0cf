//! Products on AVX-512, for processors without tiles and for rows too few for them.
//!
//! Bit for bit what the tile instructions give: bf16 products of even and odd inputs are summed
//! apart over the 32 inputs of a tile, then together, then onto the sum so far.
//! Source of that order: Intel SDM, TDPBF16PS.

#![cfg(target_arch = "x86_64")]
#![allow(unsafe_code, reason = "raw loads; every function states what it reads")]

use std::arch::x86_64::{
    __m512, __m512i, _MM_HINT_T0, _mm_prefetch, _mm256_load_si256, _mm512_add_epi32, _mm512_add_ps,
    _mm512_and_si512, _mm512_castsi512_ps, _mm512_cvtepi32_ps, _mm512_cvtph_ps,
    _mm512_dpbusd_epi32, _mm512_fmadd_ps, _mm512_load_si512, _mm512_set1_epi8, _mm512_set1_epi32,
    _mm512_set1_ps, _mm512_setzero_ps, _mm512_setzero_si512, _mm512_slli_epi32, _mm512_srli_epi16,
    _mm512_storeu_ps, _mm512_storeu_si512,
};

use super::activations::TILE_LINES;
use super::amx::Sums;
use super::tiles::{GROUP_D, GROUP_LINES, Line};

/// Lines ahead of the one in use that are fetched from memory.
const PREFETCH: usize = 64;

/// Fetches the line [`PREFETCH`] after `line`.
#[inline]
#[target_feature(enable = "avx512f")]
fn fetch(line: *const Line) {
    // A prefetch never faults, wherever it points.
    _mm_prefetch::<_MM_HINT_T0>(line.wrapping_add(PREFETCH).cast::<i8>());
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn load(line: *const Line) -> __m512i {
    // SAFETY: a line is 64 bytes, aligned to 64.
    unsafe { _mm512_load_si512(line.cast()) }
}

/// Four bytes of activations in every lane.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn spread(a: *const Line, at: usize) -> __m512i {
    // SAFETY: the caller's word: `at` is below 16.
    _mm512_set1_epi32(unsafe { *a.cast::<i32>().add(at) })
}

/// The even and the odd numbers of pairs of bf16.
#[inline]
#[target_feature(enable = "avx512f")]
fn halves(pairs: __m512i) -> [__m512; 2] {
    let upper = _mm512_set1_epi32(0xffff_0000_u32 as i32);
    [
        _mm512_castsi512_ps(_mm512_slli_epi32::<16>(pairs)),
        _mm512_castsi512_ps(_mm512_and_si512(pairs, upper)),
    ]
}

/// `M` rows from line `first` of a tile of rows times a panel, in bf16.
///
/// # Safety
/// The processor has AVX-512; `a` points to `n` tiles of 16 lines and `b` to `n` pairs of such
/// tiles; `first + M` is at most 16.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn bf16<const M: usize>(
    (a, first): (*const Line, usize),
    b: *const Line,
    n: usize,
    sums: &mut Sums,
) {
    let mut total = [[_mm512_setzero_ps(); 2]; M];
    for tile in 0..n {
        let mut apart = [[[_mm512_setzero_ps(); 2]; 2]; M];
        for line in 0..TILE_LINES {
            for half in 0..2 {
                // SAFETY: tile < n, line < 16, half < 2.
                unsafe {
                    let b = b.add((tile * 2 + half) * TILE_LINES + line);
                    fetch(b);
                    let w = halves(load(b));
                    for (m, apart) in apart.iter_mut().enumerate() {
                        let x = halves(spread(a.add(tile * TILE_LINES + first + m), line));
                        for i in 0..2 {
                            apart[half][i] = _mm512_fmadd_ps(x[i], w[i], apart[half][i]);
                        }
                    }
                }
            }
        }
        for (total, apart) in total.iter_mut().zip(apart) {
            for (total, [even, odd]) in total.iter_mut().zip(apart) {
                *total = _mm512_add_ps(*total, _mm512_add_ps(even, odd));
            }
        }
    }
    for (row, total) in sums.0[first..first + M].iter_mut().zip(total) {
        for (half, total) in total.into_iter().enumerate() {
            // SAFETY: 16 numbers in each half of a row.
            unsafe { _mm512_storeu_ps(row.as_mut_ptr().add(half * 16).cast(), total) };
        }
    }
}

/// As [`bf16`] for bytes with a sign times bytes without.
///
/// # Safety
/// As [`bf16`], with VNNI.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
pub(super) unsafe fn bytes<const M: usize>(
    (a, first): (*const Line, usize),
    b: *const Line,
    n: usize,
    sums: &mut Sums,
) {
    let mut total = [[_mm512_setzero_si512(); 2]; M];
    for tile in 0..n {
        for line in 0..TILE_LINES {
            // SAFETY: tile < n, line < 16.
            unsafe {
                let b = b.add(tile * 2 * TILE_LINES + line);
                fetch(b);
                fetch(b.add(TILE_LINES));
                let w = [load(b), load(b.add(TILE_LINES))];
                for (m, total) in total.iter_mut().enumerate() {
                    let x = spread(a.add(tile * TILE_LINES + first + m), line);
                    total[0] = _mm512_dpbusd_epi32(total[0], w[0], x);
                    total[1] = _mm512_dpbusd_epi32(total[1], w[1], x);
                }
            }
        }
    }
    for (row, total) in sums.0[first..first + M].iter_mut().zip(total) {
        for (half, total) in total.into_iter().enumerate() {
            // SAFETY: 16 numbers in each half of a row.
            unsafe { _mm512_storeu_si512(row.as_mut_ptr().add(half * 16).cast(), total) };
        }
    }
}

/// The nibbles of half a group, `lines` as stored, as eight lines of bytes.
///
/// # Safety
/// The processor has AVX-512; `lines` points to four lines.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn unpack(lines: *const Line) -> [__m512i; 8] {
    let low = _mm512_set1_epi8(0xf);
    let mut out = [_mm512_setzero_si512(); 8];
    for i in 0..4 {
        // SAFETY: i < 4.
        let both = unsafe { load(lines.add(i)) };
        out[i] = _mm512_and_si512(both, low);
        out[i + 4] = _mm512_and_si512(_mm512_srli_epi16::<4>(both), low);
    }
    out
}

/// `d` or `m` of the outputs of half a panel.
///
/// # Safety
/// The processor has AVX-512; `line` points to a line.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn factors(line: *const Line, half: usize) -> __m512 {
    // SAFETY: each half of a line is 32 bytes, aligned to 32.
    _mm512_cvtph_ps(unsafe { _mm256_load_si256(line.cast::<u8>().add(half * 32).cast()) })
}

/// One group's share of an output: `total + d * sum of nibble products + m * sum of activations`.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn add_group(total: __m512, [d, m]: [__m512; 2], dot: __m512i, sum: f32) -> __m512 {
    let total = _mm512_fmadd_ps(d, _mm512_cvtepi32_ps(dot), total);
    _mm512_fmadd_ps(m, _mm512_set1_ps(sum), total)
}

/// A high and a low plane of products as one. Exact: `32 * 15 * 127 * 256` is below 2^24.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn join(high: __m512i, low: __m512i) -> __m512i {
    _mm512_add_epi32(_mm512_slli_epi32::<8>(high), low)
}

/// `M` rows of 16-bit activations times a panel of nibbles; row `m` has its planes in lines
/// `2 (first + m)` and the next of each tile, and the sums of its groups in `group_sums[m]`.
///
/// # Safety
/// As [`bytes`], for `n` groups.
#[allow(
    clippy::needless_range_loop,
    reason = "the indices count lines of four operands at once"
)]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
pub(super) unsafe fn nibbles<const M: usize>(
    (a, first): (*const Line, usize),
    b: *const Line,
    group_sums: [&[i32]; M],
    out: &mut [[f32; 32]],
) {
    let mut total = [[_mm512_setzero_ps(); 2]; M];
    for g in 0..group_sums[0].len() {
        // SAFETY: the caller's word: the panel has that many groups and the rows their lines.
        unsafe {
            let b = b.add(g * GROUP_LINES);
            for line in 0..GROUP_LINES {
                fetch(b.add(line));
            }
            let x = a.add(g / 2 * TILE_LINES + 2 * first);
            for half in 0..2 {
                let w = unpack(b.add(half * 4));
                let factors = [0, 1].map(|i| factors(b.add(GROUP_D + i), half));
                for m in 0..M {
                    let mut dots = [_mm512_setzero_si512(); 2];
                    for (line, w) in w.iter().enumerate() {
                        for (plane, dot) in dots.iter_mut().enumerate() {
                            let x = spread(x.add(2 * m + plane), g % 2 * 8 + line);
                            *dot = _mm512_dpbusd_epi32(*dot, *w, x);
                        }
                    }
                    let (dot, sum) = (join(dots[0], dots[1]), group_sums[m][g] as f32);
                    total[m][half] = add_group(total[m][half], factors, dot, sum);
                }
            }
        }
    }
    for (row, total) in out[first..first + M].iter_mut().zip(total) {
        for (half, total) in total.into_iter().enumerate() {
            // SAFETY: 16 numbers in each half of a row.
            unsafe { _mm512_storeu_ps(row.as_mut_ptr().add(half * 16), total) };
        }
    }
}
