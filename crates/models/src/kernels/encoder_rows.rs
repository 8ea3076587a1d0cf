//! What an encoder does row by row between its products: GELU, layer norm, sums of embeddings.
//!
//! Plain safe code, compiled once for AVX2 and once for AVX-512, so that the compiler vectorises
//! it at either width. Sums run in fixed lanes: a result depends on the values and their positions
//! only, not on the processor's width or on the rows beside it.

/// Partial sums kept side by side.
#[cfg(target_arch = "x86_64")]
const SUM_LANES: usize = 32;

/// One function for each instruction set, same body: `avx2::NAME` and `avx512::NAME`.
#[cfg(target_arch = "x86_64")]
macro_rules! for_each_width {
    ($module:ident, $features:literal) => {
        mod $module {
            use super::super::elementwise::exp;
            use super::{SUM_LANES, TAIL, TAIL_END};

            /// x Phi(x) with Phi the normal distribution.
            #[target_feature(enable = $features)]
            pub(super) fn gelu(x: &mut [f32]) {
                for v in x {
                    let t = v.abs();
                    let capped = if t > TAIL_END { TAIL_END } else { t };
                    let s = capped.mul_add(2.0 / TAIL_END, -1.0);
                    let mut p = TAIL[TAIL.len() - 1];
                    for c in TAIL[..TAIL.len() - 1].iter().rev() {
                        p = p.mul_add(s, *c);
                    }
                    let tail = exp((t * t).mul_add(-0.5, -p));
                    // Written with a comparison, not max: that keeps NaN.
                    let positive = if *v < 0.0 { 0.0 } else { *v };
                    *v = t.mul_add(-tail, positive);
                }
            }

            /// x / (1 + exp(-2 sqrt(2 / pi) (x + 0.044715 x^3))).
            #[target_feature(enable = $features)]
            pub(super) fn gelu_tanh(x: &mut [f32]) {
                const SLOPE: f32 = -1.595_769;
                for v in x {
                    let cubic = (0.044_715 * *v * *v).mul_add(*v, *v);
                    *v /= 1.0 + exp(SLOPE * cubic);
                }
            }

            #[target_feature(enable = $features)]
            pub(super) fn layer_norm(row: &mut [f32], weight: &[f32], bias: &[f32], eps: f32) {
                let n = row.len() as f32;
                let mut lanes = [0.0f32; SUM_LANES];
                let chunks = row.chunks_exact(SUM_LANES);
                for (lane, v) in lanes.iter_mut().zip(chunks.remainder()) {
                    *lane = *v;
                }
                for chunk in chunks {
                    for (lane, v) in lanes.iter_mut().zip(chunk) {
                        *lane += v;
                    }
                }
                let mean = sum(&lanes) / n;
                let mut lanes = [0.0f32; SUM_LANES];
                let chunks = row.chunks_exact(SUM_LANES);
                for (lane, v) in lanes.iter_mut().zip(chunks.remainder()) {
                    *lane = (v - mean) * (v - mean);
                }
                for chunk in chunks {
                    for (lane, v) in lanes.iter_mut().zip(chunk) {
                        *lane = (v - mean).mul_add(v - mean, *lane);
                    }
                }
                let scale = 1.0 / (sum(&lanes) / n + eps).sqrt();
                for ((v, w), b) in row.iter_mut().zip(weight).zip(bias) {
                    *v = ((*v - mean) * scale).mul_add(*w, *b);
                }
            }

            #[inline]
            #[target_feature(enable = $features)]
            fn sum(lanes: &[f32; SUM_LANES]) -> f32 {
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
        }
    };
}

#[cfg(target_arch = "x86_64")]
for_each_width!(avx2, "avx2,fma");
#[cfg(target_arch = "x86_64")]
for_each_width!(avx512, "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl");

/// Where the fit of [`TAIL`] ends; further out the exponent's t^2 / 2 alone decides.
#[cfg(target_arch = "x86_64")]
const TAIL_END: f32 = 6.0;

/// Coefficients in s = t / 3 - 1 of -ln(1 - Phi(t)) - t^2 / 2 on 0..6, lowest power first.
///
/// A least-squares fit of degree 8, weighted by 1 - Phi(t) and re-weighted towards its largest
/// error: that error in 1 - Phi(t) is 8e-9, less than the rounding of f32 adds.
#[cfg(target_arch = "x86_64")]
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

/// Calls `$function` of the widest instruction set that the processor has.
macro_rules! widest {
    ($function:ident ( $($argument:expr),* )) => {{
        assert!(super::available(), "the processor has AVX2 and FMA");
        #[cfg(target_arch = "x86_64")]
        #[allow(unsafe_code, reason = "calls functions compiled for more than the baseline")]
        // SAFETY: asserted above, and checked here.
        unsafe {
            if is_wide() {
                avx512::$function($($argument),*);
            } else {
                avx2::$function($($argument),*);
            }
        }
    }};
}

#[cfg(target_arch = "x86_64")]
fn is_wide() -> bool {
    std::is_x86_feature_detected!("avx512f")
        && std::is_x86_feature_detected!("avx512bw")
        && std::is_x86_feature_detected!("avx512dq")
        && std::is_x86_feature_detected!("avx512vl")
}

/// GELU by the error function, in place; off by at most 1e-7 times max(1, |x|).
///
/// # Panics
/// On a processor without AVX2 and FMA.
pub fn gelu(x: &mut [f32]) {
    widest!(gelu(x));
}

/// GELU by tanh, in place.
///
/// # Panics
/// On a processor without AVX2 and FMA.
pub fn gelu_tanh(x: &mut [f32]) {
    widest!(gelu_tanh(x));
}

/// `(row - mean) / sqrt(variance + eps) * weight + bias`, in place. Shapes: `[n]` each.
///
/// Source: Ba, Kiros and Hinton, "Layer normalization", equation 3.
///
/// # Panics
/// On a processor without AVX2 and FMA, or on slices of different lengths.
pub fn layer_norm(row: &mut [f32], weight: &[f32], bias: &[f32], eps: f32) {
    assert!(
        row.len() == weight.len() && row.len() == bias.len(),
        "layer_norm out of shape"
    );
    widest!(layer_norm(row, weight, bias, eps));
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let mut outputs = inputs.clone();
        gelu(&mut outputs);
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
        let mut odd = [f32::NAN, 0.0, -0.0, f32::INFINITY, -1e30, 1e30];
        gelu(&mut odd);
        assert!(odd[0].is_nan());
        assert_eq!(odd[1..3], [0.0, 0.0]);
        assert_eq!(odd[4..], [0.0, 1e30]);
    }

    #[test]
    fn gelu_by_tanh_is_the_other_formula() {
        let inputs: Vec<f32> = (-1000..=1000).map(|i| i as f32 / 100.0).collect();
        let mut outputs = inputs.clone();
        gelu_tanh(&mut outputs);
        for (x, y) in inputs.iter().zip(&outputs) {
            let x = f64::from(*x);
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
            let expected = 0.5 * x * (1.0 + inner.tanh());
            let off = (f64::from(*y) - expected).abs();
            assert!(off < 3e-7 * x.abs().max(1.0), "{x}: off by {off}");
        }
    }

    #[test]
    fn layer_norm_by_hand_and_at_every_length() {
        // Mean 2, variance 2/3; eps 1/3 makes the root 1.
        let mut row = [1.0, 2.0, 3.0];
        layer_norm(&mut row, &[1.0, 1.0, 2.0], &[0.0, 5.0, 0.5], 1.0 / 3.0);
        let near = row
            .iter()
            .zip([-1.0, 5.0, 2.5])
            .all(|(a, b)| (a - b).abs() < 1e-6);
        assert!(near, "{row:?}");
        for n in [1, 31, 32, 33, 64, 100, 384] {
            let x: Vec<f32> = (0..n)
                .map(|i| ((i * 37 % 101) as f32 - 50.0) / 7.0)
                .collect();
            let mean = x.iter().map(|v| f64::from(*v)).sum::<f64>() / n as f64;
            let square = |v: &f32| (f64::from(*v) - mean).powi(2);
            let variance = x.iter().map(square).sum::<f64>() / n as f64;
            let mut row = x.clone();
            layer_norm(&mut row, &vec![1.0; n], &vec![0.0; n], 1e-5);
            for (v, y) in x.iter().zip(&row) {
                let expected = (f64::from(*v) - mean) / (variance + 1e-5).sqrt();
                assert!((f64::from(*y) - expected).abs() < 2e-6, "{n}");
            }
        }
    }
}
