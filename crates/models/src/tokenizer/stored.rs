//! A tokenizer rebuilt from the vocabulary that a GGUF file stores.
//!
//! Two kinds: byte-level BPE, whose merges are stored and whose cuts have a name, and
//! SentencePiece's BPE, whose merges follow from the scores of the pieces.

use std::cmp::Reverse;

use tokenizers::decoders::DecoderWrapper;
use tokenizers::decoders::byte_fallback::ByteFallback;
use tokenizers::decoders::byte_level::ByteLevel;
use tokenizers::decoders::fuse::Fuse;
use tokenizers::decoders::sequence::Sequence as Decoders;
use tokenizers::decoders::strip::Strip;
use tokenizers::models::bpe::{BPE, BpeBuilder, Merges, Vocab};
use tokenizers::normalizers::{NFC, Prepend, Replace, Sequence as Normalizers};
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::processors::template::TemplateProcessing;
use tokenizers::{
    AddedToken, NormalizerWrapper, PreTokenizerWrapper, SplitDelimiterBehavior, Tokenizer,
};

use super::TextParts;
use crate::error::ModelError;
use crate::gguf::GgufFile;

/// Types of tokens, as `tokenizer.ggml.token_type` numbers them.
mod token_type {
    /// Stands for what the vocabulary lacks.
    pub(super) const UNKNOWN: i64 = 2;
    /// Special.
    pub(super) const CONTROL: i64 = 3;
    /// Added by the model's maker, matched before the merges.
    pub(super) const USER_DEFINED: i64 = 4;
}

/// How SentencePiece writes a space.
const SPACE: &str = "\u{2581}";

/// Rebuilds the tokenizer of a GGUF file.
///
/// # Errors
/// [`ModelError::Tokenizer`] for a kind that is not known, an unknown name of cuts, or a
/// vocabulary that does not fit its merges.
pub fn from_gguf(file: &GgufFile) -> Result<TextParts, ModelError> {
    build(file).map_err(|problem| ModelError::Tokenizer {
        path: file.path().to_owned(),
        problem,
    })
}

fn build(file: &GgufFile) -> Result<TextParts, String> {
    let stored = Stored::read(file)?;
    let (mut tokenizer, starts) = match file.string("tokenizer.ggml.model").unwrap_or("none") {
        "gpt2" => byte_level(file, &stored)?,
        "llama" => sentence_piece(file, &stored)?,
        kind => {
            return Err(format!(
                "tokenizer.ggml.model {kind}: must be gpt2 or llama"
            ));
        }
    };
    let added = |kind: i64, special: bool| -> Vec<AddedToken> {
        let texts = stored.of_type(kind);
        texts
            .map(|text| AddedToken::from(text, special).normalized(false))
            .collect()
    };
    tokenizer
        .add_special_tokens(added(token_type::CONTROL, true))
        .map_err(|e| e.to_string())?;
    tokenizer
        .add_tokens(added(token_type::USER_DEFINED, false))
        .map_err(|e| e.to_string())?;
    let text_of = |key: &str| {
        let id = file.token_id(key)?;
        let text = stored.tokens.get(id as usize);
        text.map(|text| (id, (*text).to_owned()))
    };
    let bos = text_of("tokenizer.ggml.bos_token_id");
    let starts = file.flag("tokenizer.ggml.add_bos_token").unwrap_or(starts);
    if let (true, Some((id, text))) = (starts, &bos) {
        tokenizer.with_post_processor(Some(start_with(text, *id)?));
    }
    Ok(TextParts {
        tokenizer,
        chat_template: file.string("tokenizer.chat_template").map(str::to_owned),
        bos_text: bos.map(|(_, text)| text),
        eos_text: text_of("tokenizer.ggml.eos_token_id").map(|(_, text)| text),
    })
}

/// The vocabulary as stored, by id.
struct Stored<'a> {
    tokens: Vec<&'a str>,
    types: Vec<i64>,
}

