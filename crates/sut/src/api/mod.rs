//! The HTTP routes, one a file, and what they share: the application's state and the way in.
//!
//! Wire types stop here. `error` alone turns refusals and failures into statuses; `sse` alone
//! writes event streams.

use std::convert::Infallible;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use serde::de::DeserializeOwned;

use prony_wire::openai::models::EngineCard;

use tokio::sync::Semaphore;

use crate::admission::{Admission, OpenRequest};
use crate::backend::Texts;
use crate::clock;
use crate::metrics::Metrics;
use crate::queue::{Inbox, Waiting};
use crate::request::{Generate, Params};
use crate::status::Status;
use crate::stream::{self, Answer, Wishes};

pub mod error;

pub mod sse;

pub mod logprobs;

pub mod health;

pub mod metrics;

pub mod models;

pub mod completions;

pub mod chat;

use error::ApiError;

/// Largest body. A thousand prompts of 2000 ids each still fit.
pub const MAX_BODY_BYTES: usize = 16 << 20;

/// A body that takes longer than this is given up: a client that stops in the middle of one must
/// not hold its connection for ever.
pub const BODY_TIMEOUT: Duration = Duration::from_mins(1);

/// Most long texts tokenized at once, the others wait: each takes seconds of a core that the engine
/// computes on, and a hundred times its size in memory.
const MAX_LONG_TEXTS: usize = 2;

/// Texts up to this long are tokenized on the network thread: about half a millisecond, which is
/// what handing them to another thread and back may cost on a busy machine.
const QUICK_TEXT_BYTES: usize = 4096;

/// Everything the routes need. One for the process, shared.
#[derive(Debug)]
pub struct App {
    /// Name clients put into `model`.
    pub model_name: String,
    /// Text to ids, ids to bytes, messages to text.
    pub texts: Texts,
    /// The gate.
    pub admission: Admission,
    /// The way to the engine.
    pub inbox: Arc<Inbox>,
    /// How the engine does.
    pub status: Arc<Status>,
    /// What has been counted.
    pub metrics: Arc<Metrics>,
    /// How it computes, for whoever records a measurement.
    pub engine: EngineCard,
    /// Unix time of the start.
    pub created: u64,
    /// Names for requests.
    pub request_ids: RequestIds,
    /// With whom requests share their prompts.
    pub roots: CacheRoots,
    /// Turns at tokenizing long texts.
    pub long_texts: LongTexts,
}

/// Bounds how many long texts are tokenized at once.
#[derive(Debug)]
pub struct LongTexts(Arc<Semaphore>);

impl Default for LongTexts {
    fn default() -> Self {
        LongTexts(Arc::new(Semaphore::new(MAX_LONG_TEXTS)))
    }
}

/// Says whose prompts may share what is computed of them.
#[derive(Debug)]
pub struct CacheRoots {
    /// Number of requests so far; `None` where all requests share one root.
    of_requests: Option<AtomicU64>,
}

impl CacheRoots {
    /// All requests together, or the prompts of each among themselves only.
    #[must_use]
    pub fn new(prefix_cache: bool) -> Self {
        let of_requests = (!prefix_cache).then(AtomicU64::default);
        CacheRoots { of_requests }
    }

    fn next(&self) -> u64 {
        // Relaxed: only distinctness matters.
        let next = |n: &AtomicU64| n.fetch_add(1, Ordering::Relaxed);
        self.of_requests.as_ref().map_or(0, next)
    }
}

/// Gives every request of this process another name.
#[derive(Debug)]
pub struct RequestIds {
    base: u64,
    next: AtomicU64,
}

impl Default for RequestIds {
    /// Starts at a random number, so that two runs of the server do not repeat their names.
    fn default() -> Self {
        RequestIds {
            base: RandomState::new().hash_one(1u8),
            next: AtomicU64::new(0),
        }
    }
}

impl RequestIds {
    pub(crate) fn next(&self, prefix: &str) -> String {
        // Relaxed: only distinctness matters.
        let n = self.next.fetch_add(1, Ordering::Relaxed);
        format!("{prefix}-{:016x}", self.base.wrapping_add(n))
    }
}

/// A request as the routes hand it in: one sequence an answer.
#[derive(Debug)]
pub(crate) struct Submission {
    pub(crate) prompts: Vec<Vec<u32>>,
    /// Answers to each prompt; those to the first prompt come first.
    pub(crate) n: usize,
    /// `None` gives each prompt all the room behind it.
    pub(crate) max_tokens: Option<usize>,
    pub(crate) params: Params,
    pub(crate) wishes: Wishes,
    pub(crate) arrived: Instant,
}

/// A request on its way: its answer, and the mark that it is open.
#[derive(Debug)]
pub(crate) struct Submitted {
    pub(crate) answer: Answer,
    pub(crate) open: OpenRequest,
    /// Tokens of all prompts together.
    pub(crate) n_prompt: usize,
}

