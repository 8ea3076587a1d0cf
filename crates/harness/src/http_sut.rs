//! The endpoint as the load generator's system under test: one thread, one loop over all
//! connections.
//!
//! The issuing thread only appends to a bounded queue and rings; the client's thread writes the
//! ready-made request and stamps what comes back. A plain readiness loop (epoll) and not an async
//! runtime: there is no task to spawn per request and nothing between a socket becoming readable
//! and the clock being read.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use prony_loadgen::clock::TimeSource;
use prony_loadgen::sample::QuerySample;
use prony_loadgen::sut::{FailureKind, Responder, SystemUnderTest};

pub use crate::client_loop::ClientOptions;
use crate::client_loop::{Client, Job, Shared, lock};
use crate::conn::AnswerForm;
use crate::library::Requests;
use crate::stream_stats::StreamStats;

/// Samples that may wait between the issuing thread and the client; past it they fail at once.
/// Far above what a run holds (24 bytes each); it only keeps a runaway schedule from filling
/// the memory.
const QUEUE_BOUND: usize = 1 << 24;

/// The endpoint, with its client's thread.
#[derive(Debug)]
pub struct HttpSut {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<StreamStats>>,
}

impl HttpSut {
    /// Connects ahead of the run and starts the client's thread.
    ///
    /// # Errors
    /// If the endpoint cannot be connected to, or the machine gives no thread or poll handle.
    pub fn start(
        options: &ClientOptions,
        form: AnswerForm,
        requests: Requests,
        time: TimeSource,
    ) -> io::Result<Self> {
        let client = Client::connect(options, form, requests, time)?;
        let shared = client.shared();
        let thread = std::thread::Builder::new()
            .name("prony-client".to_owned())
            .spawn(move || client.run())?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Stops the client's thread; what was in flight fails as canceled.
    ///
    /// # Panics
    /// If the client's thread panicked: a bug, and its figures cannot be trusted.
    #[must_use]
    pub fn finish(mut self) -> StreamStats {
        self.stop();
        let thread = self.thread.take().expect("taken only here and in drop");
        thread.join().expect("the client's thread does not panic")
    }

    fn stop(&self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        let _ = self.shared.waker.wake();
    }
}

impl Drop for HttpSut {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.stop();
            let _ = thread.join();
        }
    }
}

impl SystemUnderTest for HttpSut {
    fn name(&self) -> &str {
        &self.shared.name
    }

    fn issue(&self, samples: &[QuerySample], responder: &Responder) {
        let phase = self.shared.phase.load(Ordering::Relaxed);
        let mut queue = lock(&self.shared.queue);
        let room = QUEUE_BOUND.saturating_sub(queue.len()).min(samples.len());
        let (taken, refused) = samples.split_at(room);
        queue.extend(taken.iter().map(|sample| Job {
            id: sample.id,
            index: sample.index,
            phase,
            responder: responder.clone(),
        }));
        drop(queue);
        for sample in refused {
            let text = "the client's queue is full";
            responder.fail(sample.id, responder.now(), FailureKind::Canceled, text);
        }
        if self.shared.asleep.swap(false, Ordering::SeqCst) {
            let _ = self.shared.waker.wake();
        }
    }

    fn flush(&self) {
        // Relaxed: the number travels with each job, through the queue's lock.
        self.shared.phase.fetch_add(1, Ordering::Relaxed);
    }
}
