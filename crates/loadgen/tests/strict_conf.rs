//! What the strict configuration parser refuses, with line and column.

use prony_loadgen::conf::keys::ConfKind;
use prony_loadgen::conf::strict::parse;

fn check(line: &str, expected: &str) {
    let got = match parse(line, ConfKind::User, "mymodel") {
        Ok(_) => "ok".to_owned(),
        Err(problems) => {
            let lines: Vec<String> = problems
                .iter()
                .map(|p| format!("{}:{}: {}", p.line, p.column, p.text))
                .collect();
            lines.join(" | ")
        }
    };
    assert_eq!(got, expected, "{line}");
}

#[test]
fn good_lines() {
    for line in [
        "",
        "   ",
        "# a comment = with anything",
        "#comment",
        "*.*.min_query_count = 5",
        "mymodel.Server.target_qps = 12.5\n\n*.SingleStream.target_latency = 2.5\r",
        "wan-2.2-t2v-a14b.*.min_duration = 0",
        "*.*.target_latency = 15",
    ] {
        check(line, "ok");
    }
}

#[test]
fn lines_of_the_wrong_form() {
    for (line, expected) in [
        ("\n*.*.min_query_count=7", "2:20: put spaces around ="),
        ("*.*.min_query_count =7", "1:21: put spaces around ="),
        (
            "*.*.min_query_count = 7 # seven",
            "1:25: a comment must have its own line",
        ),
        (
            "*.*.min_query_count = 7#seven",
            "1:24: a comment must have its own line",
        ),
        ("#a comment", "1:1: put a space after the # of a comment"),
        (
            "*.*.min_query_count",
            "1:1: *.*.min_query_count has no = and no value",
        ),
        ("*.*.min_query_count =", "1:21: no value after ="),
        (
            "*.*.min_query_count = 1 2",
            "1:25: one value only, found 2 too",
        ),
        ("*.*.min_query_count # = 5", "1:21: expected =, found #"),
    ] {
        check(line, expected);
    }
}

#[test]
fn words_nothing_reads() {
    for (line, expected) in [
        (
            "*.*.min_query_cuont = 7",
            "1:5: no key min_query_cuont; did you mean min_query_count?",
        ),
        (
            "*.server.target_qps = 7",
            "1:3: no scenario server; did you mean Server?",
        ),
        (
            "resnet5.*.min_duration = 7",
            "1:1: no model resnet5; did you mean resnet50?",
        ),
        (
            "min_duration = 7",
            "1:1: min_duration: expected model.scenario.key",
        ),
        (
            "*.Offline.ttft_latency = 7",
            "1:3: ttft_latency is read under Server only",
        ),
        (
            "*.*.qsl_rng_seed = 7",
            "1:5: qsl_rng_seed comes with the round (--round) and is not read from this file",
        ),
        (
            "*.Server.target_duration = 0",
            "1:10: target_duration is read by nothing",
        ),
    ] {
        check(line, expected);
    }
}

#[test]
fn values_the_reference_would_bend() {
    for (line, expected) in [
        (
            "*.*.min_query_count = 010",
            "1:23: min_query_count takes a whole number without leading zeros, not 010",
        ),
        (
            "*.Server.target_latency = 15.9",
            "1:27: target_latency takes whole milliseconds, not 15.9",
        ),
        (
            "*.*.performance_issue_same = 2",
            "1:30: performance_issue_same takes 0 or 1, not 2",
        ),
        (
            "*.Server.target_qps = nan",
            "1:23: target_qps takes a number, not nan",
        ),
        (
            "*.*.min_duration = 1\n*.*.min_duration = 2",
            "2:1: *.*.min_duration is set in line 1 already",
        ),
        ("é.*.x = 1\n*.*.é = 1", "1:1: no model é | 2:5: no key é"),
    ] {
        check(line, expected);
    }
}
