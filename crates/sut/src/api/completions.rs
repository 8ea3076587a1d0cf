//! `POST /v1/completions`: continue one text or several, given as text or as token ids.

use std::borrow::Cow;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use prony_wire::openai::completions::CompletionChoice;
use prony_wire::openai::{CompletionRequest, CompletionResponse, FinishReason, Prompt, Usage};

use super::error::{ApiError, check_finish};
use super::logprobs::Written;
use super::sse::{self, ChunkWriter};
use super::{App, RawBody, Submission, Submitted, parse};
use crate::clock;
use crate::request::{Invalid, Params, RawParams, answers, max_tokens};
use crate::stream::{Delta, Finish, Wishes};

/// OpenAI's default for completions; chat has none.
const DEFAULT_MAX_TOKENS: usize = 16;

/// Most prompts in one request.
const MAX_PROMPTS: usize = 4096;

pub(crate) async fn completions(
    State(app): State<Arc<App>>,
    body: RawBody,
) -> Result<Response, ApiError> {
    let (mut request, arrived) = parse::<CompletionRequest>(body)?;
    app.check_model(request.model.as_deref())?;
    let prompt = request.prompt.take();
    let params = params(&request)?;
    let max_tokens = max_tokens("max_tokens", request.max_tokens)?.unwrap_or(DEFAULT_MAX_TOKENS);
    let wishes = Wishes {
        stream: request.stream.unwrap_or(false),
        ids: request.return_token_ids.unwrap_or(false),
        logprobs: request.logprobs.is_some(),
    };
    let include_usage = include_usage(request.stream_options, wishes)?;
    let n = answers(request.n)?;
    let prompts = prompts(&app, prompt).await?;
    let echoed = request.echo.unwrap_or(false).then(|| prompts.clone());
    let choices = (0..prompts.len() * n).map(|_| Choice::default()).collect();
    let submission = Submission {
        prompts,
        n,
        max_tokens: Some(max_tokens),
        params,
        wishes,
        arrived,
    };
    let submitted = app.submit(submission)?;
    let frame = Frame {
        id: app.request_ids.next("cmpl"),
        created: clock::unix_seconds(),
        app: Arc::clone(&app),
        with_ids: wishes.ids,
        include_usage,
        n_top: request.logprobs.map(|n| n as usize),
        echoed,
        n,
        choices,
    };
    tracing::debug!(
        request_id = frame.id,
        n_prompt = submitted.n_prompt,
        "completion accepted"
    );
    if wishes.stream {
        Ok(sse::response(submitted, frame, include_usage))
    } else {
        whole(submitted, frame).await
    }
}

/// `stream_options.include_usage`, which means something only in a stream.
pub(crate) fn include_usage(
    options: Option<prony_wire::openai::StreamOptions>,
    wishes: Wishes,
) -> Result<bool, Invalid> {
    match options {
        Some(_) if !wishes.stream => Err(Invalid::new(
            "stream_options",
            "stream_options: only allowed with stream",
        )),
        options => Ok(options.and_then(|o| o.include_usage).unwrap_or(false)),
    }
}

fn params(request: &CompletionRequest) -> Result<Params, Invalid> {
    let unsupported = [
        (
            "suffix",
            request.suffix.as_ref().is_some_and(|s| !s.is_empty()),
        ),
        (
            "best_of",
            request
                .best_of
                .is_some_and(|b| Some(b) != request.n.or(Some(1))),
        ),
    ];
    if let Some((param, _)) = unsupported.iter().find(|(_, is_set)| *is_set) {
        return Err(Invalid::new(param, format!("{param}: not supported yet")));
    }
    RawParams {
        temperature: request.temperature,
        top_p: request.top_p,
        top_k: request.top_k,
        seed: request.seed,
        stop: request
            .stop
            .as_ref()
            .map_or_else(Vec::new, |stop| stop.as_slice().to_vec()),
        ignore_eos: request.ignore_eos,
        min_tokens: request.min_tokens,
        presence_penalty: request.presence_penalty,
        frequency_penalty: request.frequency_penalty,
        repetition_penalty: request.repetition_penalty,
        min_p: request.min_p,
        has_stop_token_ids: request
            .stop_token_ids
            .as_ref()
            .is_some_and(|ids| !ids.is_empty()),
        logit_bias: request.logit_bias.clone(),
        priority: request.priority,
        deadline_ms: request.deadline_ms,
        logprobs: request.logprobs.map(|n| ("logprobs", n)),
        score_prompt: request.echo == Some(true) && request.logprobs.is_some(),
    }
    .validate()
}

