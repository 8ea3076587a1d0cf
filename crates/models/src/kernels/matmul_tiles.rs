//! Products with weights in tiles: which instructions, which loops, and from sums to numbers.

#![cfg(target_arch = "x86_64")]
#![allow(
    unsafe_code,
    reason = "calls the loops of an instruction set that `Matmul::run_on` has checked"
)]

use std::cell::RefCell;
use std::ops::Range;

use super::activations::{Activations, Shape, TILE_LINES};
use super::amx::{self, Sums};
use super::cpu::Isa;
use super::finish::Output;
use super::tiles::{BYTE_ZERO, Kind, PANEL, Tiles};
use super::{dot_avx2, dot_avx512};
use crate::parallel::Team;

/// Rows that a piece takes, where there are more: with so few they come from the nearest caches,
/// and a matrix of weights from the second.
const ROWS: usize = 128;

/// Lines of weights that a piece takes at most where there are more rows: half a second-level
/// cache.
const WEIGHT_LINES: usize = 1 << 14;

/// Panels that a piece takes at most where it has all rows: every panel is read once.
const MAX_PANELS: usize = 8;

/// How a product is cut into pieces: blocks of rows by runs of panels, a run for all blocks before
/// the next.
struct Pieces {
    row_tiles: usize,
    panels: usize,
    row_tiles_each: usize,
    panels_each: usize,
}

impl Pieces {
    fn of(job: &Job<'_>, threads: usize) -> Self {
        let (row_tiles, panels) = (job.shape.row_tiles(), job.weights.n_panels());
        let row_tiles_each = ROWS.div_ceil(job.shape.rows_per_tile());
        let blocks = row_tiles.div_ceil(row_tiles_each);
        // Four pieces a thread leave a late thread little to delay.
        let even = panels * blocks / (threads * 4);
        let most = match blocks {
            1 => MAX_PANELS,
            _ => WEIGHT_LINES / job.weights.panel_lines(),
        };
        Self {
            row_tiles,
            panels,
            row_tiles_each,
            panels_each: even.min(most).clamp(1, panels),
        }
    }

    fn blocks(&self) -> usize {
        self.row_tiles.div_ceil(self.row_tiles_each)
    }

    fn count(&self) -> usize {
        self.blocks() * self.panels.div_ceil(self.panels_each)
    }

    /// Tiles of rows and panels of piece `i`.
    fn piece(&self, i: usize) -> (Range<usize>, Range<usize>) {
        let cut = |at: usize, each: usize, all: usize| at * each..((at + 1) * each).min(all);
        (
            cut(i % self.blocks(), self.row_tiles_each, self.row_tiles),
            cut(i / self.blocks(), self.panels_each, self.panels),
        )
    }
}

/// A product of tiles.
pub(super) struct Job<'a> {
    pub(super) isa: Isa,
    pub(super) shape: Shape,
    pub(super) activations: &'a Activations,
    pub(super) weights: &'a Tiles,
    pub(super) output: Output<'a>,
}

/// Computes `x` times `weights` into `output`. Shape: `x: [rows, inputs]`. `planes` is 2 for
/// activations of 16 bits.
pub(super) fn run(
    isa: Isa,
    (x, inputs): (&[f32], usize),
    (weights, planes): (&Tiles, usize),
    team: &Team,
    output: Output<'_>,
) {
    thread_local! {
        /// The calling thread's packed rows: no memory is asked for in a step.
        static ACTIVATIONS: RefCell<Activations> = RefCell::default();
    }
    let shape = Shape {
        kind: weights.kind,
        rows: x.len() / inputs,
        inputs,
        lines_per_row: weights.lines_per_row(),
        planes,
    };
    ACTIVATIONS.with_borrow_mut(|activations| {
        activations.pack(isa, &shape, x, team);
        let job = Job {
            isa,
            shape,
            activations,
            weights,
            output,
        };
        let pieces = Pieces::of(&job, team.threads());
        team.run(pieces.count(), &|i| {
            let (row_tiles, panels) = pieces.piece(i);
            job.piece(row_tiles, panels);
        });
    });
}

