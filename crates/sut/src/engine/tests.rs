//! The engine turn by turn over a scripted backend: who computes when, who leaves, who fails.

use std::sync::Mutex;

use super::*;
use crate::admission::{Admission, ModelBounds, OpenRequest};
use crate::backend::{BackendInfo, SeqId, Texts};
use crate::bell::Bell;
use crate::config::Limits;
use crate::engine_thread;
use crate::queue::Waiting;
use crate::request::{Generate, Params};
use crate::stream::{self, Answer, Delta, Wishes};

/// An id that makes the step fail alone, as a token outside a model's vocabulary does.
const BAD: u32 = 66;
/// An id that makes the backend panic.
const PANIC: u32 = 13;

/// An id that makes the whole step fail.
const BREAK: u32 = 67;
/// An id that makes the next token the end of the text.
const LAST: u32 = 99;
/// The end-of-text token.
const EOS: u32 = 256;

/// Answers every row with `x` and keeps the number of rows of each step, and all ids it was fed.
struct Scripted {
    info: BackendInfo,
    kv_free: usize,
    /// Tokens fed to each.
    seqs: Vec<usize>,
    rows_of_steps: Arc<Mutex<Vec<usize>>>,
    fed: Arc<Mutex<Vec<u32>>>,
}

impl Backend for Scripted {
    fn info(&self) -> &BackendInfo {
        &self.info
    }

    fn kv_free_tokens(&self) -> usize {
        self.kv_free
    }

    fn open(&mut self, _: &Generate, _now: Instant) -> Result<SeqId, BackendError> {
        self.seqs.push(0);
        Ok(SeqId(self.seqs.len() as u32 - 1))
    }

    fn seat(&mut self, _: SeqId, _: &[u32]) -> usize {
        0
    }

    fn unseat(&mut self, seq: SeqId) {
        let fed = std::mem::take(&mut self.seqs[seq.0 as usize]);
        self.kv_free += self.info.kv_cost(fed);
    }

    fn close(&mut self, seq: SeqId) {
        self.unseat(seq);
    }

    fn step(&mut self, step: &Step, answers: &mut Answers) -> Result<(), BackendError> {
        assert!(!step.ids.contains(&PANIC), "asked to panic");
        if step.ids.contains(&BAD) {
            return Err(BackendError::BadRow("id 66".to_owned()));
        }
        if step.ids.contains(&BREAK) {
            return Err(BackendError::Step("id 67".to_owned()));
        }
        let drawn = |last| if last == LAST { EOS } else { u32::from(b'x') };
        let mut rest = &step.ids[..];
        for row in &step.rows {
            let (ids, tail) = rest.split_at(row.n_ids);
            rest = tail;
            let next = row.draw.then(|| drawn(ids[row.n_ids - 1]));
            answers.next.push(next.map(Drawn::certain));
            let fed = &mut self.seqs[row.seq.0 as usize];
            let growth = self.info.kv_cost(*fed + row.n_ids) - self.info.kv_cost(*fed);
            *fed += row.n_ids;
            let left = self.kv_free.checked_sub(growth);
            self.kv_free = left.expect("only what fits is stepped");
        }
        self.fed.lock().expect("not poisoned").extend(&step.ids);
        self.rows_of_steps
            .lock()
            .expect("not poisoned")
            .push(step.rows.len());
        Ok(())
    }
}

pub(super) struct World {
    pub(super) engine: Engine,
    inbox: Arc<Inbox>,
    pub(super) admission: Admission,
    pub(super) metrics: Arc<Metrics>,
    rows_of_steps: Arc<Mutex<Vec<usize>>>,
    pub(super) fed: Arc<Mutex<Vec<u32>>>,
}

pub(super) const LIMITS: Limits = Limits {
    max_batch_rows: 4,
    max_batch_tokens: 16,
    kv_tokens: 256,
    max_queue: 100,
    max_queue_tokens: 10_000,
};

fn scripted(rows_of_steps: &Arc<Mutex<Vec<usize>>>, fed: &Arc<Mutex<Vec<u32>>>) -> Loaded {
    let info = BackendInfo {
        max_model_len: 256,
        vocab_size: 512,
        eos_ids: vec![EOS],
        kv_capacity_tokens: LIMITS.kv_tokens,
        kv_block_tokens: 16,
    };
    let backend = Scripted {
        info,
        kv_free: LIMITS.kv_tokens,
        seqs: Vec::new(),
        rows_of_steps: Arc::clone(rows_of_steps),
        fed: Arc::clone(fed),
    };
    Loaded {
        backend: Box::new(backend),
        texts: Texts::bytes(),
    }
}

fn parts(metrics: &Arc<Metrics>) -> EngineParts {
    EngineParts {
        inbox: Arc::new(Inbox::new(Arc::new(Bell::default()))),
        metrics: Arc::clone(metrics),
        limits: StepLimits {
            max_rows: LIMITS.max_batch_rows,
            max_tokens: LIMITS.max_batch_tokens,
        },
        target_itl: Duration::from_mins(1),
    }
}

