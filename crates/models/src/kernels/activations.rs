//! Rows of activations in the order and format in which tile instructions read them.
//!
//! For bf16 weights a row is rounded to bf16. For bytes and nibbles it becomes integers with one
//! scale a row: 16 bits as two rows of bytes (a high and a low one: `256 high + low`), or 8 bits
//! as one row. Products with integers are exact, so every instruction set and every number of rows
//! gives the same bits; 16 bits lose less than bf16 does.

#![cfg(target_arch = "x86_64")]
#![allow(
    unsafe_code,
    reason = "calls functions compiled for the processor; pieces of one output"
)]

use super::cpu::Isa;
use super::memory::Shared;
use super::tiles::{Kind, Line, inverse_of};
use crate::parallel::Team;
use crate::quant::GROUP;

/// Lines of a tile.
pub(super) const TILE_LINES: usize = 16;

/// Rows packed by the calling thread alone up to this many numbers.
const WORTH_SHARING: usize = 16_384;

/// How rows are to be packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) kind: Kind,
    /// Rows of activations.
    pub(super) rows: usize,
    /// Numbers of a row.
    pub(super) inputs: usize,
    /// Lines a row takes, 64 bytes of each plane.
    pub(super) lines_per_row: usize,
    /// 2 for 16-bit integers, else 1.
    pub(super) planes: usize,
}

impl Shape {
    /// Tiles of rows.
    pub(super) fn row_tiles(&self) -> usize {
        self.rows.div_ceil(TILE_LINES / self.planes)
    }

    /// Rows of activations in each tile of rows but the last; the last has no more. Evened out:
    /// the time of a tile instruction grows with its lines.
    pub(super) fn rows_per_tile(&self) -> usize {
        self.rows.div_ceil(self.row_tiles().max(1))
    }

    /// Lines in use of a tile of activations.
    pub(super) fn height(&self) -> usize {
        self.rows_per_tile() * self.planes
    }

    /// Groups of nibbles in a row.
    fn groups(&self) -> usize {
        self.inputs.div_ceil(GROUP)
    }
}

/// Packed rows. Kept between products for its memory.
#[derive(Default)]
pub(super) struct Activations {
    /// Tile after tile of a tile of rows, then the next tile of rows.
    lines: Vec<Line>,
    /// One a row; 1 for bf16.
    scales: Vec<f32>,
    /// For bytes: sum of each plane of each row. For nibbles: sum of each group of each row.
    sums: Vec<i32>,
    sums_per_row: usize,
}

impl Activations {
    /// Packs `x`. Shape: `[rows, inputs]`.
    pub(super) fn pack(&mut self, isa: Isa, shape: &Shape, x: &[f32], team: &Team) {
        let tile = shape.lines_per_row * TILE_LINES;
        self.lines.resize(shape.row_tiles() * tile, Line([0; 64]));
        self.scales.resize(shape.rows, 1.0);
        self.sums_per_row = match shape.kind {
            Kind::Bf16 => 0,
            Kind::Byte => shape.planes,
            Kind::Nibble => shape.groups(),
        };
        self.sums.resize(shape.rows * self.sums_per_row, 0);
        let (lines, scales) = (Shared::new(&mut self.lines), Shared::new(&mut self.scales));
        let (sums, per_row) = (Shared::new(&mut self.sums), self.sums_per_row);
        let per_piece = if shape.rows * shape.inputs < WORTH_SHARING {
            shape.rows
        } else {
            shape.rows_per_tile()
        };
        team.run(shape.rows.div_ceil(per_piece), &|piece| {
            for row in piece * per_piece..((piece + 1) * per_piece).min(shape.rows) {
                let x = &x[row * shape.inputs..(row + 1) * shape.inputs];
                let (row_tile, at) = (row / shape.rows_per_tile(), row % shape.rows_per_tile());
                let start = row_tile * tile + at * shape.planes;
                // SAFETY: rows have different lines, scales and sums. The lines of a row are
                // `TILE_LINES` apart, from `start` on.
                unsafe {
                    let mut to = RowOf {
                        lines: &lines,
                        start,
                        sums: sums.part(row * per_row, per_row),
                    };
                    let scale = &mut scales.part(row, 1)[0];
                    *scale = match isa {
                        Isa::Avx2 => row_avx2(shape, x, &mut to),
                        Isa::Avx512 | Isa::Amx => row_avx512(shape, x, &mut to),
                    };
                }
            }
        });
    }

    /// The tiles of one tile of rows.
    pub(super) fn tile(&self, shape: &Shape, row_tile: usize) -> &[Line] {
        let n = shape.lines_per_row * TILE_LINES;
        &self.lines[row_tile * n..(row_tile + 1) * n]
    }

    /// Scale of a row.
    pub(super) fn scale(&self, row: usize) -> f32 {
        self.scales[row]
    }

    /// Sums of a row.
    pub(super) fn sums(&self, row: usize) -> &[i32] {
        &self.sums[row * self.sums_per_row..(row + 1) * self.sums_per_row]
    }
}

/// Where a packed row goes.
struct RowOf<'a> {
    lines: &'a Shared<'a, Line>,
    start: usize,
    sums: &'a mut [i32],
}

impl RowOf<'_> {
    /// Line `i` of plane `plane`.
    ///
    /// # Safety
    /// The row belongs to this piece.
    #[inline(always)]
    unsafe fn line(&mut self, i: usize, plane: usize) -> &mut [u8; 64] {
        // SAFETY: the caller's word; the mutable borrow keeps two of one row apart.
        unsafe { &mut self.lines.part(self.start + i * TILE_LINES + plane, 1)[0].0 }
    }
}

