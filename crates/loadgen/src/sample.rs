//! Samples: how they are named, and where their data come from.

use std::num::NonZeroU64;

/// Position of a sample in the data set, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SampleIndex(pub u32);

/// Opaque name of one issued sample, unique within a run and never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SampleId(pub NonZeroU64);

/// One sample of a query, as handed to the system under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuerySample {
    /// What the answer must carry back.
    pub id: SampleId,
    /// Which item of the data set is asked for.
    pub index: SampleIndex,
}

/// The data set, as the load generator sees it: counts, and what must be in memory when.
pub trait QuerySampleLibrary {
    /// Name for the logs.
    fn name(&self) -> &str;
    /// Number of samples in the data set.
    fn total_sample_count(&self) -> usize;
    /// Number of samples that fit in memory at once.
    fn performance_sample_count(&self) -> usize;
    /// Brings these samples into memory; untimed, before the first query of a phase.
    fn load_samples(&mut self, samples: &[SampleIndex]);
    /// Lets go of samples loaded before.
    fn unload_samples(&mut self, samples: &[SampleIndex]);
}
