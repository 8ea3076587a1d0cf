//! How far the Server target could rise, judged by what this run showed and nothing else.
//!
//! The run is replayed with its arrivals closer together. **Assumption:** queries wait in one line,
//! and each answer keeps the server busy for as long as it did in this run (the time since the
//! answer before it, or since its own arrival if nothing was in flight). At the run's own rate the
//! replay gives the run's own completions, to the nanosecond. A server that answers more per
//! second the more it has in flight can do better than the replay; one that slows down under load
//! can do worse.
//!
//! Two bounds keep the estimate honest. It never exceeds the rate shown while the server was busy
//! (answers / time with anything in flight), and every limit must hold, as early stopping counts
//! it, even if all of a sample's longer wait fell on that limit alone: all of it on the first
//! token, all of it on the tokens after.

use crate::early_stopping::most_over_allowed;
use crate::metrics::PerformanceData;
use crate::settings::EffectiveSettings;

/// Halvings of the range of factors: to a ten-thousandth of it.
const HALVINGS: u32 = 14;

/// The factor by which the rate could rise; `None` if that is nothing, or nothing can be said.
///
/// Example: 100 queries 10 ms apart, each answered in 5 ms. The server was busy half of the time,
/// so it showed 200/s: at most a factor of 2. At that factor each query comes just as the one
/// before is answered, and no latency has grown.
#[must_use]
pub(crate) fn rate_factor(data: &PerformanceData, eff: &EffectiveSettings) -> Option<f64> {
    if !data.unanswered.is_empty() {
        return None;
    }
    let run = Replay::of(data);
    let allowed = most_over_allowed(run.due_ns.len() as u64, eff.target_latency_percentile)?;
    let limits = limits(data, eff);
    let holds = |factor: f64| {
        let waits = run.longer_waits(factor);
        limits.iter().all(|limit| limit.n_over(&waits) <= allowed)
    };
    let (mut low, mut high) = (1.0, run.busy_factor(eff.target_qps)?);
    if high <= low || !holds(low) {
        return None;
    }
    if holds(high) {
        return Some(high);
    }
    // Invariant: `low` holds, `high` does not. Closer arrivals never shorten a wait.
    for _ in 0..HALVINGS {
        let middle = (low + high) / 2.0;
        if holds(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    Some(low)
}

/// Arrivals of a run, and how long each answer kept the server busy.
struct Replay<'a> {
    due_ns: &'a [i64],
    busy_ns: Vec<i64>,
    done_ns: Vec<i64>,
}

impl<'a> Replay<'a> {
    /// The k-th completion belongs to the k-th arrival, whichever sample it was: only how many are
    /// in flight matters to the line.
    fn of(data: &'a PerformanceData) -> Self {
        let latencies = &data.sample_latencies_ns;
        let due_ns = &data.due_ns[..data.due_ns.len().min(latencies.len())];
        let arrivals = due_ns.iter().zip(latencies);
        let mut done_ns: Vec<i64> = arrivals.map(|(due, took)| due + took).collect();
        done_ns.sort_unstable();
        let mut last = i64::MIN;
        let busy = |(due, done): (&i64, &i64)| {
            let from = last.max(*due);
            last = *done;
            (done - from).max(0)
        };
        let busy_ns = due_ns.iter().zip(&done_ns).map(busy).collect();
        Self {
            due_ns,
            busy_ns,
            done_ns,
        }
    }

    /// Rate shown while busy / rate of arrivals, asked for or drawn, whichever is higher.
    fn busy_factor(&self, target_qps: f64) -> Option<f64> {
        let (first, last) = (self.due_ns.first()?, self.due_ns.last()?);
        let busy_s = self.busy_ns.iter().sum::<i64>() as f64 / 1e9;
        let n = self.due_ns.len() as f64;
        let drawn_per_s = (n - 1.0) / ((last - first) as f64 / 1e9);
        let factor = (n / busy_s) / drawn_per_s.max(target_qps);
        factor.is_finite().then_some(factor)
    }

    /// How much later each completion comes after its arrival if arrivals come `factor` times as
    /// fast; 0 for all at factor 1.
    fn longer_waits(&self, factor: f64) -> Vec<i64> {
        let mut last = i64::MIN;
        let queries = self.due_ns.iter().zip(&self.busy_ns).zip(&self.done_ns);
        let longer = queries.map(|((due, busy), done)| {
            let arrives = (*due as f64 / factor) as i64;
            last = last.max(arrives) + busy;
            (last - arrives) - (done - due)
        });
        longer.collect()
    }
}

/// One latency limit, and what was measured against it.
struct Limit<'a> {
    values_ns: &'a [i64],
    limit_ns: u64,
    /// Tokens among which a longer wait is divided, sample by sample; none where it counts whole.
    n_tokens: Option<&'a [i64]>,
}

