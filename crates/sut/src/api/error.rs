//! Refusals and failures to HTTP: the one place that knows statuses and OpenAI's error body.
//!
//! | case | status | `code` |
//! |---|---|---|
//! | body is not JSON | 400 | `invalid_json` |
//! | a field's type is wrong, or its value cannot be honoured | 400 | `invalid_value` |
//! | prompt and output do not fit | 400 | `context_length_exceeded` |
//! | no API key, or a wrong one | 401 | `invalid_api_key` |
//! | unknown path | 404 | `not_found` |
//! | unknown model | 404 | `model_not_found` |
//! | wrong method | 405 | `method_not_allowed` |
//! | body not complete in time | 408 | `body_timeout` |
//! | body too large | 413 | `body_too_large` |
//! | queue full | 429 with `Retry-After` | `queue_full` |
//! | the engine failed this request | 500 | `engine_error` |
//! | more connections than `--max-connections` | 503 with `Retry-After` | `too_many_connections` |
//! | going down, or the engine broke | 503 | `unavailable` |

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use prony_wire::openai::ErrorBody;
use prony_wire::openai::error::{ErrorCode, ErrorDetail};

use crate::admission::Refusal;
use crate::request::Invalid;
use crate::stream::Finish;

/// Why a request gets no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApiError {
    /// The body could not be read; the status says whether it was too large.
    Body(StatusCode),
    /// Not JSON; the parser's words.
    Json(String),
    /// JSON of another shape; the parser's words.
    Shape {
        /// Path of the field, such as `messages[0].role`; empty for the body as a whole.
        path: String,
        /// What it was and what would be accepted.
        problem: String,
    },
    /// A field whose value cannot be honoured.
    Unusable {
        /// The field.
        param: &'static str,
        /// What it was and what would be accepted.
        message: String,
    },
    /// Another model than the one that is here.
    UnknownModel {
        /// As asked.
        asked: String,
        /// As served.
        served: String,
    },
    /// Refused at admission.
    Refused(Refusal),
    /// The engine failed this request.
    EngineFailed,
    /// The request's own deadline passed before the answer was complete.
    Expired,
    /// The server ends before the answer was complete.
    Aborted,
    /// The API needs a key, and this is none of them.
    WrongKey,
    /// One connection more than are served.
    TooManyConnections,
    /// No such path.
    UnknownPath,
    /// The path is there, but not for this method.
    WrongMethod,
}

impl From<Invalid> for ApiError {
    fn from(Invalid { param, message }: Invalid) -> Self {
        ApiError::Unusable { param, message }
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        ApiError::Refused(refusal)
    }
}

/// `Err` for a sequence that ended without an answer.
pub(crate) fn check_finish(finish: Option<Finish>) -> Result<(), ApiError> {
    match finish {
        Some(Finish::Expired) => Err(ApiError::Expired),
        Some(Finish::Failed) => Err(ApiError::EngineFailed),
        Some(Finish::Aborted) => Err(ApiError::Aborted),
        Some(Finish::Stop | Finish::Length) | None => Ok(()),
    }
}

