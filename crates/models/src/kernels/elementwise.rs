//! exp, silu, RMS norm, rotation and softmax over slices, written so that the compiler vectorises.
//!
//! Every function here is plain safe code compiled for AVX2; sums run in fixed lanes, so that the
//! result depends on the values and their positions only.

#![cfg(target_arch = "x86_64")]

/// Partial sums kept side by side; one AVX register pair.
const SUM_LANES: usize = 16;

/// e^x to 2 units in the last place; 0 below -87.3, a large finite number above 88.3, NaN stays.
///
/// Source: the usual split x = n ln 2 + r with |r| <= ln 2 / 2 and the Taylor polynomial of e^r to
/// degree 7, whose remainder is below 1e-8 there.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(super) fn exp(x: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0; // 1.5 * 2^23: adding it rounds to an integer
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    // Written with comparisons, not clamp: those keep NaN and vectorise.
    let y = if x < -87.3 { -87.3 } else { x };
    let y = if y > 88.3 { 88.3 } else { y };
    let shifted = y.mul_add(std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = n.mul_add(-LN2_LOW, n.mul_add(-LN2_HIGH, y));
    let mut p = 1.0f32 / 5040.0;
    for c in [
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0,
    ] {
        p = p.mul_add(r, c);
    }
    // The low bits of `shifted` are n: 2^n by building its exponent.
    let power = f32::from_bits(
        (shifted
            .to_bits()
            .wrapping_sub(ROUND.to_bits())
            .wrapping_add(127))
        .wrapping_shl(23),
    );
    let result = p * power;
    if x < -87.3 { 0.0 } else { result }
}

/// x * sigmoid(x).
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(super) fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

/// Sum of `f` over the slice in [`SUM_LANES`] lanes.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn sum_lanes(lanes: &[f32; SUM_LANES]) -> f32 {
    let mut width = SUM_LANES / 2;
    let mut sums = *lanes;
    while width > 0 {
        for i in 0..width {
            sums[i] += sums[i + width];
        }
        width /= 2;
    }
    sums[0]
}

/// `out = x / sqrt(mean(x^2) + eps) * weight`. Shapes: `[n]` each.
///
/// Source: Zhang and Sennrich, "Root mean square layer normalization", equation 4.
#[target_feature(enable = "avx2,fma")]
pub(super) fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let mut lanes = [0.0f32; SUM_LANES];
    let chunks = x.chunks_exact(SUM_LANES);
    for (lane, v) in lanes.iter_mut().zip(chunks.remainder()) {
        *lane = v * v;
    }
    for chunk in chunks {
        for (lane, v) in lanes.iter_mut().zip(chunk) {
            *lane = v.mul_add(*v, *lane);
        }
    }
    let scale = 1.0 / (sum_lanes(&lanes) / x.len() as f32 + eps).sqrt();
    for ((o, v), w) in out.iter_mut().zip(x).zip(weight) {
        *o = v * scale * w;
    }
}

/// Rotates the pairs (i, i + half) of one head by the angles of one position.
/// Shapes: `head: [2 * half]`, `cos`, `sin: [half]`.
#[target_feature(enable = "avx2,fma")]
pub(super) fn rotate(head: &mut [f32], cos: &[f32], sin: &[f32]) {
    let (first, second) = head.split_at_mut(cos.len());
    for (((a, b), c), s) in first.iter_mut().zip(second).zip(cos).zip(sin) {
        let (x, y) = (*a, *b);
        *a = x * c - y * s;
        *b = y * c + x * s;
    }
}

/// Turns `scores` into weights exp(score * scale - max), and returns one over their sum.
///
/// The caller applies the factor to the result of the weighted sum: one multiplication a value
/// instead of one a key.
#[target_feature(enable = "avx2,fma")]
pub(super) fn softmax_weights(scores: &mut [f32], scale: f32) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; SUM_LANES];
    for chunk in scores.chunks(SUM_LANES) {
        for (lane, s) in lanes.iter_mut().zip(chunk) {
            *lane = if *s > *lane { *s } else { *lane };
        }
    }
    let max = lanes.iter().fold(f32::NEG_INFINITY, |a, &b| a.max(b)) * scale;
    let mut lanes = [0.0f32; SUM_LANES];
    for chunk in scores.chunks_mut(SUM_LANES) {
        for (lane, s) in lanes.iter_mut().zip(chunk) {
            *s = exp(s.mul_add(scale, -max));
            *lane += *s;
        }
    }
    1.0 / sum_lanes(&lanes)
}

/// Sum of exp(x - max) in f64, for a log-softmax over a vocabulary. NaN counts as nothing.
#[target_feature(enable = "avx2,fma")]
pub(super) fn sum_exp(x: &[f32], max: f32) -> f64 {
    let mut total = 0.0f64;
    // f32 lanes over a few hundred numbers, then f64: no visible error and full speed.
    for part in x.chunks(4096) {
        let mut lanes = [0.0f32; SUM_LANES];
        for chunk in part.chunks(SUM_LANES) {
            for (lane, v) in lanes.iter_mut().zip(chunk) {
                let e = exp(v - max);
                *lane += if e.is_nan() { 0.0 } else { e };
            }
        }
        total += f64::from(sum_lanes(&lanes));
    }
    total
}
