//! Products of bf16 tiles on Intel's tile registers (AMX), whose shapes and strides are free.
//!
//! The intrinsics are not stable in Rust, so the instructions stand here as assembly. A tile is 16
//! rows of 64 bytes: 16 x 32 numbers in bf16 or 16 x 16 in f32. The right operand of a product
//! holds pairs: row r has (b[2r][n], b[2r + 1][n]) for n = 0..16.

#![cfg(target_arch = "x86_64")]
#![allow(
    unsafe_code,
    reason = "assembly; every caller checks its bounds once, outside the loop"
)]

use std::arch::asm;

use super::amx::Tiles;

/// Rows of a tile, and numbers in a row of f32.
pub(super) const TILE: usize = 16;
/// Numbers in a row of bf16.
pub(super) const PAIRED: usize = 32;
/// Bytes of a tile.
pub(super) const TILE_BYTES: usize = 1024;

/// One product of a row of tiles and a block of tiles.
#[derive(Clone, Copy)]
pub(super) struct TileProduct {
    /// 16 rows of bf16.
    pub(super) a: *const u8,
    /// Bytes between two rows of `a`.
    pub(super) a_stride: usize,
    /// The first of the right operand's tiles, each of [`TILE_BYTES`] in one piece.
    pub(super) b: *const u8,
    /// Bytes from a tile to the next 32 of the sum.
    pub(super) b_next_sum: usize,
    /// Bytes from a tile to the next 16 columns.
    pub(super) b_next_column: usize,
    /// Tiles to sum over: 32 numbers each, at least one.
    pub(super) n_sum: usize,
    /// 16 rows of f32.
    pub(super) out: *mut f32,
    /// Bytes between two rows of `out`.
    pub(super) out_stride: usize,
}

macro_rules! product {
    ($name:ident, $columns:literal, $doc:literal, [$($sum:literal $b:literal $at:literal),*]) => {
        #[doc = $doc]
        ///
        /// # Safety
        /// Everything `p` points to is there, and nobody else uses `out` meanwhile.
        #[inline]
        pub(super) unsafe fn $name(_: &Tiles, p: &TileProduct) {
            // SAFETY: tiles are shaped, as there is a `Tiles`; the rest by the caller's word.
            unsafe {
                asm!(
                    $(concat!("tilezero tmm", $sum),)*
                    "2:",
                    "tileloadd tmm7, [{a} + {a_stride}]",
                    $(
                        concat!("tileloadd tmm", $b, ", [{b} + {row}]"),
                        concat!("tdpbf16ps tmm", $sum, ", tmm7, tmm", $b),
                        "add {b}, {b_column}",
                    )*
                    "add {b}, {b_rest}",
                    "add {a}, 64",
                    "dec {n}",
                    "jnz 2b",
                    $(concat!("tilestored [{out} + {out_stride} + ", $at, "], tmm", $sum),)*
                    a = inout(reg) p.a => _,
                    a_stride = in(reg) p.a_stride,
                    b = inout(reg) p.b => _,
                    b_column = in(reg) p.b_next_column,
                    b_rest = in(reg) p.b_next_sum.wrapping_sub($columns * p.b_next_column),
                    row = in(reg) 64usize,
                    n = inout(reg) p.n_sum => _,
                    out = in(reg) p.out,
                    out_stride = in(reg) p.out_stride,
                    out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                    out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                    options(nostack),
                );
            }
        }
    };
}

product!(product_1, 1, "16 rows times 16 columns.", [0 4 0]);
product!(product_2, 2, "16 rows times 32 columns.", [0 4 0, 1 5 64]);
product!(product_4, 4, "16 rows times 64 columns.", [0 4 0, 1 5 64, 2 6 128, 3 4 192]);

/// 16 rows times `columns` tiles of 16 columns, the widest products first.
///
/// # Safety
/// As the products above, for so many columns.
pub(super) unsafe fn product(tiles: &Tiles, mut p: TileProduct, mut columns: usize) {
    while columns > 0 {
        let taken = match columns {
            4.. => 4,
            2 | 3 => 2,
            _ => 1,
        };
        // SAFETY: by the caller's word.
        unsafe {
            match taken {
                4 => product_4(tiles, &p),
                2 => product_2(tiles, &p),
                _ => product_1(tiles, &p),
            }
        }
        p.b = p.b.wrapping_add(taken * p.b_next_column);
        p.out = p.out.wrapping_add(taken * TILE);
        columns -= taken;
    }
}
