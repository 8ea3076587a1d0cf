//! Intel's tile registers (AMX): whether the process may use them, and one product of bf16 tiles.
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
use std::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};
use std::sync::OnceLock;

/// Rows of a tile, and numbers in a row of f32.
pub(super) const TILE: usize = 16;
/// Numbers in a row of bf16.
pub(super) const PAIRED: usize = 32;
/// Bytes of a tile.
pub(super) const TILE_BYTES: usize = 1024;

/// True where tiles of bf16 can be multiplied and AVX-512 with bf16 surrounds them.
pub(super) fn has_bf16() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| {
        std::is_x86_feature_detected!("avx512f")
            && std::is_x86_feature_detected!("avx512bw")
            && std::is_x86_feature_detected!("avx512dq")
            && std::is_x86_feature_detected!("avx512vl")
            && std::is_x86_feature_detected!("avx512bf16")
            && tiles_allowed()
    })
}

/// Source: Intel's manual, volume 1, chapter 18; Linux, `Documentation/arch/x86/xstate.rst`.
fn tiles_allowed() -> bool {
    const AMX_BF16: u32 = 1 << 22;
    const AMX_TILE: u32 = 1 << 24;
    const OSXSAVE: u32 = 1 << 27;
    /// Both parts of the tile state are kept by the system.
    const XCR0_TILES: u64 = 0b11 << 17;
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_long = 18;
    let wanted = AMX_BF16 | AMX_TILE;
    if __cpuid(1).ecx & OSXSAVE == 0
        || __cpuid(0).eax < 7
        || __cpuid_count(7, 0).edx & wanted != wanted
    {
        return false;
    }
    // SAFETY: OSXSAVE is set, so XGETBV exists.
    if unsafe { xcr0() } & XCR0_TILES != XCR0_TILES {
        return false;
    }
    // SAFETY: asks for a permission of the whole process and touches no memory.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_arch_prctl,
            ARCH_REQ_XCOMP_PERM,
            XFEATURE_XTILEDATA,
        )
    };
    answer == 0
}

#[target_feature(enable = "xsave")]
fn xcr0() -> u64 {
    // SAFETY: the register 0 exists wherever XGETBV does.
    unsafe { _xgetbv(0) }
}

/// The shape of all eight tiles: 16 rows of 64 bytes.
#[repr(C, align(64))]
struct TileConfig {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

static CONFIG: TileConfig = TileConfig {
    palette: 1,
    start_row: 0,
    reserved: [0; 14],
    row_bytes: [64, 64, 64, 64, 64, 64, 64, 64, 0, 0, 0, 0, 0, 0, 0, 0],
    rows: [16, 16, 16, 16, 16, 16, 16, 16, 0, 0, 0, 0, 0, 0, 0, 0],
};

/// The tiles of this thread, shaped; given back when dropped, so that the system need not save
/// eight kilobytes whenever the thread waits.
pub(super) struct Tiles(());

impl Tiles {
    /// # Safety
    /// [`has_bf16`] is true.
    pub(super) unsafe fn shape() -> Self {
        // SAFETY: the instruction exists by the caller's word; CONFIG is 64 valid bytes.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const CONFIG, options(nostack)) };
        Self(())
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: shaped, so the instruction exists; nobody keeps numbers in tiles.
        unsafe { asm!("tilerelease", options(nostack)) };
    }
}

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
