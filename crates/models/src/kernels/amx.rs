//! Products on matrix tiles (AMX).
//!
//! The compiler knows no tile registers as values, so a whole loop over the inputs is one block of
//! assembly. Registers: tmm0..tmm3 hold sums, tmm4 and tmm5 activations, tmm6 and tmm7 weights.
//! [`Tiles`] sets their shapes for the thread and gives them back.
//! Source of the instructions: Intel SDM, volume 2, TDPBF16PS, TDPBSUD, TILELOADD.

#![cfg(target_arch = "x86_64")]
#![allow(unsafe_code, reason = "assembly; every function states what it reads")]

use std::arch::asm;

use super::tiles::Line;

/// Sums of up to two tiles of rows times a panel: rows of 32 numbers, i32 or f32 by the
/// instruction.
#[repr(C, align(64))]
pub(super) struct Sums(pub(super) [[u32; 32]; 32]);

impl Sums {
    /// Zeros.
    pub(super) fn new() -> Self {
        Self([[0; 32]; 32])
    }
}

/// Operand of LDTILECFG.
#[repr(C, align(64))]
struct Config {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    bytes_per_row: [u16; 16],
    rows: [u8; 16],
}

/// The tiles of this thread, shaped; given back when dropped, so that the system need not save
/// eight kilobytes whenever the thread waits.
pub(super) struct Tiles(());

impl Tiles {
    /// `height` lines of sums and activations; weights of `depth` lines, for activations of
    /// `4 * depth` bytes a line.
    ///
    /// # Safety
    /// The processor has AMX and the process may use it: see `cpu`. `height` and `depth` are
    /// 1..=16.
    pub(super) unsafe fn shape(height: usize, depth: usize) -> Self {
        let mut config = Config {
            palette: 1,
            start_row: 0,
            reserved: [0; 14],
            bytes_per_row: [0; 16],
            rows: [0; 16],
        };
        for tile in 0..8 {
            let (rows, bytes) = match tile {
                0..4 => (height, 64),
                4..6 => (height, 4 * depth),
                _ => (depth, 64),
            };
            config.rows[tile] = rows as u8;
            config.bytes_per_row[tile] = bytes as u16;
        }
        // SAFETY: reads 64 bytes; a shape outside 16 rows of 64 bytes would fault.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const config, options(nostack, readonly)) }
        Self(())
    }

    /// All eight tiles with 16 lines of 64 bytes.
    ///
    /// # Safety
    /// As [`Tiles::shape`].
    pub(super) unsafe fn full() -> Self {
        // SAFETY: the caller's word.
        unsafe { Self::shape(16, 16) }
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: shaped, so the instruction exists; nobody keeps numbers in tiles.
        unsafe {
            asm!("tilerelease", out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack, nomem));
        }
    }
}

/// Fetches 16 lines from `{ah}` bytes after `{b}` on: what the loop reads 2 KiB later. The
/// processor's own prefetcher stops at every 4 KiB.
macro_rules! fetch {
    ($start:literal) => {
        concat!(
            fetch!(@ $start, "0"), fetch!(@ $start, "64"), fetch!(@ $start, "128"),
            fetch!(@ $start, "192"), fetch!(@ $start, "256"), fetch!(@ $start, "320"),
            fetch!(@ $start, "384"), fetch!(@ $start, "448"), fetch!(@ $start, "512"),
            fetch!(@ $start, "576"), fetch!(@ $start, "640"), fetch!(@ $start, "704"),
            fetch!(@ $start, "768"), fetch!(@ $start, "832"), fetch!(@ $start, "896"),
            fetch!(@ $start, "960"),
        )
    };
    (@ $start:literal, $at:literal) => {
        concat!("prefetcht0 [{b} + ", $start, " + ", $at, "]\n")
    };
}

