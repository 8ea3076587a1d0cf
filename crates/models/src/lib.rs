//! Transformer models on LibTorch: token ids in, next tokens or logits out.
//!
//! Reading order: a model's name becomes files ([`load`]), its configuration picks an
//! architecture, the architecture takes its weights, and the server drives it through
//! [`decoder::Decoder`]. The crate knows no HTTP and no async runtime.

#![allow(dead_code, reason = "the architectures that use all of it land next")]

pub mod error;

pub mod device;

pub mod kv_cache;

pub mod sampler;

pub mod decoder;

pub mod load;

pub use decoder::{Decoder, ModelInfo, StepRow};
pub use device::{Device, Dtype};
pub use error::ModelError;
pub use kv_cache::Sequence;
pub use load::{LoadOptions, LoadedModel, ModelSource, load};
pub use sampler::{NextToken, Sampler, SamplingParams};
