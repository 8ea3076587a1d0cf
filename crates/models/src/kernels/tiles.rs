//! Weights in the order in which tile instructions read them: bf16, bytes, and groups of nibbles.
//!
//! A panel holds 32 outputs as two tiles side by side, and is read from its first line to its
//! last: one stream from memory for any number of rows. A tile is 16 lines of 64 bytes; a line
//! holds 16 outputs, each with 4 bytes of consecutive inputs (2 numbers in bf16, 4 in bytes).
//! Source of the order: Intel SDM, TDPBF16PS and TDPBSUD.
//!
//! Bytes are stored 128 too high, because the byte instructions take one operand without a sign:
//! weight = scale * (byte - 128), one scale an output. Nibbles come in groups of 32 inputs of an
//! output: weight = d * nibble + m, with d and m in f16, as GGUF's Q4_1 has them.

use half::{bf16, f16};

use super::memory::{Plain, Rows};
use crate::quant::{GROUP, NibbleGroup};

/// Outputs in a panel.
pub(super) const PANEL: usize = 32;
/// Outputs in a tile.
const TILE: usize = 16;
/// What is added to a weight of a byte.
pub(super) const BYTE_ZERO: i32 = 128;
/// Lines of a group in a panel: four of nibbles for each tile, one of `d`, one of `m`.
pub(super) const GROUP_LINES: usize = 10;
/// The line of `d` in a group; `m` follows.
pub(super) const GROUP_D: usize = 8;

/// A cache line of weights or activations.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Line(pub(super) [u8; 64]);

impl Plain for Line {}

/// How a weight is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// bf16.
    Bf16,
    /// Bytes.
    Byte,
    /// Nibbles in groups.
    Nibble,
}

impl Kind {
    /// Inputs that a line of activations holds.
    pub(super) fn inputs_per_line(self) -> usize {
        match self {
            Self::Bf16 => 32,
            Self::Byte | Self::Nibble => 64,
        }
    }

    fn panel_lines(self, inputs: usize) -> usize {
        match self {
            Self::Bf16 | Self::Byte => inputs.div_ceil(self.inputs_per_line()) * 2 * TILE,
            Self::Nibble => inputs.div_ceil(GROUP) * GROUP_LINES,
        }
    }
}

/// The weights of a matrix.
pub(super) struct Tiles {
    pub(super) kind: Kind,
    inputs: usize,
    lines: Rows<Line>,
    panel_lines: usize,
    /// Of bytes: one an output, 0 where none was set. Else empty.
    pub(super) scales: Vec<f32>,
}

impl Tiles {
    /// Weights that are all 0.
    ///
    /// # Panics
    /// On so many inputs that a sum of byte products could leave 32 bits.
    pub(super) fn zeros(kind: Kind, outputs: usize, inputs: usize) -> Self {
        assert!(
            kind == Kind::Bf16 || inputs <= 1 << 16,
            "{inputs} inputs of byte products"
        );
        let n_panels = outputs.div_ceil(PANEL);
        let panel_lines = kind.panel_lines(inputs);
        let n_scales = if kind == Kind::Byte {
            n_panels * PANEL
        } else {
            0
        };
        Self {
            kind,
            inputs,
            lines: Rows::zeros(n_panels * panel_lines),
            panel_lines,
            scales: vec![0.0; n_scales],
        }
    }

    /// Lines of activations a row takes.
    pub(super) fn lines_per_row(&self) -> usize {
        self.inputs.div_ceil(self.kind.inputs_per_line())
    }

    /// Panels.
    pub(super) fn n_panels(&self) -> usize {
        self.lines.len() / self.panel_lines
    }

    /// Lines of a panel.
    pub(super) fn panel_lines(&self) -> usize {
        self.panel_lines
    }

    /// The lines of a panel.
    pub(super) fn panel(&self, panel: usize) -> &[Line] {
        &self.lines[panel * self.panel_lines..(panel + 1) * self.panel_lines]
    }

