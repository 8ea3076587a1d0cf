//! What a run must come to, as users write it: `ttft.p99 < 200ms`, `completed_per_s >= 50`.
//!
//! Parsed before anything is measured, judged on the finished figures. Pure: no run, no output.

use prony_report::run_record::{Assertion as Judged, Distribution, Figures};

use crate::duration;

/// One figure, one comparison, one bound.
#[derive(Debug, Clone)]
pub struct Assertion {
    /// As it was written.
    text: String,
    figure: Figure,
    comparison: Comparison,
    /// In the unit of the record: ms for times.
    bound: f64,
}

#[derive(Debug, Clone, Copy)]
enum Figure {
    Time(Times, Statistic),
    Number(Number),
}

type Times = fn(&Figures) -> Option<Distribution>;
type Statistic = fn(&Distribution) -> f64;
type Number = fn(&Figures) -> Option<f64>;

#[derive(Debug, Clone, Copy)]
enum Comparison {
    Less,
    AtMost,
    More,
    AtLeast,
}

/// Times by the names of the record, without the unit that the bound carries.
const TIMES: [(&str, Times); 6] = [
    ("latency", |f| f.latency_ms),
    ("service_time", |f| f.service_time_ms),
    ("ttft", |f| f.ttft_ms),
    ("tpot", |f| f.tpot_ms),
    ("itl", |f| f.itl_ms),
    ("send_lag", |f| f.send_lag_ms),
];

const STATISTICS: [(&str, Statistic); 8] = [
    ("mean", |d| d.mean),
    ("min", |d| d.min),
    ("p50", |d| d.p50),
    ("p90", |d| d.p90),
    ("p95", |d| d.p95),
    ("p99", |d| d.p99),
    ("p99.9", |d| d.p99_9),
    ("max", |d| d.max),
];

const NUMBERS: [(&str, Number); 7] = [
    ("sent_per_s", |f| f.sent_per_s),
    ("completed_per_s", |f| f.completed_per_s),
    ("output_tokens_per_s", |f| f.output_tokens_per_s),
    ("n_completed", |f| Some(f.n_completed as f64)),
    ("n_failed", |f| Some((f.n_failed + f.n_lost) as f64)),
    ("failed_fraction", |f| {
        let n_bad = (f.n_failed + f.n_lost) as f64;
        (f.n_issued > 0).then(|| n_bad / f.n_issued as f64)
    }),
    ("n_output_tokens", |f| f.n_output_tokens.map(|n| n as f64)),
];

/// Longest spelling first, as `<` begins `<=`.
const COMPARISONS: [(&str, Comparison); 4] = [
    ("<=", Comparison::AtMost),
    (">=", Comparison::AtLeast),
    ("<", Comparison::Less),
    (">", Comparison::More),
];

impl Assertion {
    /// Reads `FIGURE COMPARISON BOUND`.
    ///
    /// # Errors
    /// What is wrong with `text`, and what there is instead.
    pub fn parse(text: &str) -> Result<Self, String> {
        let found = text.find(['<', '>']).and_then(|at| {
            let (name, rest) = text.split_at(at);
            let mut comparisons = COMPARISONS.iter();
            let (sign, comparison) = comparisons.find(|(sign, _)| rest.starts_with(sign))?;
            Some((name.trim(), *comparison, rest[sign.len()..].trim()))
        });
        let Some((name, comparison, bound)) = found else {
            return Err("write it as FIGURE < BOUND, with <, <=, > or >=".to_owned());
        };
        let figure = Figure::parse(name)?;
        let bound = match figure {
            Figure::Time(..) => {
                let time = duration::parse(bound)
                    .map_err(|expected| format!("bound {bound:?}: expected {expected}"))?;
                time.0 as f64 / 1e6
            }
            Figure::Number(_) => {
                let number = bound.parse().ok().filter(|n: &f64| n.is_finite());
                number.ok_or_else(|| format!("bound {bound:?}: expected a number without unit"))?
            }
        };
        Ok(Self {
            text: text.trim().to_owned(),
            figure,
            comparison,
            bound,
        })
    }

