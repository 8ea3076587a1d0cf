//! Transformer models on LibTorch: token ids in; next tokens, vectors, labels or spans out.
//!
//! Reading order: a model's name becomes files ([`mod@load`]), its configuration picks an
//! architecture, the architecture takes its weights, and the server drives it through
//! [`decoder::Decoder`] or [`encoder::Encoder`]. Any other model comes as TorchScript
//! ([`torchscript`]). The crate knows no HTTP and no async runtime.

pub mod error;

mod files;

pub mod device;

pub mod quant;

pub mod config;

pub mod encoder_config;

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

pub mod gpt;

pub mod gpt2;

pub mod gpt_neox;

pub mod registry;

pub mod pooling;

pub mod sentence_files;

pub mod encoder_tokenizer;

pub mod scores;

pub mod encoder;

pub mod encoder_stack;

pub mod heads;

pub mod bert;

pub mod distilbert;

pub mod text_encoder;

pub mod torchscript;

pub mod load;

pub mod load_encoder;

pub mod inspect;

pub use decoder::{Decoder, ModelInfo, Scoring, StepRow};
pub use device::{Device, Dtype};
pub use encoder::{Encoder, EncoderInfo, EncoderInput, EncoderOutput, Task};
pub use error::ModelError;
pub use inspect::{Inspection, inspect};
pub use kv_cache::{KnownPrefix, Sequence};
pub use load::{LoadOptions, LoadedModel, ModelSource, load, load_from};
pub use load_encoder::{LoadedEncoder, load_encoder, load_encoder_from};
pub use quant::Quant;
pub use sampler::{NextToken, Penalties, Sampler, SamplingParams};

/// Version of the LibTorch this crate was built against, such as `2.11.0`.
pub const LIBTORCH_VERSION: &str = env!("PRONY_LIBTORCH_VERSION");