pub(super) fn world() -> World {
    let metrics = Arc::new(Metrics::new("test"));
    let (rows_of_steps, fed) = (Arc::default(), Arc::default());
    let parts = parts(&metrics);
    let inbox = Arc::clone(&parts.inbox);
    let status = Arc::new(Status::new(clock::now()));
    let bounds = ModelBounds {
        max_model_len: 256,
        vocab_size: 512,
    };
    World {
        engine: Engine::new(scripted(&rows_of_steps, &fed), parts, status),
        inbox,
        admission: Admission::new(LIMITS, bounds, Arc::clone(&metrics)),
        metrics,
        rows_of_steps,
        fed,
    }
}

pub(super) fn greedy() -> Params {
    Params::greedy()
}

fn ask(
    admission: &Admission,
    inbox: &Arc<Inbox>,
    prompt: &[u32],
    (max_tokens, params): (usize, Params),
) -> (Answer, OpenRequest) {
    let (open, permits) = admission.admit(&[prompt.len()]).expect("there is room");
    let wishes = Wishes {
        stream: false,
        ids: false,
        logprobs: false,
    };
    let (answer, outlets) = stream::open(1, wishes, Arc::clone(inbox.bell()));
    let request = Generate {
        prompt: prompt.to_vec(),
        max_tokens,
        params,
        cache_root: Some(0),
    };
    let arrived = clock::now();
    inbox.push(
        outlets
            .into_iter()
            .zip(permits)
            .map(|(outlet, permit)| Waiting {
                request: request.clone(),
                outlet,
                permit,
                arrived,
            }),
    );
    (answer, open)
}

impl World {
    pub(super) fn ask(&self, prompt: &[u32], max_tokens: usize) -> (Answer, OpenRequest) {
        self.ask_with(prompt, max_tokens, greedy())
    }

    pub(super) fn ask_with(
        &self,
        prompt: &[u32],
        n: usize,
        params: Params,
    ) -> (Answer, OpenRequest) {
        ask(&self.admission, &self.inbox, prompt, (n, params))
    }

    /// Turns until there is nothing to do, a hundred at most.
    pub(super) fn run(&mut self) {
        let idle = (0..100).find(|_| self.engine.turn(clock::now()) == Turn::Idle(None));
        assert!(idle.is_some(), "the engine never came to rest");
    }

    fn steps(&self) -> Vec<usize> {
        self.rows_of_steps.lock().expect("not poisoned").clone()
    }
}

/// What an answer holds when it is complete.
pub(super) fn finished(answer: &mut Answer) -> Delta {
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    match answer.poll_next(&mut cx) {
        std::task::Poll::Ready(mut deltas) => deltas.pop().expect("one sequence, one delta"),
        std::task::Poll::Pending => panic!("the answer is not complete"),
    }
}

/// Text, tokens and end of a complete answer.
pub(super) fn end_of(answer: &mut Answer) -> String {
    let delta = finished(answer);
    let finish = delta.finish.expect("it is finished");
    format!("{:?} {} {finish:?}", delta.text, delta.n_tokens)
}

#[test]
fn a_newcomer_joins_at_the_next_step_and_the_finished_leave() {
    let mut world = world();
    let (mut first, _open) = world.ask(&[1, 2, 3], 4);
    assert_eq!(world.engine.turn(clock::now()), Turn::Stepped);
    let (mut second, _open) = world.ask(&[1], 2);
    world.run();
    // Alone; both; both; alone: the second came a step later and left a step earlier.
    assert_eq!(world.steps(), [1, 2, 2, 1]);
    assert_eq!(finished(&mut first).text, "xxxx");
    assert_eq!(end_of(&mut second), "\"xx\" 2 Length");
    assert_eq!(world.metrics.generation_tokens.get(), 6);
}

#[test]
fn no_more_rows_than_allowed_and_the_rest_in_order() {
    let mut world = world();
    let mut answers: Vec<_> = (0..6).map(|_| world.ask(&[1], 1)).collect();
    world.run();
    assert_eq!(world.steps(), [4, 2]);
    for (answer, _open) in &mut answers {
        assert_eq!(finished(answer).text, "x");
    }
}

#[test]
fn a_bad_row_fails_alone() {
    let mut world = world();
    let (mut good, _open) = world.ask(&[1, 2], 2);
    let (mut bad, _open) = world.ask(&[BAD], 2);
    world.run();
    assert_eq!(finished(&mut good).text, "xx");
    assert_eq!(finished(&mut bad).finish, Some(Finish::Failed));
    assert_eq!(world.metrics.failed.get(), 1);
    assert_eq!(world.engine.backend.kv_free_tokens(), LIMITS.kv_tokens);
}

