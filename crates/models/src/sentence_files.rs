//! What sentence-transformers writes beside a model: how vectors are pooled, where texts are cut.
//!
//! Reads `modules.json`, the pooling module's `config.json`, `sentence_bert_config.json` (and its
//! older names) and `config_sentence_transformers.json`. A folder without them gets the defaults;
//! a module that would change the numbers and is not built here is refused, never left out.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::error::ModelError;
use crate::files::{parse_json, read_text_if_there};
use crate::pooling::{Pooling, PoolingMode};

/// What the files say.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SentenceSettings {
    /// How vectors are made.
    pub pooling: Pooling,
    /// Tokens after which a text is cut, special tokens included.
    pub max_seq_length: Option<usize>,
    /// True where texts are lower-cased before the tokenizer sees them.
    pub lower_case: bool,
    /// Put in front of every text unless the caller chooses another prompt.
    pub default_prompt: Option<String>,
}

/// Names that `sentence_bert_config.json` has had, by model family.
const LENGTH_FILES: [&str; 4] = [
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_xlm-roberta_config.json",
];

impl SentenceSettings {
    /// Reads the files of a folder.
    ///
    /// # Errors
    /// [`ModelError::Malformed`] for bad JSON, [`ModelError::Config`] for what is not built here.
    pub fn read(folder: &Path) -> Result<Self, ModelError> {
        let mut settings = Self::default();
        if let Some((path, modules)) = read_json::<Vec<RawModule>>(folder, "modules.json")? {
            settings.pooling = pooling(folder, &path, &modules)?;
        }
        for name in LENGTH_FILES {
            if let Some((path, raw)) = read_json::<RawLength>(folder, name)? {
                if raw.max_seq_length == Some(0) {
                    return Err(refuse(path, "max_seq_length 0: must be at least 1".into()));
                }
                settings.max_seq_length = raw.max_seq_length;
                settings.lower_case = raw.do_lower_case.unwrap_or(false);
                break;
            }
        }
        let name = "config_sentence_transformers.json";
        if let Some((path, raw)) = read_json::<RawPrompts>(folder, name)? {
            settings.default_prompt = raw.default_prompt(path)?;
        }
        Ok(settings)
    }
}

/// A file of the folder, `None` where it is not there.
fn read_json<T: DeserializeOwned>(
    folder: &Path,
    name: &str,
) -> Result<Option<(PathBuf, T)>, ModelError> {
    let path = folder.join(name);
    let Some(text) = read_text_if_there(&path)? else {
        return Ok(None);
    };
    let value = parse_json(&path, &text)?;
    Ok(Some((path, value)))
}

fn refuse(path: PathBuf, problem: String) -> ModelError {
    ModelError::Config {
        path,
        problems: vec![problem],
    }
}

/// An entry of `modules.json`.
#[derive(Debug, Deserialize)]
struct RawModule {
    path: String,
    #[serde(rename = "type")]
    class: String,
}

#[derive(Debug, Deserialize)]
struct RawLength {
    max_seq_length: Option<usize>,
    do_lower_case: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct RawPrompts {
    prompts: Option<BTreeMap<String, String>>,
    default_prompt_name: Option<String>,
}

impl RawPrompts {
    fn default_prompt(self, path: PathBuf) -> Result<Option<String>, ModelError> {
        let Some(name) = self.default_prompt_name else {
            return Ok(None);
        };
        match self.prompts.unwrap_or_default().remove(&name) {
            Some(prompt) => Ok(Some(prompt)),
            None => Err(refuse(
                path,
                format!("default_prompt_name {name}: no such prompt"),
            )),
        }
    }
}

/// The chain must be transformer, pooling and perhaps a normalisation.
fn pooling(folder: &Path, path: &Path, modules: &[RawModule]) -> Result<Pooling, ModelError> {
    let mut pooling = None;
    let mut normalize = false;
    for module in modules {
        match module.class.rsplit('.').next().unwrap_or_default() {
            "Transformer" if module.path.is_empty() => {}
            "Transformer" => {
                let problem = format!("the model is in {}: name that folder", module.path);
                return Err(refuse(path.to_owned(), problem));
            }
            "Pooling" => {
                // A name with a parent in it would reach outside the folder.
                if module.path.contains("..") || module.path.starts_with('/') {
                    let problem = format!("path {}: must be inside the folder", module.path);
                    return Err(refuse(path.to_owned(), problem));
                }
                pooling = Some(modes(&folder.join(&module.path))?);
            }
            "Normalize" => normalize = true,
            _ => {
                let problem = format!(
                    "module {}: must be Transformer, Pooling or Normalize",
                    module.class
                );
                return Err(refuse(path.to_owned(), problem));
            }
        }
    }
    Ok(Pooling {
        modes: pooling.unwrap_or(Pooling::default().modes),
        normalize,
    })
}

/// The pooling module's `config.json`: a flag a mode, or the modes by name.
#[derive(Debug, Deserialize)]
struct RawPooling {
    #[serde(flatten)]
    keys: BTreeMap<String, serde_json::Value>,
}

/// Flag, name and mode in the order in which the reference puts vectors side by side.
const MODES: [(&str, &str, PoolingMode); 6] = [
    ("pooling_mode_cls_token", "cls", PoolingMode::Cls),
    ("pooling_mode_max_tokens", "max", PoolingMode::Max),
    ("pooling_mode_mean_tokens", "mean", PoolingMode::Mean),
    (
        "pooling_mode_mean_sqrt_len_tokens",
        "mean_sqrt_len_tokens",
        PoolingMode::MeanSqrtLen,
    ),
    (
        "pooling_mode_weightedmean_tokens",
        "weightedmean",
        PoolingMode::WeightedMean,
    ),
    (
        "pooling_mode_lasttoken",
        "lasttoken",
        PoolingMode::LastToken,
    ),
];

fn modes(folder: &Path) -> Result<Vec<PoolingMode>, ModelError> {
    let Some((path, raw)) = read_json::<RawPooling>(folder, "config.json")? else {
        return Err(ModelError::MissingFile {
            folder: folder.to_owned(),
            file: "config.json",
        });
    };
    let named: Vec<&str> = match raw.keys.get("pooling_mode") {
        Some(serde_json::Value::String(name)) => vec![name],
        Some(serde_json::Value::Array(names)) => {
            names.iter().filter_map(serde_json::Value::as_str).collect()
        }
        _ => Vec::new(),
    };
    let is_on = |flag: &str| raw.keys.get(flag).and_then(serde_json::Value::as_bool) == Some(true);
    let found: Vec<PoolingMode> = MODES
        .iter()
        .filter(|(flag, name, _)| is_on(flag) || named.contains(name))
        .map(|(_, _, mode)| *mode)
        .collect();
    if let Some(name) = named
        .iter()
        .find(|n| MODES.iter().all(|(_, name, _)| name != *n))
    {
        return Err(refuse(path, format!("pooling_mode {name} is not known")));
    }
    if found.is_empty() {
        return Err(refuse(path, "no pooling mode is switched on".to_owned()));
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
