//! Transformer models on LibTorch: token ids in, next tokens or logits out.
//!
//! Reading order: a model's name becomes files ([`mod@load`]), its configuration picks an
//! architecture, the architecture takes its weights, and the server drives it through
//! [`decoder::Decoder`]. The crate knows no HTTP and no async runtime.

pub mod error;

pub mod device;

pub mod config;

pub mod mapped_file;

pub mod gguf;

pub mod weights;

pub mod tokenizer;

pub mod hub;

pub mod kv_cache;

pub mod parallel;

pub mod kernels;

pub mod layers;

pub mod sampler;

pub mod decoder;

pub mod causal;

pub mod llama;

pub mod registry;

pub mod load;

pub use decoder::{Decoder, ModelInfo, StepRow};
pub use device::{Device, Dtype};
pub use error::ModelError;
pub use kv_cache::Sequence;
pub use load::{LoadOptions, LoadedModel, ModelSource, load, load_from};
pub use sampler::{NextToken, Sampler, SamplingParams};

/// Version of the LibTorch this crate was built against, such as `2.11.0`.
pub const LIBTORCH_VERSION: &str = env!("PRONY_LIBTORCH_VERSION");
