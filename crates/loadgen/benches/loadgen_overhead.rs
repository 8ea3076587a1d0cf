//! What the load generator itself costs, with a SUT that does nothing: a Markdown table.
//!
//! `cargo bench -p prony-loadgen --bench loadgen_overhead` prints rates, issue lag, memory a query,
//! allocations on the timed path and the cost of idling; names after `--` (throughput, lag,
//! planning, idle) choose sections. Best and median of several runs, because the machine may be
//! shared; the load average is printed with them. Compare with the reference's figures, taken
//! with the same shape of driver: 726 k queries/s SingleStream, 0.45–0.65 M/s Server without
//! coalescing, 5.1 M samples/s Offline, p50 issue lag 55 µs, 317 bytes a planned query.

#![expect(clippy::print_stdout, reason = "a bench prints its table")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use prony_loadgen::clock::{Clock, MonotonicClock, Nanos, WaitPolicy};
use prony_loadgen::outcome::PhaseOutcome;
use prony_loadgen::rng::StdlibFlavour;
use prony_loadgen::sample::{QuerySample, QuerySampleLibrary, SampleIndex};
use prony_loadgen::scenario::{Phase, Scenario};
use prony_loadgen::schedule::{PhasePlan, loadable_sets};
use prony_loadgen::settings::{EffectiveSettings, TestSettings};
use prony_loadgen::sut::{Responder, SystemUnderTest};
use prony_loadgen::{RunOptions, run};

/// Counts allocations of the whole process.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call is passed on unchanged to the system allocator.
#[allow(unsafe_code, reason = "an allocator that counts has to be one")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Answers inside `issue`, with one time stamp a call.
struct NullSut {
    /// Of the run, so that the end of issuing can be stamped.
    clock: MonotonicClock,
    first_issue_ns: AtomicU64,
    flush_ns: AtomicU64,
    allocations_at_first: AtomicU64,
    allocations_at_flush: AtomicU64,
    cpu_at_first_ns: AtomicU64,
    cpu_at_flush_ns: AtomicU64,
}

impl NullSut {
    fn new(clock: MonotonicClock) -> Self {
        Self {
            clock,
            first_issue_ns: AtomicU64::new(0),
            flush_ns: AtomicU64::new(0),
            allocations_at_first: AtomicU64::new(0),
            allocations_at_flush: AtomicU64::new(0),
            cpu_at_first_ns: AtomicU64::new(0),
            cpu_at_flush_ns: AtomicU64::new(0),
        }
    }

    fn now_ns(&self) -> u64 {
        self.clock.now().0.unsigned_abs()
    }
}

impl SystemUnderTest for NullSut {
    fn name(&self) -> &str {
        "NullSut"
    }

    fn issue(&self, samples: &[QuerySample], responder: &Responder) {
        if self.allocations_at_first.load(Ordering::Relaxed) == 0 {
            let allocations = ALLOCATIONS.load(Ordering::Relaxed);
            self.allocations_at_first
                .store(allocations, Ordering::Relaxed);
            self.cpu_at_first_ns.store(cpu_ns(), Ordering::Relaxed);
            self.first_issue_ns.store(self.now_ns(), Ordering::Relaxed);
        }
        let now = responder.now();
        for sample in samples {
            responder.complete(sample.id, now, &[], 0);
        }
    }

    fn flush(&self) {
        self.flush_ns.store(self.now_ns(), Ordering::Relaxed);
        let allocations = ALLOCATIONS.load(Ordering::Relaxed);
        self.allocations_at_flush
            .store(allocations, Ordering::Relaxed);
        self.cpu_at_flush_ns.store(cpu_ns(), Ordering::Relaxed);
    }
}

struct Numbers;

/// As the reference's figures were taken.
const DATA_SET: usize = 1024;

impl QuerySampleLibrary for Numbers {
    fn name(&self) -> &str {
        "Numbers"
    }
    fn total_sample_count(&self) -> usize {
        DATA_SET
    }
    fn performance_sample_count(&self) -> usize {
        DATA_SET
    }
    fn load_samples(&mut self, _samples: &[SampleIndex]) {}
    fn unload_samples(&mut self, _samples: &[SampleIndex]) {}
}

