//! The plan as text: what a person wants to know before starting a run of an hour.

use std::io::{self, Write};

use crate::plan::estimate::{Estimate, estimate, remarks};
use crate::plan::json::phase_name;
use crate::plan::{PlannedSet, RunPlan};
use crate::scenario::Scenario;
use crate::schedule::PhasePlan;
use crate::settings::EffectiveSettings;
use crate::settings::effective::effective_values;

/// Queries and samples shown before an ellipsis.
const SHOWN: usize = 8;

/// Writes counts, ends, times and the first queries of each set, then the effective settings.
///
/// # Errors
/// Whatever `out` reports.
pub fn write_text(plan: &RunPlan, out: &mut dyn Write) -> io::Result<()> {
    let eff = &plan.effective;
    writeln!(
        out,
        "scenario     {}, {}",
        eff.scenario.conf_name(),
        eff.mode
    )?;
    writeln!(
        out,
        "data set     {} samples, {} in memory at once",
        plan.qsl_total, eff.performance_sample_count
    )?;
    let (mut run_time_s, mut memory) = (0.0, 0);
    let sets = plan.sets();
    for (i, set) in sets.iter().enumerate() {
        let queries = plan.queries(set);
        let estimate = estimate(eff, set.phase, &queries);
        run_time_s += estimate.run_time_s;
        memory = memory.max(estimate.plan_bytes + estimate.record_bytes);
        writeln!(out)?;
        writeln!(
            out,
            "set {} of {} ({})",
            i + 1,
            sets.len(),
            phase_name(set.phase)
        )?;
        write_set(out, eff, set, (&queries, &estimate))?;
    }
    writeln!(out)?;
    writeln!(out, "expected run time  {}", duration(run_time_s))?;
    writeln!(out, "expected memory    {}", mebibytes(memory))?;
    writeln!(out)?;
    writeln!(out, "effective settings")?;
    for entry in effective_values(eff) {
        writeln!(out, "  {:<32} {}", entry.key, entry.value)?;
    }
    for remark in remarks(eff, &plan.notes) {
        writeln!(out, "note: {remark}")?;
    }
    Ok(())
}

fn write_set(
    out: &mut dyn Write,
    eff: &EffectiveSettings,
    set: &PlannedSet,
    (queries, estimate): (&PhasePlan, &Estimate),
) -> io::Result<()> {
    let loaded = first(set.samples.iter().map(|s| s.0), set.samples.len());
    writeln!(out, "  loaded     {} samples: {loaded}", set.samples.len())?;
    let (n, spq) = (queries.n_queries(), queries.samples_per_query());
    writeln!(
        out,
        "  queries    {n} planned, {} expected to be issued, samples in each: {spq}",
        estimate.issued_queries
    )?;
    writeln!(out, "  ends when  {}", estimate.end_rule)?;
    if eff.scenario == Scenario::Server && n > 1 {
        let drawn = (n - 1) as f64 / queries.due(n - 1).as_secs_f64();
        writeln!(
            out,
            "  rate       {} queries/s asked for, {drawn:.3} drawn",
            eff.target_qps
        )?;
    }
    writeln!(out, "  takes      {}", duration(estimate.run_time_s))?;
    writeln!(
        out,
        "  memory     {} of plan, {} of records",
        mebibytes(estimate.plan_bytes),
        mebibytes(estimate.record_bytes)
    )?;
    // Elsewhere a query is issued when the one before is answered, not at a time.
    let timed = eff.scenario == Scenario::Server;
    for query_idx in 0..n.min(SHOWN) {
        let samples = first(queries.samples(query_idx).map(|s| s.0), spq);
        let due = queries.due(query_idx).0;
        if timed {
            writeln!(
                out,
                "  query {query_idx:<4} due {due:>14} ns  samples {samples}"
            )?;
        } else {
            writeln!(out, "  query {query_idx:<4} samples {samples}")?;
        }
    }
    Ok(())
}

fn first(numbers: impl Iterator<Item = u32>, len: usize) -> String {
    let shown: Vec<String> = numbers.take(SHOWN).map(|n| n.to_string()).collect();
    let more = if len > SHOWN { ", …" } else { "" };
    format!("{}{more}", shown.join(", "))
}

fn duration(seconds: f64) -> String {
    if seconds < 120.0 {
        return format!("{seconds:.3} s");
    }
    format!("{:.1} min ({seconds:.0} s)", seconds / 60.0)
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}
