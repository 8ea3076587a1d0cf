//! The plan as JSON, query by query: `{"loaded_sets", "queries", "effective", …}`.

use std::io::{self, Write};

use serde_json::{Map, Number, Value as Json, json};

use crate::plan::estimate::{Estimate, estimate, remarks};
use crate::plan::{PlannedSet, RunPlan};
use crate::sample::SampleIndex;
use crate::scenario::Phase;
use crate::schedule::PhasePlan;
use crate::settings::EffectiveSettings;
use crate::settings::effective::effective_values;
use crate::settings::fields::Value;

/// Writes the whole plan; no more than one set's queries are held at a time.
///
/// `scheduled_ns` counts from the first query of the query's set. In SingleStream and MultiStream
/// it is when the query would be due at the expected latency: they are issued when the one before
/// is answered.
///
/// # Errors
/// Whatever `out` reports.
pub fn write_json(plan: &RunPlan, out: &mut dyn Write) -> io::Result<()> {
    let sets = plan.sets();
    out.write_all(b"{\"loaded_sets\":[")?;
    for (i, set) in sets.iter().enumerate() {
        separate(out, i)?;
        write_samples(out, set.samples.iter().copied())?;
    }
    out.write_all(b"],\n\"queries\":[")?;
    let mut phases = Vec::new();
    let mut n_written = 0;
    for set in &sets {
        let queries = plan.queries(set);
        write_queries(out, &queries, n_written)?;
        n_written += queries.n_queries();
        phases.push(phase_json(&plan.effective, set, &queries));
    }
    out.write_all(b"],\n")?;
    let run_time_s: f64 = phases.iter().filter_map(|p| p["run_time_s"].as_f64()).sum();
    let memory = phases
        .iter()
        .filter_map(|p| p["memory_bytes"].as_u64())
        .max();
    let rest = [
        ("effective", effective_json(&plan.effective)),
        ("phases", Json::Array(phases)),
        ("expected_run_time_s", json!(run_time_s)),
        ("expected_memory_bytes", json!(memory.unwrap_or(0))),
        ("remarks", json!(remarks(&plan.effective, &plan.notes))),
    ];
    for (i, (key, value)) in rest.iter().enumerate() {
        if i > 0 {
            out.write_all(b",\n")?;
        }
        write!(out, "\"{key}\":{value}")?;
    }
    out.write_all(b"}\n")
}

fn write_queries(out: &mut dyn Write, queries: &PhasePlan, n_before: usize) -> io::Result<()> {
    for query_idx in 0..queries.n_queries() {
        if n_before + query_idx > 0 {
            out.write_all(b",\n")?;
        }
        out.write_all(b"{\"samples\":")?;
        write_samples(out, queries.samples(query_idx))?;
        write!(out, ",\"scheduled_ns\":{}}}", queries.due(query_idx).0)?;
    }
    Ok(())
}

fn write_samples(
    out: &mut dyn Write,
    samples: impl Iterator<Item = SampleIndex>,
) -> io::Result<()> {
    out.write_all(b"[")?;
    for (i, sample) in samples.enumerate() {
        separate(out, i)?;
        write!(out, "{}", sample.0)?;
    }
    out.write_all(b"]")
}

fn separate(out: &mut dyn Write, position: usize) -> io::Result<()> {
    if position > 0 {
        out.write_all(b",")
    } else {
        Ok(())
    }
}

fn phase_json(eff: &EffectiveSettings, set: &PlannedSet, queries: &PhasePlan) -> Json {
    let Estimate {
        issued_queries,
        run_time_s,
        plan_bytes,
        record_bytes,
        end_rule,
    } = estimate(eff, set.phase, queries);
    json!({
        "phase": phase_name(set.phase),
        "generated_query_count": queries.n_queries(),
        "generated_samples_per_query": queries.samples_per_query(),
        "generated_query_duration_ns": queries.generated_duration().0,
        "expected_issued_queries": issued_queries,
        "run_time_s": run_time_s,
        "memory_bytes": plan_bytes + record_bytes,
        "ends_when": end_rule,
    })
}

/// "accuracy" or "performance".
#[must_use]
pub fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Accuracy => "accuracy",
        Phase::Performance => "performance",
    }
}

/// The effective settings under the keys of the detail log, without their `effective_`.
#[must_use]
pub fn effective_json(eff: &EffectiveSettings) -> Json {
    let entries = effective_values(eff).into_iter();
    Json::Object(
        entries
            .map(|e| (e.key.to_owned(), value_json(e.value)))
            .collect::<Map<_, _>>(),
    )
}

/// A setting's value as JSON; reals that are no numbers become null.
#[must_use]
pub fn value_json(value: Value) -> Json {
    match value {
        Value::Scenario(_) | Value::Mode(_) => Json::String(value.to_string()),
        Value::Real(v) => Number::from_f64(v).map_or(Json::Null, Json::Number),
        Value::Count(v) => json!(v),
        Value::Signed(v) => json!(v),
        Value::Flag(v) => json!(v),
    }
}
