//! The client's thread: one readiness loop over all connections of a run.
//!
//! A plain loop over epoll and not an async runtime: there is no task to spawn per request, and
//! nothing stands between a socket becoming readable and the clock being read. What a connection
//! does with its bytes is `conn`'s affair; where jobs come from, `http_sut`'s.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mio::event::Event;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token, Waker};
use prony_loadgen::clock::{Nanos, TimeSource};
use prony_loadgen::sample::{SampleId, SampleIndex};
use prony_loadgen::sut::{FailureKind, Responder};

use crate::conn::{AnswerForm, Conn, Fate, InFlight};
use crate::library::Requests;
use crate::stream_stats::StreamStats;

/// How often deadlines are looked at.
const TICK: Duration = Duration::from_millis(50);

/// One read's worth: many events of a burst, or one long prompt's echo.
const BUFFER_BYTES: usize = 256 * 1024;

const WAKE: Token = Token(usize::MAX);

/// How the client behaves.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// Name for the logs.
    pub name: String,
    /// Where to connect.
    pub address: SocketAddr,
    /// Connections opened before the run.
    pub n_connections: usize,
    /// Most requests in flight; the rest wait in the client, and that is reported.
    pub max_in_flight: usize,
    /// A request older than this has failed.
    pub timeout: Nanos,
    /// Never sleep in the loop; only where a core is free for it.
    pub spin: bool,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) name: String,
    pub(crate) queue: Mutex<VecDeque<Job>>,
    /// The loop is about to sleep, or asleep. SeqCst on both sides: a push that sees `false` has
    /// been, or will be, seen by the loop's last look at the queue.
    pub(crate) asleep: AtomicBool,
    pub(crate) stop: AtomicBool,
    /// Phases flushed so far; each is counted on its own.
    pub(crate) phase: AtomicU32,
    pub(crate) waker: Waker,
}

#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) id: SampleId,
    pub(crate) index: SampleIndex,
    pub(crate) phase: u32,
    pub(crate) responder: Responder,
}

/// What lives on the client's thread.
pub(crate) struct Client {
    poll: Poll,
    shared: Arc<Shared>,
    requests: Requests,
    form: AnswerForm,
    time: TimeSource,
    options: ClientOptions,
    conns: Vec<Option<Conn>>,
    /// Places in `conns` without a connection.
    vacant: Vec<usize>,
    /// Connections without a request; the one used last is used next, its path is the warmest.
    free: Vec<usize>,
    /// Jobs held back by the in-flight cap.
    waiting: VecDeque<Job>,
    /// Emptied queue, swapped with the shared one so that neither side allocates.
    taken: VecDeque<Job>,
    n_in_flight: usize,
    /// What `stats` counts.
    phase: u32,
    last_tick: Nanos,
    stats: StreamStats,
}

