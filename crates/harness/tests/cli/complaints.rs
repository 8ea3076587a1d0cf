//! What users of load generators complain about, one test each: the real binary against a server
//! that counts for itself.
//!
//! Bounds on times are bounds from below, set by the server's own pace: a busy machine cannot
//! break them.

use std::time::Duration;

use crate::fake_server::{FakeServer, Script, Trouble};
use crate::real_prony::{Ran, SCENARIO, failures, run, run_with};

/// `n` queries at once, at most `cap` of them in flight.
fn burst(n: u64, cap: u64, server: &FakeServer) -> Ran {
    let text = SCENARIO
        .replace("\"SingleStream\"", "\"Offline\"")
        .replace("max_query_count = 12", "offline_expected_qps = 1")
        .replace("single_stream_target_latency_percentile = 0.5", "");
    let sets = [
        format!("min_query_count={n}"),
        format!("client.max_in_flight={cap}"),
        format!("client.connections={}", cap.min(n)),
        "client.warmup_queries=0".to_owned(),
    ];
    let mut args = vec!["--set", "client.timeout=30s"];
    for set in &sets {
        args.extend(["--set", set]);
    }
    run_with(&text, server, &args)
}

#[test]
fn exactly_as_many_requests_are_in_flight_as_allowed() {
    for cap in [1, 2, 3, 7] {
        // One request less than allowed, and no answer would ever come.
        let server = FakeServer::start(Script {
            hold_until: cap,
            ..Script::default()
        });
        let ran = burst(21, cap, &server);
        assert_eq!(ran.code(), 0, "{cap}: {}\n{}", ran.stdout(), ran.stderr());
        assert_eq!(server.peak_active(), cap);
        assert_eq!(ran.figure("/client/max_in_flight_seen"), cap as f64);
        assert_eq!(ran.figure("/client/n_held_back"), (21 - cap) as f64);
    }
}

#[test]
fn a_burst_has_gone_out_before_the_first_answer_comes_in() {
    for n in [50, 1024] {
        let server = FakeServer::start(Script {
            tokens: 1,
            hold_until: n,
            ..Script::default()
        });
        let ran = burst(n, n, &server);
        assert_eq!(ran.code(), 0, "{n}: {}\n{}", ran.stdout(), ran.stderr());
        assert_eq!(server.peak_active(), n);
        assert_eq!(ran.figure("/client/n_connections_late"), 0.0);
    }
}

#[test]
fn waiting_for_the_cap_is_latency_and_service_time_stands_beside_it() {
    let server = FakeServer::start(Script {
        ttft: Duration::from_millis(30),
        ..Script::default()
    });
    let ran = burst(8, 1, &server);
    // Eight one after the other, all due at once: the last waits for seven and its own answer.
    assert!(ran.figure("/figures/latency_ms/max") >= 240.0);
    assert!(ran.figure("/figures/ttft_ms/max") >= 240.0);
    assert!(ran.figure("/figures/send_lag_ms/max") >= 210.0);
    assert!(ran.figure("/figures/service_time_ms/min") >= 30.0);
    let whole: f64 = ran.figure("/figures/latency_ms/max");
    assert!(ran.figure("/figures/service_time_ms/max") < whole - 150.0);
}

#[test]
fn a_load_that_could_not_be_sent_is_client_limited() {
    let text = SCENARIO
        .replace("\"SingleStream\"", "\"Server\"")
        .replace("single_stream_target_latency_percentile = 0.5", "")
        .replace(
            "max_query_count = 12",
            "max_query_count = 40\nserver_target_qps = 400\nserver_target_latency = \"60s\"",
        );
    // One at a time and 20 ms each: at most 50/s go out of the 400/s that are asked for.
    let server = FakeServer::start(Script {
        ttft: Duration::from_millis(20),
        ..Script::default()
    });
    let ran = run_with(&text, &server, &["--set", "client.max_in_flight=1"]);
    assert_eq!(ran.code(), 4, "{}", ran.stdout());
    assert!(ran.figure("/figures/sent_per_s") <= 50.0);
    assert!(ran.stdout().contains("CLIENT-LIMITED"), "{}", ran.stdout());
}

#[test]
fn reasoning_is_output() {
    // The answer proper begins 80 ms after the first thought; half of the tokens are thoughts.
    let gap = Duration::from_millis(20);
    let ran = run(Script {
        tokens: 8,
        reasoning: 4,
        usage: false,
        gap,
        ..Script::default()
    });
    assert_eq!(ran.code(), 0, "{}", ran.stdout());
    assert_eq!(ran.figure("/figures/n_output_tokens"), 96.0);
    assert_eq!(ran.figure("/figures/itl_ms/n"), 84.0);
    // Seven gaps of each answer come after its first token, not before it.
    let after_first = ran.figure("/figures/latency_ms/min") - ran.figure("/figures/ttft_ms/min");
    assert!(after_first > 100.0, "{after_first}");
    let all_thoughts = run(Script {
        tokens: 8,
        reasoning: 8,
        ..Script::default()
    });
    assert_eq!(all_thoughts.figure("/figures/ttft_ms/n"), 12.0);
}

#[test]
fn a_hiccup_inside_an_answer_is_not_averaged_away() {
    // Two gaps of 50 ms in an answer whose TPOT is the same as that of an even one.
    let ran = run(Script {
        tokens: 12,
        tokens_per_event: 4,
        gap: Duration::from_millis(50),
        ..Script::default()
    });
    assert!(ran.figure("/figures/itl_ms/max") >= 49.9);
    assert_eq!(ran.figure("/figures/itl_ms/n"), 24.0);
}

#[test]
fn an_event_named_error_is_a_failure_whatever_its_data() {
    let ran = run(Script {
        trouble: Trouble::NamedErrorEvent,
        every: 6,
        ..Script::default()
    });
    assert_eq!(ran.code(), 3, "{}", ran.stdout());
    let text = r#"{"detail":"engine died"}"#.to_owned();
    assert_eq!(failures(&ran), [("error event".to_owned(), 2, text)]);
}

#[test]
fn json_without_an_answer_in_it_is_malformed() {
    for stream in [true, false] {
        let server = FakeServer::start(Script {
            trouble: Trouble::NoAnswer,
            every: 6,
            stream,
            ..Script::default()
        });
        let text = SCENARIO.replace(
            "max_tokens = 5",
            &format!("max_tokens = 5\nstream = {stream}"),
        );
        let ran = run_with(&text, &server, &[]);
        assert_eq!(ran.code(), 3, "stream = {stream}: {}", ran.stdout());
        let text = "neither output nor a finish reason".to_owned();
        assert_eq!(failures(&ran), [("malformed".to_owned(), 2, text)]);
    }
}