/// One tile of rows times a panel, and two tiles of rows times a panel.
macro_rules! products {
    ($one:ident, $two:ident, $instruction:literal) => {
        /// `sums[m][n] = a[m] . b[n]` for one tile of rows.
        ///
        /// # Safety
        /// The tiles are configured; `a` points to `n` tiles of 16 lines and `b` to `n` pairs of
        /// such tiles.
        pub(super) unsafe fn $one(a: *const Line, b: *const Line, n: usize, sums: &mut Sums) {
            // SAFETY: reads what the caller vouches for and writes `sums`; a prefetch never
            // faults.
            unsafe {
                asm!(
                    "tilezero tmm0",
                    "tilezero tmm1",
                    "2:",
                    "tileloadd tmm4, [{a} + {line}]",
                    "tileloadd tmm6, [{b} + {line}]",
                    fetch!("2048"),
                    concat!($instruction, " tmm0, tmm4, tmm6"),
                    "tileloadd tmm7, [{b} + {line} + 1024]",
                    fetch!("3072"),
                    concat!($instruction, " tmm1, tmm4, tmm7"),
                    "add {a}, 1024",
                    "add {b}, 2048",
                    "dec {n}",
                    "jnz 2b",
                    "tilestored [{sums} + {row}], tmm0",
                    "tilestored [{sums} + {row} + 64], tmm1",
                    a = inout(reg) a => _,
                    b = inout(reg) b => _,
                    n = inout(reg) n => _,
                    sums = in(reg) sums,
                    line = in(reg) 64usize,
                    row = in(reg) 128usize,
                    out("tmm0") _, out("tmm1") _, out("tmm4") _, out("tmm6") _, out("tmm7") _,
                    options(nostack),
                );
            }
        }

        /// As the first for two tiles of rows; the second's sums start at row 16.
        ///
        /// # Safety
        /// As the first, for each of `a`.
        pub(super) unsafe fn $two(
            a: [*const Line; 2],
            b: *const Line,
            n: usize,
            sums: &mut Sums,
        ) {
            // SAFETY: as above.
            unsafe {
                asm!(
                    "tilezero tmm0",
                    "tilezero tmm1",
                    "tilezero tmm2",
                    "tilezero tmm3",
                    "2:",
                    "tileloadd tmm6, [{b} + {line}]",
                    "tileloadd tmm4, [{a} + {line}]",
                    concat!($instruction, " tmm0, tmm4, tmm6"),
                    "tileloadd tmm5, [{a2} + {line}]",
                    concat!($instruction, " tmm2, tmm5, tmm6"),
                    "tileloadd tmm7, [{b} + {line} + 1024]",
                    concat!($instruction, " tmm1, tmm4, tmm7"),
                    concat!($instruction, " tmm3, tmm5, tmm7"),
                    "add {a}, 1024",
                    "add {a2}, 1024",
                    "add {b}, 2048",
                    "dec {n}",
                    "jnz 2b",
                    "tilestored [{sums} + {row}], tmm0",
                    "tilestored [{sums} + {row} + 64], tmm1",
                    "tilestored [{sums} + {row} + 2048], tmm2",
                    "tilestored [{sums} + {row} + 2112], tmm3",
                    a = inout(reg) a[0] => _,
                    a2 = inout(reg) a[1] => _,
                    b = inout(reg) b => _,
                    n = inout(reg) n => _,
                    sums = in(reg) sums,
                    line = in(reg) 64usize,
                    row = in(reg) 128usize,
                    out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                    out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                    options(nostack),
                );
            }
        }
    };
}

products!(bf16_one, bf16_two, "tdpbf16ps");
products!(byte_one, byte_two, "tdpbsud");

/// One group of nibbles, unpacked to bytes: a tile of rows times two tiles of 8 lines.
///
/// # Safety
/// The tiles are configured with a depth of 8; `a` points to the group's 32 bytes in the first of
/// 16 lines, `b` to 16 lines.
#[inline]
pub(super) unsafe fn group(a: *const u8, b: *const Line, sums: &mut Sums) {
    // SAFETY: reads what the caller vouches for and writes `sums`.
    unsafe {
        asm!(
            "tilezero tmm0",
            "tilezero tmm1",
            "tileloadd tmm4, [{a} + {line}]",
            "tileloadd tmm6, [{b} + {line}]",
            "tdpbsud tmm0, tmm4, tmm6",
            "tileloadd tmm7, [{b} + {line} + 512]",
            "tdpbsud tmm1, tmm4, tmm7",
            "tilestored [{sums} + {row}], tmm0",
            "tilestored [{sums} + {row} + 64], tmm1",
            a = in(reg) a,
            b = in(reg) b,
            sums = in(reg) sums,
            line = in(reg) 64usize,
            row = in(reg) 128usize,
            out("tmm0") _, out("tmm1") _, out("tmm4") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        );
    }
}
