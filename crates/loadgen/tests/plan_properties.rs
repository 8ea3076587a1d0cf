//! Properties of plans and configuration parsers that hold for any settings, seeds and text.

use prony_loadgen::conf::apply::{Target, apply};
use prony_loadgen::conf::keys::ConfKind;
use prony_loadgen::conf::{parse, strict};
use prony_loadgen::plan::RunPlan;
use prony_loadgen::rng::StdlibFlavour;
use prony_loadgen::scenario::{Mode, Phase, Scenario};
use prony_loadgen::schedule::{AccuracyLogSampling, PhasePlan, ThreadShare, loadable_sets};
use prony_loadgen::settings::quota::Quota;
use prony_loadgen::settings::{EffectiveSettings, TestSettings, validate};
use proptest::prelude::*;

/// A run small enough to plan hundreds of times.
#[derive(Debug, Clone)]
struct Case {
    settings: TestSettings,
    qsl_total: u64,
    qsl_perf: u64,
    flavour: StdlibFlavour,
}

fn scenario() -> impl Strategy<Value = Scenario> {
    prop::sample::select(Scenario::ALL.to_vec())
}

prop_compose! {
    fn counts()(
        min_query_count in 1_u64..200,
        min_duration_ms in 0_u64..300,
        samples_per_query in 1_u64..12,
        perf_override in prop::sample::select(vec![0_u64, 0, 3, 40]),
        concat in any::<bool>(),
        unique in any::<bool>(),
    ) -> TestSettings {
        TestSettings {
            min_query_count,
            min_duration_ms,
            multi_stream_samples_per_query: samples_per_query,
            performance_sample_count_override: perf_override,
            sample_concatenate_permutation: concat,
            performance_issue_unique: unique,
            ..TestSettings::default()
        }
    }
}

prop_compose! {
    fn case()(
        scenario in scenario(),
        counts in counts(),
        rate in 1.0_f64..2_000.0,
        seeds in any::<[u64; 3]>(),
        qsl_total in 1_u64..80,
        share in 1_u64..=4,
        old in any::<bool>(),
    ) -> Case {
        let settings = TestSettings {
            scenario,
            server_target_qps: rate,
            offline_expected_qps: rate,
            single_stream_expected_latency_ns: 1e9 / rate,
            multi_stream_expected_latency_ns: 1e9 / rate,
            qsl_rng_seed: seeds[0],
            sample_index_rng_seed: seeds[1],
            schedule_rng_seed: seeds[2],
            ..counts
        };
        let refused = scenario == Scenario::MultiStream && settings.performance_issue_unique;
        let settings = TestSettings {
            sample_concatenate_permutation: settings.sample_concatenate_permutation && !refused,
            ..settings
        };
        let flavour = if old { StdlibFlavour::Gcc10 } else { StdlibFlavour::Gcc11 };
        Case { settings, qsl_total, qsl_perf: qsl_total.div_ceil(share), flavour }
    }
}

impl Case {
    fn effective(&self) -> EffectiveSettings {
        validate(&self.settings, self.qsl_total, self.qsl_perf).expect("a sound case");
        EffectiveSettings::derive(&self.settings, self.qsl_total, self.qsl_perf).0
    }

    fn performance(&self) -> (Vec<u32>, PhasePlan) {
        let eff = self.effective();
        let sets = loadable_sets(&eff, Phase::Performance, self.qsl_total, self.flavour);
        let plan = PhasePlan::generate(&eff, Phase::Performance, &sets[0], self.flavour);
        (sets[0].iter().map(|s| s.0).collect(), plan)
    }
}

fn listing(plan: &PhasePlan) -> Vec<(i64, Vec<u32>)> {
    (0..plan.n_queries())
        .map(|q| (plan.due(q).0, plan.samples(q).map(|s| s.0).collect()))
        .collect()
}

/// 8 bytes of due time and 4 of sample, and hardly any spare room.
#[test]
fn a_server_query_weighs_12_bytes() {
    let settings = TestSettings {
        scenario: Scenario::Server,
        server_target_qps: 100_000.0,
        min_duration_ms: 5_000,
        ..TestSettings::default()
    };
    let case = Case {
        settings,
        qsl_total: 64,
        qsl_perf: 64,
        flavour: StdlibFlavour::Gcc11,
    };
    let (_, plan) = case.performance();
    let bytes = plan.heap_bytes() as f64 / plan.n_queries() as f64;
    assert!((12.0..12.5).contains(&bytes), "{bytes} bytes a query");
}

