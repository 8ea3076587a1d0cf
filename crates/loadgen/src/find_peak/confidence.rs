//! How much a few passing runs say about the next one.

/// One-sided 95 % lower bound on a pass probability after `passed` of `runs` (Clopper–Pearson):
/// the p at which so many passes or more have a probability of 5 %.
///
/// Example: 3 of 3 gives 0.05^(1/3) = 0.368; 0 of n gives 0.
#[must_use]
pub fn pass_probability_at_least(passed: u32, runs: u32) -> f64 {
    if passed == 0 {
        return 0.0;
    }
    let (mut low, mut high) = (0.0_f64, 1.0_f64);
    // 60 halvings: beyond the precision of an f64 near 1.
    for _ in 0..60 {
        let p = (low + high) / 2.0;
        if at_least(passed, runs, p) < 0.05 {
            low = p;
        } else {
            high = p;
        }
    }
    low
}

/// P[Binomial(runs, p) ≥ passed].
fn at_least(passed: u32, runs: u32, p: f64) -> f64 {
    let mut term = (1.0 - p).powi(runs as i32);
    let mut below = 0.0;
    for k in 0..passed {
        below += term;
        term *= f64::from(runs - k) / f64::from(k + 1) * p / (1.0 - p);
    }
    1.0 - below
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pass_probability_is_clopper_pearsons() {
        let cases = [(3, 3, 0.3684), (5, 5, 0.5493), (2, 3, 0.1354), (0, 3, 0.0)];
        for (passed, runs, expected) in cases {
            let bound = pass_probability_at_least(passed, runs);
            assert!((bound - expected).abs() < 5e-5, "{passed}/{runs}: {bound}");
        }
    }
}
