//! How fast plans are made and what they weigh: queries per second and bytes per query, one core.
//!
//! `cargo bench -p prony-loadgen --bench plan_generation`; each line is the best of three.
#![expect(clippy::print_stdout, reason = "a bench reports on stdout")]

use prony_loadgen::clock::{Clock, MonotonicClock};
use prony_loadgen::rng::StdlibFlavour;
use prony_loadgen::sample::SampleIndex;
use prony_loadgen::scenario::{Phase, Scenario};
use prony_loadgen::schedule::PhasePlan;
use prony_loadgen::settings::{EffectiveSettings, TestSettings};

const QSL: u64 = 24_576;
const REPEATS: u32 = 3;

/// A case: what it is called and how it departs from the defaults.
struct Case {
    name: &'static str,
    settings: TestSettings,
}

fn cases() -> Vec<Case> {
    let base = |scenario| TestSettings {
        scenario,
        min_duration_ms: 100_000,
        server_target_qps: 100_000.0,
        offline_expected_qps: 100_000.0,
        single_stream_expected_latency_ns: 20_000.0,
        ..TestSettings::default()
    };
    let equal_issue = |scenario| TestSettings {
        sample_concatenate_permutation: true,
        ..base(scenario)
    };
    let ten_minutes = TestSettings {
        min_duration_ms: 600_000,
        ..base(Scenario::Server)
    };
    vec![
        Case {
            name: "Server, 10 M queries",
            settings: base(Scenario::Server),
        },
        Case {
            name: "Server, 10 M, equal issue",
            settings: equal_issue(Scenario::Server),
        },
        Case {
            name: "Server, 10 min at 100 k/s",
            settings: ten_minutes,
        },
        Case {
            name: "SingleStream, 10 M queries",
            settings: base(Scenario::SingleStream),
        },
        Case {
            name: "Offline, 11 M samples",
            settings: base(Scenario::Offline),
        },
        Case {
            name: "Offline, 11 M, equal issue",
            settings: equal_issue(Scenario::Offline),
        },
    ]
}

fn main() {
    let clock = MonotonicClock::start();
    let set: Vec<SampleIndex> = (0..QSL as u32).map(SampleIndex).collect();
    println!(
        "{:<28} {:>11} {:>12} {:>14}",
        "plan", "samples", "M samples/s", "bytes/sample"
    );
    for case in cases() {
        let (eff, _) = EffectiveSettings::derive(&case.settings, QSL, QSL);
        let (mut best, mut n_samples, mut heap_bytes) = (f64::INFINITY, 0, 0);
        for _ in 0..REPEATS {
            let begin = clock.now();
            let plan = PhasePlan::generate(&eff, Phase::Performance, &set, StdlibFlavour::Gcc11);
            best = best.min((clock.now() - begin).as_secs_f64());
            n_samples = plan.n_samples();
            heap_bytes = plan.heap_bytes();
        }
        let rate = n_samples as f64 / best / 1e6;
        let weight = heap_bytes as f64 / n_samples as f64;
        println!(
            "{:<28} {n_samples:>11} {rate:>12.1} {weight:>14.2}",
            case.name
        );
    }
    println!("peak resident memory: {}", peak_memory());
}

/// `VmHWM` of this process, where the system tells.
fn peak_memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.map_or_else(|| "unknown".to_owned(), |kib| kib.trim().to_owned())
}
