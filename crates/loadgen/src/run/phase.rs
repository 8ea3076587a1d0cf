//! One phase: plan, record, issue, wait, and read what happened into plain data.

use std::num::NonZeroU64;
use std::sync::Arc;

use crate::clock::Nanos;
use crate::incident::IncidentReport;
use crate::issue::{EndReason, Issued, Issuer, Queries, StopRules};
use crate::metrics::Metrics;
use crate::outcome::{Columns, Judged, LostSample, PhaseOutcome, PhaseSpan};
use crate::recorder::{Keep, Recorder, RecorderPlan};
use crate::run::{Run, errors};
use crate::sample::SampleIndex;
use crate::scenario::{Phase, Scenario};
use crate::schedule::PhasePlan;
use crate::settings::EffectiveSettings;
use crate::sut::Responder;
use crate::verdict::{OutcomeCounts, Recommendation, Validity, Verdict};

/// Ids of warm-up samples, far from all others: they must not move the sequence numbers.
const FIRST_WARMUP_ID: NonZeroU64 = NonZeroU64::new(1 << 62).expect("not 0");

/// A phase that is planned and has its recorder.
struct Ready {
    phase: Phase,
    effective: EffectiveSettings,
    queries: Queries,
    recorder: Arc<Recorder>,
    responder: Responder,
}