    /// Whether the figures of a run satisfy it.
    #[must_use]
    pub fn judge(&self, figures: &Figures) -> Judged {
        let (actual, unit) = match self.figure {
            Figure::Time(times, statistic) => (times(figures).map(|d| statistic(&d)), "ms"),
            Figure::Number(number) => (number(figures), ""),
        };
        let holds = actual.is_some_and(|actual| match self.comparison {
            Comparison::Less => actual < self.bound,
            Comparison::AtMost => actual <= self.bound,
            Comparison::More => actual > self.bound,
            Comparison::AtLeast => actual >= self.bound,
        });
        Judged {
            text: self.text.clone(),
            holds,
            actual,
            unit: unit.to_owned(),
        }
    }
}

impl Figure {
    fn parse(name: &str) -> Result<Self, String> {
        if let Some(number) = entry(&NUMBERS, name) {
            return Ok(Self::Number(number));
        }
        let (times, statistic) = name.split_once('.').unwrap_or((name, ""));
        let Some(times) = entry(&TIMES, times) else {
            let (times, numbers) = (names(&TIMES), names(&NUMBERS));
            return Err(format!("no figure {name}; there are {times}, {numbers}"));
        };
        let Some(statistic) = entry(&STATISTICS, statistic) else {
            let statistics = names(&STATISTICS);
            return Err(format!(
                "{name}: write FIGURE.STATISTIC, one of {statistics}"
            ));
        };
        Ok(Self::Time(times, statistic))
    }
}

fn entry<T: Copy>(table: &[(&str, T)], name: &str) -> Option<T> {
    let found = table.iter().find(|(known, _)| *known == name);
    found.map(|(_, value)| *value)
}

fn names<T>(table: &[(&str, T)]) -> String {
    let names: Vec<&str> = table.iter().map(|(name, _)| *name).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let figures = Figures {
            n_issued: 200,
            n_failed: 1,
            n_lost: 1,
            completed_per_s: Some(50.0),
            ttft_ms: Some(Distribution {
                p99: 200.0,
                p99_9: 250.0,
                ..Distribution::default()
            }),
            ..Figures::default()
        };
        let shown = match Assertion::parse(text) {
            Ok(assertion) => assertion.judge(&figures).sentence(),
            Err(problem) => problem,
        };
        assert_eq!(shown, expected);
    }

    #[test]
    fn bounds_are_compared_in_their_units() {
        check("ttft.p99 < 200ms", "ttft.p99 < 200ms: FAILS (200 ms)");
        check("ttft.p99 <= 0.2s", "ttft.p99 <= 0.2s: holds (200 ms)");
        check(
            " ttft.p99.9>200000us ",
            "ttft.p99.9>200000us: holds (250 ms)",
        );
        check(
            "completed_per_s >= 50",
            "completed_per_s >= 50: holds (50.0)",
        );
        check("completed_per_s > 50", "completed_per_s > 50: FAILS (50.0)");
        check(
            "failed_fraction <= 0.01",
            "failed_fraction <= 0.01: holds (0.0100)",
        );
        check("n_failed < 2", "n_failed < 2: FAILS (2.00)");
    }

    #[test]
    fn what_was_not_measured_satisfies_nothing() {
        check("tpot.max < 1h", "tpot.max < 1h: FAILS (not measured)");
        check("tpot.max > 0s", "tpot.max > 0s: FAILS (not measured)");
    }

    #[test]
    fn nonsense_is_refused_with_what_there_is() {
        check(
            "ttft.p99",
            "write it as FIGURE < BOUND, with <, <=, > or >=",
        );
        check(
            "ttft.p99 = 3ms",
            "write it as FIGURE < BOUND, with <, <=, > or >=",
        );
        check(
            "ttft < 1s",
            "ttft: write FIGURE.STATISTIC, one of mean, min, p50, p90, p95, p99, p99.9, max",
        );
        check(
            "tokens < 1",
            "no figure tokens; there are latency, service_time, ttft, tpot, itl, send_lag, \
             sent_per_s, completed_per_s, output_tokens_per_s, n_completed, n_failed, \
             failed_fraction, n_output_tokens",
        );
        check(
            "ttft.p99 < 200",
            "bound \"200\": expected a duration with its unit, such as \"120s\" or \"50ms\"",
        );
        check(
            "n_failed < 1ms",
            "bound \"1ms\": expected a number without unit",
        );
    }
}