impl Client {
    /// Connects ahead of the run.
    pub(crate) fn connect(
        options: &ClientOptions,
        form: AnswerForm,
        requests: Requests,
        time: TimeSource,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKE)?;
        let shared = Arc::new(Shared {
            name: options.name.clone(),
            queue: Mutex::default(),
            asleep: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            phase: AtomicU32::new(0),
            waker,
        });
        let mut client = Self {
            poll,
            shared,
            requests,
            form,
            time,
            options: options.clone(),
            conns: Vec::new(),
            vacant: Vec::new(),
            free: Vec::new(),
            waiting: VecDeque::new(),
            taken: VecDeque::new(),
            n_in_flight: 0,
            phase: 0,
            last_tick: Nanos::ZERO,
            stats: StreamStats::default(),
        };
        for _ in 0..options.n_connections {
            client.connect_ahead()?;
        }
        Ok(client)
    }

    /// What the issuing thread shares with this one.
    pub(crate) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// Runs until it is stopped.
    pub(crate) fn run(mut self) -> StreamStats {
        let mut events = Events::with_capacity(1024);
        let mut buffer = vec![0u8; BUFFER_BYTES];
        while !self.shared.stop.load(Ordering::SeqCst) {
            self.take_jobs();
            let wait = self.wait();
            match self.poll.poll(&mut events, wait) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    tracing::error!(%error, "waiting for sockets failed");
                    break;
                }
            }
            self.shared.asleep.store(false, Ordering::SeqCst);
            for event in &events {
                if event.token() == WAKE {
                    continue;
                }
                self.drive(event, &mut buffer);
            }
            self.start_waiting();
            self.check_deadlines();
        }
        self.cancel_all();
        self.stats
    }

    /// How long the next poll may sleep.
    fn wait(&mut self) -> Option<Duration> {
        if self.options.spin {
            return Some(Duration::ZERO);
        }
        self.shared.asleep.store(true, Ordering::SeqCst);
        if !lock(&self.shared.queue).is_empty() {
            self.shared.asleep.store(false, Ordering::SeqCst);
            return Some(Duration::ZERO);
        }
        (self.n_in_flight > 0).then_some(TICK)
    }

    /// Moves jobs from the issuing thread's queue onto connections.
    fn take_jobs(&mut self) {
        // Swapped, not popped one by one: the issuing thread must not wait while requests go out.
        std::mem::swap(&mut self.taken, &mut *lock(&self.shared.queue));
        if self.taken.is_empty() {
            return;
        }
        // Phases do not overlap: the last job's phase is that of all that are now in flight.
        let phase = self.taken.back().map_or(self.phase, |job| job.phase);
        if phase != self.phase {
            self.phase = phase;
            self.stats = StreamStats::default();
        }
        let before = self.waiting.len();
        self.waiting.append(&mut self.taken);
        self.start_waiting();
        let held_back = self.waiting.len().saturating_sub(before);
        self.stats.n_held_back += held_back as u64;
    }

    fn start_waiting(&mut self) {
        while self.n_in_flight < self.options.max_in_flight {
            let Some(job) = self.waiting.pop_front() else {
                return;
            };
            self.start_job(job);
        }
    }

    fn start_job(&mut self, job: Job) {
        let now = self.time.now();
        let Some(request) = self.requests.get(job.index) else {
            let text = format!("sample {} is not loaded", job.index.0);
            return job
                .responder
                .fail(job.id, now, FailureKind::Canceled, &text);
        };
        let place = match self.free.pop() {
            Some(place) => place,
            None => match self.connect_now() {
                Ok(place) => place,
                Err(error) => {
                    let text = format!("connect: {error}");
                    return job
                        .responder
                        .fail(job.id, now, FailureKind::Connection, &text);
                }
            },
        };
        let conn = self.conns[place]
            .as_mut()
            .expect("free places hold connections");
        let fate = conn.start(InFlight {
            id: job.id,
            responder: job.responder,
            request,
            deadline: now + self.options.timeout,
        });
        self.n_in_flight += 1;
        self.stats.max_in_flight = self.stats.max_in_flight.max(self.n_in_flight as u64);
        self.settle(place, fate);
    }

    fn drive(&mut self, event: &Event, buffer: &mut [u8]) {
        let place = event.token().0;
        let Some(conn) = self.conns.get_mut(place).and_then(Option::as_mut) else {
            return;
        };
        let was_busy = conn.deadline().is_some();
        let mut fate = Fate::Busy;
        if event.is_writable() && was_busy {
            fate = conn.on_writable();
        }
        if event.is_readable() && fate == Fate::Busy {
            fate = conn.on_readable(buffer, event.is_read_closed(), &mut self.stats);
        }
        if !was_busy {
            if fate == Fate::Closed {
                // The server let go of a connection that had nothing to do.
                self.free.retain(|&free| free != place);
                self.drop_conn(place);
            }
            return;
        }
        self.settle(place, fate);
    }

    /// Files a connection that had a request under way.
    fn settle(&mut self, place: usize, fate: Fate) {
        match fate {
            Fate::Busy => return,
            Fate::Free => self.free.push(place),
            Fate::Closed => self.drop_conn(place),
        }
        self.n_in_flight -= 1;
    }

    fn drop_conn(&mut self, place: usize) {
        if let Some(mut conn) = self.conns[place].take() {
            // Closing would do, too; a failure to deregister has nobody to tell.
            let _ = self.poll.registry().deregister(&mut conn.stream);
            self.vacant.push(place);
        }
    }

    /// Opens a connection before the run, waiting for it: connect time is then no one's latency.
    fn connect_ahead(&mut self) -> io::Result<()> {
        let timeout = Duration::from_nanos(self.options.timeout.0.unsigned_abs());
        let stream = std::net::TcpStream::connect_timeout(&self.options.address, timeout)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let place = self.register(TcpStream::from_std(stream), true)?;
        self.free.push(place);
        Ok(())
    }

    /// Opens a connection inside the run, without waiting for it.
    fn connect_now(&mut self) -> io::Result<usize> {
        let stream = TcpStream::connect(self.options.address)?;
        stream.set_nodelay(true)?;
        self.stats.n_opened_late += 1;
        self.register(stream, false)
    }

    fn register(&mut self, mut stream: TcpStream, is_connected: bool) -> io::Result<usize> {
        let place = self.vacant.pop().unwrap_or(self.conns.len());
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.poll
            .registry()
            .register(&mut stream, Token(place), interest)?;
        let conn = Some(Conn::new(stream, is_connected, self.form));
        if place == self.conns.len() {
            self.conns.push(conn);
        } else {
            self.conns[place] = conn;
        }
        Ok(place)
    }

    /// Fails what has been under way for too long. Looks at most once a tick: a scan of all
    /// connections is cheap against the requests of 50 ms.
    fn check_deadlines(&mut self) {
        let now = self.time.now();
        if now - self.last_tick < Nanos::from_ms(50) {
            return;
        }
        self.last_tick = now;
        for place in 0..self.conns.len() {
            let Some(conn) = &mut self.conns[place] else {
                continue;
            };
            if conn.deadline().is_some_and(|deadline| deadline <= now) {
                let seconds = self.options.timeout.as_secs_f64();
                let text = format!("no whole answer within {seconds} s");
                conn.fail(now, FailureKind::Timeout, &text);
                self.settle(place, Fate::Closed);
            }
        }
    }

    fn cancel_all(&mut self) {
        let (now, text) = (self.time.now(), "the run ended");
        for conn in self.conns.iter_mut().flatten() {
            conn.fail(now, FailureKind::Canceled, text);
        }
        let mut jobs: Vec<Job> = self.waiting.drain(..).collect();
        jobs.extend(lock(&self.shared.queue).drain(..));
        for job in jobs {
            job.responder.fail(job.id, now, FailureKind::Canceled, text);
        }
    }
}

/// Jobs are pushed whole, so a panic elsewhere leaves nothing half-written.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
