//! `GET /v1/models`: the one model that is served.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use prony_wire::openai::ModelList;
use prony_wire::openai::models::ModelCard;

use super::App;
use super::error::ApiError;

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
    }
}
