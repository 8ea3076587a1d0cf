//! From an encoder's name to a loaded encoder, beside `load` for decoders.

use std::sync::Arc;

use crate::encoder::{Encoder, EncoderInfo};
use crate::encoder_config::{EncoderConfig, HeadKind};
use crate::encoder_tokenizer::{EncoderTokenizer, TextRules};
use crate::error::ModelError;
use crate::hub::Hub;
use crate::load::{Files, LoadOptions, ModelSource, compute, files};
use crate::sentence_files::SentenceSettings;
use crate::text_encoder::TextEncoder;
use crate::tokenizer::model_max_length;
use crate::weights::Weights;

/// An encoder ready to serve.
pub struct LoadedEncoder {
    /// Computes; belongs to one thread.
    pub encoder: Box<dyn Encoder>,
    /// Texts and pairs to ids.
    pub tokenizer: EncoderTokenizer,
    /// Facts about the model.
    pub info: EncoderInfo,
}

/// Loads an encoder. `options.kv_capacity_tokens` means nothing here: an encoder keeps no cache.
///
/// # Errors
/// Any [`ModelError`] but those of a batch; none leaves a thread or file behind.
pub fn load_encoder(
    source: &ModelSource,
    options: &LoadOptions,
) -> Result<LoadedEncoder, ModelError> {
    load_encoder_from(source, options, &Hub::from_env())
}

/// [`load_encoder`] with a hub that is given, not read from the environment.
///
/// # Errors
/// As [`load_encoder`].
pub fn load_encoder_from(
    source: &ModelSource,
    options: &LoadOptions,
    hub: &Hub,
) -> Result<LoadedEncoder, ModelError> {
    let folder = match files(source, hub)? {
        Files::Folder(folder) => folder,
        Files::Gguf(path) => {
            return Err(ModelError::RefusedFormat {
                path,
                format: "a GGUF encoder",
                advice: "name the model's Hugging Face folder",
            });
        }
    };
    let config = EncoderConfig::read(&folder.join("config.json"))?;
    let settings = SentenceSettings::read(&folder)?;
    // The shortest of what is said counts: no text may be longer than the positions.
    let said = settings
        .max_seq_length
        .or(model_max_length(&folder)?)
        .unwrap_or(usize::MAX);
    let max_tokens = said.min(config.max_tokens());
    let rules = TextRules {
        max_tokens,
        head: config.head,
        lower_case: settings.lower_case,
        default_prompt: settings
            .default_prompt
            .filter(|_| config.head == HeadKind::Embedding),
    };
    let tokenizer = EncoderTokenizer::read(&folder, rules)?;
    let mut weights = Weights::open_folder(&folder)?;
    let compute = Arc::new(compute(options, true)?);
    let limits = (settings.pooling, max_tokens);
    let encoder = TextEncoder::load(config, limits, &mut weights, &compute)?;
    weights.warn_not_finite();
    let info = encoder.info().clone();
    Ok(LoadedEncoder {
        encoder: Box::new(encoder),
        tokenizer,
        info,
    })
}