    /// Memory held. Unit: bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of_val::<[Line]>(&self.lines) + size_of_val::<[f32]>(&self.scales)
    }

    /// Sets the weights of one output, rounded to what the format holds.
    pub(super) fn set_output(&mut self, output: usize, weights: &[f32]) {
        match self.kind {
            Kind::Bf16 => {
                for (k, w) in weights.iter().enumerate() {
                    let bits = bf16::from_f32(*w).to_bits().to_le_bytes();
                    let (line, byte) = place(32, output, k);
                    let line = self.line_mut(output, line);
                    line.0[byte..byte + 2].copy_from_slice(&bits);
                }
            }
            Kind::Byte => {
                let most = weights.iter().fold(0.0f32, |m, w| m.max(w.abs()));
                let scale = most / 127.0;
                let inverse = inverse_of(scale);
                self.scales[output] = scale;
                for (k, w) in weights.iter().enumerate() {
                    let rounded = (w * inverse).round() as i32;
                    let (line, byte) = place(64, output, k);
                    self.line_mut(output, line).0[byte] = (rounded + BYTE_ZERO) as u8;
                }
            }
            Kind::Nibble => {
                for (g, weights) in weights.chunks(GROUP).enumerate() {
                    self.set_group(output, g, &NibbleGroup::quantise(weights));
                }
            }
        }
    }

    /// Sets group `g` of one output. Only for nibbles.
    pub(super) fn set_group(&mut self, output: usize, g: usize, group: &NibbleGroup) {
        assert_eq!(self.kind, Kind::Nibble, "only nibbles come in groups");
        for (k, q) in group.q.iter().enumerate() {
            let (line, byte, high) = nibble_place(output, k);
            let line = self.line_mut(output, g * GROUP_LINES + line);
            let shift = if high { 4 } else { 0 };
            line.0[byte] = line.0[byte] & !(0xf << shift) | q << shift;
        }
        let at = output % PANEL * 2;
        for (i, v) in [group.d, group.m].into_iter().enumerate() {
            let line = self.line_mut(output, g * GROUP_LINES + GROUP_D + i);
            line.0[at..at + 2].copy_from_slice(&v.to_bits().to_le_bytes());
        }
    }

    fn group(&self, output: usize, g: usize) -> NibbleGroup {
        let lines = &self.panel(output / PANEL)[g * GROUP_LINES..][..GROUP_LINES];
        let half = |line: usize| {
            let at = output % PANEL * 2;
            f16::from_le_bytes([lines[line].0[at], lines[line].0[at + 1]])
        };
        let q = std::array::from_fn(|k| {
            let (line, byte, high) = nibble_place(output, k);
            let both = lines[line].0[byte];
            if high { both >> 4 } else { both & 0xf }
        });
        NibbleGroup {
            d: half(GROUP_D),
            m: half(GROUP_D + 1),
            q,
        }
    }

    /// Reads the weights of one output back.
    pub(super) fn read_output(&self, output: usize, out: &mut [f32]) {
        let panel = self.panel(output / PANEL);
        match self.kind {
            Kind::Bf16 => {
                for (k, o) in out.iter_mut().enumerate() {
                    let (line, byte) = place(32, output, k);
                    let line = &panel[line].0;
                    *o = bf16::from_le_bytes([line[byte], line[byte + 1]]).to_f32();
                }
            }
            Kind::Byte => {
                for (k, o) in out.iter_mut().enumerate() {
                    let (line, byte) = place(64, output, k);
                    let weight = i32::from(panel[line].0[byte]) - BYTE_ZERO;
                    *o = self.scales[output] * weight as f32;
                }
            }
            Kind::Nibble => {
                for (g, out) in out.chunks_mut(GROUP).enumerate() {
                    let group = self.group(output, g);
                    for (i, o) in out.iter_mut().enumerate() {
                        *o = group.value(i);
                    }
                }
            }
        }
    }

    fn line_mut(&mut self, output: usize, line: usize) -> &mut Line {
        &mut self.lines[output / PANEL * self.panel_lines + line]
    }
}

/// 0 for a scale of 0 or NaN, and for one so small that its inverse is no number: the integers of
/// such a row are 0.
#[inline(always)]
pub(super) fn inverse_of(scale: f32) -> f32 {
    if scale >= f32::MIN_POSITIVE {
        1.0 / scale
    } else {
        0.0
    }
}

/// Line in the panel and byte in the line of input `k`, at `per_tile` inputs a tile.
fn place(per_tile: usize, output: usize, k: usize) -> (usize, usize) {
    let (tile, half) = (k / per_tile, output % PANEL / TILE);
    let per_slot = per_tile / TILE;
    let line = (tile * 2 + half) * TILE + k % per_tile / per_slot;
    (line, output % TILE * 4 + k % per_slot * (4 / per_slot))
}

/// Line in the group, byte in the line, and whether it is the byte's upper half. Of the eight
/// lines that unpacking gives, line `i + 4` is the upper half of line `i`.
fn nibble_place(output: usize, k: usize) -> (usize, usize, bool) {
    let (half, line) = (output % PANEL / TILE, k / 4);
    (half * 4 + line % 4, output % TILE * 4 + k % 4, line >= 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_gives_back_what_it_can_hold() {
        // 16 values a group of 32, evenly spaced, bounds 1 and -0.875: exact in all three.
        let weight = |o: usize, k: usize| ((7 * o + 3 * k) % 16) as f32 / 8.0 - 0.875;
        for (kind, tolerance) in [
            (Kind::Bf16, 0.0),
            (Kind::Byte, 0.5 / 127.0),
            (Kind::Nibble, 0.0),
        ] {
            for (outputs, inputs) in [(1, 5), (33, 64), (70, 100)] {
                let mut tiles = Tiles::zeros(kind, outputs, inputs);
                for o in 0..outputs {
                    let row: Vec<f32> = (0..inputs).map(|k| weight(o, k)).collect();
                    tiles.set_output(o, &row);
                }
                let mut out = vec![0.0; inputs];
                for o in 0..outputs {
                    tiles.read_output(o, &mut out);
                    for (k, got) in out.iter().enumerate() {
                        let off = (got - weight(o, k)).abs();
                        // A short group may lack its bounds, and then has finer steps.
                        let tolerance = if inputs % GROUP == 0 || kind != Kind::Nibble {
                            tolerance
                        } else {
                            0.07
                        };
                        assert!(
                            off <= tolerance,
                            "{kind:?} {outputs}x{inputs} {o} {k}: {off}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn groups_are_kept_as_they_are() {
        let mut tiles = Tiles::zeros(Kind::Nibble, 40, 64);
        let group = |seed: usize| NibbleGroup {
            d: f16::from_f32(0.25 + seed as f32),
            m: f16::from_f32(-(seed as f32)),
            q: std::array::from_fn(|i| ((i * 5 + seed) % 16) as u8),
        };
        for o in 0..40 {
            for g in 0..2 {
                tiles.set_group(o, g, &group(2 * o + g));
            }
        }
        for o in 0..40 {
            assert_eq!(
                [tiles.group(o, 0), tiles.group(o, 1)],
                [group(2 * o), group(2 * o + 1)]
            );
        }
    }
}
