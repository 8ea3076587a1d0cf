//! Which plots a record gives rise to.

use crate::plot::{Mark, Plot, PlotSeries};
use crate::run_record::{RunRecord, SamplePoint};

/// The plots of a run, in the order they are shown; those without points draw nothing.
#[must_use]
pub fn plots(record: &RunRecord) -> Vec<Plot> {
    let ttft = |sample: &SamplePoint| sample.ttft_ms;
    let tpot = |sample: &SamplePoint| sample.tpot_ms;
    let latency = |sample: &SamplePoint| Some(sample.latency_ms);
    let mut plots = vec![latency_cdf(record), throughput(record)];
    if record
        .series
        .samples
        .iter()
        .any(|sample| sample.ttft_ms.is_some())
    {
        let limit = limit_ms(record, "settings.server_ttft_latency_ns");
        plots.push(over_time(record, "Time to first token", ttft, limit));
        let limit = limit_ms(record, "settings.server_tpot_latency_ns");
        plots.push(over_time(record, "Time per output token", tpot, limit));
    } else {
        let limit = limit_ms(record, "settings.server_target_latency_ns");
        plots.push(over_time(record, "Latency", latency, limit));
    }
    plots
}

fn latency_cdf(record: &RunRecord) -> Plot {
    let curve = |name: &str, quantiles: &[f64]| {
        let last = quantiles.len().saturating_sub(1).max(1) as f64;
        let points = quantiles
            .iter()
            .enumerate()
            .map(|(i, ms)| (*ms, i as f64 / last * 100.0));
        PlotSeries {
            name: name.to_owned(),
            mark: Mark::Line,
            points: points.collect(),
        }
    };
    let series = &record.series;
    Plot {
        title: "Latency".to_owned(),
        hint: "further left is better".to_owned(),
        x_label: "ms".to_owned(),
        y_label: "% of answers".to_owned(),
        y_max: Some(100.0),
        x_from_data: true,
        series: vec![
            curve("from due", &series.latency_ms_quantiles),
            curve("from send", &series.service_time_ms_quantiles),
        ],
        limits: Vec::new(),
    }
}

fn throughput(record: &RunRecord) -> Plot {
    let series = &record.series;
    let has_tokens = series.tokens_per_bin.iter().any(|n| *n > 0);
    let (bins, unit) = if has_tokens {
        (&series.tokens_per_bin, "tokens/s")
    } else {
        (&series.completed_per_bin, "answers/s")
    };
    let bin_s = if series.bin_s > 0.0 {
        series.bin_s
    } else {
        1.0
    };
    let points = bins
        .iter()
        .enumerate()
        .map(|(i, n)| (i as f64 * bin_s, *n as f64 / bin_s));
    Plot {
        title: "Throughput".to_owned(),
        hint: "counted when an answer is complete; higher is better".to_owned(),
        x_label: "s since the start".to_owned(),
        y_label: unit.to_owned(),
        y_max: None,
        x_from_data: false,
        series: vec![PlotSeries {
            name: String::new(),
            mark: Mark::Columns,
            points: points.collect(),
        }],
        limits: Vec::new(),
    }
}

fn over_time(
    record: &RunRecord,
    title: &str,
    value: impl Fn(&SamplePoint) -> Option<f64>,
    limit: Option<f64>,
) -> Plot {
    // Offline's samples are all due at once: by due time they would stand on one line.
    let offline = record.scenario == "Offline";
    let (by, when): (_, fn(&SamplePoint) -> f64) = if offline {
        ("time of the answer", |s| s.due_s + s.latency_ms / 1e3)
    } else {
        ("due time", |s| s.due_s)
    };
    let samples = record.series.samples.iter();
    let points = samples.filter_map(|sample| Some((when(sample), value(sample)?)));
    Plot {
        title: format!("{title}, by {by}"),
        hint: "one point per answer; lower is better".to_owned(),
        x_label: "s since the start".to_owned(),
        y_label: "ms".to_owned(),
        y_max: None,
        x_from_data: false,
        series: vec![PlotSeries {
            name: String::new(),
            mark: Mark::Dots,
            points: points.collect(),
        }],
        limits: limit
            .map(|ms| ("limit".to_owned(), ms))
            .into_iter()
            .collect(),
    }
}

/// A latency limit the run was judged by; only Server has any.
fn limit_ms(record: &RunRecord, key: &str) -> Option<f64> {
    let ns: f64 = record.config.requested.get(key)?.parse().ok()?;
    (record.scenario == "Server").then_some(ns / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offline_answers_stand_where_they_came() {
        let sample = SamplePoint {
            due_s: 0.0,
            latency_ms: 2500.0,
            ..SamplePoint::default()
        };
        let first = |scenario: &str| {
            let mut record = RunRecord {
                scenario: scenario.to_owned(),
                ..RunRecord::default()
            };
            record.series.samples = vec![sample];
            let plot = plots(&record).pop().expect("latency over time");
            (plot.title, plot.series[0].points[0])
        };
        let by_answer = "Latency, by time of the answer".to_owned();
        assert_eq!(first("Offline"), (by_answer, (2.5, 2500.0)));
        let by_due = "Latency, by due time".to_owned();
        assert_eq!(first("Server"), (by_due, (0.0, 2500.0)));
    }
}
