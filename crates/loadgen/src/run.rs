//! One run from settings to outcome: derive, load, warm up, issue, wait, read, unload.
//!
//! The phases of a mode follow each other here; how a phase issues is `issue.rs`, what it adds up
//! to is computed from the recorder afterwards. No file is written while a phase is on.

use std::num::NonZeroU64;
use std::sync::Arc;

use crate::clock::{Bell, Clock, Nanos};
use crate::error::LoadgenError;
use crate::incident::{IncidentReport, Incidents};
use crate::issue::{Issued, Issuer, Queries, StopRules};
use crate::options::RunOptions;
use crate::outcome::{Columns, LostSample, Outcome, PhaseOutcome, TokenFaults};
use crate::recorder::{Keep, Recorder, RecorderPlan};
use crate::sample::{QuerySampleLibrary, SampleIndex};
use crate::scenario::{Mode, Phase, Scenario};
use crate::schedule::{AccuracyLogSampling, PhasePlan, loadable_sets};
use crate::settings::{EffectiveSettings, validate};
use crate::sut::{Responder, SystemUnderTest};

/// Runs the test that `options.settings` describe and returns everything that happened.
///
/// An INVALID result, failed samples and lost samples are outcomes, not errors.
///
/// # Errors
/// Settings that no run can honour (all of them at once), and log folders that cannot be written.
pub fn run(
    options: &RunOptions,
    qsl: &mut dyn QuerySampleLibrary,
    sut: &dyn SystemUnderTest,
    clock: &dyn Clock,
) -> Result<Outcome, LoadgenError> {
    let (qsl_total, qsl_perf) = (
        qsl.total_sample_count() as u64,
        qsl.performance_sample_count() as u64,
    );
    validate(&options.settings, qsl_total, qsl_perf)?;
    let (effective, _) = EffectiveSettings::derive(&options.settings, qsl_total, qsl_perf);
    let bell = Arc::new(Bell::for_this_thread());
    let _rings = options.cancel.rings(&bell);
    let mut run = Run {
        options,
        sampling: AccuracyLogSampling::new(&effective),
        effective,
        sut,
        clock,
        bell,
        incidents: Arc::default(),
        next_id: NonZeroU64::MIN,
        warmup: None,
    };
    let mode = options.settings.mode;
    let mut phases = Vec::new();
    if matches!(mode, Mode::AccuracyOnly | Mode::SubmissionRun) {
        for set in run.loadable_sets(Phase::Accuracy, qsl_total) {
            if !options.cancel.is_canceled() {
                phases.push(run.phase(Phase::Accuracy, set, qsl));
            }
        }
    }
    if mode != Mode::AccuracyOnly {
        let mut sets = run.loadable_sets(Phase::Performance, qsl_total);
        if !options.cancel.is_canceled() {
            phases.push(run.phase(Phase::Performance, sets.swap_remove(0), qsl));
        }
    }
    Ok(Outcome {
        phases,
        warmup: run.warmup.unwrap_or_default(),
    })
}

/// What all phases of a run share.
struct Run<'a> {
    options: &'a RunOptions,
    effective: EffectiveSettings,
    sut: &'a dyn SystemUnderTest,
    clock: &'a dyn Clock,
    bell: Arc<Bell>,
    incidents: Arc<Incidents>,
    /// Ids count on through all phases, so that an answer to an earlier phase is recognised.
    next_id: NonZeroU64,
    warmup: Option<IncidentReport>,
    sampling: AccuracyLogSampling,
}

/// Ids of warm-up samples, far from all others: they must not move the sequence numbers.
const FIRST_WARMUP_ID: NonZeroU64 = NonZeroU64::new(1 << 62).expect("not 0");

