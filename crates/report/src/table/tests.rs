//! A record in, the printed table out.

use expect_test::expect;

use super::*;
use crate::run_record::{Client, Endpoint, FailureCount, Figures, Headline, Verdict};

fn distribution(n: u64, scale: f64) -> Distribution {
    Distribution {
        n,
        mean: 1.1 * scale,
        min: 0.5 * scale,
        p50: scale,
        p90: 1.5 * scale,
        p95: 1.7 * scale,
        p99: 2.0 * scale,
        p99_9: 2.1 * scale,
        max: 2.2 * scale,
    }
}

fn record() -> RunRecord {
    RunRecord {
        name: "server".to_owned(),
        scenario: "Server".to_owned(),
        headline: Headline {
            name: "completed samples".to_owned(),
            value: Some(1.98),
            unit: "samples/s".to_owned(),
        },
        figures: Figures {
            n_issued: 61,
            n_completed: 60,
            n_failed: 1,
            requested_per_s: Some(2.0),
            sent_per_s: Some(2.01),
            completed_per_s: Some(1.98),
            output_tokens_per_s: Some(63.4),
            latency_ms: Some(distribution(60, 812.0)),
            ttft_ms: Some(distribution(60, 95.5)),
            ..Figures::default()
        },
        verdict: Verdict {
            reasons: vec!["1 sample failed".to_owned()],
            advice: vec!["look at the server's log".to_owned()],
            ..Verdict::default()
        },
        failures: vec![FailureCount {
            kind: "status".to_owned(),
            count: 1,
            first_detail: "HTTP 503: busy".to_owned(),
        }],
        client: Client {
            wait_policy: "slept".to_owned(),
            ..Client::default()
        },
        endpoint: Endpoint {
            shares_machine: true,
            ..Endpoint::default()
        },
        unofficial_because: vec!["--quick shortened it".to_owned()],
        ..RunRecord::default()
    }
}

#[test]
fn prints_everything_a_reader_needs() {
    expect![[r#"
        run     scenario          result  asked/s  sent/s  done/s  tokens/s   errors
        ──────  ────────  ──────────────  ───────  ──────  ──────  ────────  ───────
        server  Server    1.98 samples/s     2.00    2.01    1.98      63.4  1 of 61

        run     ms, lower is better   p50   p90    p99   max  mean   n
        ──────  ───────────────────  ────  ────  ─────  ────  ────  ──
        server  latency from due      812  1218  1624*  1786   893  60
                TTFT from due        95.5   143   191*   210   105  60
        * too few samples to tell this percentile from the largest value

        server: INVALID
          because: 1 sample failed
          1 × status; the first: HTTP 503: busy
          advice: look at the server's log
          not official: --quick shortened it
        note: client and server shared the cores of one machine; the client slept while waiting
    "#]]
    .assert_eq(&text(&[record()]));
}

#[test]
fn an_empty_record_prints_dashes_not_zeros() {
    let shown = text(&[RunRecord::default()]);
    assert!(shown.contains('–'), "{shown}");
    assert!(!shown.contains("NaN"), "{shown}");
}
