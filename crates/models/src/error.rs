//! The one error type of the crate: what can go wrong between a model's name and its next token.
//!
//! Every variant carries what the reader needs to act: the path, the key, the shapes. Bugs of ours
//! (a kernel called with the wrong shape) are panics, not variants.

use std::fmt;
use std::path::PathBuf;

/// Why a model could not be loaded or a step could not be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A path that was named does not exist.
    #[error("model {path}: no such file or folder")]
    NotFound {
        /// The path as typed.
        path: PathBuf,
    },
    /// A file could not be opened, read or mapped.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A folder lacks a file that every model needs.
    #[error("{folder}: no {file} in this folder")]
    MissingFile {
        /// The folder that was searched.
        folder: PathBuf,
        /// The file (or the alternatives) looked for.
        file: &'static str,
    },
    /// Weights in a format that is refused on purpose.
    #[error("{path}: {format} is not read: {advice}")]
    RefusedFormat {
        /// The file.
        path: PathBuf,
        /// Its format.
        format: &'static str,
        /// What to do instead.
        advice: &'static str,
    },
    /// A file is not what its name says, or contradicts itself.
    #[error("{path}: {problem}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong, naming the key and the value.
        problem: String,
    },
    /// One or more settings of a model configuration make no sense.
    #[error("{path}: {}", .problems.join("; "))]
    Config {
        /// The file the configuration came from.
        path: PathBuf,
        /// Every problem found, each naming key and value.
        problems: Vec<String>,
    },
    /// No wiring for this architecture.
    #[error("architecture {architecture} is not supported (supported: {})", .supported.join(", "))]
    UnsupportedArchitecture {
        /// The name the checkpoint gives.
        architecture: String,
        /// The names that would work.
        supported: Vec<&'static str>,
    },
    /// A weight encoding that is not decoded.
    #[error("tensor {tensor}: {encoding} is not supported (supported: {supported})")]
    UnsupportedEncoding {
        /// The tensor.
        tensor: String,
        /// Its dtype or quantisation.
        encoding: String,
        /// The encodings that would work.
        supported: &'static str,
    },
    /// The checkpoint's tensors do not fit the model; all findings at once.
    #[error("{path}: {report}")]
    Tensors {
        /// The checkpoint.
        path: PathBuf,
        /// Missing, mis-shaped and unused tensors.
        report: TensorReport,
    },
    /// The tokenizer could not be read or built.
    #[error("{path}: tokenizer: {problem}")]
    Tokenizer {
        /// The file.
        path: PathBuf,
        /// What the tokenizer library or the vocabulary check said.
        problem: String,
    },
    /// A hub could not deliver a model.
    #[error("{repo}@{revision}: {problem}")]
    Hub {
        /// `org/name`.
        repo: String,
        /// Branch, tag or commit.
        revision: String,
        /// What went wrong, with the endpoint or cache folder named.
        problem: String,
    },
    /// The device asked for is not there.
    #[error("device {device}: {problem}")]
    Device {
        /// The device as typed.
        device: String,
        /// Why it cannot be used.
        problem: String,
    },
    /// A number format that is not known.
    #[error("dtype {dtype}: must be f32 or bf16")]
    Dtype {
        /// As typed.
        dtype: String,
    },
    /// Weights cannot be quantised so, or not here.
    #[error("quant {quant}: {problem}")]
    Quant {
        /// As typed.
        quant: String,
        /// What it must be, or what it needs.
        problem: &'static str,
    },
    /// LibTorch refused an operation.
    #[error("libtorch: {0}")]
    Torch(#[from] tch::TchError),
    /// The system has no memory for a cache of this size.
    #[error("key/value cache of {tokens} tokens: {bytes} bytes: {source}")]
    CacheMemory {
        /// Tokens it was to hold.
        tokens: usize,
        /// What they take.
        bytes: u64,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// Weights and cache together would not fit.
    #[error(
        "{device}: {weights} bytes of weights and {cache} of key/value cache do not fit into the \
         {available} that are free"
    )]
    Memory {
        /// Where they were to be.
        device: String,
        /// What the weights take.
        weights: u64,
        /// What the cache takes when it is full.
        cache: u64,
        /// What is free.
        available: u64,
    },
    /// The key/value cache has no room for the tokens asked for.
    #[error("key/value cache: {needed} tokens needed, {free} of {capacity} free")]
    KvExhausted {
        /// Tokens asked for, rounded up to whole blocks.
        needed: usize,
        /// Tokens that fit now.
        free: usize,
        /// Tokens that fit an empty cache.
        capacity: usize,
    },
    /// A sequence would grow past what the model's positions allow.
    #[error("sequence of {length} tokens: the model allows {limit}")]
    TooLong {
        /// The length it would have.
        length: usize,
        /// The model's limit.
        limit: usize,
    },
    /// A token id the vocabulary does not have.
    #[error("token id {id}: the vocabulary has {vocab_size}")]
    TokenOutOfRange {
        /// The id.
        id: u32,
        /// Number of rows in the embedding.
        vocab_size: usize,
    },
    /// An input of a batch that cannot be computed, or cannot be made from a text.
    #[error("input {index}: {problem}")]
    Input {
        /// Index of the input in the batch.
        index: usize,
        /// What is wrong, naming the numbers.
        problem: String,
    },
    /// A TorchScript module could not be loaded or run.
    #[error("{path}: torchscript: {problem}")]
    Script {
        /// The module's file.
        path: PathBuf,
        /// What LibTorch said, in one line.
        problem: String,
    },
    /// A step row without tokens.
    #[error("step row {row}: no tokens")]
    EmptyRow {
        /// Index of the row in the step.
        row: usize,
    },
    /// A model that computes no numbers any more; no request can be blamed for it.
    #[error("the largest of {vocab_size} logits is not a finite number")]
    NoLogits {
        /// Length of the row.
        vocab_size: usize,
    },
    /// A sampling parameter outside its range.
    #[error("{name} {value}: {allowed}")]
    Sampling {
        /// The parameter.
        name: &'static str,
        /// Its value.
        value: f64,
        /// What it may be.
        allowed: &'static str,
    },
}

