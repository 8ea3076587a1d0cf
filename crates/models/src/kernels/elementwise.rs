//! exp, silu, GELU, RMS norm, rotation and softmax over slices, written so that the compiler
//! vectorises.
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

/// Where the fit of [`TAIL`] ends; further out the exponent's t^2 / 2 alone decides.
const TAIL_END: f32 = 6.0;

/// Coefficients in s = t / 3 - 1 of -ln(1 - Phi(t)) - t^2 / 2 on 0..6, lowest power first.
///
/// A least-squares fit of degree 8, weighted by 1 - Phi(t) and re-weighted towards its largest
/// error: that error in 1 - Phi(t) is 8e-9, less than the rounding of f32 adds.
const TAIL: [f32; 9] = [
    2.107_725_1,
    0.849_217_6,
    -0.318_116_6,
    0.140_743_42,
    -0.058_540_627,
    0.052_341_975,
    0.033_102_67,
    0.041_043_673,
    0.012_323_228,
];

/// x Phi(x) with Phi the normal distribution; off by at most 1e-7 times max(1, |x|).
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(super) fn gelu(x: f32) -> f32 {
    let t = x.abs();
    let capped = if t > TAIL_END { TAIL_END } else { t };
    let s = capped.mul_add(2.0 / TAIL_END, -1.0);
    let mut p = TAIL[TAIL.len() - 1];
    for c in TAIL[..TAIL.len() - 1].iter().rev() {
        p = p.mul_add(s, *c);
    }
    let tail = exp((t * t).mul_add(-0.5, -p));
    // Written with a comparison, not max: that keeps NaN.
    let positive = if x < 0.0 { 0.0 } else { x };
    t.mul_add(-tail, positive)
}

/// x / (1 + exp(-2 sqrt(2 / pi) (x + 0.044715 x^3))).
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(super) fn gelu_tanh(x: f32) -> f32 {
    const SLOPE: f32 = -1.595_769;
    let cubic = (0.044_715 * x * x).mul_add(x, x);
    x / (1.0 + exp(SLOPE * cubic))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(unsafe_code, reason = "calls a function compiled for AVX2")]
    fn each(x: &[f32], function: unsafe fn(f32) -> f32) -> Vec<f32> {
        assert!(crate::kernels::available(), "this test needs AVX2");
        // SAFETY: just checked.
        x.iter().map(|v| unsafe { function(*v) }).collect()
    }

    /// 1 - Phi(t) by its continued fraction for large t and its series for small, in f64.
    ///
    /// Source: Abramowitz and Stegun, 26.2.10 and 26.2.14.
    fn normal_tail(t: f64) -> f64 {
        let density = (-t * t / 2.0).exp() / std::f64::consts::TAU.sqrt();
        if t > 3.0 {
            let fraction = (1..200).rev().fold(t, |f, k| t + f64::from(k) / f);
            return density / fraction;
        }
        let mut term = t;
        let mut sum = t;
        for k in 1..100 {
            term *= t * t / f64::from(2 * k + 1);
            sum += term;
        }
        0.5 - density * sum
    }

    #[test]
    fn gelu_is_within_a_rounding_of_the_formula() {
        // By hand: Phi(1) = 0.841344746.
        assert!((normal_tail(1.0) - 0.158_655_254).abs() < 1e-9);
        assert!((normal_tail(3.5) - 2.326_290_79e-4).abs() < 1e-12);
        let inputs: Vec<f32> = (-1200..=1200).map(|i| i as f32 / 100.0).collect();
        let outputs = each(&inputs, gelu);
        for (x, y) in inputs.iter().zip(&outputs) {
            let wide = f64::from(*x);
            let tail = normal_tail(wide.abs());
            let expected = if *x < 0.0 {
                wide * tail
            } else {
                wide - wide * tail
            };
            let off = (f64::from(*y) - expected).abs();
            assert!(off < 1e-7 * wide.abs().max(1.0), "{x}: off by {off}");
        }
        let odd = each(&[f32::NAN, 0.0, -0.0, f32::INFINITY, -1e30, 1e30], gelu);
        assert!(odd[0].is_nan());
        assert_eq!(odd[1..3], [0.0, 0.0]);
        assert_eq!(odd[4..], [0.0, 1e30]);
    }

    #[test]
    fn gelu_by_tanh_is_the_other_formula() {
        let inputs: Vec<f32> = (-1000..=1000).map(|i| i as f32 / 100.0).collect();
        let outputs = each(&inputs, gelu_tanh);
        for (x, y) in inputs.iter().zip(&outputs) {
            let x = f64::from(*x);
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
            let expected = 0.5 * x * (1.0 + inner.tanh());
            let off = (f64::from(*y) - expected).abs();
            assert!(off < 3e-7 * x.abs().max(1.0), "{x}: off by {off}");
        }
    }
}