impl<'a> Stored<'a> {
    fn read(file: &'a GgufFile) -> Result<Self, String> {
        let types = file.integers("tokenizer.ggml.token_type");
        Ok(Self {
            tokens: list(file, "tokenizer.ggml.tokens")?,
            types: types.unwrap_or_default(),
        })
    }

    fn of_type(&self, kind: i64) -> impl Iterator<Item = String> {
        let all = self.tokens.iter().zip(&self.types);
        all.filter(move |(_, t)| **t == kind)
            .map(|(text, _)| (*text).to_owned())
    }

    fn vocab(&self) -> Vocab {
        let ids = self.tokens.iter().enumerate();
        ids.map(|(id, text)| ((*text).to_owned(), id as u32))
            .collect()
    }
}

/// A list of strings that must be there.
fn list<'a>(file: &'a GgufFile, key: &str) -> Result<Vec<&'a str>, String> {
    file.strings(key)
        .ok_or_else(|| format!("{key} is missing or not a list of strings"))
}

/// Byte-level BPE, and whether its texts start with the start token where the file says nothing.
fn byte_level(file: &GgufFile, stored: &Stored<'_>) -> Result<(Tokenizer, bool), String> {
    let merges = list(file, "tokenizer.ggml.merges")?.into_iter();
    let merges = merges.map(|m| {
        let (left, right) = m
            .split_once(' ')
            .ok_or_else(|| format!("tokenizer.ggml.merges holds {m:?}, which is not a pair"))?;
        Ok((left.to_owned(), right.to_owned()))
    });
    let merges = merges.collect::<Result<Merges, String>>()?;
    let name = file.string("tokenizer.ggml.pre").unwrap_or("gpt-2");
    let cuts = Cuts::of(name).ok_or_else(|| {
        format!("tokenizer.ggml.pre {name}: must be gpt-2, smollm, llama-bpe or qwen2")
    })?;
    let llama = cuts == Cuts::Llama;
    // Llama 3's vocabulary holds words that its merges do not lead to.
    let bpe = finish(BPE::builder().ignore_merges(llama), stored, merges)?;
    let mut tokenizer = Tokenizer::new(bpe);
    tokenizer.with_pre_tokenizer(Some(cuts.pre_tokenizer()?));
    tokenizer.with_decoder(Some(ByteLevel::default()));
    if cuts == Cuts::Qwen {
        tokenizer
            .with_normalizer(Some(NFC))
            .map_err(|e| e.to_string())?;
    }
    Ok((tokenizer, llama))
}

fn finish(builder: BpeBuilder, stored: &Stored<'_>, merges: Merges) -> Result<BPE, String> {
    let builder = builder.vocab_and_merges(stored.vocab(), merges);
    builder.build().map_err(|e| e.to_string())
}

/// How text is cut before the merges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cuts {
    Gpt2,
    SmolLm,
    Llama,
    Qwen,
}

impl Cuts {
    /// By llama.cpp's name.
    fn of(name: &str) -> Option<Self> {
        match name {
            "gpt-2" => Some(Self::Gpt2),
            "smollm" => Some(Self::SmolLm),
            "llama-bpe" | "llama3" | "llama-v3" => Some(Self::Llama),
            "qwen2" => Some(Self::Qwen),
            _ => None,
        }
    }

    fn pre_tokenizer(self) -> Result<PreTokenizerWrapper, String> {
        let bytes = |cuts| PreTokenizerWrapper::ByteLevel(ByteLevel::new(false, true, cuts));
        let sequence =
            |first, cuts| PreTokenizerWrapper::Sequence(Sequence::new(vec![first, bytes(cuts)]));
        Ok(match self {
            Self::Gpt2 => bytes(true),
            // Each digit alone first; transformers' own conversion leaves that out.
            Self::SmolLm => sequence(PreTokenizerWrapper::Digits(Digits::new(true)), true),
            Self::Llama => sequence(split(r"\p{N}{1,3}")?, false),
            Self::Qwen => sequence(split(r"\p{N}")?, false),
        })
    }
}