/// How a checkpoint's tensors differ from what the architecture takes.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct TensorReport {
    /// Tensors the architecture needs and the checkpoint lacks.
    pub missing: Vec<String>,
    /// Tensors the checkpoint has and the architecture never took.
    pub unused: Vec<String>,
    /// Tensors whose shape is not the one the configuration implies.
    pub misshaped: Vec<Misshaped>,
}

/// One tensor with the wrong shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misshaped {
    /// The tensor's name.
    pub name: String,
    /// Shape implied by the configuration.
    pub expected: Vec<usize>,
    /// Shape in the checkpoint.
    pub got: Vec<usize>,
}

impl TensorReport {
    /// True where the checkpoint fits.
    pub fn is_empty(&self) -> bool {
        self.missing.is_empty() && self.unused.is_empty() && self.misshaped.is_empty()
    }
}

/// More names than this help nobody; the count is always exact.
const NAMES_SHOWN: usize = 8;

impl fmt::Display for TensorReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let misshaped: Vec<String> = self
            .misshaped
            .iter()
            .map(|m| {
                format!(
                    "tensor {}: expected {:?}, got {:?}",
                    m.name, m.expected, m.got
                )
            })
            .collect();
        let mut parts = Vec::new();
        for (what, names) in [
            ("missing", &self.missing),
            ("mis-shaped", &misshaped),
            ("unused", &self.unused),
        ] {
            if names.is_empty() {
                continue;
            }
            let shown = names[..names.len().min(NAMES_SHOWN)].join(", ");
            let more = names.len().saturating_sub(NAMES_SHOWN);
            let tail = if more > 0 {
                format!(" and {more} more")
            } else {
                String::new()
            };
            parts.push(format!("{} {what} tensors: {shown}{tail}", names.len()));
        }
        f.write_str(&parts.join("; "))
    }
}
