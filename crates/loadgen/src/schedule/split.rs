//! How Server queries are dealt out to several issuing threads.

/// One thread's part in issuing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadShare {
    /// The thread, by order of registration.
    pub thread: usize,
    /// Number of threads.
    pub n_threads: usize,
}

impl ThreadShare {
    /// The share of a run that has no other thread.
    pub const WHOLE: Self = Self {
        thread: 0,
        n_threads: 1,
    };

    /// The queries this thread issues, of `n_queries`: every `n_threads`-th.
    pub fn queries(self, n_queries: usize) -> impl Iterator<Item = usize> {
        (self.thread..n_queries).step_by(self.n_threads.max(1))
    }

    /// This thread's part of a count such as `max_query_count`; the first threads take the rest.
    ///
    /// Example: 20 over 3 threads: 7, 7 and 6.
    #[must_use]
    pub fn of_count(self, count: u64) -> u64 {
        let n_threads = self.n_threads.max(1) as u64;
        count / n_threads + u64::from((self.thread as u64) < count % n_threads)
    }
}
