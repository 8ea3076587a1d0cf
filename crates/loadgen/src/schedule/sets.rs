//! Which samples are in memory together: the loadable sets.

use crate::rng::{Mt19937, StdlibFlavour};
use crate::sample::SampleIndex;
use crate::scenario::Phase;
use crate::schedule::count;
use crate::settings::EffectiveSettings;
use crate::settings::quota::padding;

/// The sets of `phase`, in the order they are loaded; a performance phase uses only the first.
///
/// The phase's indices, shuffled with the `qsl` stream and cut into runs of the performance sample
/// count. Since LoadGen 6 the performance phase takes the *first* indices of the data set, not
/// ones drawn from all of it.
///
/// MultiStream sets repeat their first samples at the end, so that a query of neighbouring samples
/// can start anywhere in the set.
#[must_use]
pub fn loadable_sets(
    eff: &EffectiveSettings,
    phase: Phase,
    qsl_total: u64,
    flavour: StdlibFlavour,
) -> Vec<Vec<SampleIndex>> {
    let wanted = match phase {
        Phase::Accuracy => eff.accuracy_sample_count,
        Phase::Performance => eff.performance_sample_count,
    };
    let n = u32::try_from(wanted.min(qsl_total)).expect("validate refuses larger data sets");
    let mut all: Vec<SampleIndex> = (0..n).map(SampleIndex).collect();
    Mt19937::new(eff.requested.qsl_rng_seed).shuffle(&mut all, flavour);
    let per_set = match eff.performance_sample_count {
        0 => all.len().max(1),
        per_set => usize::try_from(per_set).unwrap_or(usize::MAX),
    };
    let padding = count(padding(eff));
    all.chunks(per_set)
        .map(|chunk| padded(chunk, padding))
        .collect()
}

fn padded(chunk: &[SampleIndex], padding: usize) -> Vec<SampleIndex> {
    chunk
        .iter()
        .copied()
        .cycle()
        .take(chunk.len() + padding)
        .collect()
}
