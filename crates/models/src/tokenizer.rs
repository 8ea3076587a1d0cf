//! Text to ids: from a folder's `tokenizer.json`, or rebuilt from a GGUF file's vocabulary.
//!
//! Also finds the chat template and the texts of the start and end tokens. Applying the template
//! is the server's business.

use std::path::Path;

use serde::Deserialize;
use tokenizers::decoders::byte_level::ByteLevel;
use tokenizers::models::bpe::BPE;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::processors::template::TemplateProcessing;
use tokenizers::{AddedToken, PreTokenizerWrapper, Tokenizer};

use crate::error::ModelError;
use crate::files::{parse_json, read_text_if_there};
use crate::gguf::GgufFile;

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
    let refuse = |e: tokenizers::Error| ModelError::Tokenizer {
        path: path.clone(),
        problem: e.to_string(),
    };
    let mut tokenizer = Tokenizer::from_file(&path).map_err(refuse)?;
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

/// GGUF token type: control, that is, special.
const CONTROL: i64 = 3;
/// GGUF token type: added by the model's maker, matched before the merges.
const USER_DEFINED: i64 = 4;

/// Rebuilds the tokenizer of a GGUF file.
///
/// # Errors
/// [`ModelError::Tokenizer`] for a kind other than byte-level BPE, an unknown pre-tokenizer name
/// or a vocabulary that does not fit its merges.
pub fn from_gguf(file: &GgufFile) -> Result<TextParts, ModelError> {
    let refuse = |problem: String| ModelError::Tokenizer {
        path: file.path().to_owned(),
        problem,
    };
    let failed = |e: tokenizers::Error| refuse(e.to_string());
    let kind = file.string("tokenizer.ggml.model").unwrap_or("none");
    if kind != "gpt2" {
        return Err(refuse(format!("tokenizer.ggml.model {kind}: must be gpt2")));
    }
    let tokens = list(file, "tokenizer.ggml.tokens")?;
    let mut tokenizer = Tokenizer::new(bpe(file, &tokens)?);
    let pre = file.string("tokenizer.ggml.pre").unwrap_or("gpt-2");
    let split = pre_tokenizer(pre)
        .ok_or_else(|| refuse(format!("tokenizer.ggml.pre {pre}: must be gpt-2 or smollm")))?;
    tokenizer.with_pre_tokenizer(Some(split));
    tokenizer.with_decoder(Some(ByteLevel::default()));
    let types = file
        .integers("tokenizer.ggml.token_type")
        .unwrap_or_default();
    let of_type = |wanted: i64, special: bool| {
        let found = tokens
            .iter()
            .zip(&types)
            .filter(move |(_, t)| **t == wanted);
        let added = found.map(move |(text, _)| AddedToken::from(*text, special).normalized(false));
        added.collect::<Vec<_>>()
    };
    tokenizer
        .add_special_tokens(of_type(CONTROL, true))
        .map_err(failed)?;
    tokenizer
        .add_tokens(of_type(USER_DEFINED, false))
        .map_err(failed)?;
    let text_of = |key: &str| {
        let id = file.token_id(key)?;
        tokens.get(id as usize).map(|t| (id, (*t).to_owned()))
    };
    let bos = text_of("tokenizer.ggml.bos_token_id");
    if let (Some(true), Some((id, text))) = (file.flag("tokenizer.ggml.add_bos_token"), &bos) {
        tokenizer.with_post_processor(Some(start_with(text, *id).map_err(refuse)?));
    }
    Ok(TextParts {
        tokenizer,
        chat_template: file.string("tokenizer.chat_template").map(str::to_owned),
        bos_text: bos.map(|(_, text)| text),
        eos_text: text_of("tokenizer.ggml.eos_token_id").map(|(_, text)| text),
    })
}

/// A list of strings that must be there.
fn list<'a>(file: &'a GgufFile, key: &str) -> Result<Vec<&'a str>, ModelError> {
    file.strings(key).ok_or_else(|| ModelError::Tokenizer {
        path: file.path().to_owned(),
        problem: format!("{key} is missing or not a list of strings"),
    })
}

/// The model proper: vocabulary and merges.
fn bpe(file: &GgufFile, tokens: &[&str]) -> Result<BPE, ModelError> {
    let refuse = |problem: String| ModelError::Tokenizer {
        path: file.path().to_owned(),
        problem,
    };
    let merges = list(file, "tokenizer.ggml.merges")?
        .into_iter()
        .map(|m| {
            let (left, right) = m.split_once(' ').ok_or_else(|| {
                refuse(format!(
                    "tokenizer.ggml.merges holds {m:?}, which is not a pair"
                ))
            })?;
            Ok((left.to_owned(), right.to_owned()))
        })
        .collect::<Result<Vec<_>, ModelError>>()?;
    let vocab = tokens
        .iter()
        .enumerate()
        .map(|(id, t)| ((*t).to_owned(), id as u32));
    BPE::builder()
        .vocab_and_merges(vocab.collect::<tokenizers::models::bpe::Vocab>(), merges)
        .build()
        .map_err(|e| refuse(e.to_string()))
}

/// How text is cut before the merges, by llama.cpp's name for it.
fn pre_tokenizer(name: &str) -> Option<PreTokenizerWrapper> {
    let bytes = PreTokenizerWrapper::ByteLevel(ByteLevel::new(false, true, true));
    match name {
        "gpt-2" => Some(bytes),
        // Each digit alone first; transformers' own conversion leaves that out.
        "smollm" => {
            let digits = PreTokenizerWrapper::Digits(Digits::new(true));
            Some(PreTokenizerWrapper::Sequence(Sequence::new(vec![
                digits, bytes,
            ])))
        }
        _ => None,
    }
}

/// Puts the start token in front of every text.
fn start_with(text: &str, id: u32) -> Result<TemplateProcessing, String> {
    TemplateProcessing::builder()
        .try_single(vec![text.to_owned(), "$A".to_owned()])?
        .special_tokens(vec![(text.to_owned(), id)])
        .build()
        .map_err(|e| e.to_string())
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

    #[test]
    fn only_known_cuts_are_built() {
        assert!(pre_tokenizer("smollm").is_some() && pre_tokenizer("gpt-2").is_some());
        assert!(pre_tokenizer("llama-bpe").is_none());
    }
}
