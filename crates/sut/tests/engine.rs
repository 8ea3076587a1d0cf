//! The engine from outside, over backends that its own tests do not script: one that makes it wait,
//! and one that refuses to open a sequence.

use std::sync::Arc;
use std::sync::Mutex;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use prony_sut::admission::{Admission, ModelBounds};
use prony_sut::backend::echo::Echo;
use prony_sut::backend::{Answers, Backend, BackendError, BackendInfo, Loaded, SeqId, Step, Texts};
use prony_sut::batch::StepLimits;
use prony_sut::bell::Bell;
use prony_sut::clock;
use prony_sut::config::{EchoConfig, Limits};
use prony_sut::engine::{Engine, EngineParts, Turn};
use prony_sut::metrics::Metrics;
use prony_sut::queue::{Inbox, Waiting};
use prony_sut::request::{Generate, RawParams};
use prony_sut::status::Status;
use prony_sut::stream::{self, Answer, Finish, Wishes};

const LIMITS: Limits = Limits {
    max_batch_rows: 4,
    max_batch_tokens: 16,
    kv_tokens: 256,
    max_queue: 10,
    max_queue_tokens: 100,
};

/// An engine over `backend` with one request for two tokens in its inbox.
fn engine_with_a_request(backend: Box<dyn Backend>) -> (Engine, Answer, Arc<Metrics>) {
    let metrics = Arc::new(Metrics::new("test"));
    let inbox = Arc::new(Inbox::new(Arc::new(Bell::default())));
    let bounds = ModelBounds {
        max_model_len: 256,
        vocab_size: 256,
    };
    let admission = Admission::new(LIMITS, bounds, Arc::clone(&metrics));
    let (_open, mut permits) = admission.admit(&[1]).expect("there is room");
    let wishes = Wishes {
        stream: true,
        ids: true,
        logprobs: false,
    };
    let (answer, mut outlets) = stream::open(1, wishes, Arc::clone(inbox.bell()));
    inbox.push([Waiting {
        request: Generate {
            prompt: vec![u32::from(b'a')],
            max_tokens: 2,
            params: RawParams::default().validate().expect("the defaults"),
            cache_root: None,
        },
        outlet: outlets.remove(0),
        permit: permits.remove(0),
        arrived: clock::now(),
    }]);
    let parts = EngineParts {
        inbox,
        metrics: Arc::clone(&metrics),
        limits: StepLimits {
            max_rows: LIMITS.max_batch_rows,
            max_tokens: LIMITS.max_batch_tokens,
        },
        target_itl: Duration::from_mins(1),
    };
    let texts = Texts::bytes();
    let status = Arc::new(Status::new(clock::now()));
    let engine = Engine::new(Loaded { backend, texts }, parts, status);
    (engine, answer, metrics)
}

fn finish_of(answer: &mut Answer) -> Option<Finish> {
    match answer.poll_next(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(deltas) => deltas.last().and_then(|delta| delta.finish),
        Poll::Pending => None,
    }
}

#[test]
fn the_engine_sleeps_until_the_next_token_is_due_and_no_longer() {
    let pace = EchoConfig {
        ttft: Duration::from_secs(3600),
        itl: Duration::from_secs(60),
        n_tokens: Some(5),
    };
    let (mut engine, mut answer, _) = engine_with_a_request(Box::new(Echo::new(pace, &LIMITS)));
    let start = clock::now();
    assert_eq!(engine.turn(start), Turn::Idle(Some(start + pace.ttft)));
    let first = start + pace.ttft;
    assert_eq!(engine.turn(first), Turn::Stepped);
    assert_eq!(engine.turn(first), Turn::Idle(Some(first + pace.itl)));
    assert_eq!(finish_of(&mut answer), None);
    assert_eq!(engine.turn(first + pace.itl), Turn::Stepped);
    assert_eq!(finish_of(&mut answer), Some(Finish::Length));
    assert_eq!(engine.turn(first + pace.itl), Turn::Idle(None));
}

/// What happened, in order.
#[derive(Default)]
struct Log(Mutex<Vec<&'static str>>);

impl Log {
    fn note(&self, what: &'static str) {
        self.0.lock().expect("not poisoned").push(what);
    }
}

impl Wake for Log {
    fn wake(self: Arc<Self>) {
        self.note("answered");
    }
}

/// An echo that notes when a cache is given back.
struct Watched(Echo, Arc<Log>);

impl Backend for Watched {
    fn info(&self) -> &BackendInfo {
        self.0.info()
    }

    fn kv_free_tokens(&self) -> usize {
        self.0.kv_free_tokens()
    }

    fn open(&mut self, request: &Generate, now: Instant) -> Result<SeqId, BackendError> {
        self.0.open(request, now)
    }

    fn seat(&mut self, seq: SeqId, ids: &[u32]) -> usize {
        self.0.seat(seq, ids)
    }

    fn unseat(&mut self, seq: SeqId) {
        self.0.unseat(seq);
    }

    fn close(&mut self, seq: SeqId) {
        self.1.note("freed");
        self.0.close(seq);
    }

    fn step(&mut self, step: &Step, answers: &mut Answers) -> Result<(), BackendError> {
        self.0.step(step, answers)
    }
}

#[test]
fn whoever_has_an_answer_in_hand_finds_the_cache_free() {
    let log = Arc::new(Log::default());
    let echo = Echo::new(EchoConfig::default(), &LIMITS);
    let backend = Watched(echo, Arc::clone(&log));
    let (mut engine, mut answer, _) = engine_with_a_request(Box::new(backend));
    assert_eq!(engine.turn(clock::now()), Turn::Stepped);
    let waker = Waker::from(Arc::clone(&log));
    let mut cx = Context::from_waker(&waker);
    assert!(answer.poll_next(&mut cx).is_ready(), "the first token");
    assert!(answer.poll_next(&mut cx).is_pending());
    assert_eq!(engine.turn(clock::now()), Turn::Stepped);
    assert_eq!(*log.0.lock().expect("not poisoned"), ["freed", "answered"]);
}

/// Opens nothing.
struct Refusing(BackendInfo);

impl Backend for Refusing {
    fn info(&self) -> &BackendInfo {
        &self.0
    }

    fn kv_free_tokens(&self) -> usize {
        self.0.kv_capacity_tokens
    }

    fn open(&mut self, _: &Generate, _: Instant) -> Result<SeqId, BackendError> {
        Err(BackendError::BadRow("nothing is opened here".to_owned()))
    }

    fn seat(&mut self, _: SeqId, _: &[u32]) -> usize {
        unreachable!("no sequence was opened")
    }

    fn unseat(&mut self, _: SeqId) {}

    fn close(&mut self, _: SeqId) {}

    fn step(&mut self, _: &Step, _: &mut Answers) -> Result<(), BackendError> {
        unreachable!("no sequence was opened")
    }
}

#[test]
fn a_sequence_that_cannot_be_opened_is_answered_as_failed_not_as_going_down() {
    let info = Echo::new(EchoConfig::default(), &LIMITS).info().clone();
    let (mut engine, mut answer, metrics) = engine_with_a_request(Box::new(Refusing(info)));
    assert_eq!(engine.turn(clock::now()), Turn::Idle(None));
    assert_eq!(finish_of(&mut answer), Some(Finish::Failed));
    assert_eq!(metrics.failed.get(), 1);
}
