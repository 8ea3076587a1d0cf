//! From a model's name to a loaded model: finds the files, reads configuration, tokenizer and
//! weights, and builds the architecture.

use std::convert::Infallible;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use crate::config::{self, ModelConfig};
use crate::decoder::{Decoder, ModelInfo};
use crate::device::{Device, Dtype};
use crate::error::ModelError;
use crate::gguf::GgufFile;
use crate::hub::Hub;
use crate::kernels;
use crate::layers::Compute;
use crate::parallel::Team;
use crate::quant::Quant;
use crate::registry;
use crate::tokenizer::{self, TextParts};
use crate::weights::Weights;

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
    /// Number format of the weights.
    pub dtype: Dtype,
    /// Number format of the key/value cache; `None` is that of the weights.
    pub kv_dtype: Option<Dtype>,
    /// Where to compute.
    pub device: Device,
    /// Threads on the processor, the calling one included. Chosen, not defaulted: the cores may be
    /// shared with the client that measures.
    ///
    /// Our own loops need no more care: a thread whose core is taken claims no work. LibTorch's
    /// operators run on OpenMP (libgomp), whose barriers wait for the slowest thread: with another
    /// process on a core a step can take ten times as long, and `OMP_WAIT_POLICY=passive` only
    /// saves the spinning. There, choose 1 unless the cores are free. `KMP_BLOCKTIME` is read by
    /// Intel's and LLVM's OpenMP, not by the one in LibTorch's wheel.
    pub threads: usize,
    /// Tokens the key/value cache holds, all sequences together.
    pub kv_capacity_tokens: usize,
    /// How matrices are quantised. Only our own loops can: elsewhere anything but [`Quant::None`]
    /// is refused.
    pub quant: Quant,
    /// Use this crate's own loops where the processor can run them (AVX2 and FMA). Without,
    /// LibTorch's operators do the work, as they do on every other device.
    pub own_kernels: bool,
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
pub fn load(source: &ModelSource, options: &LoadOptions) -> Result<LoadedModel, ModelError> {
    load_from(source, options, &Hub::from_env())
}

/// [`load`] with a hub that is given, not read from the environment.
///
/// # Errors
/// As [`load`].
pub fn load_from(
    source: &ModelSource,
    options: &LoadOptions,
    hub: &Hub,
) -> Result<LoadedModel, ModelError> {
    let (config, mut weights, text) = open(source, hub)?;
    let compute = Arc::new(compute_for(&config, options)?);
    let capacity = options.kv_capacity_tokens;
    if options.device == Device::Cpu {
        check_cache_memory(&config, options)?;
    }
    let decoder = registry::build_decoder(&config, &mut weights, &compute, capacity)?;
    weights.warn_not_finite();
    let info = decoder.info().clone();
    let TextParts {
        tokenizer,
        chat_template,
        bos_text,
        eos_text,
    } = text;
    Ok(LoadedModel {
        decoder,
        tokenizer,
        chat_template,
        bos_text,
        eos_text,
        info,
    })
}

/// Configuration, weights and text parts of a decoder, its weights not read.
pub(crate) fn open(
    source: &ModelSource,
    hub: &Hub,
) -> Result<(ModelConfig, Weights, TextParts), ModelError> {
    match files(source, hub)? {
        Files::Gguf(path) => {
            let file = GgufFile::open(&path)?;
            let config = file.config()?;
            let text = tokenizer::from_gguf(&file)?;
            Ok((config, Weights::from_gguf(file), text))
        }
        Files::Folder(folder) => {
            let path = folder.join("config.json");
            // First of all: the keys of another kind of model would only mislead.
            registry::check(&ModelConfig::architecture_of(&path)?)?;
            let mut config = ModelConfig::read(&path)?;
            let generation = config::generation_eos_ids(&folder.join("generation_config.json"))?;
            if !generation.is_empty() {
                config.eos_ids = generation;
                let problems = config.contradictions();
                if !problems.is_empty() {
                    let path = folder.join("generation_config.json");
                    return Err(ModelError::Config { path, problems });
                }
            }
            Ok((
                config,
                Weights::open_folder(&folder)?,
                tokenizer::from_folder(&folder)?,
            ))
        }
    }
}