#[test]
fn a_step_that_fails_fails_all_its_rows_and_frees_their_cache() {
    let mut world = world();
    let (mut first, _open) = world.ask(&[1], 2);
    let (mut second, _open) = world.ask(&[BREAK], 2);
    world.run();
    for answer in [&mut first, &mut second] {
        assert_eq!(finished(answer).finish, Some(Finish::Failed));
    }
    assert_eq!(world.metrics.failed.get(), 2);
    assert_eq!(world.engine.backend.kv_free_tokens(), LIMITS.kv_tokens);
    // The engine goes on with what comes next.
    let (mut third, _open) = world.ask(&[1], 1);
    world.run();
    assert_eq!(finished(&mut third).text, "x");
}

#[test]
fn a_long_prompt_is_fed_in_chunks_and_draws_once_at_its_end() {
    let mut world = world();
    let prompt: Vec<u32> = (200..240).collect();
    let (mut long, _open) = world.ask(&prompt, 2);
    let (mut short, _open) = world.ask(&[1], 3);
    world.run();
    assert_eq!(finished(&mut long).text, "xx");
    assert_eq!(finished(&mut short).text, "xxx");
    // 16 tokens a step: the short one's single token goes first, the prompt gets what is left.
    assert_eq!(world.steps(), [2, 2, 2, 1]);
    let fed = world.fed.lock().expect("not poisoned").clone();
    let (of_prompt, rest): (Vec<u32>, Vec<u32>) = fed.into_iter().partition(|id| *id >= 200);
    assert_eq!((of_prompt, rest), (prompt, vec![1, 120, 120, 120]));
    assert_eq!(world.metrics.prompt_tokens.get(), 41);
    assert_eq!(world.metrics.itl_seconds.get_sample_count(), 3);
}

#[test]
fn the_end_of_text_token_ends_the_text_unless_ignored() {
    let mut world = world();
    let (mut ended, _open) = world.ask(&[LAST], 5);
    let params = Params {
        ignore_eos: true,
        ..greedy()
    };
    let (mut ignored, _open) = world.ask_with(&[LAST], 3, params);
    world.run();
    assert_eq!(end_of(&mut ended), "\"\" 1 Stop");
    assert_eq!(end_of(&mut ignored), "\"xx\" 3 Length");
    let metrics = &world.metrics;
    assert_eq!(
        (metrics.success_stop.get(), metrics.success_length.get()),
        (1, 1)
    );
}

#[test]
fn a_stop_string_ends_the_text_and_what_was_held_back_for_one_is_given_at_the_end() {
    let mut world = world();
    let stop = |stop: &str| Params {
        stop: vec![stop.to_owned()],
        ..greedy()
    };
    let (mut stopped, _open) = world.ask_with(&[1], 9, stop("xxx"));
    let (mut held_back, _open) = world.ask_with(&[1], 2, stop("xxx"));
    world.run();
    assert_eq!(end_of(&mut stopped), "\"\" 3 Stop");
    assert_eq!(end_of(&mut held_back), "\"xx\" 2 Length");
    assert_eq!(world.engine.backend.kv_free_tokens(), LIMITS.kv_tokens);
}

#[test]
fn a_client_that_left_frees_its_cache_in_the_next_turn_running_or_queued() {
    let mut world = world();
    let mut answers: Vec<_> = (0..5).map(|_| world.ask(&[1, 2], 30)).collect();
    world.engine.turn(clock::now());
    assert_eq!(world.engine.running.len(), 4);
    assert!(world.engine.backend.kv_free_tokens() < LIMITS.kv_tokens);
    answers.clear();
    assert_eq!(world.engine.turn(clock::now()), Turn::Idle(None));
    assert_eq!(world.engine.backend.kv_free_tokens(), LIMITS.kv_tokens);
    assert_eq!(world.metrics.canceled.get(), 5);
    assert_eq!(world.metrics.requests_running.get(), 0);
}

#[test]
fn a_panicking_backend_answers_every_waiter_and_ends_the_thread() {
    let metrics = Arc::new(Metrics::new("test"));
    let parts = parts(&metrics);
    let inbox = Arc::clone(&parts.inbox);
    let bounds = ModelBounds {
        max_model_len: 256,
        vocab_size: 512,
    };
    let admission = Admission::new(LIMITS, bounds, Arc::clone(&metrics));
    let (rows_of_steps, fed) = (Arc::default(), Arc::default());
    let (mut engine, _info, _texts) =
        engine_thread::spawn(move || Ok(scripted(&rows_of_steps, &fed)), parts).expect("it starts");
    let (mut culprit, _open) = ask(&admission, &inbox, &[PANIC], (2, greedy()));
    let (mut bystander, _open) = ask(&admission, &inbox, &[1, 2], (200, greedy()));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        engine.ended().await;
        for answer in [&mut culprit, &mut bystander] {
            let last = answer.all().await.pop().expect("an answer");
            assert_eq!(last.finish, Some(Finish::Aborted));
        }
    });
    assert!(!engine.status().is_alive());
    // Whoever comes later is answered too.
    let (mut late, _open) = ask(&admission, &inbox, &[1], (1, greedy()));
    assert_eq!(finished(&mut late).finish, Some(Finish::Aborted));
}
