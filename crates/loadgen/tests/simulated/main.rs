//! Whole runs on virtual time: every way a run can end, and every way an answer can be wrong.

#[path = "../golden_plan/data.rs"]
mod data;

mod world;

mod ends;

mod answers;

mod phases;

mod canceling;

mod sequences;

mod peak;
