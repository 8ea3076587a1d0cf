//! The binomial bound against the reference's own numbers.

use prony_loadgen::early_stopping::{
    chance_of_at_most, min_queries_for_estimate, most_over_allowed, under_needed,
};
use serde_json::Value;

use crate::data::golden_json;

fn number(value: &Value) -> u64 {
    value.as_u64().expect("a count")
}

fn by_percentile(value: &Value) -> impl Iterator<Item = (f64, &Value)> {
    let object = value.as_object().expect("percentile -> values");
    object
        .iter()
        .map(|(p, value)| (p.parse().expect("a fraction"), value))
}

#[test]
fn under_needed_for_every_count() {
    let golden = golden_json("early_stopping.json");
    let mut n_compared = 0;
    for (p, values) in by_percentile(&golden["fresh"]) {
        for (t, h) in values.as_object().expect("t -> h") {
            let t = t.parse().expect("a count");
            assert_eq!(under_needed(t, p), Some(number(h)), "p {p} t {t}");
            n_compared += 1;
        }
    }
    for (p, values) in by_percentile(&golden["sequential"]) {
        for (i, h) in values
            .as_array()
            .expect("h for t = 1, 2, ..")
            .iter()
            .enumerate()
        {
            assert_eq!(
                under_needed(i as u64 + 1, p),
                Some(number(h)),
                "p {p} t {}",
                i + 1
            );
            n_compared += 1;
        }
    }
    assert!(n_compared > 1000, "{n_compared}");
}

#[test]
fn chances_to_nine_digits() {
    let golden = golden_json("early_stopping.json");
    for row in golden["odds"].as_array().expect("rows") {
        let p = row[0].as_f64().expect("percentile");
        let (h, t) = (number(&row[1]), number(&row[2]));
        let expected = row[3].as_f64().expect("chance");
        let got = chance_of_at_most(t, h + t, p);
        assert!(
            (got - expected).abs() <= 1e-9 * expected,
            "p {p} h {h} t {t}: {got} {expected}"
        );
    }
}

#[test]
fn most_over_allowed_for_every_query_count() {
    let golden = golden_json("early_stopping.json");
    for (p, values) in by_percentile(&golden["by_query_count"]["values"]) {
        let needed = min_queries_for_estimate(p).expect("a fraction below 1");
        for (n, pair) in values.as_object().expect("n -> pair") {
            let n = n.parse().expect("a count");
            let server = most_over_allowed(n, p).map_or(-1, |t| t as i64);
            let stream = most_over_allowed(n, p).unwrap_or(0);
            assert_eq!(Some(server), pair[0].as_i64(), "p {p} n {n}");
            assert_eq!(stream, number(&pair[1]), "p {p} n {n}");
            assert_eq!(stream >= 1, n >= needed, "p {p} n {n}");
        }
    }
}
