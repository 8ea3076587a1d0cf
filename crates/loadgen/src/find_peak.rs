//! Finding the highest rate a SUT sustains within its limits.
//!
//! Pure decisions over a closure that runs one trial, so that both searches can be simulated:
//! `reference` is LoadGen's own FindPeakPerformance, `robust` the one that repeats runs near the
//! edge, keeps to a time budget and says how sure it is. Neither runs a query itself.

pub mod reference;

pub mod confidence;

pub mod robust;

pub use reference::{ReferenceSearch, Step};
pub use robust::{PeakReport, PeakSearch, Trial, TrialResult};
