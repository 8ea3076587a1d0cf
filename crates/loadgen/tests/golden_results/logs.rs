//! Every golden log folder against what our writers make of the same run.

use prony_loadgen::report::keys::LINE_MARKER;
use serde_json::Value;

use crate::folder::{Folder, Line, folders};
use crate::replay::{Replayed, is_logger_warning, replay};
use crate::synthetic::per_second;

/// Keys whose value needs the instant the phase started, which the traces of stream scenarios do
/// not hold to the nanosecond.
const FROM_START: [&str; 3] = [
    "result_qps_with_loadgen_overhead",
    "result_token_throughput_with_loadgen_overhead",
    "result_completed_tokens_per_second",
];

#[test]
fn every_folder_written_again() {
    for folder in folders() {
        let replayed = replay(&folder);
        compare_detail(&folder, &replayed);
        compare_summary(&folder, &replayed);
    }
}

fn compare_detail(folder: &Folder, replayed: &Replayed) {
    let mut ours = Vec::new();
    replayed.detail.write_to(&mut ours).expect("memory");
    let ours = String::from_utf8(ours).expect("UTF-8");
    let theirs = folder.detail.lines().zip(&folder.lines);
    let theirs: Vec<_> = theirs
        .filter(|(_, line)| !is_logger_warning(line))
        .collect();
    for (our, (their, line)) in ours.lines().zip(&theirs) {
        let object = our.strip_prefix(LINE_MARKER).expect("the marker");
        let json: Value = serde_json::from_str(object).expect("strict JSON");
        assert_eq!(json["key"], line.key, "{}", folder.name);
        if replayed.is_stream && FROM_START.contains(&line.key.as_str()) {
            assert_close(&json["value"], &line.json["value"], folder);
            continue;
        }
        let their = if line.key == "result_token_throughput" {
            their.replace(&line.raw, &per_second(&line.raw))
        } else {
            (*their).to_owned()
        };
        assert_eq!(Line::masked(our), Line::masked(&their), "{}", folder.name);
    }
    assert_eq!(ours.lines().count(), theirs.len(), "{}", folder.name);
}

/// The start is missed by less than 1 µs; the shortest of these runs lasts 0.4 ms.
fn assert_close(our: &Value, their: &Value, folder: &Folder) {
    let (our, their) = (
        our.as_f64().expect("a rate"),
        their.as_f64().expect("a rate"),
    );
    assert!(
        (our - their).abs() < 2.5e-3 * their,
        "{}: {our} {their}",
        folder.name
    );
}

fn compare_summary(folder: &Folder, replayed: &Replayed) {
    // The reference counts the warning of its own logger; everything else is the same text.
    let theirs = if folder.lines.iter().any(is_logger_warning) {
        let one = "1 warning encountered. See detailed log.";
        folder
            .summary
            .replace(one, "No warnings encountered during test.")
    } else {
        folder.summary.clone()
    };
    for (our, their) in replayed.summary.lines().zip(theirs.lines()) {
        match (rate_from_start(our), rate_from_start(their)) {
            (Some(our), Some(their)) => assert_close(&our.into(), &their.into(), folder),
            _ => assert_eq!(our, their, "{}", folder.name),
        }
    }
    assert_eq!(
        replayed.summary.lines().count(),
        theirs.lines().count(),
        "{}",
        folder.name
    );
    assert_eq!(
        replayed.summary.ends_with('\n'),
        theirs.ends_with('\n'),
        "{}",
        folder.name
    );
}

/// The rate in one of the two summary lines that need the start of the phase.
fn rate_from_start(line: &str) -> Option<f64> {
    let labels = [
        "QPS w/ loadgen overhead         : ",
        "TPS w/ loadgen overhead         : ",
    ];
    labels
        .iter()
        .find_map(|label| line.strip_prefix(label)?.parse().ok())
}
