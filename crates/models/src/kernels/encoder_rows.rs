//! What an encoder does row by row between its products: layer norm.
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
            use super::SUM_LANES;

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
