//! `POST /v1/chat/completions`: the conversation becomes a prompt by the model's own template.

use std::borrow::Cow;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use prony_wire::openai::chat::{
    ChatAnswer, ChatChoice, ChatDelta, ChatDeltaChoice, ChatMessage, Content,
};
use prony_wire::openai::{ChatChunk, ChatRequest, ChatResponse, Usage};

use super::completions::{finish_reason, include_usage};
use super::error::{ApiError, check_finish};
use super::logprobs;
use super::sse::{self, ChunkWriter};
use super::{App, RawBody, Submission, Submitted, parse};
use crate::chat_template::Turn;
use crate::clock;
use crate::request::{Invalid, Params, RawParams, answers, max_tokens};
use crate::stream::{Delta, Wishes};

pub(crate) async fn chat(State(app): State<Arc<App>>, body: RawBody) -> Result<Response, ApiError> {
    let (mut request, arrived) = parse::<ChatRequest>(body)?;
    app.check_model(request.model.as_deref())?;
    let turns = turns(request.messages.take())?;
    let params = params(&request)?;
    let max_tokens = match request.max_completion_tokens {
        None => max_tokens("max_tokens", request.max_tokens)?,
        newer => max_tokens("max_completion_tokens", newer)?,
    };
    let wishes = Wishes {
        stream: request.stream.unwrap_or(false),
        ids: request.return_token_ids.unwrap_or(false),
        logprobs: params.logprobs.is_some(),
    };
    let n = answers(request.n)?;
    let include_usage = include_usage(request.stream_options, wishes)?;
    let text = render(&app, &turns)?;
    // The template has written the start token itself.
    let prompts = vec![app.encode(text, false).await?];
    let submitted = app.submit(Submission {
        prompts,
        n,
        max_tokens,
        params,
        wishes,
        arrived,
    })?;
    let frame = Frame {
        id: app.request_ids.next("chatcmpl"),
        created: clock::unix_seconds(),
        app: Arc::clone(&app),
        with_ids: wishes.ids,
        with_logprobs: wishes.logprobs,
        include_usage,
        roles_sent: vec![false; n],
    };
    tracing::debug!(
        request_id = frame.id,
        n_prompt = submitted.n_prompt,
        "chat accepted"
    );
    if wishes.stream {
        Ok(sse::response(submitted, frame, include_usage))
    } else {
        whole(submitted, &frame).await
    }
}

fn render(app: &App, turns: &[Turn]) -> Result<String, ApiError> {
    let Some(template) = &app.texts.chat_template else {
        let message = "messages: this model has no chat template; use /v1/completions";
        return Err(Invalid::new("messages", message).into());
    };
    template
        .render(turns)
        .map_err(|e| Invalid::new("messages", e.to_string()).into())
}

fn turns(messages: Option<Vec<ChatMessage>>) -> Result<Vec<Turn>, Invalid> {
    let messages = messages.unwrap_or_default();
    if messages.is_empty() {
        return Err(Invalid::new("messages", "messages: missing or empty"));
    }
    messages
        .into_iter()
        .map(
            |ChatMessage {
                 role,
                 content,
                 name,
             }| {
                Ok(Turn {
                    role,
                    content: content.map_or_else(|| Ok(String::new()), text_of)?,
                    name,
                })
            },
        )
        .collect()
}

fn text_of(content: Content) -> Result<String, Invalid> {
    match content {
        Content::Text(text) => Ok(text),
        Content::Parts(parts) => parts
            .into_iter()
            .map(|part| match (part.kind.as_str(), part.text) {
                ("text", Some(text)) => Ok(text),
                (kind, _) => {
                    let message = format!("messages: a part of type {kind}, must be text");
                    Err(Invalid::new("messages", message))
                }
            })
            .collect(),
    }
}

