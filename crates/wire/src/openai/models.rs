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
    /// How the server computes, so that a record of a run can say it. Ours alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<EngineCard>,
}

/// What a measurement needs to know of the server behind a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineCard {
    /// Program and version.
    pub server: String,
    /// `torch` or `echo`.
    pub backend: String,
    /// Version of LibTorch the server was built against.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub libtorch: Option<String>,
    /// Number format of weights and cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtype: Option<String>,
    /// How matrices are quantised: `none`, `int8`, `int8-dynamic` or `int4`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quant: Option<String>,
    /// `cpu`, `cuda` or `cuda:N`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Threads that compute.
    pub threads: u64,
    /// Most sequences in one step.
    pub max_batch_rows: u64,
    /// Most tokens in one step.
    pub max_batch_tokens: u64,
    /// Tokens the key/value cache holds.
    pub kv_tokens: u64,
}
