//! The flags of a model: number formats, device, threads.

use std::num::NonZeroUsize;

use clap::ValueEnum;

/// A number format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DtypeName {
    /// IEEE single precision.
    F32,
    /// bfloat16.
    Bf16,
}

/// How the model's matrices are quantised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum QuantName {
    /// Not at all.
    None,
    /// 8-bit weights, one scale an output; activations keep 16 bits.
    Int8,
    /// 8-bit weights and activations.
    Int8Dynamic,
    /// 4-bit weights in groups of 32, as GGUF's Q4_0 and Q4_1 are; embedding and head 8-bit.
    Int4,
}

impl QuantName {
    /// As typed.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Int8 => "int8",
            Self::Int8Dynamic => "int8-dynamic",
            Self::Int4 => "int4",
        }
    }
}

/// The flags about how a model computes.
#[derive(Debug, clap::Args)]
pub struct ModelArgs {
    /// Number format of the weights
    #[arg(long, value_enum, default_value = "f32")]
    pub dtype: DtypeName,
    /// Number format of the key/value cache [default: that of --dtype]
    #[arg(long, value_enum)]
    pub kv_dtype: Option<DtypeName>,
    /// How the model's matrices are quantised; needs device cpu
    #[arg(long, value_enum, default_value = "none")]
    pub quant: QuantName,
    /// Where to compute: cpu, cuda or cuda:N
    #[arg(long, default_value = "cpu")]
    pub device: String,
    /// Threads LibTorch computes with [default: the machine's cores]
    #[arg(long)]
    pub threads: Option<usize>,
}

/// The flags of `prony-sut inspect`.
#[derive(Debug, clap::Args)]
pub struct InspectArgs {
    /// Model folder, GGUF file, or org/name@revision on the Hub
    pub model: String,
    /// How the model would compute.
    #[command(flatten)]
    pub how: ModelArgs,
    /// Tokens the key/value cache would hold
    #[arg(long, default_value_t = 16_384)]
    pub kv_tokens: usize,
    /// Most tokens in one step
    #[arg(long, default_value_t = 256)]
    pub max_batch_tokens: usize,
    /// One JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// What to load and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TorchConfig {
    /// Folder, file or `org/name`.
    pub model: String,
    /// Number format of the weights.
    pub dtype: DtypeName,
    /// Number format of the cache.
    pub kv_dtype: DtypeName,
    /// How matrices are quantised.
    pub quant: QuantName,
    /// `cpu`, `cuda` or `cuda:N`.
    pub device: String,
    /// LibTorch's team.
    pub threads: usize,
    /// Load it even where its memory looks too small.
    pub force: bool,
}

impl ModelArgs {
    /// The settings of `model`.
    #[must_use]
    pub fn of(&self, model: String) -> TorchConfig {
        TorchConfig {
            model,
            dtype: self.dtype,
            kv_dtype: self.kv_dtype.unwrap_or(self.dtype),
            quant: self.quant,
            device: self.device.clone(),
            threads: self.threads.unwrap_or_else(cores),
            force: false,
        }
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
}
