//! Formats of quantised weights: their names, and the groups of 4-bit weights.
//!
//! Where weights of 8 bits are quantised and how products are made of either is the business of
//! the kernels.

use std::fmt;
use std::str::FromStr;

use half::f16;

use crate::error::ModelError;

/// How the matrices of a model are quantised; everything else keeps the dtype.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Quant {
    /// Not at all.
    #[default]
    None,
    /// Weights of 8 bits, one scale an output. Activations keep 16 bits.
    Int8,
    /// Weights of 8 bits, one scale an output, and activations of 8 bits, one scale a row.
    Int8Dynamic,
    /// Weights of 4 bits in groups of 32, embedding and output matrix of 8 bits. Activations keep
    /// 16 bits. A GGUF file's own 4-bit weights (Q4_0, Q4_1) are taken as they are.
    Int4,
}

impl fmt::Display for Quant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Int8 => "int8",
            Self::Int8Dynamic => "int8-dynamic",
            Self::Int4 => "int4",
        })
    }
}

impl FromStr for Quant {
    type Err = ModelError;

    fn from_str(s: &str) -> Result<Self, ModelError> {
        match s {
            "none" => Ok(Self::None),
            "int8" => Ok(Self::Int8),
            "int8-dynamic" => Ok(Self::Int8Dynamic),
            "int4" => Ok(Self::Int4),
            _ => Err(ModelError::Quant {
                quant: s.to_owned(),
                problem: "must be none, int8, int8-dynamic or int4",
            }),
        }
    }
}

/// Inputs in a group of 4-bit weights.
pub const GROUP: usize = 32;

/// Bytes of 32 weights in GGUF's Q4_0: d in f16, then two nibbles a byte.
pub const Q4_0_BYTES: usize = 18;
/// Bytes of 32 weights in GGUF's Q4_1: d and m in f16, then two nibbles a byte.
pub const Q4_1_BYTES: usize = 20;

/// 32 weights of one output: `d * q + m`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NibbleGroup {
    /// Step.
    pub d: f16,
    /// Value of 0.
    pub m: f16,
    /// 0..16 each, in the order of the inputs.
    pub q: [u8; GROUP],
}

impl NibbleGroup {
    /// The nearest of 16 evenly spaced values from the least to the greatest of up to 32 weights.
    pub fn quantise(weights: &[f32]) -> Self {
        let least = weights.iter().copied().fold(f32::INFINITY, f32::min);
        let greatest = weights.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let d = f16::from_f32((greatest - least) / 15.0);
        let m = f16::from_f32(least);
        let step = d.to_f32();
        let inverse = if step > 0.0 { 1.0 / step } else { 0.0 };
        let mut q = [0; GROUP];
        for (q, w) in q.iter_mut().zip(weights) {
            // A float becomes an integer within its bounds, and NaN 0.
            *q = ((w - m.to_f32()) * inverse).round().clamp(0.0, 15.0) as u8;
        }
        Self { d, m, q }
    }

    /// A block of GGUF's Q4_1: x = d q + m.
    pub fn from_q4_1(block: &[u8; Q4_1_BYTES]) -> Self {
        let [d0, d1, m0, m1, nibbles @ ..] = block;
        Self {
            d: f16::from_le_bytes([*d0, *d1]),
            m: f16::from_le_bytes([*m0, *m1]),
            q: halves_apart(nibbles),
        }
    }

    /// A block of GGUF's Q4_0: x = d (q - 8). Exact but for a d above 8188, whose 8-fold no f16
    /// holds.
    pub fn from_q4_0(block: &[u8; Q4_0_BYTES]) -> Self {
        let [d0, d1, nibbles @ ..] = block;
        let d = f16::from_le_bytes([*d0, *d1]);
        Self {
            d,
            m: f16::from_f32(-8.0 * d.to_f32()),
            q: halves_apart(nibbles),
        }
    }

    /// Weight `i`.
    pub fn value(&self, i: usize) -> f32 {
        self.d.to_f32() * f32::from(self.q[i]) + self.m.to_f32()
    }
}

/// The low nibbles come first, then the high ones.
fn halves_apart(nibbles: &[u8; GROUP / 2]) -> [u8; GROUP] {
    std::array::from_fn(|i| match i < GROUP / 2 {
        true => nibbles[i] & 0xf,
        false => nibbles[i - GROUP / 2] >> 4,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back() {
        for quant in [Quant::None, Quant::Int8, Quant::Int8Dynamic, Quant::Int4] {
            assert_eq!(quant.to_string().parse::<Quant>().ok(), Some(quant));
        }
        let problem = "int3".parse::<Quant>().expect_err("no such format");
        assert_eq!(
            problem.to_string(),
            "quant int3: must be none, int8, int8-dynamic or int4"
        );
    }

    /// d = 0.5, m = -1; byte i is 0x(15 - i)(i): weight i is 0.5 i - 1, weight 16 + i 6.5 - 0.5 i.
    #[test]
    fn blocks_of_gguf_by_hand() {
        let nibbles: [u8; 16] = std::array::from_fn(|i| ((15 - i) << 4 | i) as u8);
        let half = |v: f32| f16::from_f32(v).to_le_bytes();
        let with = |head: &[u8]| -> Vec<u8> { [head, &nibbles].concat() };
        let q4_1 = with(&[half(0.5), half(-1.0)].concat());
        let group = NibbleGroup::from_q4_1(&q4_1.try_into().expect("20 bytes"));
        assert_eq!(
            [0, 3, 16, 31].map(|i| group.value(i)),
            [-1.0, 0.5, 6.5, -1.0]
        );
        let q4_0 = with(&half(0.5));
        let group = NibbleGroup::from_q4_0(&q4_0.try_into().expect("18 bytes"));
        assert_eq!(
            [0, 3, 16, 31].map(|i| group.value(i)),
            [-4.0, -2.5, 3.5, -4.0]
        );
    }

    #[test]
    fn a_group_keeps_its_bounds_and_is_within_half_a_step() {
        let weights: [f32; 20] = std::array::from_fn(|i| (i * i % 17) as f32 / 4.0 - 1.0);
        let group = NibbleGroup::quantise(&weights);
        for (i, w) in weights.iter().enumerate() {
            let off = (group.value(i) - w).abs();
            assert!(off < 0.51 * group.d.to_f32(), "{i}: {off}");
        }
        let flat = NibbleGroup::quantise(&[0.25; GROUP]);
        assert_eq!([flat.value(0), flat.value(31)], [0.25; 2]);
    }
}
