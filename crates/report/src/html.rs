//! Records in, one self-contained page out: no file, font or script from elsewhere, so that it
//! works as an attachment to a mail. Every text that came from outside is escaped.

use std::fmt::Write as _;

use crate::charts::plots;
use crate::escape::escape;
use crate::number::{count, short, short_or_dash};
use crate::page_facts::{client, configuration, machine};
use crate::plot::figure;
use crate::run_record::{Distribution, Figures, RunRecord};

/// The page of a run, or of all runs of a suite.
#[must_use]
pub fn page(records: &[RunRecord]) -> String {
    let title = match records {
        [one] => one.name.clone(),
        _ => format!("{} runs", records.len()),
    };
    let mut out = String::with_capacity(64 * 1024);
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>Prony: {}</title><style>{}</style></head><body>\n",
        escape(&title),
        include_str!("page.css")
    );
    let _ = writeln!(out, "<header><h1>Prony: {}</h1></header>", escape(&title));
    banner(&mut out, records);
    if records.len() > 1 {
        overview(&mut out, records);
    }
    for record in records {
        run(&mut out, record);
    }
    machine(&mut out, records);
    out.push_str(
        "<footer>Times are taken by the client when it reads from the socket. Latency runs from \
         the moment a query was due, not from when it was sent. A percentile is a value that \
         occurred, never interpolated.</footer>\n</body></html>\n",
    );
    out
}

/// What no reader may miss: results that do not count as official.
fn banner(out: &mut String, records: &[RunRecord]) {
    let mut reasons: Vec<&str> = records
        .iter()
        .flat_map(|record| &record.unofficial_because)
        .map(String::as_str)
        .collect();
    reasons.sort_unstable();
    reasons.dedup();
    if !reasons.is_empty() {
        let reasons = escape(&reasons.join("; "));
        let _ = writeln!(
            out,
            "<p class=\"banner\"><b>Never an official result:</b> {reasons}</p>"
        );
    }
}

fn word(record: &RunRecord) -> String {
    let class = match record.verdict.word() {
        "VALID" => "good",
        "INVALID" => "bad",
        _ => "warn",
    };
    format!(
        "<span class=\"word {class}\">{}</span>",
        record.verdict.word()
    )
}

fn overview(out: &mut String, records: &[RunRecord]) {
    out.push_str(
        "<div class=\"scroll\"><table><tr><th>run<th>scenario<th>verdict<th class=n>result\
        <th class=n>asked/s<th class=n>done/s<th class=n>tokens/s<th class=n>latency p50\
        <th class=n>p99, ms<th class=n>TTFT p50<th class=n>p99, ms<th class=n>TPOT p50\
        <th class=n>p99, ms<th class=n>errors</tr>\n",
    );
    for record in records {
        let figures = &record.figures;
        let cell = |out: &mut String, text: String| {
            let _ = write!(out, "<td class=n>{text}");
        };
        let (name, scenario) = (escape(&record.name), escape(&record.scenario));
        let _ = write!(
            out,
            "<tr><td><b>{name}</b><td>{scenario}<td>{}",
            word(record)
        );
        cell(out, headline(record));
        cell(out, short_or_dash(figures.requested_per_s));
        cell(out, short_or_dash(figures.completed_per_s));
        cell(out, short_or_dash(figures.output_tokens_per_s));
        for distribution in [&figures.latency_ms, &figures.ttft_ms, &figures.tpot_ms] {
            cell(out, short_or_dash(distribution.map(|d| d.p50)));
            cell(
                out,
                distribution.map_or("–".to_owned(), |d| percentile(&d, 0.99, d.p99)),
            );
        }
        cell(out, count(figures.n_failed + figures.n_lost));
        out.push_str("</tr>\n");
    }
    out.push_str("</table></div>\n");
}

fn headline(record: &RunRecord) -> String {
    let (value, unit) = (
        short_or_dash(record.headline.value),
        escape(&record.headline.unit),
    );
    format!("{value} {unit}")
}

fn run(out: &mut String, record: &RunRecord) {
    let _ = writeln!(
        out,
        "<section><h2>{} {}</h2><p class=soft>{}</p>",
        escape(&record.name),
        word(record),
        escape(&record.description)
    );
    reasons(out, record);
    tiles(out, record);
    out.push_str("<div class=plots>");
    for plot in plots(record) {
        out.push_str(&figure(&plot));
    }
    out.push_str("</div>\n");
    latencies(out, &record.figures);
    failures(out, record);
    client(out, record);
    configuration(out, record);
    out.push_str("</section>\n");
}

fn reasons(out: &mut String, record: &RunRecord) {
    let verdict = &record.verdict;
    if verdict.reasons.is_empty() && verdict.advice.is_empty() && verdict.assertions.is_empty() {
        return;
    }
    out.push_str("<ul class=reasons>");
    for reason in &verdict.reasons {
        let _ = write!(out, "<li>{}", escape(reason));
    }
    for assertion in &verdict.assertions {
        let class = if assertion.holds { " class=soft" } else { "" };
        let sentence = escape(&assertion.sentence());
        let _ = write!(out, "<li{class}>assertion {sentence}");
    }
    for advice in &verdict.advice {
        let _ = write!(out, "<li class=soft>advice: {}", escape(advice));
    }
    out.push_str("</ul>\n");
}