/// One timed run and what it cost.
struct Measured {
    phase: PhaseOutcome,
    /// From the first issue to the flush: all issuing and all answers.
    lasted_ns: u64,
    allocations: u64,
    cpu_ns: u64,
}

fn measure(settings: &TestSettings, wait: WaitPolicy) -> Measured {
    let clock = MonotonicClock::start();
    let sut = NullSut::new(clock);
    let mut options = RunOptions::new(settings.clone());
    options.wait = wait;
    let mut outcome = run(&options, &mut Numbers, &sut, &clock).expect("settings are sound");
    let delta = |from: &AtomicU64, to: &AtomicU64| {
        to.load(Ordering::Relaxed) - from.load(Ordering::Relaxed)
    };
    Measured {
        phase: outcome.phases.swap_remove(0),
        lasted_ns: delta(&sut.first_issue_ns, &sut.flush_ns),
        allocations: delta(&sut.allocations_at_first, &sut.allocations_at_flush),
        cpu_ns: delta(&sut.cpu_at_first_ns, &sut.cpu_at_flush_ns),
    }
}

fn base(scenario: Scenario) -> TestSettings {
    TestSettings {
        scenario,
        min_duration_ms: 0,
        qsl_rng_seed: 1,
        sample_index_rng_seed: 2,
        schedule_rng_seed: 3,
        ..TestSettings::default()
    }
}

/// Best and median of `n` values, where more is better.
fn best_and_median(mut values: Vec<f64>) -> (f64, f64) {
    values.sort_by(|a, b| b.total_cmp(a));
    (values[0], values[values.len() / 2])
}

const REPEATS: usize = 5;

fn throughput(name: &str, target: &str, settings: &TestSettings) {
    let runs: Vec<Measured> = (0..REPEATS)
        .map(|_| measure(settings, WaitPolicy::default()))
        .collect();
    let rates = runs
        .iter()
        .map(|run| run.phase.columns.done_ns.len() as f64 * 1e9 / run.lasted_ns as f64);
    let (best, median) = best_and_median(rates.collect());
    let allocations = runs.iter().map(|run| run.allocations).max().unwrap_or(0);
    println!(
        "| {name} | {:.2} M/s | {:.2} M/s | {target} | {allocations} |",
        best / 1e6,
        median / 1e6
    );
}

fn throughputs() {
    println!(
        "| null SUT, inline | best of {REPEATS} | median | wanted | allocations while timed |"
    );
    println!("|---|---|---|---|---|");
    let single = TestSettings {
        min_query_count: 2_000_000,
        ..base(Scenario::SingleStream)
    };
    throughput("SingleStream queries", "≥ 2 M/s", &single);
    let multi = TestSettings {
        min_query_count: 250_000,
        ..base(Scenario::MultiStream)
    };
    throughput("MultiStream samples, 8 a query", "–", &multi);
    let server = TestSettings {
        server_target_qps: 20e6,
        min_query_count: 2_000_000,
        ..base(Scenario::Server)
    };
    throughput(
        "Server queries, overdue, no coalescing",
        "≥ 1.5 M/s",
        &server,
    );
    let kept = TestSettings {
        server_target_qps: 1.5e6,
        min_query_count: 1_500_000,
        ..base(Scenario::Server)
    };
    throughput("Server queries, 1.5 M/s asked", "≥ 1.5 M/s", &kept);
    let coalescing = TestSettings {
        server_coalesce_queries: true,
        ..server
    };
    throughput("Server queries, overdue, coalescing", "–", &coalescing);
    let offline = TestSettings {
        min_query_count: 4_000_000,
        ..base(Scenario::Offline)
    };
    throughput("Offline samples", "≥ 20 M/s", &offline);
}