impl App {
    /// Checks, admits and queues; all of a request's prompts or none.
    pub(crate) fn submit(&self, submission: Submission) -> Result<Submitted, ApiError> {
        let Submission {
            prompts,
            n,
            max_tokens,
            params,
            wishes,
            arrived,
        } = submission;
        let vocab_size = self.admission.bounds().vocab_size;
        let biases = params.sampling.logit_bias.iter();
        if let Some((id, _)) = biases
            .into_iter()
            .find(|(id, _)| *id as usize >= vocab_size)
        {
            return Err(ApiError::Unusable {
                param: "logit_bias",
                message: format!("logit_bias: token id {id}, must be below {vocab_size}"),
            });
        }
        // Probabilities of a prompt's tokens come from computing it, not from knowing it.
        let cache_root = (!params.score_prompt).then(|| self.roots.next());
        let n_prompt = prompts.iter().map(Vec::len).sum();
        let mut requests = Vec::with_capacity(prompts.len() * n);
        for prompt in prompts {
            let max_tokens = max_tokens.unwrap_or_else(|| self.admission.room_after(prompt.len()));
            self.admission.check(&prompt, max_tokens)?;
            requests.extend((0..n).map(|answer| Generate {
                prompt: prompt.clone(),
                max_tokens,
                params: params.of_answer(answer),
                cache_root,
            }));
        }
        let lengths: Vec<usize> = requests.iter().map(|r| r.prompt.len()).collect();
        let (open, permits) = self.admission.admit(&lengths)?;
        self.metrics.request_params_n.observe(n as f64);
        let bell = Arc::clone(self.inbox.bell());
        let (answer, outlets) = stream::open(requests.len(), wishes, bell);
        self.inbox
            .push(requests.into_iter().zip(outlets).zip(permits).map(
                |((request, outlet), permit)| Waiting {
                    request,
                    outlet,
                    permit,
                    arrived,
                },
            ));
        Ok(Submitted {
            answer,
            open,
            n_prompt,
        })
    }

    /// Whether `model` is served here; a request may leave it out.
    pub(crate) fn check_model(&self, model: Option<&str>) -> Result<(), ApiError> {
        match model {
            Some(name) if name != self.model_name => Err(ApiError::UnknownModel {
                asked: name.to_owned(),
                served: self.model_name.clone(),
            }),
            _ => Ok(()),
        }
    }

    /// Text to ids, off the network threads when it is long enough to hold them up.
    pub(crate) async fn encode(&self, text: String, special: bool) -> Result<Vec<u32>, ApiError> {
        let tokenizer = Arc::clone(&self.texts.tokenizer);
        let ids = if text.len() <= QUICK_TEXT_BYTES {
            tokenizer.encode(&text, special)
        } else {
            let turn = Arc::clone(&self.long_texts.0).acquire_owned().await;
            // Awaited right here: the task has an owner. The turn goes with it: when the client
            // leaves, the work goes on to its end all the same.
            tokio::task::spawn_blocking(move || {
                let _turn = turn;
                tokenizer.encode(&text, special)
            })
            .await
            .map_err(|_| ApiError::EngineFailed)?
        };
        ids.map_err(|e| ApiError::Unusable {
            param: "prompt",
            message: e.to_string(),
        })
    }
}

/// A request's body, or why there is none; never refuses by itself, so that `error` words it.
#[derive(Debug)]
pub(crate) struct RawBody(Result<Bytes, ApiError>);

impl<S: Send + Sync> FromRequest<S> for RawBody {
    type Rejection = Infallible;

    async fn from_request(request: Request, state: &S) -> Result<Self, Infallible> {
        let read = Bytes::from_request(request, state);
        Ok(RawBody(
            match tokio::time::timeout(BODY_TIMEOUT, read).await {
                Ok(read) => read.map_err(|rejection| ApiError::Body(rejection.status())),
                Err(_) => Err(ApiError::Body(StatusCode::REQUEST_TIMEOUT)),
            },
        ))
    }
}

/// Reads a body as JSON, whatever its content type says; curl and old clients get it wrong.
pub(crate) fn parse<T: DeserializeOwned>(body: RawBody) -> Result<(T, Instant), ApiError> {
    let arrived = clock::now();
    let body = body.0?;
    let parsed = serde_json::from_slice(&body).map_err(|e| unreadable::<T>(&body, &e))?;
    Ok((parsed, arrived))
}

/// Reads a refused body once more to name the field at fault; a good body never pays for the path.
fn unreadable<T: DeserializeOwned>(body: &[u8], first: &serde_json::Error) -> ApiError {
    if !first.is_data() {
        return ApiError::Json(first.to_string());
    }
    let mut reader = serde_json::Deserializer::from_slice(body);
    let (path, problem) = match serde_path_to_error::deserialize::<_, T>(&mut reader) {
        Err(e) => (e.path().to_string(), e.inner().to_string()),
        Ok(_) => (String::new(), first.to_string()),
    };
    // The path says where: the parser's line and column, and the names that some types put in
    // front of their own messages, would say it twice.
    let path = path.trim_start_matches('.').to_owned();
    let field = path.split(['.', '[']).next().unwrap_or_default();
    let problem = problem.split(" at line ").next().unwrap_or_default();
    let problem = problem
        .strip_prefix(field)
        .and_then(|rest| rest.strip_prefix(": "))
        .unwrap_or(problem)
        .to_owned();
    ApiError::Shape { path, problem }
}