/// Value and name of the figure the scenario is about; a long unit goes to the name.
fn headline_tile(record: &RunRecord) -> (String, String) {
    let (name, unit) = (escape(&record.headline.name), escape(&record.headline.unit));
    let value = short_or_dash(record.headline.value);
    if unit == "ms" {
        (format!("{value} ms"), name)
    } else {
        (value, format!("{name}, {unit}"))
    }
}

fn tiles(out: &mut String, record: &RunRecord) {
    let figures = &record.figures;
    let p50 = |distribution: &Option<Distribution>| {
        distribution.map_or_else(|| "–".to_owned(), |d| format!("{} ms", short(d.p50)))
    };
    let n_bad = figures.n_failed + figures.n_lost;
    let tiles = [
        headline_tile(record),
        (
            short_or_dash(figures.output_tokens_per_s),
            "output tokens/s".to_owned(),
        ),
        (
            short_or_dash(figures.completed_per_s),
            "answers/s".to_owned(),
        ),
        (p50(&figures.ttft_ms), "TTFT, median".to_owned()),
        (p50(&figures.tpot_ms), "TPOT, median".to_owned()),
        (
            format!("{} of {}", count(n_bad), count(figures.n_issued)),
            "errors".to_owned(),
        ),
    ];
    out.push_str("<div class=tiles>");
    for (value, name) in tiles {
        let _ = write!(
            out,
            "<div class=tile><b>{value}</b><span>{name}</span></div>"
        );
    }
    out.push_str("</div>\n");
}

fn percentile(distribution: &Distribution, share: f64, value: f64) -> String {
    let mark = if distribution.is_resolved(share) {
        ""
    } else {
        "*"
    };
    format!("{}{mark}", short(value))
}

fn latencies(out: &mut String, figures: &Figures) {
    let rows = [
        ("latency, from due", &figures.latency_ms),
        ("latency, from send", &figures.service_time_ms),
        ("TTFT, from due", &figures.ttft_ms),
        ("TPOT", &figures.tpot_ms),
        ("gap between outputs", &figures.itl_ms),
        ("client's send lag", &figures.send_lag_ms),
    ];
    out.push_str(
        "<h3>Latencies, ms <span class=hint>lower is better; * too few samples to tell \
        the percentile from the largest value</span></h3><div class=scroll><table><tr><th>\
        <th class=n>mean<th class=n>min<th class=n>p50<th class=n>p90<th class=n>p95<th class=n>p99\
        <th class=n>p99.9<th class=n>max<th class=n>n</tr>\n",
    );
    for (name, distribution) in rows {
        let Some(d) = distribution else { continue };
        let _ = write!(out, "<tr><td>{name}");
        for text in [
            short(d.mean),
            short(d.min),
            percentile(d, 0.5, d.p50),
            percentile(d, 0.9, d.p90),
            percentile(d, 0.95, d.p95),
            percentile(d, 0.99, d.p99),
            percentile(d, 0.999, d.p99_9),
            short(d.max),
            count(d.n),
        ] {
            let _ = write!(out, "<td class=n>{text}");
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table></div>\n");
}

fn failures(out: &mut String, record: &RunRecord) {
    if record.failures.is_empty() {
        return;
    }
    out.push_str(
        "<h3>Failures</h3><div class=scroll><table><tr><th>kind<th class=n>count\
        <th>the first</tr>\n",
    );
    for failure in &record.failures {
        let _ = writeln!(
            out,
            "<tr><td>{}<td class=n>{}<td class=v>{}</tr>",
            escape(&failure.kind),
            count(failure.count),
            escape(&failure.first_detail)
        );
    }
    out.push_str("</table></div>\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_record::{Endpoint, FailureCount, Series};

    fn hostile() -> RunRecord {
        let evil = "<script>alert('x')</script>\"&";
        RunRecord {
            name: evil.to_owned(),
            description: evil.to_owned(),
            scenario: evil.to_owned(),
            command_line: vec![evil.to_owned()],
            unofficial_because: vec![evil.to_owned()],
            failures: vec![FailureCount {
                kind: evil.to_owned(),
                count: 1,
                first_detail: evil.to_owned(),
            }],
            endpoint: Endpoint {
                url: evil.to_owned(),
                model: Some(evil.to_owned()),
                facts: [(evil.to_owned(), evil.to_owned())].into(),
                ..Endpoint::default()
            },
            ..RunRecord::default()
        }
    }

    #[test]
    fn text_from_outside_is_never_markup() {
        for records in [vec![hostile()], vec![hostile(), hostile()]] {
            let page = page(&records);
            assert!(!page.contains("<script"), "{page}");
            assert!(page.contains("&lt;script&gt;"));
        }
    }

    #[test]
    fn the_page_needs_nothing_from_elsewhere() {
        let record = RunRecord {
            series: Series {
                latency_ms_quantiles: vec![1.0, 2.0],
                ..Series::default()
            },
            ..RunRecord::default()
        };
        let page = page(&[record]);
        for word in ["http://", "https://", "src=", "@import", "url("] {
            assert!(!page.contains(word), "{word}");
        }
        assert!(page.contains("<svg"), "the plot is inside");
    }
}
