//! LoadGen's FindPeakPerformance, step for step: widen until a run fails, then bisect.
//!
//! Kept for comparison: it looks at the latency limits only (not at early stopping, counts or
//! errors), and one noisy failure ends a branch.

/// What the search asks for next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Step {
    /// Does the requested rate pass at all?
    Base {
        /// The requested rate.
        qps: f64,
    },
    /// Does `upper` still pass?
    Widen {
        /// Highest passing rate so far.
        lower: f64,
        /// The rate to try.
        upper: f64,
    },
    /// `upper` failed; from here on the sample set stays loaded. Nothing to run.
    Bounded {
        /// Highest passing rate so far.
        lower: f64,
        /// Lowest failing rate so far.
        upper: f64,
    },
    /// Does the middle of the bounds pass?
    Bisect {
        /// Highest passing rate so far.
        lower: f64,
        /// Lowest failing rate so far.
        upper: f64,
        /// The rate to try.
        mid: f64,
    },
}

/// How far to look, and how closely.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReferenceSearch {
    /// Where to start: `server_target_qps`.
    pub lower: f64,
    /// Each step widens by this share: `server_find_peak_qps_boundary_step_size`.
    pub step_size: f64,
    /// Digits after the point: `server_find_peak_qps_decimals_of_precision`.
    pub decimals: i32,
}

impl ReferenceSearch {
    /// The highest passing rate, or `None` if the base rate fails.
    ///
    /// `passes` runs the step's trial; `None` from it calls the search off, which then returns
    /// what passed so far. Steps without a trial are passed on too, their answer is not looked at.
    /// Unbounded like the reference: a SUT that never fails is widened for ever, so `passes`
    /// must call a halt.
    pub fn run(&self, mut passes: impl FnMut(Step) -> Option<bool>) -> Option<f64> {
        let mut lower = self.lower;
        if !passes(Step::Base { qps: lower })? {
            return None;
        }
        let mut upper;
        loop {
            upper = lower * (1.0 + self.step_size);
            match passes(Step::Widen { lower, upper }) {
                Some(true) => lower = upper,
                Some(false) => break,
                None => return Some(lower),
            }
        }
        passes(Step::Bounded { lower, upper });
        while !self.close_enough(lower, upper) {
            let mid = lower + (upper - lower) / 2.0;
            match passes(Step::Bisect { lower, upper, mid }) {
                Some(true) => lower = mid,
                Some(false) => upper = mid,
                None => break,
            }
        }
        Some(lower)
    }

    /// The bounds agree to the wanted digit: floor(l·10^d) + 1 ≥ floor(u·10^d).
    fn close_enough(&self, lower: f64, upper: f64) -> bool {
        let scale = 10_f64.powi(self.decimals);
        (lower * scale).floor() + 1.0 >= (upper * scale).floor()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    /// A SUT that passes below `capacity`; the steps as text.
    fn check(lower: f64, decimals: i32, capacity: f64, expected: Expect) {
        let search = ReferenceSearch {
            lower,
            step_size: 1.0,
            decimals,
        };
        let mut text = String::new();
        let peak = search.run(|step| {
            text.push_str(&format!("{step:?}\n"));
            Some(match step {
                Step::Base { qps } => qps < capacity,
                Step::Widen { upper, .. } => upper < capacity,
                Step::Bounded { .. } => true,
                Step::Bisect { mid, .. } => mid < capacity,
            })
        });
        text.push_str(&format!("{peak:?}\n"));
        expected.assert_eq(&text);
    }

    /// The bounds of the golden log findpeak_sv, whose SUT turned at 259.4–260.9.
    #[test]
    fn same_steps_as_the_reference() {
        check(
            50.0,
            0,
            260.0,
            expect![[r#"
                Base { qps: 50.0 }
                Widen { lower: 50.0, upper: 100.0 }
                Widen { lower: 100.0, upper: 200.0 }
                Widen { lower: 200.0, upper: 400.0 }
                Bounded { lower: 200.0, upper: 400.0 }
                Bisect { lower: 200.0, upper: 400.0, mid: 300.0 }
                Bisect { lower: 200.0, upper: 300.0, mid: 250.0 }
                Bisect { lower: 250.0, upper: 300.0, mid: 275.0 }
                Bisect { lower: 250.0, upper: 275.0, mid: 262.5 }
                Bisect { lower: 250.0, upper: 262.5, mid: 256.25 }
                Bisect { lower: 256.25, upper: 262.5, mid: 259.375 }
                Bisect { lower: 259.375, upper: 262.5, mid: 260.9375 }
                Some(259.375)
            "#]],
        );
    }

    #[test]
    fn a_failing_base_ends_it() {
        check(
            50.0,
            0,
            10.0,
            expect![[r#"
                Base { qps: 50.0 }
                None
            "#]],
        );
    }
}
