//! MLPerf LoadGen semantics without network, async runtime or model.
//!
//! **The pipeline.** [`settings`] (perhaps read by [`conf`]) become effective settings; from them
//! and the seeds [`schedule`] plans which samples each query asks for and when it is due. [`run()`]
//! loads the samples, warms up, and has [`issue`] hand each query to the [`sut`] at its time. What
//! comes back through the [`Responder`](sut::Responder) lands in the [`recorder`]'s preallocated
//! slots. When the phase is over, the records become [`metrics`], the metrics a [`verdict`], and
//! [`report`] writes the four `mlperf_log_*` files. Everything that happened is in the
//! [`Outcome`]. The same with [`testing`]'s clock and SUT takes milliseconds and the same bytes.
//!
//! **Times.** Latency starts when a query is *due*. In SingleStream and MultiStream that is when it
//! is issued, in Server its scheduled time, in Offline the start.
//!
//! **Failures.** A failed sample counts as answered at the time of its failure and is an error line
//! in the official log; beyond [`RunOptions::max_failed_fraction`] our own verdict is INVALID. A
//! sample that is not answered within [`RunOptions::lost_sample_timeout`] ends the run, is named
//! in the report, counts with the time waited, and makes the run INVALID.
//!
//! # Example
//! A SUT that answers from its own thread, and a data set of numbers:
//! ```
//! use std::sync::mpsc::{SyncSender, sync_channel};
//!
//! use prony_loadgen::clock::MonotonicClock;
//! use prony_loadgen::sample::{QuerySample, QuerySampleLibrary, SampleIndex};
//! use prony_loadgen::settings::TestSettings;
//! use prony_loadgen::sut::{Responder, SystemUnderTest};
//! use prony_loadgen::{RunOptions, run};
//!
//! struct Squares(Vec<u64>);
//!
//! impl QuerySampleLibrary for Squares {
//!     fn name(&self) -> &str { "squares" }
//!     fn total_sample_count(&self) -> usize { 100 }
//!     fn performance_sample_count(&self) -> usize { 100 }
//!     fn load_samples(&mut self, samples: &[SampleIndex]) {
//!         self.0 = samples.iter().map(|s| u64::from(s.0).pow(2)).collect();
//!     }
//!     fn unload_samples(&mut self, _samples: &[SampleIndex]) { self.0.clear(); }
//! }
//!
//! struct Threaded(SyncSender<(QuerySample, Responder)>);
//!
//! impl SystemUnderTest for Threaded {
//!     fn name(&self) -> &str { "threaded" }
//!     fn issue(&self, samples: &[QuerySample], responder: &Responder) {
//!         for sample in samples {
//!             self.0.send((*sample, responder.clone())).expect("the worker outlives the run");
//!         }
//!     }
//!     fn flush(&self) {}
//! }
//!
//! let (jobs, inbox) = sync_channel::<(QuerySample, Responder)>(1024);
//! let worker = std::thread::spawn(move || for (sample, responder) in inbox {
//!     let answer = sample.index.0.to_le_bytes();
//!     responder.complete(sample.id, responder.now(), &answer, 0);
//! });
//! let settings = TestSettings { min_duration_ms: 10, ..TestSettings::default() };
//! let options = RunOptions::new(settings);
//! let sut = Threaded(jobs);
//! let outcome = run(&options, &mut Squares(Vec::new()), &sut, &MonotonicClock::start())?;
//! println!("{}", outcome.summary);
//! let result = outcome.result().expect("a performance run has a result");
//! assert!(result.performance.queries_issued >= 100 && result.lost.is_empty());
//! drop(sut); // closes the channel
//! worker.join().expect("the worker ends with the channel");
//! # Ok::<(), prony_loadgen::LoadgenError>(())
//! ```

pub mod clock;
pub mod error;
pub mod rng;
pub mod scenario;
pub mod settings;

pub mod conf;

pub mod sample;

pub mod schedule;

pub mod plan;

pub mod progress;

pub mod incident;

pub mod recorder;

pub mod sut;

pub mod stats;

pub mod early_stopping;

pub mod metrics;

mod headroom;

mod advice;

pub mod verdict;

pub mod report;

pub mod find_peak;

pub mod issue;

pub mod options;

pub mod outcome;

pub mod run;

pub mod testing;

pub use error::LoadgenError;
pub use options::RunOptions;
pub use outcome::Outcome;
pub use run::run;
