//! Products with nibbles: each group of 32 inputs has factors of its own, so its integer sum joins
//! the others as a float. Every path adds in the order of the groups: same bits everywhere.

#![cfg(target_arch = "x86_64")]
#![allow(unsafe_code, reason = "as in matmul_tiles.rs")]

use std::arch::x86_64::{_mm512_load_si512, _mm512_loadu_ps, _mm512_store_si512, _mm512_storeu_ps};
use std::ops::Range;

use half::f16;

use super::activations::TILE_LINES;
use super::amx::{self, Sums};
use super::cpu::Isa;
use super::matmul_tiles::Job;
use super::tiles::{GROUP_D, GROUP_LINES, Line, PANEL};
use super::{dot_avx2, dot_avx512};

/// Rows up to which tiles are not used: unpacking into memory costs more than they save. Measured;
/// every choice gives the same bits.
const FEW_ROWS: usize = 4;

/// Groups unpacked at once.
const CHUNK: usize = 8;
/// Lines of an unpacked group.
const UNPACKED: usize = 16;

/// Products of a tile of rows with a panel. Nibbles always have two planes.
type Products = [[f32; PANEL]; TILE_LINES / 2];

/// Where a group begins in the activations: tile, and byte in each line.
fn group_place(g: usize) -> (usize, usize) {
    (g / 2, g % 2 * 32)
}

