//! Nothing is allocated between the first query and the last answer.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use prony_loadgen::clock::MonotonicClock;
use prony_loadgen::sample::{QuerySample, QuerySampleLibrary, SampleIndex};
use prony_loadgen::scenario::Scenario;
use prony_loadgen::settings::TestSettings;
use prony_loadgen::sut::{Responder, SystemUnderTest};
use prony_loadgen::{RunOptions, run};

struct Counting;

thread_local! {
    /// Of this thread only: the test runner's own thread allocates when it starts to wait, which
    /// once in a hundred times fell into a run. Issuing and answering are on one thread here.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call is passed on unchanged to the system allocator.
#[allow(unsafe_code, reason = "an allocator that counts has to be one")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Answers at once and notes the allocations at the first query and at the flush.
#[derive(Default)]
struct Inline {
    first: AtomicU64,
    flushed: AtomicU64,
}

impl SystemUnderTest for Inline {
    fn name(&self) -> &str {
        "Inline"
    }
    fn issue(&self, samples: &[QuerySample], responder: &Responder) {
        if self.first.load(Ordering::Relaxed) == 0 {
            self.first.store(ALLOCATIONS.get(), Ordering::Relaxed);
        }
        let now = responder.now();
        for sample in samples {
            responder.sent(sample.id, now);
            responder.first_token(sample.id, now, b"a");
            responder.complete(sample.id, now, b"abc", 3);
        }
    }
    fn flush(&self) {
        self.flushed.store(ALLOCATIONS.get(), Ordering::Relaxed);
    }
}

struct Numbers;

impl QuerySampleLibrary for Numbers {
    fn name(&self) -> &str {
        "Numbers"
    }
    fn total_sample_count(&self) -> usize {
        64
    }
    fn performance_sample_count(&self) -> usize {
        64
    }
    fn load_samples(&mut self, _samples: &[SampleIndex]) {}
    fn unload_samples(&mut self, _samples: &[SampleIndex]) {}
}

#[test]
fn the_timed_path_allocates_nothing() {
    for scenario in Scenario::ALL {
        for token_mode in [false, true] {
            let sut = Inline::default();
            let options = RunOptions::new(TestSettings {
                scenario,
                min_duration_ms: 0,
                min_query_count: 5_000,
                server_target_qps: 1e6,
                server_coalesce_queries: token_mode,
                use_token_latencies: token_mode,
                ..TestSettings::default()
            });
            run(&options, &mut Numbers, &sut, &MonotonicClock::start()).expect("sound settings");
            let first = sut.first.load(Ordering::Relaxed);
            let flushed = sut.flushed.load(Ordering::Relaxed);
            assert_eq!(flushed - first, 0, "{scenario}, token mode {token_mode}");
        }
    }
}