impl Run<'_> {
    fn loadable_sets(&self, phase: Phase, qsl_total: u64) -> Vec<Vec<SampleIndex>> {
        loadable_sets(&self.effective, phase, qsl_total, self.options.stdlib)
    }

    /// Which answers the accuracy log will show.
    fn keep(&mut self, phase: Phase, n_samples: usize) -> Keep {
        if phase == Phase::Accuracy {
            return Keep::Everything;
        }
        if !self.sampling.can_log() {
            return Keep::Nothing;
        }
        let first_seq = self.next_id.get() - 1;
        let mut bits = vec![0_u64; n_samples.div_ceil(64)];
        for slot in 0..n_samples {
            let logged = self.sampling.is_logged(first_seq + slot as u64);
            bits[slot / 64] |= u64::from(logged) << (slot % 64);
        }
        Keep::Chosen(bits)
    }

    fn phase(
        &mut self,
        phase: Phase,
        loaded: Vec<SampleIndex>,
        qsl: &mut dyn QuerySampleLibrary,
    ) -> PhaseOutcome {
        qsl.load_samples(&loaded);
        if self.warmup.is_none() {
            self.warmup = Some(self.warm_up(&loaded));
        }
        let plan = PhasePlan::generate(&self.effective, phase, &loaded, self.options.stdlib);
        let keep = self.keep(phase, plan.n_samples());
        let queries = Queries::Planned(plan);
        let recorder = self.recorder(self.next_id, &queries, keep);
        let slots = n_samples(&queries);
        self.next_id = self.next_id.saturating_add(slots);
        let name = match phase {
            Phase::Accuracy => "accuracy",
            Phase::Performance => "performance",
        };
        let rules = self.rules(phase);
        let start_unix_ns = self.clock.unix_ns();
        let issued = self.issue(name, &queries, rules, &recorder);
        let outcome = self.read(
            PhaseRun {
                phase,
                loaded,
                queries,
                start_unix_ns,
                issued,
            },
            &recorder,
        );
        qsl.unload_samples(&outcome.loaded);
        outcome
    }

    /// Untimed queries; their outcome is only what went wrong.
    fn warm_up(&self, loaded: &[SampleIndex]) -> IncidentReport {
        let warmup = self.options.warmup;
        if warmup.queries == 0 || loaded.is_empty() {
            return IncidentReport::default();
        }
        let in_flight = warmup.in_flight.clamp(1, warmup.queries) as usize;
        let n_queries = (warmup.queries as usize).div_ceil(in_flight);
        let samples = loaded.iter().cycle().copied();
        let queries = Queries::WarmUp {
            samples: samples.take(n_queries * in_flight).collect(),
            samples_per_query: in_flight,
        };
        let recorder = self.recorder(FIRST_WARMUP_ID, &queries, Keep::Nothing);
        let rules = self.rules(Phase::Accuracy);
        let responder = Responder::new(Arc::clone(&recorder), self.clock.source());
        let issuer = Issuer {
            scenario: Scenario::MultiStream,
            ..self.issuer(&queries, rules, &recorder, &responder)
        };
        self.announce("warm-up", &queries, &recorder);
        let issued = issuer.run(1);
        recorder.close(self.clock.now(), true);
        drop(issued);
        self.incidents.take()
    }

    fn issue(
        &self,
        name: &'static str,
        queries: &Queries,
        rules: StopRules,
        recorder: &Arc<Recorder>,
    ) -> Issued {
        let responder = Responder::new(Arc::clone(recorder), self.clock.source());
        self.announce(name, queries, recorder);
        let threads = self.options.settings.server_num_issue_query_threads;
        self.issuer(queries, rules, recorder, &responder)
            .run(usize::try_from(threads).unwrap_or(1))
    }

    fn issuer<'a>(
        &'a self,
        queries: &'a Queries,
        rules: StopRules,
        recorder: &'a Arc<Recorder>,
        responder: &'a Responder,
    ) -> Issuer<'a> {
        Issuer {
            scenario: self.effective.scenario,
            queries,
            coalesce: self.effective.requested.server_coalesce_queries,
            rules,
            wait: self.options.wait,
            recorder,
            responder,
            sut: self.sut,
            clock: self.clock,
            time: self.clock.source(),
            cancel: &self.options.cancel,
        }
    }

    fn announce(&self, name: &'static str, queries: &Queries, recorder: &Recorder) {
        let planned = n_samples(queries);
        let counters = Arc::clone(recorder.counters());
        self.options
            .progress
            .begin(name, planned, self.clock.now(), counters);
    }

    fn recorder(&self, first_id: NonZeroU64, queries: &Queries, keep: Keep) -> Arc<Recorder> {
        let plan = RecorderPlan {
            first_id,
            n_queries: queries.len(),
            samples_per_query: queries.samples_per_query(),
            token_mode: self.records_tokens(),
            keep,
            start: self.clock.now(),
        };
        let bell = Arc::clone(&self.bell);
        Arc::new(Recorder::new(plan, Arc::clone(&self.incidents), bell))
    }

    fn records_tokens(&self) -> bool {
        self.options.record_tokens || self.effective.requested.use_token_latencies
    }

    fn rules(&self, phase: Phase) -> StopRules {
        let effective = &self.effective;
        let ms = |ms: u64| Nanos::from_ms(i64::try_from(ms).unwrap_or(i64::MAX / 1_000_000));
        StopRules {
            everything: phase == Phase::Accuracy,
            min_query_count: effective.min_query_count,
            target_duration: ms(effective.target_duration_ms),
            max_query_count: effective.max_query_count,
            max_duration: ms(effective.max_duration_ms),
            max_async_queries: effective.max_async_queries,
            lost_sample_timeout: self.options.lost_sample_timeout,
            time_limit: self.options.phase_time_limit,
        }
    }

    /// Ends what is still open and copies the recorder into plain columns.
    fn read(&self, run: PhaseRun, recorder: &Recorder) -> PhaseOutcome {
        let Issued { start, ends } = run.issued;
        let n_queries = recorder.issued_queries();
        let called_off = ends
            .iter()
            .any(|end| end.abandons_answers() && *end != crate::issue::EndReason::Lost);
        let open = recorder.close(self.clock.now(), called_off);
        let spq = run.queries.samples_per_query();
        let mut index = Vec::with_capacity(n_queries * spq);
        for query in 0..n_queries {
            run.queries
                .for_each_sample(query, |sample| index.push(sample));
        }
        let lost = open.iter().map(|slot| LostSample {
            id: recorder.id(*slot),
            index: index[*slot],
            query: slot / spq,
        });
        let lost = lost.collect();
        let recorded = recorder.read(n_queries, start);
        let due_ns = match self.effective.scenario {
            Scenario::SingleStream | Scenario::MultiStream => recorded.issued_ns.clone(),
            Scenario::Server => (0..n_queries).map(|q| run.queries.due(q).0).collect(),
            Scenario::Offline => vec![0; n_queries],
        };
        let planned_queries = run.queries.len() as u64;
        let columns = Columns::new(recorded, due_ns, index, spq).without_unissued();
        let token_mode = self.effective.requested.use_token_latencies;
        let multi_stream = self.effective.scenario == Scenario::MultiStream;
        let token_faults = if token_mode {
            columns.token_faults(self.effective.scenario != Scenario::Offline)
        } else {
            TokenFaults::default()
        };
        PhaseOutcome {
            phase: run.phase,
            effective: self.effective.clone(),
            loaded: run.loaded,
            planned_queries,
            start,
            start_unix_ns: run.start_unix_ns,
            ends,
            performance: columns.performance(token_mode, multi_stream),
            incidents: self.incidents.take(),
            token_faults,
            lost,
            columns,
            kept: recorder.take_kept(),
        }
    }
}

/// What a phase had when it ended.
struct PhaseRun {
    phase: Phase,
    loaded: Vec<SampleIndex>,
    queries: Queries,
    start_unix_ns: i64,
    issued: Issued,
}

fn n_samples(queries: &Queries) -> u64 {
    (queries.len() * queries.samples_per_query()) as u64
}