/// Asks the system whether it would give the whole cache, which is taken layer by layer and filled
/// much later: refused here it is one line, refused there a crash.
///
/// # Errors
/// [`ModelError::CacheMemory`].
pub(crate) fn check_cache_memory(
    config: &ModelConfig,
    options: &LoadOptions,
) -> Result<(), ModelError> {
    let tokens = options.kv_capacity_tokens;
    // Each size is at most 2^30, but not all their products.
    let sizes = [
        tokens,
        2 * options.kv_dtype.unwrap_or(options.dtype).size(),
        config.n_layers,
        config.n_kv_heads,
        config.head_dim,
    ];
    let bytes = sizes.into_iter().fold(1, usize::saturating_mul);
    match memmap2::MmapMut::map_anon(bytes.max(1)) {
        Ok(_) => Ok(()),
        Err(source) => Err(ModelError::CacheMemory {
            tokens,
            bytes: bytes as u64,
            source,
        }),
    }
}

/// [`compute`] for a decoder: the loops take rows in panels of 16, and heads of q, k and v share a
/// packed matrix.
pub(crate) fn compute_for(
    config: &ModelConfig,
    options: &LoadOptions,
) -> Result<Compute, ModelError> {
    compute(options, config.head_dim.is_multiple_of(16))
}

/// Prepares the device; our own loops are used where they can and `fits` allows them.
pub(crate) fn compute(options: &LoadOptions, fits: bool) -> Result<Compute, ModelError> {
    options.device.prepare()?;
    let threads = options.threads.max(1);
    // Operators of LibTorch split their work over this many threads; see `LoadOptions::threads`.
    tch::set_num_threads(i32::try_from(threads).unwrap_or(i32::MAX));
    let own = options.own_kernels && fits && options.device == Device::Cpu && kernels::available();
    if options.quant != Quant::None && !own {
        return Err(ModelError::Quant {
            quant: options.quant.to_string(),
            problem: "needs this crate's own loops: device cpu, AVX2 and FMA, and heads of a \
                      multiple of 16",
        });
    }
    let team = own.then(|| Team::new(threads));
    Ok(Compute {
        device: options.device,
        dtype: options.dtype,
        kv_dtype: options.kv_dtype.unwrap_or(options.dtype),
        quant: options.quant,
        team,
    })
}

/// Where a model's files are.
pub(crate) enum Files {
    Folder(PathBuf),
    Gguf(PathBuf),
}

pub(crate) fn files(source: &ModelSource, hub: &Hub) -> Result<Files, ModelError> {
    let path = match source {
        ModelSource::Path(path) => path.clone(),
        ModelSource::Hub { repo, revision } => hub.folder(repo, revision)?,
    };
    if !path.exists() {
        return Err(ModelError::NotFound { path });
    }
    if !path.is_dir() {
        return Ok(Files::Gguf(path));
    }
    if path.join("config.json").exists() {
        return Ok(Files::Folder(path));
    }
    let mut gguf: Vec<PathBuf> = std::fs::read_dir(&path)
        .map_err(|source| ModelError::Io {
            path: path.clone(),
            source,
        })?
        .flatten()
        .map(|entry| entry.path())
        .filter(|p| p.extension().is_some_and(|e| e == "gguf"))
        .collect();
    match gguf.len() {
        1 => Ok(Files::Gguf(gguf.remove(0))),
        0 => Err(ModelError::MissingFile {
            folder: path,
            file: "config.json or .gguf file",
        }),
        n => Err(ModelError::Malformed {
            path,
            problem: format!("{n} .gguf files: name one"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_told_apart() {
        let parse = |s: &str| s.parse::<ModelSource>().expect("never fails");
        let hub = |repo: &str, revision: &str| ModelSource::Hub {
            repo: repo.to_owned(),
            revision: revision.to_owned(),
        };
        assert_eq!(parse("org/name"), hub("org/name", "main"));
        assert_eq!(parse("org/name@v1.2"), hub("org/name", "v1.2"));
        for path in [
            "./org/name",
            "/org/name",
            "name",
            "a/b/c",
            "org/name.gguf",
            "../x/y",
        ] {
            assert_eq!(parse(path), ModelSource::Path(path.into()), "{path}");
        }
        // A folder that exists wins over a repository of the same name.
        assert_eq!(parse("src/layers"), ModelSource::Path("src/layers".into()));
    }

    #[test]
    fn a_cache_larger_than_any_memory_is_refused_before_it_is_taken() {
        let tiny = "../../tests/golden/models/tiny/llama_gqa_tied";
        let options = LoadOptions {
            dtype: Dtype::F32,
            kv_dtype: None,
            device: Device::Cpu,
            threads: 1,
            kv_capacity_tokens: 1 << 42,
            quant: Quant::None,
            own_kernels: true,
        };
        let refused = load(&ModelSource::Path(tiny.into()), &options).map(|_| ());
        let text = refused.expect_err("no machine has it").to_string();
        let start = "key/value cache of 4398046511104 tokens: ";
        assert!(text.starts_with(start), "{text}");
    }
}
