//! Time as the load generator sees it: signed nanoseconds since a clock's origin.
//!
//! The only file of this crate that may read the machine's clock. It reads CLOCK_MONOTONIC, so an
//! NTP step never moves a latency (the reference reads the realtime clock). Waiting is coarse
//! sleep first, then a spin over the last stretch only. What is waited *for* is decided elsewhere.

use std::ops::{Add, AddAssign, Sub};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread::Thread;
use std::time::Duration;

/// A point in time (since the clock's origin) or a difference, in nanoseconds.
///
/// Signed, because a completion can be stamped before a sample was due. Sums and differences stop
/// at the ends of the range: a time limit of `i64::MAX` is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Nanos(pub i64);

impl Nanos {
    /// The clock's origin, or no time at all.
    pub const ZERO: Self = Self(0);

    /// Whole milliseconds.
    #[must_use]
    pub const fn from_ms(ms: i64) -> Self {
        Self(ms * 1_000_000)
    }

    /// Whole microseconds.
    #[must_use]
    pub const fn from_us(us: i64) -> Self {
        Self(us * 1_000)
    }

    /// Whole seconds.
    #[must_use]
    pub const fn from_secs(secs: i64) -> Self {
        Self(secs * 1_000_000_000)
    }

    /// The value in seconds.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Add for Nanos {
    type Output = Self;
    fn add(self, rhs: Self) -> Self {
        Self(self.0.saturating_add(rhs.0))
    }
}

impl Sub for Nanos {
    type Output = Self;
    fn sub(self, rhs: Self) -> Self {
        Self(self.0.saturating_sub(rhs.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, rhs: Self) {
        *self = *self + rhs;
    }
}

/// How a blocked thread spends the time until something is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitPolicy {
    /// The last stretch before a due time that is spun instead of slept; 0 never spins.
    ///
    /// It must cover the kernel's wake-up delay (10–60 µs on the machines we measured) to keep
    /// queries on time, and costs a core for that long before every query. Where the core is
    /// lost too often while spinning, the issuing thread sleeps for a while instead.
    pub spin: Nanos,
    /// How long to spin for an answer before sleeping, in SingleStream and MultiStream.
    pub spin_for_answer: Nanos,
}

impl WaitPolicy {
    /// Never spins: for a machine where the SUT needs the only core.
    pub const SLEEP_ONLY: Self = Self {
        spin: Nanos::ZERO,
        spin_for_answer: Nanos::ZERO,
    };

    /// Spins over the last `spin` before a due time and sleeps otherwise.
    #[must_use]
    pub const fn spin_last(spin: Nanos) -> Self {
        Self {
            spin,
            spin_for_answer: Nanos::from_us(20),
        }
    }

    /// Spins over the last 100 µs where there are two cores or more, else never.
    #[must_use]
    pub fn for_this_machine() -> Self {
        match std::thread::available_parallelism() {
            Ok(cores) if cores.get() > 1 => Self::spin_last(Nanos::from_us(100)),
            _ => Self::SLEEP_ONLY,
        }
    }
}

impl Default for WaitPolicy {
    fn default() -> Self {
        Self::for_this_machine()
    }
}

/// Wakes one thread that waits on a [`Clock`]; rung by completions and by cancelling.
#[derive(Debug)]
pub struct Bell {
    thread: Thread,
    asleep: AtomicBool,
}

impl Bell {
    /// A bell that wakes the calling thread.
    #[must_use]
    pub fn for_this_thread() -> Self {
        Self {
            thread: std::thread::current(),
            asleep: AtomicBool::new(false),
        }
    }

    /// Wakes the thread if it sleeps; costs one load if it does not.
    ///
    /// The caller changes what the sleeper looks at (with a SeqCst read-modify-write) *before* it
    /// rings. The sleeper announces itself before it looks for the last time. With both sides
    /// SeqCst one of them sees the other, so no wake-up is lost.
    #[inline]
    pub fn ring(&self) {
        if self.asleep.load(Ordering::SeqCst) {
            self.thread.unpark();
        }
    }
}

/// What a thread waits for: a time, a condition, whichever comes first.
pub struct Wait<'a> {
    /// Latest time to return, if any.
    pub until: Option<Nanos>,
    /// Stretch before `until` that is spun.
    pub spin: Nanos,
    /// Stretch after the call that is spun before the first sleep.
    pub spin_first: Nanos,
    /// Rung whenever `ready` may have become true.
    pub bell: &'a Bell,
    /// The condition.
    pub ready: &'a dyn Fn() -> bool,
}

/// Why a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// The condition holds.
    Ready,
    /// The time came first.
    Due,
    /// Nothing can ever happen any more; only a virtual clock knows that.
    Stuck,
}

/// A source of time that can be waited on.
pub trait Clock: Sync {
    /// Where the time is read; cheap to clone and free of dynamic dispatch.
    fn source(&self) -> TimeSource;