impl Job<'_> {
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma")]
    pub(super) unsafe fn nibbles_wide(&self, row_tiles: Range<usize>, panels: Range<usize>) {
        let tiles = self.isa == Isa::Amx && self.shape.rows > FEW_ROWS;
        // SAFETY: the caller's word: the processor has `isa`. A height is at most 16.
        let _shaped =
            tiles.then(|| unsafe { amx::Tiles::shape(self.shape.height(), UNPACKED / 2) });
        let (mut sums, mut unpacked) = (Sums::new(), [Line([0; 64]); CHUNK * UNPACKED]);
        for row_tile in row_tiles {
            for panel in panels.clone() {
                let mut products: Products = [[0.0; PANEL]; TILE_LINES / 2];
                // SAFETY: the caller's word; the panel belongs to this piece.
                unsafe {
                    if tiles {
                        let scratch = (&mut sums, &mut unpacked);
                        self.nibbles_amx(row_tile, panel, scratch, &mut products);
                    } else {
                        self.nibbles_avx512(row_tile, panel, &mut products);
                    }
                    self.finish_nibbles(row_tile, panel, &products);
                }
            }
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    unsafe fn nibbles_avx512(&self, row_tile: usize, panel: usize, products: &mut Products) {
        let a = self.activations.tile(&self.shape, row_tile).as_ptr();
        let b = self.weights.panel(panel).as_ptr();
        let rows = self.rows(row_tile);
        let sums = |m: usize| self.activations.sums(rows.start + m);
        let mut at = 0;
        // SAFETY: rows and panel have as many groups as `sums`.
        unsafe {
            while at < rows.len() {
                match rows.len() - at {
                    1 => dot_avx512::nibbles((a, at), b, [sums(at)], products),
                    2 | 3 => {
                        dot_avx512::nibbles((a, at), b, [0, 1].map(|i| sums(at + i)), products)
                    }
                    _ => {
                        let sums = [0, 1, 2, 3].map(|i| sums(at + i));
                        dot_avx512::nibbles((a, at), b, sums, products);
                    }
                }
                at += match rows.len() - at {
                    1 => 1,
                    2 | 3 => 2,
                    _ => 4,
                };
            }
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn nibbles_amx(
        &self,
        row_tile: usize,
        panel: usize,
        (sums, unpacked): (&mut Sums, &mut [Line; CHUNK * UNPACKED]),
        products: &mut Products,
    ) {
        let a = self.activations.tile(&self.shape, row_tile);
        let groups = self.weights.panel(panel).as_chunks::<GROUP_LINES>().0;
        for (chunk, groups) in groups.chunks(CHUNK).enumerate() {
            for (lines, out) in groups.iter().zip(unpacked.as_chunks_mut::<UNPACKED>().0) {
                for half in 0..2 {
                    // SAFETY: half a group is four lines and becomes eight.
                    unsafe {
                        for (i, bytes) in dot_avx512::unpack(&raw const lines[half * 4])
                            .into_iter()
                            .enumerate()
                        {
                            _mm512_store_si512((&raw mut out[half * 8 + i]).cast(), bytes);
                        }
                    }
                }
            }
            for (i, lines) in groups.iter().enumerate() {
                let g = chunk * CHUNK + i;
                let (tile, byte) = group_place(g);
                // SAFETY: 16 lines of activations from the tile on, 16 of weights; the tiles
                // have their shape.
                unsafe {
                    let a = a[tile * TILE_LINES..].as_ptr().cast::<u8>().add(byte);
                    amx::group(a, &raw const unpacked[i * UNPACKED], sums);
                    self.add_groups(row_tile, (g, lines), sums, products);
                }
            }
        }
    }

    /// Adds the sums of one group for all rows of a tile of rows.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn add_groups(
        &self,
        row_tile: usize,
        (g, lines): (usize, &[Line; GROUP_LINES]),
        sums: &Sums,
        products: &mut Products,
    ) {
        for half in 0..2 {
            // SAFETY: lines of 64 bytes; rows of 32 numbers.
            unsafe {
                let factors =
                    [0, 1].map(|i| dot_avx512::factors(&raw const lines[GROUP_D + i], half));
                for (m, row) in self.rows(row_tile).enumerate() {
                    let plane = |p: usize| {
                        _mm512_load_si512(sums.0[2 * m + p][half * 16..].as_ptr().cast())
                    };
                    let dot = dot_avx512::join(plane(0), plane(1));
                    let sum = self.activations.sums(row)[g] as f32;
                    let total = products[m][half * 16..].as_mut_ptr();
                    let added = dot_avx512::add_group(_mm512_loadu_ps(total), factors, dot, sum);
                    _mm512_storeu_ps(total, added);
                }
            }
        }
    }

    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn nibbles_avx2(&self, row_tiles: Range<usize>, panels: Range<usize>) {
        for row_tile in row_tiles {
            let a = self.activations.tile(&self.shape, row_tile);
            for panel in panels.clone() {
                let mut products: Products = [[0.0; PANEL]; TILE_LINES / 2];
                let groups = self.weights.panel(panel).as_chunks::<GROUP_LINES>().0;
                for (g, lines) in groups.iter().enumerate() {
                    let unpacked = unpack(lines);
                    let (tile, byte) = group_place(g);
                    for (m, row) in self.rows(row_tile).enumerate() {
                        let a = &a[tile * TILE_LINES + 2 * m..][..2];
                        let sum = self.activations.sums(row)[g] as f32;
                        for half in 0..2 {
                            let [high, low] = [0, 1].map(|plane| {
                                let mut dots = dot_avx2::none();
                                let b = &unpacked[half * 8..half * 8 + 8];
                                // SAFETY: 32 bytes of activations, eight lines of weights.
                                unsafe {
                                    let a = a[plane].0[byte..byte + 32].as_ptr();
                                    dot_avx2::bytes(a, b.as_ptr(), b.len(), &mut dots);
                                }
                                dot_avx2::outputs(&dots)
                            });
                            for o in 0..16 {
                                let at = half * 16 + o;
                                let [d, m_] = [0, 1].map(|i| factor(&lines[GROUP_D + i], at));
                                let dot = (high[o] * 256 + low[o]) as f32;
                                let total = &mut products[m][at];
                                *total = m_.mul_add(sum, d.mul_add(dot, *total));
                            }
                        }
                    }
                }
                // SAFETY: this piece's panel.
                unsafe { self.finish_nibbles(row_tile, panel, &products) };
            }
        }
    }

    /// # Safety
    /// The panel belongs to this piece.
    #[inline(always)]
    unsafe fn finish_nibbles(&self, row_tile: usize, panel: usize, products: &Products) {
        let rows = self.rows(row_tile);
        let mut scaled = *products;
        for (scaled, row) in scaled.iter_mut().zip(rows.clone()) {
            let scale = self.activations.scale(row);
            for s in scaled {
                *s *= scale;
            }
        }
        let scaled = &mut scaled[..rows.len()];
        // SAFETY: the caller's word.
        unsafe { self.output.write(rows.start, panel * PANEL, scaled) };
    }
}

/// A group's nibbles as bytes: eight lines for each half of the panel.
fn unpack(lines: &[Line; GROUP_LINES]) -> [Line; UNPACKED] {
    std::array::from_fn(|i| {
        let (half, line) = (i / 8, i % 8);
        let both = &lines[half * 4 + line % 4].0;
        Line(both.map(|b| if line < 4 { b & 0xf } else { b >> 4 }))
    })
}

/// Factor of output `at` of a panel.
fn factor(line: &Line, at: usize) -> f32 {
    f16::from_le_bytes([line.0[2 * at], line.0[2 * at + 1]]).to_f32()
}