/// The cuts of Llama 3 and Qwen2, which differ in how digits go together.
fn split(digits: &str) -> Result<PreTokenizerWrapper, String> {
    let pattern = [
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)",
        r"[^\r\n\p{L}\p{N}]?\p{L}+",
        digits,
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
    .join("|");
    let isolated = SplitDelimiterBehavior::Isolated;
    let split = Split::new(SplitPattern::Regex(pattern), isolated, false);
    split
        .map(PreTokenizerWrapper::Split)
        .map_err(|e| e.to_string())
}

/// SentencePiece's BPE: of all neighbors the pair whose join has the best score is joined first.
fn sentence_piece(file: &GgufFile, stored: &Stored<'_>) -> Result<(Tokenizer, bool), String> {
    let scores = file.numbers("tokenizer.ggml.scores").unwrap_or_default();
    if scores.len() != stored.tokens.len() {
        let (n, of) = (scores.len(), stored.tokens.len());
        return Err(format!(
            "tokenizer.ggml.scores holds {n} numbers for {of} tokens"
        ));
    }
    let unknown = stored.of_type(token_type::UNKNOWN).next();
    let mut builder = BPE::builder().byte_fallback(true).fuse_unk(true);
    if let Some(text) = unknown {
        builder = builder.unk_token(text);
    }
    let mut tokenizer = Tokenizer::new(finish(builder, stored, merges(stored, &scores))?);
    let prefix = file.flag("tokenizer.ggml.add_space_prefix").unwrap_or(true);
    let replace = |from: &str, to: &str| Replace::new(from, to).map_err(|e| e.to_string());
    let mut normalizers = vec![NormalizerWrapper::Replace(replace(" ", SPACE)?)];
    let mut decoders = vec![
        DecoderWrapper::Replace(replace(SPACE, " ")?),
        DecoderWrapper::ByteFallback(ByteFallback::new()),
        DecoderWrapper::Fuse(Fuse::new()),
    ];
    if prefix {
        normalizers.insert(
            0,
            NormalizerWrapper::Prepend(Prepend::new(SPACE.to_owned())),
        );
        decoders.push(DecoderWrapper::Strip(Strip::new(' ', 1, 0)));
    }
    let normalizers = Normalizers::new(normalizers);
    tokenizer
        .with_normalizer(Some(normalizers))
        .map_err(|e| e.to_string())?;
    tokenizer.with_decoder(Some(Decoders::new(decoders)));
    Ok((tokenizer, true))
}

/// Every way to make a piece of two others, best score first.
fn merges(stored: &Stored<'_>, scores: &[f64]) -> Merges {
    let vocab = stored.vocab();
    let joined_by_score = |t: i64| t != token_type::CONTROL && t != token_type::USER_DEFINED;
    let mut all: Vec<(f64, &str, &str)> = Vec::new();
    for (id, (piece, score)) in stored.tokens.iter().zip(scores).enumerate() {
        if !stored.types.get(id).copied().is_none_or(joined_by_score) {
            continue;
        }
        for (at, _) in piece.char_indices().skip(1) {
            let (left, right) = piece.split_at(at);
            if vocab.contains_key(left) && vocab.contains_key(right) {
                all.push((*score, left, right));
            }
        }
    }
    // The longer left part first where the scores are equal, as in transformers' conversion.
    all.sort_by(|a, b| {
        let lengths = |x: &(f64, &str, &str)| Reverse((x.1.len(), x.2.len()));
        b.0.total_cmp(&a.0).then(lengths(a).cmp(&lengths(b)))
    });
    all.into_iter()
        .map(|(_, left, right)| (left.to_owned(), right.to_owned()))
        .collect()
}

/// Puts the start token in front of every text.
fn start_with(text: &str, id: u32) -> Result<TemplateProcessing, String> {
    TemplateProcessing::builder()
        .try_single(vec![text.to_owned(), "$A".to_owned()])?
        .special_tokens(vec![(text.to_owned(), id)])
        .build()
        .map_err(|e| e.to_string())
}
