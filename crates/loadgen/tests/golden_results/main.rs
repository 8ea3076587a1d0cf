//! The reference's results reproduced: early stopping, verdicts, summaries, whole log folders.
//!
//! Reads `tests/golden/loadgen`; every file there is compared, none is skipped by name.

#[path = "../golden_plan/data.rs"]
#[expect(dead_code, reason = "shared with golden_plan, which uses all of it")]
mod data;

mod folder;

mod early;

mod synthetic;

mod accuracy;

mod trace;

mod figures;

mod replay;

mod logs;

mod rerun;
