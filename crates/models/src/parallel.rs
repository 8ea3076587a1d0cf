//! A small team of threads that share out the pieces of one loop at a time.
//!
//! Built for decoding, where a step is some hundred loops of tens of microseconds. Pieces are
//! claimed, not assigned: when another process holds a core, the thread on that core claims
//! nothing and the others do its work, where an OpenMP barrier would wait for it (8 ms and more
//! were seen). Workers spin for a few microseconds between loops and then sleep, so an idle server
//! burns nothing. Which thread runs a piece never changes a result.

use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle, Thread};

/// Spins before a worker sleeps: about 20 us, longer than the gap between two loops of a step.
const SPINS: u32 = 1000;

/// A team: the calling thread and `threads - 1` workers.
pub struct Team {
    shared: Arc<Shared>,
    /// Held while a loop is open: one loop at a time.
    turn: Mutex<()>,
    workers: Vec<JoinHandle<()>>,
}

/// A loop body: called once for every piece index.
type Body<'a> = &'a (dyn Fn(usize) + Sync);

struct Shared {
    /// Upper half: number of the loop. Lower half: pieces nobody claimed yet.
    ///
    /// Both stand in one word so that a worker that wakes late cannot claim a piece of another
    /// loop than the one it saw.
    claims: AtomicU64,
    /// Pieces of the current loop that are done.
    done: AtomicU32,
    /// The current loop. Written only between loops.
    job: UnsafeCell<Job>,
    /// A piece panicked.
    panicked: AtomicBool,
    quit: AtomicBool,
}

#[derive(Clone, Copy)]
struct Job {
    /// The caller's body with its lifetime forgotten; valid while a claimed piece is not done.
    body: Option<Body<'static>>,
    pieces: u32,
    /// The thread in [`Team::run`], to be woken by the last piece.
    caller: *const Thread,
}

// SAFETY: `job` is the only part that is not Sync by itself. It is written by the caller while no
// piece is claimable or running (`claims` has no pieces, `done` equals the count of the loop
// before) and read only after a successful claim; the claim's acquire pairs with the release
// store that opened the loop.
#[allow(
    unsafe_code,
    reason = "a scoped loop on long-lived threads needs a forgotten lifetime"
)]
unsafe impl Sync for Shared {}
// SAFETY: as above; the pointers are only followed between claim and done.
#[allow(unsafe_code, reason = "see Sync")]
unsafe impl Send for Shared {}

impl Team {
    /// Starts a team. `threads` counts the calling thread; 0 means 1.
    pub fn new(threads: usize) -> Self {
        let shared = Arc::new(Shared {
            claims: AtomicU64::new(0),
            done: AtomicU32::new(0),
            job: UnsafeCell::new(Job {
                body: None,
                pieces: 0,
                caller: std::ptr::null(),
            }),
            panicked: AtomicBool::new(false),
            quit: AtomicBool::new(false),
        });
        let workers = (1..threads.max(1))
            .map(|i| {
                let shared = Arc::clone(&shared);
                thread::Builder::new()
                    .name(format!("prony-compute-{i}"))
                    .spawn(move || shared.serve())
                    .expect("the system can start a thread")
            })
            .collect();
        Self {
            shared,
            turn: Mutex::new(()),
            workers,
        }
    }

    /// Threads in the team, the caller included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `body(i)` once for every `i` below `pieces` and returns when all are done. Pieces run
    /// at the same time and in no fixed order. A body must not call `run` of its own team.
    ///
    /// # Panics
    /// If a piece panics, after the others are done.
    pub fn run(&self, pieces: usize, body: Body<'_>) {
        if self.workers.is_empty() || pieces < 2 {
            (0..pieces).for_each(body);
            return;
        }
        let pieces = u32::try_from(pieces).expect("fewer than 2^32 pieces");
        // A loop that panicked is closed all the same, so a poisoned turn is still good.
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let caller = thread::current();
        self.open(pieces, body, &caller);
        for worker in &self.workers {
            // Costs a system call only where the worker sleeps.
            worker.thread().unpark();
        }
        let loop_number = self.shared.claims.load(Ordering::Relaxed) >> 32;
        self.shared.work(loop_number);
        let mut spins = 0;
        // Acquire: what the workers wrote must be seen after this.
        while self.shared.done.load(Ordering::Acquire) < pieces {
            if spins < SPINS {
                spins += 1;
                std::hint::spin_loop();
            } else {
                thread::park();
            }
        }
        assert!(
            !self.shared.panicked.swap(false, Ordering::Relaxed),
            "a compute thread panicked"
        );
    }

