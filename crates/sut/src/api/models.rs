//! `GET /v1/models`: the one model that is served.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use prony_wire::openai::ModelList;
use prony_wire::openai::models::{EngineCard, ModelCard};

use super::App;
use super::error::ApiError;
use crate::config::{BackendConfig, Config};

/// All models.
pub(crate) async fn list(State(app): State<Arc<App>>) -> Json<ModelList> {
    Json(ModelList {
        object: "list".to_owned(),
        data: vec![card(&app)],
    })
}

/// One model by name.
pub(crate) async fn one(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
) -> Result<Json<ModelCard>, ApiError> {
    app.check_model(Some(&name))?;
    Ok(Json(card(&app)))
}

fn card(app: &App) -> ModelCard {
    ModelCard {
        id: app.model_name.clone(),
        object: "model".to_owned(),
        created: app.created,
        owned_by: "prony".to_owned(),
        max_model_len: Some(app.admission.bounds().max_model_len as u64),
        engine: Some(app.engine.clone()),
    }
}

/// What a measurement needs to know of this server.
#[must_use]
pub fn engine_card(config: &Config) -> EngineCard {
    let (backend, torch) = match &config.backend {
        BackendConfig::Echo(_) => ("echo", None),
        BackendConfig::Torch(torch) => ("torch", Some(torch)),
    };
    EngineCard {
        server: concat!("prony-sut ", env!("CARGO_PKG_VERSION")).to_owned(),
        backend: backend.to_owned(),
        libtorch: torch.and_then(|_| libtorch_version()),
        dtype: torch.map(|t| format!("{:?}", t.dtype).to_lowercase()),
        quant: torch.map(|t| t.quant.name().to_owned()),
        device: torch.map(|t| t.device.clone()),
        // The echo backend computes on the engine's one thread.
        threads: torch.map_or(1, |t| t.threads as u64),
        max_batch_rows: config.limits.max_batch_rows as u64,
        max_batch_tokens: config.limits.max_batch_tokens as u64,
        kv_tokens: config.limits.kv_tokens as u64,
    }
}

fn libtorch_version() -> Option<String> {
    #[cfg(feature = "torch")]
    return Some(prony_models::LIBTORCH_VERSION.to_owned());
    #[cfg(not(feature = "torch"))]
    None
}
