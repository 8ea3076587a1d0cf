//! The routes put together into one service, without a socket: tests call it directly.

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};

use crate::api::error::ApiError;
use crate::api::{App, MAX_BODY_BYTES, chat, completions, health, metrics, models};

/// All routes over `app`.
pub fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/health", get(health::ready))
        .route("/health/ready", get(health::ready))
        .route("/health/live", get(health::live))
        .route("/metrics", get(metrics::metrics))
        .route("/v1/models", get(models::list))
        .route("/v1/models/{*name}", get(models::one))
        .route("/v1/completions", post(completions::completions))
        .route("/v1/chat/completions", post(chat::chat))
        .fallback(|| async { ApiError::UnknownPath })
        .method_not_allowed_fallback(|| async { ApiError::WrongMethod })
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .with_state(app)
}