impl Job<'_> {
    fn piece(&self, row_tiles: Range<usize>, panels: Range<usize>) {
        // SAFETY: `Matmul::run_on` asserted that the processor has `isa`.
        unsafe {
            match (self.isa, self.shape.kind) {
                (Isa::Avx2, Kind::Nibble) => self.nibbles_avx2(row_tiles, panels),
                (Isa::Avx2, _) => self.bytes_avx2(row_tiles, panels),
                (_, Kind::Nibble) => self.nibbles_wide(row_tiles, panels),
                (Isa::Avx512, _) => self.wide(row_tiles, panels),
                (Isa::Amx, _) => self.tiles(row_tiles, panels),
            }
        }
    }

    /// Rows of tile of rows `row_tile`.
    pub(super) fn rows(&self, row_tile: usize) -> Range<usize> {
        let per_tile = self.shape.rows_per_tile();
        let first = row_tile * per_tile;
        first.min(self.shape.rows)..(first + per_tile).min(self.shape.rows)
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")]
    unsafe fn tiles(&self, row_tiles: Range<usize>, panels: Range<usize>) {
        let (shape, mut sums) = (&self.shape, Sums::new());
        let two: unsafe fn(_, _, _, &mut _) = match shape.kind {
            Kind::Bf16 => amx::bf16_two,
            Kind::Byte | Kind::Nibble => amx::byte_two,
        };
        let one: unsafe fn(_, _, _, &mut _) = match shape.kind {
            Kind::Bf16 => amx::bf16_one,
            Kind::Byte | Kind::Nibble => amx::byte_one,
        };
        // SAFETY: the tiles are given the height of the rows; rows and panels have
        // `lines_per_row` tiles.
        unsafe {
            let _shaped = amx::Tiles::shape(shape.height(), TILE_LINES);
            for row_tile in row_tiles.clone().step_by(2) {
                let a = self.activations.tile(shape, row_tile).as_ptr();
                for panel in panels.clone() {
                    let b = self.weights.panel(panel).as_ptr();
                    if row_tile + 1 < row_tiles.end {
                        let next = self.activations.tile(shape, row_tile + 1).as_ptr();
                        two([a, next], b, shape.lines_per_row, &mut sums);
                        self.finish(row_tile, panel, &sums.0[..TILE_LINES]);
                        self.finish(row_tile + 1, panel, &sums.0[TILE_LINES..]);
                    } else {
                        one(a, b, shape.lines_per_row, &mut sums);
                        self.finish(row_tile, panel, &sums.0[..TILE_LINES]);
                    }
                }
            }
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma")]
    unsafe fn wide(&self, row_tiles: Range<usize>, panels: Range<usize>) {
        let (shape, mut sums) = (&self.shape, Sums::new());
        for row_tile in row_tiles {
            let height = self.rows(row_tile).len() * shape.planes;
            let a = self.activations.tile(shape, row_tile).as_ptr();
            for panel in panels.clone() {
                let b = self.weights.panel(panel).as_ptr();
                let n = shape.lines_per_row;
                macro_rules! rows {
                    ($loops:ident, $at:expr, $($m:literal)*) => {
                        // SAFETY: rows and panels have n tiles; height is at most 16.
                        unsafe {
                            match height - $at {
                                $($m => dot_avx512::$loops::<$m>((a, $at), b, n, &mut sums),)*
                                _ => dot_avx512::$loops::<4>((a, $at), b, n, &mut sums),
                            }
                        }
                    };
                }
                for at in (0..height).step_by(4) {
                    match shape.kind {
                        Kind::Bf16 => rows!(bf16, at, 1 2 3),
                        Kind::Byte | Kind::Nibble => rows!(bytes, at, 1 2 3),
                    }
                }
                // SAFETY: this piece's panel.
                unsafe { self.finish(row_tile, panel, &sums.0[..TILE_LINES]) };
            }
        }
    }

    #[target_feature(enable = "avx2,fma")]
    unsafe fn bytes_avx2(&self, row_tiles: Range<usize>, panels: Range<usize>) {
        let (shape, mut sums) = (&self.shape, Sums::new());
        for row_tile in row_tiles {
            let height = self.rows(row_tile).len() * shape.planes;
            let a = self.activations.tile(shape, row_tile);
            for panel in panels.clone() {
                let b = self.weights.panel(panel);
                for line in 0..height {
                    for half in 0..2 {
                        let mut dots = dot_avx2::none();
                        for tile in 0..shape.lines_per_row {
                            let a = a[tile * TILE_LINES + line].0.as_ptr();
                            let b = &b[(tile * 2 + half) * TILE_LINES..][..TILE_LINES];
                            // SAFETY: a line of 64 bytes and 16 lines.
                            unsafe { dot_avx2::bytes(a, b.as_ptr(), TILE_LINES, &mut dots) };
                        }
                        let dots = dot_avx2::outputs(&dots).map(|dot| dot as u32);
                        sums.0[line][half * 16..half * 16 + 16].copy_from_slice(&dots);
                    }
                }
                // SAFETY: this piece's panel.
                unsafe { self.finish(row_tile, panel, &sums.0[..TILE_LINES]) };
            }
        }
    }

    /// From sums to numbers, and into the output. No closures here: one that is not inlined would
    /// not be compiled for the processor's instructions.
    ///
    /// # Safety
    /// The panel belongs to this piece.
    #[inline(always)]
    unsafe fn finish(&self, row_tile: usize, panel: usize, sums: &[[u32; PANEL]]) {
        let (planes, rows) = (self.shape.planes, self.rows(row_tile));
        let mut products = [[0.0; PANEL]; TILE_LINES];
        let products = &mut products[..rows.len()];
        match self.shape.kind {
            Kind::Bf16 => {
                for (products, sums) in products.iter_mut().zip(sums) {
                    for (p, sum) in products.iter_mut().zip(sums) {
                        *p = f32::from_bits(*sum);
                    }
                }
            }
            Kind::Byte | Kind::Nibble => {
                let sums = sums.chunks_exact(planes);
                for ((products, sums), row) in products.iter_mut().zip(sums).zip(rows.clone()) {
                    self.scaled(row, panel, sums, products);
                }
            }
        }
        // SAFETY: the caller's word.
        unsafe { self.output.write(rows.start, panel * PANEL, products) };
    }

    /// `scales * (sum of products - 128 * sum of activations)` of one or two planes.
    #[inline(always)]
    fn scaled(&self, row: usize, panel: usize, sums: &[[u32; PANEL]], products: &mut [f32; PANEL]) {
        let scales = &self.weights.scales[panel * PANEL..(panel + 1) * PANEL];
        let scale = self.activations.scale(row);
        let zeros = self.activations.sums(row);
        for ((p, sum), s) in products.iter_mut().zip(&sums[0]).zip(scales) {
            *p = (*sum as i32 - BYTE_ZERO * zeros[0]) as f32;
            if sums.len() == 1 {
                *p *= scale * s;
            }
        }
        if sums.len() == 1 {
            return;
        }
        for ((p, sum), s) in products.iter_mut().zip(&sums[1]).zip(scales) {
            let low = (*sum as i32 - BYTE_ZERO * zeros[1]) as f32;
            *p = p.mul_add(256.0, low) * (scale * s);
        }
    }
}
