//! What every request passes before its route: a name for it, and the key that opens the door.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use tracing::Instrument as _;

use crate::api::RequestIds;
use crate::api::error::ApiError;
use crate::api_keys::ApiKeys;

/// The name of a request: taken from the client where it brings one, given back in every answer.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Longer names are not taken over: they end up in every log line.
const MAX_REQUEST_ID: usize = 128;

/// Paths that are open without a key: probes and scrapers carry none, and these tell no secrets.
const OPEN_PATHS: [&str; 3] = ["/health", "/metrics", "/v2/health"];

#[derive(Debug)]
struct Guard {
    keys: Option<ApiKeys>,
    ids: RequestIds,
}

/// `routes` behind the guard. Without `keys` every request is let in.
pub fn guarded(routes: Router, keys: Option<ApiKeys>) -> Router {
    let guard = Arc::new(Guard {
        keys,
        ids: RequestIds::default(),
    });
    routes.layer(from_fn_with_state(guard, pass))
}

async fn pass(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let id = request_id(&guard, request.headers());
    let open = match &guard.keys {
        None => true,
        Some(keys) => is_open(request.uri().path()) || keys.open(request.headers()),
    };
    let mut response = if open {
        let method = request.method();
        let path = request.uri().path();
        let id = id.to_str().unwrap_or_default();
        let span = tracing::info_span!("http", id, %method, path);
        next.run(request).instrument(span).await
    } else {
        ApiError::WrongKey.into_response()
    };
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

fn is_open(path: &str) -> bool {
    OPEN_PATHS.iter().any(|open| {
        path.strip_prefix(open)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

fn request_id(guard: &Guard, headers: &HeaderMap) -> HeaderValue {
    let theirs = headers.get(REQUEST_ID).filter(|value| {
        let printable = value.as_bytes().iter().all(u8::is_ascii_graphic);
        printable && (1..=MAX_REQUEST_ID).contains(&value.len())
    });
    theirs.cloned().unwrap_or_else(|| {
        let ours = HeaderValue::try_from(guard.ids.next("req"));
        ours.unwrap_or(HeaderValue::from_static("req"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_probes_and_metrics_are_open() {
        for open in ["/health", "/health/live", "/metrics", "/v2/health/ready"] {
            assert!(is_open(open), "{open}");
        }
        for shut in ["/", "/healthy", "/v1/models", "/v2/models/m", "/metricsx"] {
            assert!(!is_open(shut), "{shut}");
        }
    }
}
