//! `GET /v1/models`.

use serde::{Deserialize, Serialize};

/// The models a server offers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelList {
    /// Always `list`.
    pub object: String,
    /// One entry a model.
    pub data: Vec<ModelCard>,
}

/// One model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelCard {
    /// The name to put into a request's `model`.
    pub id: String,
    /// Always `model`.
    #[serde(default)]
    pub object: String,
    /// Unix time in seconds; for our server, the start of the process.
    #[serde(default)]
    pub created: u64,
    /// Who offers the model.
    #[serde(default)]
    pub owned_by: String,
    /// Prompt plus output tokens that fit (vLLM's field name).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_model_len: Option<u64>,
}