impl ApiError {
    /// Status, stable word, and the field at fault.
    #[must_use]
    pub fn classify(&self) -> (StatusCode, &'static str, Option<&str>) {
        match self {
            ApiError::Body(StatusCode::PAYLOAD_TOO_LARGE) => {
                (StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", None)
            }
            ApiError::Body(StatusCode::REQUEST_TIMEOUT) => {
                (StatusCode::REQUEST_TIMEOUT, "body_timeout", None)
            }
            ApiError::Body(_) => (StatusCode::BAD_REQUEST, "invalid_body", None),
            ApiError::Json(_) => (StatusCode::BAD_REQUEST, "invalid_json", None),
            ApiError::Shape { path, .. } => {
                let param = (!path.is_empty()).then_some(path.as_str());
                (StatusCode::BAD_REQUEST, "invalid_value", param)
            }
            ApiError::Unusable { param, .. } => {
                (StatusCode::BAD_REQUEST, "invalid_value", Some(param))
            }
            ApiError::UnknownModel { .. } => {
                (StatusCode::NOT_FOUND, "model_not_found", Some("model"))
            }
            ApiError::Refused(refusal) => match refusal {
                Refusal::TooLong { .. } => (
                    StatusCode::BAD_REQUEST,
                    "context_length_exceeded",
                    Some("prompt"),
                ),
                Refusal::EmptyPrompt
                | Refusal::TokenOutOfRange { .. }
                | Refusal::LargerThanQueue { .. } => {
                    (StatusCode::BAD_REQUEST, "invalid_value", Some("prompt"))
                }
                Refusal::QueueFull { .. } => (StatusCode::TOO_MANY_REQUESTS, "queue_full", None),
                Refusal::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "unavailable", None),
            },
            ApiError::EngineFailed => (StatusCode::INTERNAL_SERVER_ERROR, "engine_error", None),
            ApiError::Expired => (
                StatusCode::GATEWAY_TIMEOUT,
                "deadline_exceeded",
                Some("deadline_ms"),
            ),
            ApiError::Aborted => (StatusCode::SERVICE_UNAVAILABLE, "unavailable", None),
            ApiError::WrongKey => (StatusCode::UNAUTHORIZED, "invalid_api_key", None),
            ApiError::TooManyConnections => (
                StatusCode::SERVICE_UNAVAILABLE,
                "too_many_connections",
                None,
            ),
            ApiError::UnknownPath => (StatusCode::NOT_FOUND, "not_found", None),
            ApiError::WrongMethod => (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", None),
        }
    }

    /// The body, also sent as an event when a stream has begun already.
    #[must_use]
    pub fn body(&self) -> ErrorBody {
        let (status, code, param) = self.classify();
        let kind = match status {
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            _ if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        };
        ErrorBody {
            error: ErrorDetail {
                message: self.message(),
                kind: kind.to_owned(),
                param: param.map(str::to_owned),
                code: Some(ErrorCode::Word(code.to_owned())),
            },
        }
    }

    fn message(&self) -> String {
        match self {
            ApiError::Body(StatusCode::PAYLOAD_TOO_LARGE) => {
                format!("body: larger than {} bytes", super::MAX_BODY_BYTES)
            }
            ApiError::Body(StatusCode::REQUEST_TIMEOUT) => {
                format!(
                    "body: not complete after {} s",
                    super::BODY_TIMEOUT.as_secs()
                )
            }
            ApiError::Body(_) => "body: could not be read".to_owned(),
            ApiError::Json(problem) => format!("body: {problem}"),
            ApiError::Shape { path, problem } if path.is_empty() => format!("body: {problem}"),
            ApiError::Shape { path, problem } => format!("{path}: {problem}"),
            ApiError::Unusable { message, .. } => message.clone(),
            ApiError::UnknownModel { asked, served } => {
                format!("model {asked}: not served here; {served} is")
            }
            ApiError::Refused(refusal) => refusal_message(refusal),
            ApiError::EngineFailed => "the engine failed this request".to_owned(),
            ApiError::Expired => "the request's deadline has passed".to_owned(),
            ApiError::Aborted => "the server is going down".to_owned(),
            ApiError::WrongKey => "an API key is needed: Authorization: Bearer KEY".to_owned(),
            ApiError::TooManyConnections => "too many connections".to_owned(),
            ApiError::UnknownPath => "no such path".to_owned(),
            ApiError::WrongMethod => "this path has another method".to_owned(),
        }
    }
}

fn refusal_message(refusal: &Refusal) -> String {
    match refusal {
        Refusal::TooLong {
            n_prompt,
            max_tokens,
            max_model_len,
        } => format!(
            "prompt of {n_prompt} tokens and max_tokens {max_tokens} make {}, at most \
             {max_model_len} fit",
            n_prompt.saturating_add(*max_tokens)
        ),
        Refusal::TokenOutOfRange { id, vocab_size } => {
            format!("prompt: token id {id}, must be below {vocab_size}")
        }
        Refusal::EmptyPrompt => "prompt: empty, must have at least one token".to_owned(),
        Refusal::LargerThanQueue {
            n_prompts,
            n_tokens,
            max_queue,
            max_queue_tokens,
        } => format!(
            "prompt: {n_prompts} of them with {n_tokens} tokens, at most {max_queue} with \
             {max_queue_tokens} may wait"
        ),
        Refusal::QueueFull { retry_after } => {
            format!(
                "the queue is full; try again in {} s",
                retry_after.as_secs()
            )
        }
        Refusal::Unavailable => "the server takes no more requests".to_owned(),
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (status, code, _) = self.classify();
        if status.is_server_error() {
            tracing::warn!(status = status.as_u16(), code, "request failed");
        } else {
            tracing::debug!(status = status.as_u16(), code, "request refused");
        }
        let mut response = (status, Json(self.body())).into_response();
        let headers = response.headers_mut();
        if let ApiError::Refused(Refusal::QueueFull { retry_after }) = self {
            headers.insert(
                header::RETRY_AFTER,
                HeaderValue::from(retry_after.as_secs()),
            );
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}