const MODES: [Mode; 3] = [
    Mode::AccuracyOnly,
    Mode::SubmissionRun,
    Mode::PerformanceOnly,
];

prop_compose! {
    /// Settings no person would write, on a data set they were not written for.
    fn wild_case()(
        case in case(),
        mode in prop::sample::select(MODES.to_vec()),
        [perf_override, acc_override, index, min_query_count] in prop::array::uniform4(0_u64..50),
        same in any::<bool>(),
        qsl_perf in 0_u64..60,
    ) -> Case {
        let settings = TestSettings {
            mode,
            min_query_count,
            performance_sample_count_override: perf_override,
            accuracy_sample_count_override: acc_override,
            performance_issue_same: same,
            performance_issue_unique: case.settings.performance_issue_unique && !same,
            performance_issue_same_index: index,
            ..case.settings
        };
        Case { settings, qsl_perf, ..case }
    }
}

proptest! {
    /// What is not refused can be planned, every set of it, and issued to the last sample.
    #[test]
    fn what_is_accepted_can_be_planned(case in wild_case()) {
        let (total, perf) = (case.qsl_total, case.qsl_perf);
        let Ok(plan) = RunPlan::new(&case.settings, total, perf, case.flavour) else {
            return Ok(());
        };
        for set in plan.sets() {
            let queries = plan.queries(&set);
            for (_, samples) in listing(&queries) {
                prop_assert_eq!(samples.len(), queries.samples_per_query());
            }
        }
    }

    /// Due times start at 0 and never fall; every query has its number of samples, all loaded.
    #[test]
    fn plans_are_in_order_and_full(case in case()) {
        let (set, plan) = case.performance();
        let queries = listing(&plan);
        prop_assert!(queries.first().is_none_or(|(due, _)| *due == 0));
        prop_assert!(queries.windows(2).all(|pair| pair[0].0 <= pair[1].0));
        prop_assert!(queries.last().is_none_or(|(due, _)| *due <= plan.generated_duration().0));
        for (_, samples) in &queries {
            prop_assert_eq!(samples.len(), plan.samples_per_query());
            prop_assert!(samples.iter().all(|s| set.contains(s)));
        }
    }

    /// As many queries as count and time ask for, and not one step more.
    #[test]
    fn counts_meet_the_quota(case in case()) {
        let (set, plan) = case.performance();
        let eff = case.effective();
        let quota = Quota::of(&eff, Phase::Performance, set.len() as u64);
        let n = plan.n_queries() as u64;
        prop_assert!(n >= quota.min_queries);
        let last_due = |n: u64| if n == 0 { i64::MIN } else { plan.due(n as usize - 1).0 };
        if quota.duration_ns > 0 {
            prop_assert!(last_due(n) >= quota.duration_ns);
        }
        if n > quota.min_queries {
            prop_assert!(last_due(n - quota.step) < quota.duration_ns, "a step too many");
            prop_assert_eq!((n - quota.min_queries) % quota.step, 0);
        }
    }

    /// Only the low 32 bits of a seed act.
    #[test]
    fn seeds_equal_mod_2_32_give_the_same_plan(case in case(), high in any::<u32>()) {
        let mut moved = case.clone();
        let s = &mut moved.settings;
        for seed in [&mut s.qsl_rng_seed, &mut s.sample_index_rng_seed, &mut s.schedule_rng_seed] {
            *seed = seed.wrapping_add(u64::from(high) << 32);
        }
        let ((set_a, a), (set_b, b)) = (case.performance(), moved.performance());
        prop_assert_eq!(set_a, set_b);
        prop_assert_eq!(listing(&a), listing(&b));
    }

    /// An accuracy phase asks for every sample, and only MultiStream for some of them again.
    #[test]
    fn accuracy_asks_for_every_sample(case in case()) {
        let mut case = case;
        case.settings.performance_issue_unique = false;
        let eff = case.effective();
        let mut asked: Vec<u32> = Vec::new();
        for set in loadable_sets(&eff, Phase::Accuracy, case.qsl_total, case.flavour) {
            let plan = PhasePlan::generate(&eff, Phase::Accuracy, &set, case.flavour);
            asked.extend(listing(&plan).into_iter().flat_map(|(_, samples)| samples));
        }
        asked.sort_unstable();
        let n_asked = asked.len();
        asked.dedup();
        let all: Vec<u32> = (0..case.qsl_total as u32).collect();
        prop_assert_eq!(&asked, &all);
        prop_assert!(eff.scenario == Scenario::MultiStream || n_asked == all.len());
    }

    /// Equal issue: every sample as often as every other.
    #[test]
    fn equal_issue_is_equal(case in case()) {
        let mut case = case;
        case.settings.sample_concatenate_permutation = true;
        case.settings.performance_issue_unique = false;
        prop_assume!(case.settings.scenario != Scenario::MultiStream);
        let (set, plan) = case.performance();
        let mut times = vec![0_usize; case.qsl_total as usize];
        for (_, samples) in listing(&plan) {
            samples.iter().for_each(|s| times[*s as usize] += 1);
        }
        let first = times[set[0] as usize];
        prop_assert!(set.iter().all(|s| times[*s as usize] == first));
    }

    /// Threads share the queries: each has one owner, and shares of a count add up.
    #[test]
    fn threads_share_everything(n_threads in 1_usize..9, n in 0_usize..500) {
        let shares: Vec<ThreadShare> =
            (0..n_threads).map(|thread| ThreadShare { thread, n_threads }).collect();
        let mut owned: Vec<usize> = shares.iter().flat_map(|s| s.queries(n)).collect();
        owned.sort_unstable();
        prop_assert_eq!(owned, (0..n).collect::<Vec<_>>());
        let total: u64 = shares.iter().map(|s| s.of_count(n as u64)).sum();
        prop_assert_eq!(total, n as u64);
        for share in shares {
            prop_assert_eq!(share.queries(n).count() as u64, share.of_count(n as u64));
        }
    }

    /// Whether a sample is logged depends on its number alone, not on which were asked for before.
    #[test]
    fn log_sampling_depends_on_the_number(skips in prop::collection::vec(0_u64..50, 1..40)) {
        let settings =
            TestSettings { accuracy_log_probability: 0.3, ..TestSettings::default() };
        let (eff, _) = EffectiveSettings::derive(&settings, 10, 10);
        let mut every = AccuracyLogSampling::new(&eff);
        let logged: Vec<bool> = (0..2_100).map(|seq| every.is_logged(seq)).collect();
        let mut some = AccuracyLogSampling::new(&eff);
        let mut seq = 0;
        for skip in skips {
            seq += skip;
            prop_assert_eq!(some.is_logged(seq), logged[seq as usize], "sample {}", seq);
            seq += 1;
        }
    }

    /// Any text goes through the reference's parser, and what it yields through the settings.
    #[test]
    fn reference_parser_never_panics(text in conf_text()) {
        if let Ok(entries) = parse::parse(&text) {
            for kind in [ConfKind::Mlperf, ConfKind::User, ConfKind::Audit] {
                let target = Target { model: "m", scenario: Scenario::Server };
                apply(&mut TestSettings::default(), &entries, kind, target);
            }
        }
    }

    /// What the strict parser accepts, the reference's parser reads the same way.
    #[test]
    fn strict_is_a_part_of_the_reference(text in conf_text()) {
        if let Ok(entries) = strict::parse(&text, ConfKind::User, "m") {
            prop_assert_eq!(parse::parse(&text), Ok(entries));
        }
    }
}

/// Texts near to configuration files: words of theirs in any order, and noise.
fn conf_text() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        6 => prop::sample::select(vec![
            "*.*.min_query_count", "m.Server.target_qps", "*.Server.ttft_latency", "*.*.mode",
            "*.*.use_token_latencies", "*.*.qsl_rng_seed", "*.*.min_duration=5", "#", "#x",
        ]).prop_map(str::to_owned),
        6 => Just("=".to_owned()),
        6 => prop::sample::select(vec![
            "1", "0", "-1", "0x1f", "010", "7.9", "1e3", "nan", "inf", "0x", "0x1p-4", "1e999",
        ]).prop_map(str::to_owned),
        1 => "\\PC{0,8}",
    ];
    let space = prop::sample::select(vec![" ", " ", " ", "\t", "\n", "\n", "\r\n", "", "\u{a0}"]);
    let pairs = prop::collection::vec((word, space), 0..40);
    pairs.prop_map(|pairs| {
        pairs
            .into_iter()
            .flat_map(|(word, space)| [word, space.to_owned()])
            .collect()
    })
}