    /// Blocks until the condition holds or the time has come.
    fn wait(&self, wait: &Wait<'_>) -> Wake;

    /// Nanoseconds since 1970 (UTC) at this clock's `now`; for log headers only, never a latency.
    fn unix_ns(&self) -> i64;

    /// Whether everything happens on the calling thread (virtual time): issue threads are then
    /// interleaved in order of their due times instead of being started.
    fn single_threaded(&self) -> bool {
        false
    }

    /// Time since the clock's origin.
    fn now(&self) -> Nanos {
        self.source().now()
    }
}

/// Reads a clock's time from any thread.
#[derive(Debug, Clone)]
pub enum TimeSource {
    /// CLOCK_MONOTONIC minus the origin.
    Monotonic {
        /// Reading of CLOCK_MONOTONIC at the clock's origin, ns.
        origin_ns: i64,
    },
    /// A number somebody else advances.
    Virtual(Arc<AtomicI64>),
}

impl TimeSource {
    /// Time since the clock's origin.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Nanos {
        match self {
            Self::Monotonic { origin_ns } => Nanos(monotonic_ns() - origin_ns),
            // Relaxed: virtual time is written and read on one thread.
            Self::Virtual(now) => Nanos(now.load(Ordering::Relaxed)),
        }
    }
}

/// The machine's monotonic clock; its origin is the moment it was made.
#[derive(Debug, Clone, Copy)]
pub struct MonotonicClock {
    origin_ns: i64,
}

impl MonotonicClock {
    /// A clock that reads 0 now.
    #[must_use]
    pub fn start() -> Self {
        Self {
            origin_ns: monotonic_ns(),
        }
    }

    fn since_origin(self) -> Nanos {
        Nanos(monotonic_ns() - self.origin_ns)
    }
}

impl Clock for MonotonicClock {
    fn source(&self) -> TimeSource {
        TimeSource::Monotonic {
            origin_ns: self.origin_ns,
        }
    }

    fn wait(&self, wait: &Wait<'_>) -> Wake {
        let spin_first_until = self.since_origin() + wait.spin_first;
        loop {
            if (wait.ready)() {
                return Wake::Ready;
            }
            let now = self.since_origin();
            let left = match wait.until {
                Some(until) if until <= now => return Wake::Due,
                Some(until) => Some(until - now),
                None => None,
            };
            let spin = now < spin_first_until || left.is_some_and(|left| left <= wait.spin);
            if spin {
                std::hint::spin_loop();
                continue;
            }
            sleep(wait, left.map(|left| left - wait.spin));
        }
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the crate's only reader of the machine's wall clock"
    )]
    fn unix_ns(&self) -> i64 {
        std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |since| {
                i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
            })
    }
}

/// Sleeps until rung, or for `longest`; may return early, the caller looks again.
fn sleep(wait: &Wait<'_>, longest: Option<Nanos>) {
    wait.bell.asleep.store(true, Ordering::SeqCst);
    // Looked at once more after announcing the sleep; see `Bell::ring`.
    if !(wait.ready)() {
        match longest {
            Some(ns) => {
                std::thread::park_timeout(Duration::from_nanos(u64::try_from(ns.0).unwrap_or(0)));
            }
            None => std::thread::park(),
        }
    }
    // Relaxed: a late ring finds `true` and leaves a token behind, which costs one extra turn.
    wait.bell.asleep.store(false, Ordering::Relaxed);
}

/// CLOCK_MONOTONIC in nanoseconds.
#[inline]
#[allow(
    unsafe_code,
    reason = "std hides the raw value that absolute stamps need"
)]
fn monotonic_ns() -> i64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid timespec for the duration of the call, which only writes it.
    let code = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    debug_assert_eq!(code, 0, "CLOCK_MONOTONIC exists on every supported system");
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// The kernel's number of the calling thread, for logs.
#[must_use]
#[allow(unsafe_code, reason = "std does not tell the kernel's thread number")]
pub fn thread_number() -> u32 {
    // SAFETY: takes nothing and cannot fail.
    let tid = unsafe { libc::gettid() };
    u32::try_from(tid).unwrap_or(0)
}

/// Asks the kernel for the finest timers on the calling thread until it is dropped.
///
/// Linux rounds a sleep up by the thread's slack, 50 µs by default: on its own the largest part
/// of the reference's issue delay (55–60 µs at the median).
#[derive(Debug)]
pub struct FineTimers {
    previous_ns: libc::c_int,
}

impl FineTimers {
    /// Sets the calling thread's timer slack to 1 ns.
    #[must_use]
    #[allow(unsafe_code, reason = "std offers no timer slack")]
    pub fn on_this_thread() -> Self {
        // SAFETY: both options take and return plain integers and touch this thread only.
        let previous_ns = unsafe { libc::prctl(libc::PR_GET_TIMERSLACK) };
        // SAFETY: as above. A refusal leaves the default slack, which is late but correct.
        let _ = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
        Self { previous_ns }
    }
}

impl Drop for FineTimers {
    #[allow(unsafe_code, reason = "std offers no timer slack")]
    fn drop(&mut self) {
        if self.previous_ns > 0 {
            // SAFETY: a plain integer option of this thread; see `on_this_thread`.
            let _ = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, self.previous_ns) };
        }
    }
}