    #[allow(unsafe_code, reason = "see the SAFETY notes")]
    fn open(&self, pieces: u32, body: Body<'_>, caller: &Thread) {
        let shared = &*self.shared;
        // SAFETY: the lifetime is forgotten for storage only: `run` does not return before every
        // piece is done, and nobody reads the body without a claimed piece that is not done.
        let body = unsafe { std::mem::transmute::<Body<'_>, Body<'static>>(body) };
        // SAFETY: the caller holds the turn, so no loop is open and nobody reads `job` now.
        unsafe {
            *shared.job.get() = Job {
                body: Some(body),
                pieces,
                caller,
            }
        };
        shared.done.store(0, Ordering::Relaxed);
        let number = (shared.claims.load(Ordering::Relaxed) >> 32) + 1;
        // Release: whoever claims a piece must see `job` and `done`.
        shared
            .claims
            .store((number << 32) | u64::from(pieces), Ordering::Release);
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.shared.quit.store(true, Ordering::Release);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            // A worker catches the panics of pieces, so it ends in order.
            let _ = worker.join();
        }
    }
}

impl Shared {
    /// A worker's life: wait for a loop, help with it, again.
    fn serve(&self) {
        let mut seen = 0;
        loop {
            let mut spins = 0;
            let number = loop {
                if self.quit.load(Ordering::Acquire) {
                    return;
                }
                let number = self.claims.load(Ordering::Acquire) >> 32;
                if number != seen {
                    break number;
                }
                if spins < SPINS {
                    spins += 1;
                    std::hint::spin_loop();
                } else {
                    thread::park();
                }
            };
            seen = number;
            self.work(number);
        }
    }

    /// Claims and runs pieces of loop `number` until none is left.
    #[allow(unsafe_code, reason = "see the SAFETY notes")]
    fn work(&self, number: u64) {
        let mut claims = self.claims.load(Ordering::Acquire);
        loop {
            let left = claims & u64::from(u32::MAX);
            if claims >> 32 != number || left == 0 {
                return;
            }
            // Acquire on success: the claim is what makes reading `job` allowed.
            let claim = self.claims.compare_exchange_weak(
                claims,
                claims - 1,
                Ordering::Acquire,
                Ordering::Acquire,
            );
            if let Err(now) = claim {
                claims = now;
                continue;
            }
            claims -= 1;
            // SAFETY: a piece of this loop is claimed and not done, so the caller is inside `run`
            // and `job` is not written.
            let job = unsafe { *self.job.get() };
            let piece = (u64::from(job.pieces) - left) as usize;
            let body = job.body.expect("an open loop has a body");
            if catch_unwind(AssertUnwindSafe(|| body(piece))).is_err() {
                self.panicked.store(true, Ordering::Relaxed);
            }
            // SAFETY: the caller's handle lives on its stack while it waits; the clone keeps the
            // thread's handle alive after it has stopped waiting.
            let caller = unsafe { (*job.caller).clone() };
            // Release: the piece's writes must be seen by the caller.
            if self.done.fetch_add(1, Ordering::Release) + 1 == job.pieces {
                caller.unpark();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn every_piece_runs_once() {
        for threads in [1, 2, 5] {
            let team = Team::new(threads);
            assert_eq!(team.threads(), threads);
            for pieces in [0, 1, 2, 3, 17, 1000] {
                let count: Vec<AtomicUsize> = (0..pieces).map(|_| AtomicUsize::new(0)).collect();
                team.run(pieces, &|i| {
                    count[i].fetch_add(1, Ordering::Relaxed);
                });
                assert!(
                    count.iter().all(|c| c.load(Ordering::Relaxed) == 1),
                    "{threads} {pieces}"
                );
            }
        }
    }

    #[test]
    fn loops_follow_each_other_without_mixing() {
        let team = Team::new(3);
        let sum = AtomicUsize::new(0);
        for round in 0..20_000 {
            let local = AtomicUsize::new(0);
            team.run(1 + round % 7, &|i| {
                local.fetch_add(i + 1, Ordering::Relaxed);
            });
            let n = 1 + round % 7;
            assert_eq!(local.load(Ordering::Relaxed), n * (n + 1) / 2);
            sum.fetch_add(1, Ordering::Relaxed);
        }
        assert_eq!(sum.load(Ordering::Relaxed), 20_000);
    }

    #[test]
    fn a_panic_in_a_piece_reaches_the_caller_and_the_team_lives_on() {
        let team = Team::new(2);
        let failed = catch_unwind(AssertUnwindSafe(|| {
            team.run(8, &|i| assert!(i != 3, "piece 3"));
        }));
        assert!(failed.is_err());
        let count = AtomicUsize::new(0);
        team.run(8, &|_| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(count.load(Ordering::Relaxed), 8);
    }
}