fn params(request: &ChatRequest) -> Result<Params, Invalid> {
    let is_text = |format: &serde_json::Value| format.get("type").is_some_and(|t| t == "text");
    let unsupported = [
        (
            "tools",
            request
                .tools
                .as_ref()
                .is_some_and(|tools| !tools.is_empty()),
        ),
        (
            "functions",
            request
                .functions
                .as_ref()
                .is_some_and(|functions| !functions.is_empty()),
        ),
        (
            "response_format",
            request
                .response_format
                .as_ref()
                .is_some_and(|f| !is_text(f)),
        ),
    ];
    if let Some((param, _)) = unsupported.iter().find(|(_, is_set)| *is_set) {
        return Err(Invalid::new(param, format!("{param}: not supported yet")));
    }
    let with_logprobs = request.logprobs == Some(true);
    if request.top_logprobs.is_some() && !with_logprobs {
        let message = "top_logprobs: only with logprobs: true";
        return Err(Invalid::new("top_logprobs", message));
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
        logprobs: with_logprobs.then(|| ("top_logprobs", request.top_logprobs.unwrap_or(0))),
        score_prompt: false,
    }
    .validate()
}

async fn whole(submitted: Submitted, frame: &Frame) -> Result<Response, ApiError> {
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
    let response = ChatResponse {
        id: Cow::Borrowed(&frame.id),
        object: Cow::Borrowed("chat.completion"),
        created: frame.created,
        model: Cow::Borrowed(&frame.app.model_name),
        choices: deltas.iter().map(|delta| frame.choice(delta)).collect(),
        usage: Some(sse::usage(n_prompt, n_generated)),
    };
    Ok(Json(response).into_response())
}

/// What is the same in every chunk of a request.
struct Frame {
    id: String,
    created: u64,
    app: Arc<App>,
    with_ids: bool,
    with_logprobs: bool,
    include_usage: bool,
    /// One entry an answer.
    roles_sent: Vec<bool>,
}

impl Frame {
    fn choice<'a>(&self, delta: &'a Delta) -> ChatChoice<'a> {
        ChatChoice {
            index: delta.index as u32,
            message: ChatAnswer {
                role: Cow::Borrowed("assistant"),
                content: Some(Cow::Borrowed(delta.text.as_str())),
            },
            logprobs: self.logprobs(delta),
            finish_reason: finish_reason(delta.finish),
            token_ids: self.with_ids.then_some(Cow::Borrowed(&delta.ids[..])),
        }
    }

    fn logprobs(&self, delta: &Delta) -> Option<serde_json::Value> {
        let table = &self.app.texts.table;
        self.with_logprobs
            .then(|| logprobs::chat(table, &delta.drawn))
    }

    fn chunk<'a>(
        &'a self,
        choices: Vec<ChatDeltaChoice<'a>>,
        usage: Option<Option<Usage>>,
    ) -> ChatChunk<'a> {
        ChatChunk {
            id: Cow::Borrowed(&self.id),
            object: Cow::Borrowed("chat.completion.chunk"),
            created: self.created,
            model: Cow::Borrowed(&self.app.model_name),
            choices,
            usage,
        }
    }

    /// The role goes out together with the first token, not before it: a client that takes the
    /// first event for the first token must not measure a server that has done nothing yet.
    fn write_role(&mut self, answer: usize, out: &mut Vec<u8>) {
        self.roles_sent[answer] = true;
        let choice = ChatDeltaChoice {
            index: answer as u32,
            delta: ChatDelta {
                role: Some(Cow::Borrowed("assistant")),
                content: Some(Cow::Borrowed("")),
            },
            logprobs: None,
            finish_reason: None,
            token_ids: None,
        };
        sse::write(
            out,
            &self.chunk(vec![choice], self.include_usage.then_some(None)),
        );
    }
}

impl ChunkWriter for Frame {
    fn delta(&mut self, delta: &Delta, out: &mut Vec<u8>) {
        let is_told = self.with_ids || self.with_logprobs;
        if delta.text.is_empty() && delta.finish.is_none() && !is_told {
            return;
        }
        if !self.roles_sent[delta.index] {
            self.write_role(delta.index, out);
        }
        let content = (!delta.text.is_empty()).then_some(Cow::Borrowed(delta.text.as_str()));
        let choice = ChatDeltaChoice {
            index: delta.index as u32,
            delta: ChatDelta {
                role: None,
                content,
            },
            logprobs: self.logprobs(delta),
            finish_reason: finish_reason(delta.finish),
            token_ids: self.with_ids.then_some(Cow::Borrowed(&delta.ids[..])),
        };
        sse::write(
            out,
            &self.chunk(vec![choice], self.include_usage.then_some(None)),
        );
    }

    fn usage(&mut self, usage: Usage, out: &mut Vec<u8>) {
        sse::write(out, &self.chunk(Vec::new(), Some(Some(usage))));
    }
}