/// Issue time − due time, over runs of two seconds.
fn issue_lag() {
    println!("\n| issue lag, Server | p50 best / median | p90 | p99 | max | wanted |");
    println!("|---|---|---|---|---|---|");
    for (qps, wait, name) in [
        (1e3, WaitPolicy::default(), "1 k/s"),
        (1e4, WaitPolicy::default(), "10 k/s"),
        (1e5, WaitPolicy::default(), "100 k/s"),
        (1e3, WaitPolicy::SLEEP_ONLY, "1 k/s, never spinning"),
        (1e4, WaitPolicy::SLEEP_ONLY, "10 k/s, never spinning"),
    ] {
        let settings = TestSettings {
            server_target_qps: qps,
            min_duration_ms: 2000,
            ..base(Scenario::Server)
        };
        let runs: Vec<[f64; 4]> = (0..REPEATS)
            .map(|_| lag_us(&measure(&settings, wait).phase))
            .collect();
        let cells: Vec<String> = (0..4)
            .map(|cell| {
                // Less is better here.
                let (best, median) = best_and_median(runs.iter().map(|run| -run[cell]).collect());
                format!("{:.2} / {:.2} µs", -best, -median)
            })
            .collect();
        println!("| {name} | {} | p50 ≤ 1, p99 ≤ 20 µs |", cells.join(" | "));
    }
}

/// p50, p90, p99 and maximum, in µs.
fn lag_us(phase: &PhaseOutcome) -> [f64; 4] {
    let columns = &phase.columns;
    let pairs = columns.issued_ns.iter().zip(&columns.due_ns);
    let mut lag_ns: Vec<i64> = pairs.map(|(issued, due)| issued - due).collect();
    lag_ns.sort_unstable();
    let at = |fraction: f64| {
        let index = (lag_ns.len() as f64 * fraction) as usize;
        lag_ns[index.min(lag_ns.len() - 1)] as f64 / 1e3
    };
    [at(0.5), at(0.9), at(0.99), at(1.0)]
}

fn planning() {
    let settings = TestSettings {
        server_target_qps: 1e5,
        min_duration_ms: 100_000,
        ..base(Scenario::Server)
    };
    let size = DATA_SET as u64;
    let (effective, _) = EffectiveSettings::derive(&settings, size, size);
    let flavour = StdlibFlavour::default();
    let sets = loadable_sets(&effective, Phase::Performance, size, flavour);
    let clock = MonotonicClock::start();
    let mut rates = Vec::new();
    let mut bytes = 0.0;
    for _ in 0..REPEATS {
        let start = clock.now();
        let plan = PhasePlan::generate(&effective, Phase::Performance, &sets[0], flavour);
        let took = (clock.now() - start).as_secs_f64();
        rates.push(plan.n_queries() as f64 / took);
        bytes = plan.heap_bytes() as f64 / plan.n_queries() as f64;
    }
    let (best, median) = best_and_median(rates);
    println!("\n| planning a Server run, 10 M queries | best / median | wanted |");
    println!("|---|---|---|");
    println!(
        "| queries planned | {:.1} / {:.1} M/s | ≥ 20 M/s |",
        best / 1e6,
        median / 1e6
    );
    println!("| memory | {bytes:.1} bytes a query | ≤ 24 |");
}

fn idling() {
    let settings = TestSettings {
        server_target_qps: 1.0,
        min_query_count: 5,
        ..base(Scenario::Server)
    };
    println!("\n| idle, 1 query/s | share of a core | wanted |");
    println!("|---|---|---|");
    for (name, wait) in [
        ("spinning over the last stretch", WaitPolicy::default()),
        ("never spinning", WaitPolicy::SLEEP_ONLY),
    ] {
        let run = measure(&settings, wait);
        let share = 100.0 * run.cpu_ns as f64 / run.lasted_ns as f64;
        println!("| {name} | {share:.3} % | < 1 % |");
    }
}

/// User and system time of the process so far.
fn cpu_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid timespec that the call only writes.
    #[allow(unsafe_code, reason = "std does not tell CPU time")]
    let code = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    assert_eq!(code, 0, "the process has a CPU clock");
    Nanos(time.tv_sec * 1_000_000_000 + time.tv_nsec)
        .0
        .unsigned_abs()
}

fn main() {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    println!("Cores: {cores}. Load average before: {}\n", load.trim());
    let sections: [(&str, fn()); 4] = [
        ("throughput", throughputs),
        ("lag", issue_lag),
        ("planning", planning),
        ("idle", idling),
    ];
    // `cargo bench` adds `--bench`; names of sections choose some, none chooses all.
    let chosen: Vec<String> = std::env::args().skip(1).collect();
    let named = |name: &str| chosen.iter().any(|arg| arg == name);
    let any_named = sections.iter().any(|(name, _)| named(name));
    for (name, section) in sections {
        if named(name) || !any_named {
            section();
        }
    }
}
