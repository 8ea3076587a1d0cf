//! Text to ids: from a folder's `tokenizer.json`; `stored` rebuilds it from a GGUF file.
//!
//! Also finds the chat template and the texts of the start and end tokens. Applying the template
//! is the server's business.

use std::panic::catch_unwind;
use std::path::Path;

use serde::Deserialize;
use tokenizers::Tokenizer;

use crate::error::ModelError;
use crate::files::{parse_json, read_text_if_there};

mod stored;

pub use stored::from_gguf;

/// A tokenizer and what belongs to it.
pub struct TextParts {
    /// Text to ids and back; adds no padding and cuts nothing off.
    pub tokenizer: Tokenizer,
    /// Jinja source that turns messages into a prompt.
    pub chat_template: Option<String>,
    /// Text of the token that starts a text.
    pub bos_text: Option<String>,
    /// Text of the token that ends a text.
    pub eos_text: Option<String>,
}

/// Reads the tokenizer of a Hugging Face folder.
///
/// # Errors
/// [`ModelError::MissingFile`], [`ModelError::Tokenizer`], [`ModelError::Malformed`].
pub fn from_folder(folder: &Path) -> Result<TextParts, ModelError> {
    let path = folder.join("tokenizer.json");
    if !path.exists() {
        let file = "tokenizer.json";
        return Err(ModelError::MissingFile {
            folder: folder.to_owned(),
            file,
        });
    }
    let refuse_text = |problem: String| ModelError::Tokenizer {
        path: path.clone(),
        problem,
    };
    let refuse = |e: tokenizers::Error| refuse_text(e.to_string());
    // Some damaged files panic inside the library: it reads a piece twice and expects no fault
    // the second time.
    let mut tokenizer = catch_unwind(|| Tokenizer::from_file(&path))
        .map_err(|_| refuse_text("the file is not valid".to_owned()))?
        .map_err(refuse)?;
    // Some folders store the settings of a training run; a server cuts and pads by its own rules.
    tokenizer.with_truncation(None).map_err(refuse)?;
    tokenizer.with_padding(None);
    let config = RawTokenizerConfig::read(&folder.join("tokenizer_config.json"))?;
    // The file of its own is the newer way and wins, as in transformers.
    let template = read_text_if_there(&folder.join("chat_template.jinja"))?;
    Ok(TextParts {
        tokenizer,
        chat_template: template.or(config.chat_template.and_then(RawTemplate::main)),
        bos_text: config.bos_token.map(RawToken::text),
        eos_text: config.eos_token.map(RawToken::text),
    })
}

/// Longest sequence that `tokenizer_config.json` allows, where it names one that is meant:
/// transformers writes 10^30 for "no limit".
///
/// # Errors
/// [`ModelError::Malformed`].
pub fn model_max_length(folder: &Path) -> Result<Option<usize>, ModelError> {
    let config = RawTokenizerConfig::read(&folder.join("tokenizer_config.json"))?;
    let length = config.model_max_length.filter(|n| (1.0..1e9).contains(n));
    Ok(length.map(|n| n as usize))
}

/// `tokenizer_config.json`.
#[derive(Debug, Default, Deserialize)]
struct RawTokenizerConfig {
    chat_template: Option<RawTemplate>,
    bos_token: Option<RawToken>,
    eos_token: Option<RawToken>,
    model_max_length: Option<f64>,
}

impl RawTokenizerConfig {
    fn read(path: &Path) -> Result<Self, ModelError> {
        let Some(text) = read_text_if_there(path)? else {
            return Ok(Self::default());
        };
        parse_json(path, &text)
    }
}

/// One template, or several by name.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum RawTemplate {
    One(String),
    Named(Vec<NamedTemplate>),
}

#[derive(Debug, Deserialize)]
struct NamedTemplate {
    name: String,
    template: String,
}

impl RawTemplate {
    fn main(self) -> Option<String> {
        match self {
            Self::One(template) => Some(template),
            Self::Named(all) => all
                .into_iter()
                .find(|t| t.name == "default")
                .map(|t| t.template),
        }
    }
}

/// A token as text or as an object with its matching rules.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum RawToken {
    Text(String),
    Object { content: String },
}

impl RawToken {
    fn text(self) -> String {
        match self {
            Self::Text(text) | Self::Object { content: text } => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> RawTokenizerConfig {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn tokens_and_templates_come_in_two_styles() {
        let plain = config(r#"{"bos_token": "<s>", "chat_template": "A"}"#);
        assert_eq!(plain.bos_token.map(RawToken::text).as_deref(), Some("<s>"));
        assert_eq!(
            plain.chat_template.and_then(RawTemplate::main).as_deref(),
            Some("A")
        );
        let rich = config(
            r#"{"eos_token": {"content": "</s>", "lstrip": false}, "bos_token": null,
                "chat_template": [{"name": "rag", "template": "R"},
                                  {"name": "default", "template": "D"}]}"#,
        );
        assert_eq!(rich.eos_token.map(RawToken::text).as_deref(), Some("</s>"));
        assert!(rich.bos_token.is_none());
        assert_eq!(
            rich.chat_template.and_then(RawTemplate::main).as_deref(),
            Some("D")
        );
    }
}
