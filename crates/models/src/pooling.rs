//! From one hidden state a token to one vector a text.
//!
//! Plain arithmetic on slices; which modes a model was trained with stands in its folder, see
//! `sentence_files`. Source of the formulas: sentence-transformers, `models/Pooling.py`.

/// One way to make a vector of many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolingMode {
    /// The first token's state.
    Cls,
    /// The largest value of each column.
    Max,
    /// The mean over the tokens.
    Mean,
    /// The sum over the tokens by the root of their number.
    MeanSqrtLen,
    /// The mean with weight 1 for the first token, 2 for the second, and so on.
    WeightedMean,
    /// The last token's state.
    LastToken,
}

/// How a model's vectors are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pooling {
    /// Modes whose vectors stand one behind the other.
    pub modes: Vec<PoolingMode>,
    /// True where the result is scaled to length 1.
    pub normalize: bool,
}

impl Default for Pooling {
    /// What sentence-transformers does with a folder that says nothing.
    fn default() -> Self {
        Self {
            modes: vec![PoolingMode::Mean],
            normalize: false,
        }
    }
}

impl Pooling {
    /// The vector of one text. Shape: `hidden: [tokens, width]`, row after row.
    ///
    /// # Panics
    /// Without tokens, or on numbers that are not whole rows.
    pub fn pool(&self, hidden: &[f32], width: usize) -> Vec<f32> {
        assert!(!hidden.is_empty(), "a text has at least one token");
        assert!(
            hidden.len().is_multiple_of(width),
            "hidden is not whole rows"
        );
        let mut out = Vec::with_capacity(self.modes.len() * width);
        for mode in &self.modes {
            pool_one(*mode, hidden, width, &mut out);
        }
        if self.normalize {
            normalize(&mut out);
        }
        out
    }
}

fn pool_one(mode: PoolingMode, hidden: &[f32], width: usize, out: &mut Vec<f32>) {
    let n_rows = hidden.len() / width;
    let start = out.len();
    match mode {
        PoolingMode::Cls => out.extend(&hidden[..width]),
        PoolingMode::LastToken => out.extend(&hidden[hidden.len() - width..]),
        PoolingMode::Max => {
            out.extend(&hidden[..width]);
            for row in hidden.chunks_exact(width) {
                for (o, v) in out[start..].iter_mut().zip(row) {
                    *o = if *v > *o { *v } else { *o };
                }
            }
        }
        PoolingMode::Mean => weighted_sum(hidden, width, out, |_| 1.0 / n_rows as f32),
        PoolingMode::MeanSqrtLen => {
            weighted_sum(hidden, width, out, |_| 1.0 / (n_rows as f32).sqrt());
        }
        PoolingMode::WeightedMean => {
            let total = (n_rows * (n_rows + 1) / 2) as f32;
            weighted_sum(hidden, width, out, |row| (row + 1) as f32 / total);
        }
    }
}

fn weighted_sum(hidden: &[f32], width: usize, out: &mut Vec<f32>, weight: impl Fn(usize) -> f32) {
    let start = out.len();
    out.resize(start + width, 0.0);
    for (i, row) in hidden.chunks_exact(width).enumerate() {
        let weight = weight(i);
        for (o, v) in out[start..].iter_mut().zip(row) {
            *o += v * weight;
        }
    }
}

/// Smallest length that is divided by, as in torch's `normalize`.
pub const SMALLEST_NORM: f32 = 1e-12;

/// Scales to length 1.
fn normalize(vector: &mut [f32]) {
    // f64: a sum of a few hundred squares then costs no digit of the result.
    let squares: f64 = vector.iter().map(|v| f64::from(*v) * f64::from(*v)).sum();
    let scale = 1.0 / (squares.sqrt() as f32).max(SMALLEST_NORM);
    vector.iter_mut().for_each(|v| *v *= scale);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pooled(modes: &[PoolingMode], normalize: bool) -> Vec<f32> {
        let modes = modes.to_vec();
        // Three tokens of width 2.
        Pooling { modes, normalize }.pool(&[1.0, -2.0, 3.0, 4.0, 5.0, -8.0], 2)
    }

    #[test]
    fn every_mode_by_hand() {
        use PoolingMode::*;
        let check = |mode: PoolingMode, expected: [f32; 2]| {
            let got = pooled(&[mode], false);
            let near = got.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6);
            assert!(near, "{mode:?}: {got:?}");
        };
        check(Cls, [1.0, -2.0]);
        check(LastToken, [5.0, -8.0]);
        check(Max, [5.0, 4.0]);
        check(Mean, [3.0, -2.0]);
        // 9 / sqrt 3 and -6 / sqrt 3.
        check(MeanSqrtLen, [5.196_152, -3.464_101_6]);
        // (1 + 6 + 15) / 6 and (-2 + 8 - 24) / 6.
        check(WeightedMean, [22.0 / 6.0, -3.0]);
    }

    #[test]
    fn modes_stand_side_by_side_and_are_scaled_together() {
        let both = [PoolingMode::Cls, PoolingMode::Mean];
        assert_eq!(pooled(&both, false), [1.0, -2.0, 3.0, -2.0]);
        let scaled = pooled(&both, true);
        let length: f32 = scaled.iter().map(|v| v * v).sum::<f32>().sqrt();
        assert!((length - 1.0).abs() < 1e-6);
        assert!((scaled[0] - 1.0 / 18.0f32.sqrt()).abs() < 1e-6);
        // A vector of zeros stays one.
        let zero = Pooling {
            normalize: true,
            ..Pooling::default()
        };
        assert_eq!(zero.pool(&[0.0, 0.0], 2), [0.0, 0.0]);
    }
}