fn limits<'a>(data: &'a PerformanceData, eff: &EffectiveSettings) -> Vec<Limit<'a>> {
    let requested = &eff.requested;
    let whole = |values_ns, limit_ns| Limit {
        values_ns,
        limit_ns,
        n_tokens: None,
    };
    if !requested.use_token_latencies {
        return vec![whole(&data.sample_latencies_ns, eff.target_latency_ns)];
    }
    vec![
        whole(&data.ttft_ns, requested.server_ttft_latency),
        Limit {
            n_tokens: Some(&data.n_tokens),
            ..whole(&data.tpot_ns, requested.server_tpot_latency)
        },
    ]
}

impl Limit<'_> {
    /// Samples over the limit if each took so much longer.
    fn n_over(&self, longer_ns: &[i64]) -> u64 {
        let grown = self.values_ns.iter().zip(longer_ns).enumerate();
        let over = grown.filter(|(sample, (value, longer))| {
            let gaps = self
                .n_tokens
                .map_or(1, |n| n[*sample].saturating_sub(1).max(1));
            i128::from(**value) + i128::from(**longer / gaps) > i128::from(self.limit_ns)
        });
        over.count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Mode, Scenario};
    use crate::settings::TestSettings;
    use proptest::prelude::*;

    const MS: i64 = 1_000_000;

    fn settings(limit_ms: i64, tokens: Option<(i64, i64)>) -> EffectiveSettings {
        let (ttft_ms, tpot_ms) = tokens.unwrap_or((0, 0));
        let requested = TestSettings {
            scenario: Scenario::Server,
            mode: Mode::PerformanceOnly,
            server_target_latency_ns: (limit_ms * MS) as u64,
            server_target_latency_percentile: 0.9,
            use_token_latencies: tokens.is_some(),
            server_ttft_latency: (ttft_ms * MS) as u64,
            server_tpot_latency: (tpot_ms * MS) as u64,
            ..TestSettings::default()
        };
        EffectiveSettings::derive(&requested, 64, 64).0
    }

    /// 100 queries; each of `pattern` is (gap to the next query, latency) in ms.
    fn run_of(pattern: &[(i64, i64)]) -> PerformanceData {
        let mut data = PerformanceData::default();
        let mut due = 0;
        for (gap, latency) in pattern.iter().cycle().take(100) {
            data.due_ns.push(due);
            data.sample_latencies_ns.push(latency * MS);
            due += gap * MS;
        }
        data
    }

    fn check(pattern: &[(i64, i64)], limit_ms: i64, expected: Option<f64>) {
        let found = rate_factor(&run_of(pattern), &settings(limit_ms, None));
        match (found, expected) {
            (Some(found), Some(expected)) => {
                assert!((found / expected - 1.0).abs() < 1e-3, "{found} {expected}");
            }
            _ => assert_eq!(found, expected),
        }
    }

    /// Never above the rate shown while busy, however loose the limit: 100 / 0.5 s = 200/s, over
    /// (100 − 1) / 0.99 s = 100/s.
    #[test]
    fn an_idle_half_lets_the_rate_double() {
        check(&[(10, 5)], 10, Some(2.0));
        check(&[(10, 5)], 1_000_000, Some(2.0));
    }

    /// What was advised once: 1.3/s with 300 ms an answer and a limit of 2 s "could rise to 20/s",
    /// while the same server did 9.8/s with everything at hand. 1000 / 769 ms·300 ms: 2.56 times.
    #[test]
    fn a_slow_server_with_a_loose_limit_is_not_told_to_go_beyond_what_it_showed() {
        check(&[(769, 300)], 2000, Some(769.0 / 300.0));
    }

    /// Every second query comes 1 ms after another and waits 4 ms: latency 5 and 9 ms. With gaps
    /// of 1/f it is 10 − 1/f, which is 9.2 at f = 1.25.
    #[test]
    fn the_limit_binds_before_the_server_is_full() {
        let data = PerformanceData {
            sample_latencies_ns: [5 * MS, 9 * MS].repeat(50),
            ..run_of(&[(1, 5), (19, 9)])
        };
        let eff = EffectiveSettings {
            target_latency_ns: 9_200_000,
            ..settings(0, None)
        };
        let factor = rate_factor(&data, &eff).expect("there is room");
        assert!((factor - 1.25).abs() < 2e-3, "{factor}");
    }

    /// A busy server has shown nothing above its own rate; nor has one that is over the limit.
    #[test]
    fn no_room_no_factor() {
        check(&[(10, 10)], 1000, None);
        check(&[(10, 5)], 4, None);
    }

    /// Two at a time, 10 ms each, 20 ms apart: the pair keeps the server busy for 10 ms, which is
    /// 200/s while busy against 100/s of arrivals (99/0.98 s, the last gap being 0).
    #[test]
    fn what_was_answered_side_by_side_counts_as_such() {
        check(&[(0, 10), (20, 10)], 10, Some(2.0 * 98.0 / 99.0));
    }

    /// The wait that a factor adds counts whole against the first token, and divided by the gaps
    /// of its tokens against the time per token.
    #[test]
    fn each_token_limit_must_hold_with_all_of_the_longer_wait() {
        let tokens = |ttft_ms, tpot_us: u64| {
            let data = PerformanceData {
                ttft_ns: [MS, 5 * MS].repeat(50),
                tpot_ns: vec![MS; 100],
                n_tokens: vec![5; 100],
                ..run_of(&[(1, 5), (19, 9)])
            };
            let mut eff = settings(0, Some((ttft_ms, 0)));
            eff.requested.server_tpot_latency = tpot_us * 1000;
            rate_factor(&data, &eff)
        };
        // The longer wait of every second one is 1 − 1/f < 1 ms: 6 ms and 1.25 ms hold to the end.
        let most = 2.0 * 981.0 / 990.0;
        assert!((tokens(6, 1_250).expect("room") / most - 1.0).abs() < 1e-3);
        assert!((tokens(5, 1_250).expect("room") - 1.0).abs() < 1e-3);
        assert!((tokens(6, 1_000).expect("room") - 1.0).abs() < 1e-3);
        // 1 + (1 − 1/f)/4 = 1.1 at f = 5/3.
        assert!((tokens(6, 1_100).expect("room") - 5.0 / 3.0).abs() < 1e-3);
    }

    #[test]
    fn runs_with_failures_or_without_length_say_nothing() {
        let failed = PerformanceData {
            unanswered: vec![3],
            ..run_of(&[(10, 5)])
        };
        assert_eq!(rate_factor(&failed, &settings(10, None)), None);
        let empty = PerformanceData::default();
        assert_eq!(rate_factor(&empty, &settings(10, None)), None);
        check(&[(0, 5)], 1000, None);
    }

    proptest! {
        /// At its own rate the replay is the run; and closer arrivals never shorten a wait.
        #[test]
        fn the_replay_of_a_run_is_that_run(
            queries in prop::collection::vec((0_i64..50, 0_i64..200), 2..60),
            factor in 1.0_f64..4.0,
        ) {
            let (mut due, mut data) = (0, PerformanceData::default());
            for (gap, latency) in queries {
                data.due_ns.push(due);
                data.sample_latencies_ns.push(latency * MS);
                due += gap * MS;
            }
            let run = Replay::of(&data);
            prop_assert!(run.longer_waits(1.0).iter().all(|longer| *longer == 0));
            let waits = run.longer_waits(factor);
            // 1 ns for each arrival that is cut to a whole ns.
            prop_assert!(waits.iter().all(|longer| *longer >= -60));
        }
    }
}