#[target_feature(enable = "avx2,fma")]
unsafe fn row_avx2(shape: &Shape, x: &[f32], to: &mut RowOf<'_>) -> f32 {
    // SAFETY: passed on.
    unsafe { row(shape, x, to) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")]
unsafe fn row_avx512(shape: &Shape, x: &[f32], to: &mut RowOf<'_>) -> f32 {
    // SAFETY: passed on.
    unsafe { row(shape, x, to) }
}

/// Packs one row and returns its scale.
///
/// # Safety
/// The row belongs to this piece.
#[inline(always)]
unsafe fn row(shape: &Shape, x: &[f32], to: &mut RowOf<'_>) -> f32 {
    // SAFETY: passed on.
    unsafe {
        match (shape.kind, shape.planes) {
            (Kind::Bf16, _) => bf16_row(x, to),
            (_, 1) => byte_row(shape, x, to),
            _ => wide_row(shape, x, to),
        }
    }
}

/// Numbers `N i .. N (i + 1)`, filled up with zeros. No closures below: one that is not inlined
/// would not be compiled for the processor's instructions.
#[inline(always)]
fn line_of<const N: usize>(x: &[f32], i: usize) -> [f32; N] {
    let rest = &x[i * N..];
    if let Some(whole) = rest.first_chunk::<N>() {
        return *whole;
    }
    let mut last = [0.0; N];
    last[..rest.len()].copy_from_slice(rest);
    last
}

#[inline(always)]
unsafe fn bf16_row(x: &[f32], to: &mut RowOf<'_>) -> f32 {
    for i in 0..x.len().div_ceil(32) {
        let x = line_of::<32>(x, i);
        // SAFETY: passed on.
        let (pairs, _) = unsafe { to.line(i, 0) }.as_chunks_mut::<2>();
        for (pair, v) in pairs.iter_mut().zip(&x) {
            let bits = v.to_bits();
            // To nearest even; NaN keeps a bit of its payload.
            let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
            let quiet = bits >> 16 | 0x40;
            let bits = if v.is_nan() { quiet } else { rounded };
            *pair = (bits as u16).to_le_bytes();
        }
    }
    1.0
}

/// Greatest absolute value; NaN where any number is not finite, so that the products are too.
#[inline(always)]
fn greatest(x: &[f32]) -> f32 {
    let mut most = [0.0f32; 32];
    let mut poison = [0.0f32; 32];
    for i in 0..x.len().div_ceil(32) {
        let x = line_of::<32>(x, i);
        for ((most, poison), v) in most.iter_mut().zip(&mut poison).zip(&x) {
            let a = v.abs();
            *most = if a > *most { a } else { *most };
            *poison += v * 0.0;
        }
    }
    let (mut all, mut none) = (0.0f32, 0.0f32);
    for (most, poison) in most.iter().zip(&poison) {
        all = if *most > all { *most } else { all };
        none += poison;
    }
    all + none
}

/// Nearest integer, even at a tie, of a number below 2^22; NaN gives 0.
#[inline(always)]
fn nearest(v: f32) -> i32 {
    const ROUND: f32 = 12_582_912.0; // 1.5 * 2^23: adding it rounds to an integer
    let v = if v.is_nan() { 0.0 } else { v };
    (v + ROUND).to_bits().wrapping_sub(ROUND.to_bits()) as i32
}

/// 8 bits: -127..=127.
#[inline(always)]
unsafe fn byte_row(shape: &Shape, x: &[f32], to: &mut RowOf<'_>) -> f32 {
    let scale = greatest(x) * (1.0 / 127.0);
    let inverse = inverse_of(scale);
    let mut total = 0;
    for i in 0..shape.lines_per_row {
        let x = line_of::<64>(x, i);
        // SAFETY: passed on.
        for (byte, v) in unsafe { to.line(i, 0) }.iter_mut().zip(&x) {
            let v = nearest(v * inverse);
            *byte = v as u8;
            total += v;
        }
    }
    to.sums[0] = total;
    scale
}

/// 16 bits: -127 * 256..=127 * 256, as high and low bytes.
#[inline(always)]
unsafe fn wide_row(shape: &Shape, x: &[f32], to: &mut RowOf<'_>) -> f32 {
    let scale = greatest(x) * (1.0 / (127.0 * 256.0));
    let inverse = inverse_of(scale);
    let (mut total_high, mut total_low) = (0, 0);
    for i in 0..shape.lines_per_row {
        let x = line_of::<64>(x, i);
        let mut values = [0i32; 64];
        for (value, v) in values.iter_mut().zip(&x) {
            *value = nearest(v * inverse);
        }
        // SAFETY: passed on, here and below.
        for (byte, v) in unsafe { to.line(i, 0) }.iter_mut().zip(&values) {
            let high = (v + 128) >> 8;
            *byte = high as u8;
            total_high += high;
        }
        for (byte, v) in unsafe { to.line(i, 1) }.iter_mut().zip(&values) {
            let low = v - (((v + 128) >> 8) << 8);
            *byte = low as u8;
            total_low += low;
        }
        if shape.kind == Kind::Nibble {
            for (to, values) in to.sums[i * 2..].iter_mut().zip(values.chunks_exact(GROUP)) {
                *to = 0;
                for v in values {
                    *to += v;
                }
            }
        }
    }
    if shape.kind == Kind::Byte {
        to.sums[0] = total_high;
        to.sums[1] = total_low;
    }
    scale
}
