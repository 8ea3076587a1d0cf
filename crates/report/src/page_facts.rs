//! The parts of the page that are names and values: configuration, endpoint, machine.

use std::fmt::Write as _;

use crate::escape::escape;
use crate::number::{bytes, count, short};
use crate::run_record::RunRecord;

/// What was offered, and what offering it took.
pub(crate) fn client(out: &mut String, record: &RunRecord) {
    let (client, figures) = (&record.client, &record.figures);
    out.push_str("<h3>Load and client</h3>");
    if let Some(sentence) = record.sharing() {
        let _ = write!(out, "<p>{}.</p>", capitalized(&escape(&sentence)));
    }
    let rate = |value: Option<f64>| value.map(|per_s| format!("{} /s", short(per_s)));
    let seconds = |value: Option<f64>| value.map(|s| format!("{} s", short(s)));
    let of = |n: u64| Some(count(n));
    let rows = [
        ("rate asked for", rate(figures.requested_per_s)),
        ("rate of the drawn arrivals", rate(figures.scheduled_per_s)),
        ("rate sent", rate(figures.sent_per_s)),
        ("rate answered", rate(figures.completed_per_s)),
        ("in flight, most", of(client.max_in_flight_seen)),
        ("in flight, allowed", of(client.max_in_flight_allowed)),
        ("held back by that limit", of(client.n_held_back)),
        ("connections opened ahead", of(client.n_connections_ahead)),
        (
            "connections opened in the run",
            of(client.n_connections_late),
        ),
        (
            "answers without a token count",
            of(client.n_counted_by_events),
        ),
        ("warm-up queries", of(client.n_warmup_queries)),
        ("client's processor time", seconds(client.cpu_s)),
        ("client's memory", client.max_rss_bytes.map(bytes)),
    ];
    // What does not exist in the scenario, or was not measured, has no line.
    let rows = rows
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)));
    pairs(out, rows);
}

fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().into_iter().flat_map(char::to_uppercase);
    first.chain(chars).collect()
}

/// What was asked for: command, scenario, endpoint, every setting.
pub(crate) fn configuration(out: &mut String, record: &RunRecord) {
    let (config, endpoint) = (&record.config, &record.endpoint);
    out.push_str("<h3>Configuration</h3>");
    let command = escape(&record.command_line.join(" "));
    let _ = write!(out, "<pre>{command}</pre>");
    let model = endpoint
        .model
        .clone()
        .unwrap_or_else(|| "not named".to_owned());
    let rows = [
        ("scenario file", config.path.clone()),
        ("configuration, SHA-256", config.sha256.clone()),
        (
            "data set",
            format!("{}, {} samples", config.dataset, config.n_dataset_samples),
        ),
        ("data set, SHA-256", config.dataset_sha256.clone()),
        ("endpoint", endpoint.url.clone()),
        ("API", endpoint.api.clone()),
        ("model", model),
        ("mode", record.mode.clone()),
        ("lasted", format!("{} s", short(record.duration_s))),
    ];
    pairs(
        out,
        rows.into_iter()
            .map(|(name, value)| (name.to_owned(), value)),
    );
    let blocks = [
        ("What the endpoint says about itself", &endpoint.facts),
        ("Every requested key", &config.requested),
        ("Effective settings", &config.effective),
    ];
    for (name, map) in blocks.into_iter().filter(|(_, map)| !map.is_empty()) {
        let _ = write!(out, "<details><summary>{name}</summary>");
        pairs(
            out,
            map.iter().map(|(key, value)| (key.clone(), value.clone())),
        );
        out.push_str("</details>\n");
    }
}

/// What the client ran on.
pub(crate) fn machine(out: &mut String, records: &[RunRecord]) {
    let Some(record) = records.first() else {
        return;
    };
    let e = &record.environment;
    let or_unknown = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".to_owned());
    let number = |value: Option<f64>| value.map_or("unknown".to_owned(), short);
    let gpus = if e.gpus.is_empty() {
        "none found".to_owned()
    } else {
        e.gpus.join(", ")
    };
    let rows = [
        ("processor", or_unknown(&e.cpu_model)),
        (
            "logical processors",
            e.n_cpus.map_or("unknown".to_owned(), |n| n.to_string()),
        ),
        (
            "processor quota",
            e.cpu_quota.map_or("none".to_owned(), short),
        ),
        ("frequency governor", or_unknown(&e.cpu_governor)),
        (
            "virtual machine",
            e.virtual_machine
                .map_or("unknown".to_owned(), |v| v.to_string()),
        ),
        ("memory", e.memory_bytes.map_or("unknown".to_owned(), bytes)),
        ("accelerators", gpus),
        ("load average at the start", number(e.load_average_1m)),
        ("operating system", or_unknown(&e.os)),
        ("kernel", or_unknown(&e.kernel)),
        (
            "prony",
            format!("{} ({} build)", e.prony_version, e.build_profile),
        ),
        ("revision", e.git_revision.clone()),
        ("compiler", e.rustc.clone()),
    ];
    out.push_str("<section><h2>Machine of the client</h2>");
    pairs(
        out,
        rows.into_iter()
            .map(|(name, value)| (name.to_owned(), value)),
    );
    out.push_str("</section>\n");
}

/// Names and values, both from anywhere.
pub(crate) fn pairs(out: &mut String, rows: impl Iterator<Item = (String, String)>) {
    out.push_str("<div class=scroll><table>");
    for (name, value) in rows {
        let _ = writeln!(
            out,
            "<tr><td class=k>{}<td class=v>{}</tr>",
            escape(&name),
            escape(&value)
        );
    }
    out.push_str("</table></div>\n");
}
