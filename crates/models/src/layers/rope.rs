//! Rotary position embedding: the angles of each position.
//!
//! The rotation itself is part of attention. Source: Su et al., "RoFormer", section 3.2.2; the
//! stretching of Llama 3.1 as transformers' `_compute_llama3_parameters` does it.

use std::f64::consts::TAU;

use crate::config::{RopeConfig, RopeScaling};

/// Angular frequencies of the pairs of a head.
#[derive(Debug, Clone, PartialEq)]
pub struct Rope {
    /// Radians per position, f32 as the reference computes with.
    frequencies: Vec<f32>,
}

/// Cosines and sines of some positions. Shape: `[positions, head_dim / 2]` each.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Angles {
    /// Cosines.
    pub cos: Vec<f32>,
    /// Sines.
    pub sin: Vec<f32>,
}

impl Rope {
    /// Frequencies for heads of `head_dim`, of which the first `rotary_dim / 2` pairs turn. The
    /// others stand still: their angle is 0 everywhere.
    pub fn new(config: &RopeConfig, rotary_dim: usize, head_dim: usize) -> Self {
        let frequencies = (0..head_dim / 2)
            .map(|i| {
                if i >= rotary_dim / 2 {
                    return 0.0;
                }
                let base = config.theta.powf(-(2.0 * i as f64) / rotary_dim as f64);
                stretch(i, base, &config.scaling) as f32
            })
            .collect();
        Self { frequencies }
    }

    /// The angles of `positions`. The product is rounded to f32 first, as in the reference: at
    /// position 8000 that moves an angle by up to 2e-4, which shows in the logits.
    pub fn angles(&self, positions: impl Iterator<Item = usize>) -> Angles {
        let mut angles = Angles::default();
        for position in positions {
            for frequency in &self.frequencies {
                let (sin, cos) = f64::from(position as f32 * frequency).sin_cos();
                angles.cos.push(cos as f32);
                angles.sin.push(sin as f32);
            }
        }
        angles
    }
}

/// The frequency of a pair after stretching.
fn stretch(pair: usize, frequency: f64, scaling: &RopeScaling) -> f64 {
    match *scaling {
        // The reference divides numbers of f32.
        RopeScaling::Divided(ref factors) => f64::from(frequency as f32 / factors[pair] as f32),
        RopeScaling::None => frequency,
        RopeScaling::Linear { factor } => frequency / factor,
        RopeScaling::Llama3 {
            factor,
            low_freq_factor,
            high_freq_factor,
            original_positions,
        } => {
            // How often the wave turns within the trained context decides.
            let turns = original_positions * frequency / TAU;
            if turns < low_freq_factor {
                frequency / factor
            } else if turns > high_freq_factor {
                frequency
            } else {
                let kept = (turns - low_freq_factor) / (high_freq_factor - low_freq_factor);
                (1.0 - kept) * frequency / factor + kept * frequency
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequencies_fall_geometrically() {
        let rope = Rope::new(
            &RopeConfig {
                theta: 1e4,
                scaling: RopeScaling::None,
            },
            8,
            8,
        );
        assert_eq!(rope.frequencies, [1.0, 0.1, 0.01, 0.001]);
        let angles = rope.angles([0, 5].into_iter());
        assert_eq!(angles.cos[..4], [1.0; 4]);
        assert_eq!(angles.sin[4], 5f64.sin() as f32);
    }

    #[test]
    fn pairs_past_the_rotary_width_stand_still() {
        let config = RopeConfig {
            theta: 1e4,
            scaling: RopeScaling::None,
        };
        let rope = Rope::new(&config, 4, 8);
        assert_eq!(rope.frequencies, [1.0, 0.01, 0.0, 0.0]);
    }

    /// Context 32, factors 1 and 4: a wave that turns 2.5 times within it is half-way, so its
    /// frequency is 0.5 f / 8 + 0.5 f.
    #[test]
    fn llama3_keeps_short_waves_and_blends() {
        let scaling = RopeScaling::Llama3 {
            factor: 8.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_positions: 32.0,
        };
        let at_turns = |turns: f64| {
            let f = turns * TAU / 32.0;
            stretch(0, f, &scaling) / f
        };
        assert!((at_turns(0.9) - 1.0 / 8.0).abs() < 1e-12);
        assert!((at_turns(4.1) - 1.0).abs() < 1e-12);
        assert!((at_turns(2.5) - (0.5 / 8.0 + 0.5)).abs() < 1e-12);
        assert_eq!(stretch(0, 3.0, &RopeScaling::Linear { factor: 4.0 }), 0.75);
    }
}
