//! `GET /health`, `/health/ready`, `/health/live`: answered from flags, never through the queue.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::App;
use crate::clock;

/// Whether new requests are welcome: 200, or 503 with the reason.
pub(crate) async fn ready(State(app): State<Arc<App>>) -> Response {
    let (status, word) = if !app.status.is_alive() {
        (StatusCode::SERVICE_UNAVAILABLE, "engine_failed")
    } else if app.admission.is_closed() {
        (StatusCode::SERVICE_UNAVAILABLE, "draining")
    } else if app.status.is_stalled(clock::now()) {
        (StatusCode::SERVICE_UNAVAILABLE, "engine_stalled")
    } else {
        (StatusCode::OK, "ok")
    };
    (status, Json(serde_json::json!({ "status": word }))).into_response()
}

/// Whether the process is worth keeping: 200 as long as its engine runs.
pub(crate) async fn live(State(app): State<Arc<App>>) -> Response {
    if app.status.is_alive() {
        (StatusCode::OK, Json(serde_json::json!({ "status": "ok" }))).into_response()
    } else {
        let body = Json(serde_json::json!({ "status": "engine_failed" }));
        (StatusCode::SERVICE_UNAVAILABLE, body).into_response()
    }
}
