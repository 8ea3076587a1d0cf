//! The sample events of every golden trace, line for line; and what they say about the samples.

use std::collections::BTreeMap;

use prony_loadgen::clock::Nanos;
use prony_loadgen::report::trace::{SampleTrace, TraceWriter};
use serde_json::Value;

use crate::folder::{Folder, folders};

/// What the trace says about every sample, by sequence number.
pub(crate) fn samples(folder: &Folder) -> Option<BTreeMap<u64, SampleTrace>> {
    let trace: Value = serde_json::from_str(folder.trace.as_ref()?).expect("strict JSON");
    let events = trace["traceEvents"].as_array().expect("events");
    let begins = |name: &str| {
        let name = name.to_owned();
        events
            .iter()
            .filter(move |event| event["name"] == name && event["ph"] == "b")
    };
    let mut samples = BTreeMap::new();
    for event in begins("Sample") {
        let args = &event["args"];
        let arg = |key: &str| args[key].as_i64().expect("an integer");
        let scheduled = nanos(&event["ts"]);
        let sample = SampleTrace {
            sample_seq: arg("sample_seq") as u64,
            query_seq: arg("query_seq") as u64,
            sample_idx: arg("sample_idx") as u32,
            scheduled,
            issued: scheduled + Nanos(arg("issue_start_ns")),
            first_token: None,
            done: scheduled + Nanos(arg("complete_ns")),
            counters: false,
        };
        samples.insert(sample.sample_seq, sample);
    }
    for event in begins("Token") {
        let seq = event["args"]["sample_seq"].as_u64().expect("a number");
        let sample = samples.get_mut(&seq).expect("a sample");
        let ttft = event["args"]["complete_ns"].as_i64().expect("an integer");
        sample.first_token = Some(sample.scheduled + Nanos(ttft));
    }
    for event in events.iter().filter(|event| event["ph"] == "C") {
        let at = nanos(&event["ts"]);
        let to_done = event["args"]["issue_to_done"].as_i64().expect("an integer");
        for sample in samples.values_mut().filter(|sample| sample.scheduled == at) {
            sample.counters = true;
            if event["name"] == "Token_Latency" {
                sample.first_token = Some(sample.issued + Nanos(to_done));
            }
        }
    }
    Some(samples)
}

/// Microseconds with three decimals, as exact nanoseconds.
fn nanos(ts: &Value) -> Nanos {
    Nanos((ts.as_f64().expect("a time") * 1e3).round() as i64)
}

#[test]
fn every_sample_event_line_for_line() {
    let mut n_traces = 0;
    for folder in folders() {
        let (Some(samples), Some(golden)) = (samples(&folder), &folder.trace) else {
            continue;
        };
        let json: Value = serde_json::from_str(golden).expect("strict JSON");
        let pid = json["traceEvents"][0]["pid"].as_u64().unwrap_or(0) as u32;
        let origin = golden.lines().find_map(|line| line.strip_prefix("\"ts\":"));
        let origin = origin
            .expect("an origin")
            .trim_end_matches(',')
            .replace('.', "");
        let mut writer = TraceWriter::new(Vec::new(), pid).expect("memory");
        for sample in samples.values() {
            writer.sample(sample).expect("memory");
        }
        let ours = writer
            .finish(origin.parse().expect("a number"))
            .expect("memory");
        let ours = String::from_utf8(ours).expect("ASCII");
        serde_json::from_str::<Value>(&ours).expect("strict JSON");
        // The reference writes events as they happen; the set of lines is what must agree.
        let sorted = |text: &str| {
            let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
            lines.sort_unstable();
            lines
        };
        // Deviation: without phase and process, Perfetto counts this line as an import error.
        let footer = format!(r#"{{"name":"LastTrace","ph":"M","pid":{pid},"args":{{}}}}"#);
        let golden = golden.replace(r#"{"name":"LastTrace"}"#, &footer);
        assert_eq!(sorted(&ours), sorted(&golden), "{}", folder.name);
        n_traces += 1;
    }
    assert_eq!(n_traces, 33);
}