async fn prompts(app: &App, prompt: Option<Prompt>) -> Result<Vec<Vec<u32>>, ApiError> {
    let lists = match prompt {
        None => return Err(Invalid::new("prompt", "prompt: missing").into()),
        Some(Prompt::Ids(ids)) => vec![ids],
        Some(Prompt::IdLists(lists)) => lists,
        Some(Prompt::Text(text)) => vec![app.encode(text, true).await?],
        Some(Prompt::Texts(texts)) => {
            check_n_prompts(texts.len())?;
            let mut lists = Vec::with_capacity(texts.len());
            for text in texts {
                lists.push(app.encode(text, true).await?);
            }
            lists
        }
    };
    check_n_prompts(lists.len())?;
    Ok(lists)
}

fn check_n_prompts(n: usize) -> Result<(), Invalid> {
    if n == 0 || n > MAX_PROMPTS {
        return Err(Invalid::new(
            "prompt",
            format!("prompt: {n} of them, must be 1 to {MAX_PROMPTS}"),
        ));
    }
    Ok(())
}

async fn whole(submitted: Submitted, mut frame: Frame) -> Result<Response, ApiError> {
    let Submitted {
        mut answer,
        open,
        n_prompt,
    } = submitted;
    let deltas = answer.all().await;
    drop(open);
    for delta in &deltas {
        check_finish(delta.finish)?;
    }
    let n_generated = deltas.iter().map(|delta| delta.n_tokens).sum();
    let choices = deltas.iter().map(|delta| frame.choice(delta)).collect();
    let usage = Some(Some(sse::usage(n_prompt, n_generated)));
    Ok(Json(frame.response(choices, usage)).into_response())
}

/// What a request's chunks have in common, and where each of its choices stands.
struct Frame {
    id: String,
    created: u64,
    app: Arc<App>,
    with_ids: bool,
    include_usage: bool,
    /// How many of the likeliest tokens are told; `None` tells no probabilities.
    n_top: Option<usize>,
    /// The prompts, where their texts come before the answers.
    echoed: Option<Vec<Vec<u32>>>,
    /// Answers to each prompt.
    n: usize,
    choices: Vec<Choice>,
}

/// Where a choice stands.
#[derive(Default)]
struct Choice {
    /// Its first piece has gone out.
    begun: bool,
    written: Written,
}

impl Frame {
    fn response<'a>(
        &'a self,
        choices: Vec<CompletionChoice<'a>>,
        usage: Option<Option<Usage>>,
    ) -> CompletionResponse<'a> {
        CompletionResponse {
            id: Cow::Borrowed(&self.id),
            object: Cow::Borrowed("text_completion"),
            created: self.created,
            model: Cow::Borrowed(&self.app.model_name),
            choices,
            usage,
        }
    }

    /// What is new in a choice; its first piece begins with the prompt where that is echoed.
    fn choice<'a>(&mut self, delta: &'a Delta) -> CompletionChoice<'a> {
        let table = &self.app.texts.table;
        let choice = &mut self.choices[delta.index];
        let is_first = !std::mem::replace(&mut choice.begun, true);
        let echoed = self.echoed.as_ref().filter(|_| is_first);
        let prompt = echoed.map_or(&[][..], |prompts| &prompts[delta.index / self.n]);
        let text = if prompt.is_empty() {
            Cow::Borrowed(delta.text.as_str())
        } else {
            Cow::Owned(table.text(prompt) + &delta.text)
        };
        let logprobs = self.n_top.map(|n_top| {
            // Nothing stands before the first token that would make it likely or not.
            let scores = std::iter::once(None).chain(delta.prompt.iter().cloned().map(Some));
            let of_prompt = prompt.iter().copied().zip(scores);
            let drawn = delta.drawn.iter().cloned();
            let of_answer = drawn.map(|drawn| (drawn.id, Some(drawn)));
            choice
                .written
                .completion(table, of_prompt.chain(of_answer), n_top)
        });
        CompletionChoice {
            index: delta.index as u32,
            text,
            logprobs,
            finish_reason: finish_reason(delta.finish),
            token_ids: self.with_ids.then_some(Cow::Borrowed(&delta.ids[..])),
        }
    }
}

impl ChunkWriter for Frame {
    fn delta(&mut self, delta: &Delta, out: &mut Vec<u8>) {
        // A token whose text is held back (half a character, the start of a stop string) is no news
        // to a client that reads text.
        let is_told = self.with_ids || self.n_top.is_some();
        if delta.text.is_empty() && delta.finish.is_none() && !is_told {
            return;
        }
        let usage = self.include_usage.then_some(None);
        let choice = self.choice(delta);
        sse::write(out, &self.response(vec![choice], usage));
    }

    fn usage(&mut self, usage: Usage, out: &mut Vec<u8>) {
        sse::write(out, &self.response(Vec::new(), Some(Some(usage))));
    }
}

/// The wire's word; sequences that failed never get that far.
pub(crate) fn finish_reason(finish: Option<Finish>) -> Option<FinishReason> {
    finish.map(|finish| match finish {
        Finish::Stop => FinishReason::Stop,
        Finish::Length => FinishReason::Length,
        Finish::Expired | Finish::Failed | Finish::Aborted => FinishReason::Other,
    })
}
