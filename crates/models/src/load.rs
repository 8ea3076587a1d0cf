//! From a model's name to a loaded model: finds the files, reads configuration, tokenizer and
//! weights, and builds the architecture.

use std::convert::Infallible;
use std::path::PathBuf;
use std::str::FromStr;

use crate::decoder::{Decoder, ModelInfo};
use crate::device::{Device, Dtype};
use crate::error::ModelError;

/// What a model is loaded from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelSource {
    /// A folder in Hugging Face layout, or a GGUF file.
    Path(PathBuf),
    /// A repository on a hub.
    Hub {
        /// `org/name`.
        repo: String,
        /// Branch, tag or commit.
        revision: String,
    },
}

impl FromStr for ModelSource {
    type Err = Infallible;

    /// `org/name` or `org/name@revision` names a repository unless it is a path that exists.
    fn from_str(s: &str) -> Result<Self, Infallible> {
        let path = PathBuf::from(s);
        let (repo, revision) = s.split_once('@').unwrap_or((s, "main"));
        if path.exists() || !looks_like_repo(repo) {
            return Ok(Self::Path(path));
        }
        Ok(Self::Hub {
            repo: repo.to_owned(),
            revision: revision.to_owned(),
        })
    }
}

/// True for `org/name`: two parts, none of them a way to write a path.
fn looks_like_repo(s: &str) -> bool {
    let named = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && part
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    s.split_once('/')
        .is_some_and(|(org, name)| named(org) && named(name))
        && !s.ends_with(".gguf")
}

/// How to load a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadOptions {
    /// Number format of weights and cache.
    pub dtype: Dtype,
    /// Where to compute.
    pub device: Device,
    /// Threads on the processor. Chosen, not defaulted: a team larger than the cores that are
    /// really free is slower than one thread.
    pub threads: usize,
    /// Tokens the key/value cache holds, all sequences together.
    pub kv_capacity_tokens: usize,
}

/// A model ready to serve.
pub struct LoadedModel {
    /// Computes; belongs to one thread.
    pub decoder: Box<dyn Decoder>,
    /// Text to ids and back.
    pub tokenizer: tokenizers::Tokenizer,
    /// Jinja source that turns messages into a prompt.
    pub chat_template: Option<String>,
    /// Text of the token that starts a text, for the template.
    pub bos_text: Option<String>,
    /// Text of the token that ends a text, for the template.
    pub eos_text: Option<String>,
    /// Facts about the model.
    pub info: ModelInfo,
}

/// Loads a model.
///
/// # Errors
/// Any [`ModelError`] but those of a step; none leaves a thread or file behind.
pub fn load(source: &ModelSource, _options: &LoadOptions) -> Result<LoadedModel, ModelError> {
    // FIXME(#2): the architectures land next; until then every source is refused by name.
    Err(ModelError::UnsupportedArchitecture {
        architecture: format!("{source:?}"),
        supported: Vec::new(),
    })
}