impl Run<'_> {
    /// Runs one phase over the loaded set.
    pub(super) fn phase(
        &mut self,
        phase: Phase,
        effective: &EffectiveSettings,
        loaded: &[SampleIndex],
    ) -> PhaseOutcome {
        let planning = self.clock.now();
        let plan = PhasePlan::generate(effective, phase, loaded, self.options.stdlib);
        let duration = plan.generated_duration();
        self.log
            .generated(plan.n_queries(), plan.samples_per_query(), duration);
        let keep = self.keep(phase, plan.n_samples());
        let ready = self.ready(phase, effective, Queries::Planned(plan), keep);
        let planned = PhaseSpan {
            name: "GenerateQueries",
            start: planning,
            lasted: self.clock.now() - planning,
        };
        self.announce(name(phase), &ready);
        let threads = usize::try_from(effective.requested.server_num_issue_query_threads);
        let issued = self.issuer(&ready).run(threads.unwrap_or(1));
        let mut outcome = self.read(&ready, issued);
        outcome.loaded = loaded.to_vec();
        outcome.spans.push(planned);
        outcome.first_sample_seq = self.next_id.get() - 1;
        outcome.first_query_seq = self.next_query_seq;
        self.next_id = self.next_id.saturating_add(ready.recorder.slots() as u64);
        self.next_query_seq += ready.queries.len() as u64;
        self.log.phase_end(&outcome);
        if phase == Phase::Performance && outcome.performance.queries_issued > 0 {
            outcome.judged = Some(self.judge(&outcome));
        }
        outcome
    }

    /// Untimed queries; their outcome is only what went wrong.
    pub(super) fn warm_up(&self, loaded: &[SampleIndex]) -> IncidentReport {
        let warmup = self.options.warmup;
        if warmup.queries == 0 || loaded.is_empty() {
            return IncidentReport::default();
        }
        let in_flight = usize::try_from(warmup.in_flight.clamp(1, warmup.queries)).unwrap_or(1);
        let n_queries = usize::try_from(warmup.queries)
            .unwrap_or(1)
            .div_ceil(in_flight);
        let samples = loaded.iter().cycle().copied();
        let queries = Queries::WarmUp {
            samples: samples.take(n_queries * in_flight).collect(),
            samples_per_query: in_flight,
        };
        let ready = self.ready(Phase::Accuracy, &self.effective, queries, Keep::Nothing);
        self.announce("warm-up", &ready);
        let issuer = Issuer {
            scenario: Scenario::MultiStream,
            ..self.issuer(&ready)
        };
        issuer.run(1);
        ready.recorder.close(self.clock.now(), true);
        self.incidents.take()
    }

    /// Allocates the recorder: the last thing before issuing that takes memory.
    fn ready(
        &self,
        phase: Phase,
        effective: &EffectiveSettings,
        queries: Queries,
        keep: Keep,
    ) -> Ready {
        let first_id = match queries {
            Queries::Planned(_) => self.next_id,
            Queries::WarmUp { .. } => FIRST_WARMUP_ID,
        };
        let plan = RecorderPlan {
            first_id,
            n_queries: queries.len(),
            samples_per_query: queries.samples_per_query(),
            token_mode: self.options.record_tokens || effective.requested.use_token_latencies,
            keep,
            start: self.clock.now(),
        };
        let (incidents, bell) = (Arc::clone(&self.incidents), Arc::clone(&self.bell));
        let recorder = Arc::new(Recorder::new(plan, incidents, bell));
        Ready {
            phase,
            effective: effective.clone(),
            queries,
            responder: Responder::new(Arc::clone(&recorder), self.clock.source()),
            recorder,
        }
    }

    fn issuer<'a>(&'a self, ready: &'a Ready) -> Issuer<'a> {
        Issuer {
            scenario: ready.effective.scenario,
            queries: &ready.queries,
            coalesce: ready.effective.requested.server_coalesce_queries,
            rules: self.rules(ready.phase, &ready.effective),
            wait: self.options.wait,
            recorder: &ready.recorder,
            responder: &ready.responder,
            sut: self.sut,
            clock: self.clock,
            time: self.clock.source(),
            cancel: &self.options.cancel,
        }
    }

    fn announce(&self, name: &'static str, ready: &Ready) {
        let counters = Arc::clone(ready.recorder.counters());
        let planned = ready.recorder.slots() as u64;
        self.options
            .progress
            .begin(name, planned, self.clock.now(), counters);
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

    fn rules(&self, phase: Phase, effective: &EffectiveSettings) -> StopRules {
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

    /// Ends what is still open and copies the recorder into plain data.
    fn read(&self, ready: &Ready, issued: Issued) -> PhaseOutcome {
        let Issued { start, ends } = issued;
        let (effective, recorder) = (&ready.effective, &ready.recorder);
        let lost_only = |end: &EndReason| !end.abandons_answers() || *end == EndReason::Lost;
        let open = recorder.close(self.clock.now(), !ends.iter().all(lost_only));
        let columns = columns(ready, start);
        let token_mode = effective.requested.use_token_latencies;
        let lost = open.iter().map(|slot| LostSample {
            id: recorder.id(*slot),
            seq: recorder.id(*slot).0.get() - 1,
            index: columns.index[*slot],
            query: slot / columns.samples_per_query,
        });
        let lost = lost.collect();
        let mut kept = recorder.take_kept();
        for answer in &mut kept {
            answer.index = columns.index[answer.slot];
        }
        let columns = columns.without_unissued();
        PhaseOutcome {
            phase: ready.phase,
            effective: effective.clone(),
            loaded: Vec::new(),
            planned_queries: ready.queries.len() as u64,
            first_sample_seq: 0,
            first_query_seq: 0,
            start,
            ends,
            performance: columns.performance(token_mode, effective.scenario),
            judged: None,
            incidents: self.incidents.take(),
            token_faults: columns.token_faults(token_mode, effective.scenario),
            lost,
            columns,
            kept,
            spans: vec![PhaseSpan {
                name: "SampleLoop",
                start,
                lasted: self.clock.now() - start,
            }],
        }
    }

    /// Figures and verdict of a performance phase; failures count only beyond what is allowed.
    fn judge(&self, phase: &PhaseOutcome) -> Judged {
        let metrics = Metrics::compute(&phase.performance, &phase.effective);
        let n_samples = phase.columns.status.len() as f64;
        let n_failed = phase.incidents.failed();
        let allowed = n_failed as f64 <= self.options.max_failed_fraction * n_samples;
        let lost_lines = u64::from(!phase.lost.is_empty());
        let judged_elsewhere = errors::failure_lines(phase) + lost_lines;
        let counts = OutcomeCounts {
            n_errors: self.log.detail.n_errors().saturating_sub(judged_elsewhere),
            n_failed: if allowed { 0 } else { n_failed },
            n_lost: phase.lost.len() as u64,
        };
        let mut verdict = Verdict::judge(&metrics, &phase.performance, &phase.effective, counts);
        if !phase.lost.is_empty() {
            // The reference would still be waiting. Its log must not call such a run VALID.
            verdict.official_validity = Validity::Invalid;
            verdict.conditions.min_queries = false;
            if !verdict
                .recommendations
                .contains(&Recommendation::ExitedEarly)
            {
                verdict.recommendations.push(Recommendation::ExitedEarly);
            }
        }
        Judged { metrics, verdict }
    }
}

fn columns(ready: &Ready, start: Nanos) -> Columns {
    let (queries, recorder) = (&ready.queries, &ready.recorder);
    let n_queries = recorder.issued_queries();
    let per_query = queries.samples_per_query();
    let mut index = Vec::with_capacity(n_queries * per_query);
    for query in 0..n_queries {
        queries.for_each_sample(query, |sample| index.push(sample));
    }
    let recorded = recorder.read(n_queries, start);
    let due_ns = match ready.effective.scenario {
        // Due when issued: the reference charges the wait for the previous answer to nobody.
        Scenario::SingleStream | Scenario::MultiStream => recorded.issued_ns.clone(),
        Scenario::Server => (0..n_queries).map(|query| queries.due(query).0).collect(),
        Scenario::Offline => vec![0; n_queries],
    };
    Columns::new(recorded, due_ns, index, per_query)
}

fn name(phase: Phase) -> &'static str {
    match phase {
        Phase::Accuracy => "accuracy",
        Phase::Performance => "performance",
    }
}
