//! Records in, the verdict table out: what a terminal shows at the end of a run or a suite.
//!
//! Plain text, at most 100 columns for the usual numbers; colors and cursor tricks are for the
//! caller. Percentiles with too few samples behind them carry a `*`.

use std::fmt::Write as _;

use crate::number::{count, short, short_or_dash};
use crate::run_record::{Distribution, RunRecord};

/// Everything a run or a suite has to say, ready to print.
#[must_use]
pub fn text(records: &[RunRecord]) -> String {
    let mut out = String::new();
    let rows: Vec<Vec<String>> = records.iter().map(overview_row).collect();
    render(&mut out, &OVERVIEW, &rows);
    out.push('\n');
    let rows: Vec<Vec<String>> = records.iter().flat_map(latency_rows).collect();
    render(&mut out, &LATENCIES, &rows);
    if records.iter().any(has_unresolved) {
        out.push_str("* too few samples to tell this percentile from the largest value\n");
    }
    for record in records {
        out.push('\n');
        out.push_str(&verdict_text(record));
    }
    let mut sharing: Vec<String> = records.iter().filter_map(RunRecord::sharing).collect();
    sharing.dedup();
    for sentence in sharing {
        let _ = writeln!(out, "note: {sentence}");
    }
    out
}

const OVERVIEW: [&str; 8] = [
    "run", "scenario", "result", "asked/s", "sent/s", "done/s", "tokens/s", "errors",
];

fn overview_row(record: &RunRecord) -> Vec<String> {
    let figures = &record.figures;
    let headline = &record.headline;
    let n_bad = figures.n_failed + figures.n_lost;
    vec![
        record.name.clone(),
        record.scenario.clone(),
        format!("{} {}", short_or_dash(headline.value), headline.unit),
        short_or_dash(figures.requested_per_s),
        short_or_dash(figures.sent_per_s),
        short_or_dash(figures.completed_per_s),
        short_or_dash(figures.output_tokens_per_s),
        format!("{} of {}", count(n_bad), count(figures.n_issued)),
    ]
}

const LATENCIES: [&str; 8] = [
    "run",
    "ms, lower is better",
    "p50",
    "p90",
    "p99",
    "max",
    "mean",
    "n",
];

fn latency_rows(record: &RunRecord) -> Vec<Vec<String>> {
    let figures = &record.figures;
    let lines = [
        ("latency from due", &figures.latency_ms),
        ("latency from send", &figures.service_time_ms),
        ("TTFT from due", &figures.ttft_ms),
        ("TPOT", &figures.tpot_ms),
        ("gap between outputs", &figures.itl_ms),
        ("client's send lag", &figures.send_lag_ms),
    ];
    let present = lines
        .into_iter()
        .filter_map(|(name, d)| d.as_ref().map(|d| (name, d)));
    present
        .enumerate()
        .map(|(place, (name, d))| {
            let run = if place == 0 {
                record.name.clone()
            } else {
                String::new()
            };
            vec![
                run,
                name.to_owned(),
                percentile(d, 0.5, d.p50),
                percentile(d, 0.9, d.p90),
                percentile(d, 0.99, d.p99),
                short(d.max),
                short(d.mean),
                count(d.n),
            ]
        })
        .collect()
}

fn percentile(distribution: &Distribution, share: f64, value: f64) -> String {
    let mark = if distribution.is_resolved(share) {
        ""
    } else {
        "*"
    };
    format!("{}{mark}", short(value))
}

fn has_unresolved(record: &RunRecord) -> bool {
    let latency = record.figures.latency_ms.as_ref();
    latency.is_some_and(|d| !d.is_resolved(0.99))
}

fn verdict_text(record: &RunRecord) -> String {
    let verdict = &record.verdict;
    let mut out = format!("{}: {}\n", record.name, verdict.word());
    for reason in &verdict.reasons {
        let _ = writeln!(out, "  because: {reason}");
    }
    for assertion in &verdict.assertions {
        let _ = writeln!(out, "  assertion {}", assertion.sentence());
    }
    for failure in &record.failures {
        let _ = writeln!(
            out,
            "  {} × {}; the first: {}",
            count(failure.count),
            failure.kind,
            failure.first_detail
        );
    }
    for advice in &verdict.advice {
        let _ = writeln!(out, "  advice: {advice}");
    }
    for reason in &record.unofficial_because {
        let _ = writeln!(out, "  not official: {reason}");
    }
    out
}

/// Left-aligned text columns, right-aligned number columns, a rule under the head.
fn render(out: &mut String, head: &[&str], rows: &[Vec<String>]) {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells
            .chain([head[column].chars().count()])
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut line = |cells: &[String]| {
        let mut text = String::new();
        for (column, (cell, width)) in cells.iter().zip(&widths).enumerate() {
            // The first two columns hold names.
            let _ = match column {
                0 | 1 => write!(text, "{cell:<width$}  "),
                _ => write!(text, "{cell:>width$}  "),
            };
        }
        out.push_str(text.trim_end());
        out.push('\n');
    };
    line(&head.iter().map(|&cell| cell.to_owned()).collect::<Vec<_>>());
    line(
        &widths
            .iter()
            .map(|width| "─".repeat(*width))
            .collect::<Vec<_>>(),
    );
    for row in rows {
        line(row);
    }
}

#[cfg(test)]
mod tests;
