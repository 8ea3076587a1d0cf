//! `GET /metrics`: Prometheus' text format.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};

use super::App;

/// Everything that is counted.
pub(crate) async fn metrics(State(app): State<Arc<App>>) -> Response {
    // Read where it is counted, not copied by the engine: it must be true during a long step too.
    let waiting = i64::try_from(app.admission.waiting()).unwrap_or(i64::MAX);
    app.metrics.requests_waiting.set(waiting);
    (
        [(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)],
        app.metrics.render(),
    )
        .into_response()
}
