//! Texts and pairs to what an encoder takes: ids with special tokens, token types, offsets.
//!
//! A folder's `tokenizer.json` may carry the cut and the padding of some training run (MiniLM's
//! asks for 128 of each); both are overridden: texts are cut where the model ends and never padded.

use std::path::Path;

use tokenizers::{
    Encoding, PostProcessor, PostProcessorWrapper, Tokenizer, TruncationDirection,
    TruncationParams, TruncationStrategy, truncate_encodings,
};

use crate::encoder_config::HeadKind;
use crate::error::ModelError;
use crate::tokenizer;

/// Tokens that two windows over a long context share at most.
///
/// Source: `doc_stride` of transformers' question answering pipeline.
const WINDOW_OVERLAP: usize = 128;

/// One text, or two that belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EncoderText<'a> {
    /// A text.
    One(&'a str),
    /// Query and document, or question and context.
    Pair(&'a str, &'a str),
}

/// A text as tokens.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EncoderTokens {
    /// Token ids, special ones included.
    pub ids: Vec<u32>,
    /// 0 for the first text and 1 for the second, as the tokenizer's template says.
    pub token_types: Vec<u32>,
    /// Which text each token is from; `None` for special tokens.
    pub texts: Vec<Option<usize>>,
    /// Bytes of the text that each token covers.
    pub offsets: Vec<(usize, usize)>,
    /// Tokens that the whole text has, special ones included: more than `ids` where it was cut.
    pub n_whole: usize,
}

impl EncoderTokens {
    /// True where the text was longer than the model takes and a part of it is missing.
    pub fn is_cut(&self) -> bool {
        self.n_whole > self.ids.len()
    }
}

/// An encoder's tokenizer. Use it from any thread.
pub struct EncoderTokenizer {
    /// Text to ids; cuts nothing off and adds no special tokens.
    ///
    /// It could do both, but the cutting of tokenizers 0.23.2 stops reading where the cut will be:
    /// what is left out could then not be counted, nor read as the next window.
    tokenizer: Tokenizer,
    /// Adds the special tokens.
    processor: Option<PostProcessorWrapper>,
    strategy: TruncationStrategy,
    max_tokens: usize,
    lower_case: bool,
    default_prompt: Option<String>,
}

/// What a folder says about its texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextRules {
    /// Longest sequence, special tokens included.
    pub max_tokens: usize,
    /// What stands on top: for question answering only the context is cut.
    pub head: HeadKind,
    /// True where texts are lower-cased first.
    pub lower_case: bool,
    /// Put in front of a text that stands alone.
    pub default_prompt: Option<String>,
}

impl EncoderTokenizer {
    /// Reads the tokenizer of a Hugging Face folder.
    ///
    /// # Errors
    /// [`ModelError::MissingFile`], [`ModelError::Tokenizer`], also where so few tokens are
    /// allowed that the special ones do not fit.
    pub fn read(folder: &Path, rules: TextRules) -> Result<Self, ModelError> {
        let mut tokenizer = tokenizer::from_folder(folder)?.tokenizer;
        let processor = tokenizer.get_post_processor().cloned();
        tokenizer.with_post_processor(None::<PostProcessorWrapper>);
        let is_answer = rules.head == HeadKind::QuestionAnswering;
        let read = Self {
            tokenizer,
            processor,
            strategy: if is_answer {
                TruncationStrategy::OnlySecond
            } else {
                TruncationStrategy::LongestFirst
            },
            max_tokens: rules.max_tokens,
            lower_case: rules.lower_case,
            default_prompt: rules.default_prompt,
        };
        let n_special = read.n_special(false).max(read.n_special(true));
        if read.max_tokens <= n_special {
            return Err(ModelError::Tokenizer {
                path: folder.join("tokenizer.json"),
                problem: format!(
                    "{} tokens allowed: must be more than the {n_special} special ones",
                    read.max_tokens
                ),
            });
        }
        Ok(read)
    }

    /// Longest sequence it makes, special tokens included.
    pub fn max_tokens(&self) -> usize {
        self.max_tokens
    }

    /// The tokenizer below, without special tokens: for ids to text.
    pub fn inner(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Tokens of a text, cut at the model's length.
    ///
    /// # Errors
    /// [`ModelError::Input`] where a pair cannot be cut: the question alone is too long.
    pub fn encode(&self, text: EncoderText<'_>) -> Result<EncoderTokens, ModelError> {
        let (encoding, n_whole) = self.run(text, (self.strategy, 0))?;
        Ok(tokens(&encoding, n_whole))
    }

    /// Tokens of a question with every part of a long context in turn; neighbours share up to
    /// 128 tokens, so that no short answer is split.
    ///
    /// # Errors
    /// As [`EncoderTokenizer::encode`].
    pub fn windows(&self, question: &str, context: &str) -> Result<Vec<EncoderTokens>, ModelError> {
        let pair = EncoderText::Pair(question, context);
        let by_context = (TruncationStrategy::OnlySecond, WINDOW_OVERLAP);
        let (encoding, n_whole) = self.run(pair, by_context)?;
        let rest = encoding.get_overflowing().iter();
        let windows = std::iter::once(&encoding).chain(rest);
        Ok(windows.map(|window| tokens(window, n_whole)).collect())
    }

    fn n_special(&self, is_pair: bool) -> usize {
        let processor = self.processor.as_ref();
        processor.map_or(0, |p| p.added_tokens(is_pair))
    }

    /// One encoding, what was cut off in its overflow; and the tokens of the whole text.
    fn run(
        &self,
        text: EncoderText<'_>,
        (strategy, overlap): (TruncationStrategy, usize),
    ) -> Result<(Encoding, usize), ModelError> {
        let (first, second) = match (text, &self.default_prompt) {
            (EncoderText::One(text), Some(prompt)) => (self.ids(&format!("{prompt}{text}"))?, None),
            (EncoderText::One(text), None) => (self.ids(text)?, None),
            (EncoderText::Pair(a, b), _) => (self.ids(a)?, Some(self.ids(b)?)),
        };
        let n_special = self.n_special(second.is_some());
        let n_second = second.as_ref().map_or(0, Encoding::len);
        let n_whole = first.len() + n_second + n_special;
        let room = self.max_tokens.saturating_sub(n_special);
        // An overlap must leave a window room to move on: half of what the question leaves free.
        let free = room.saturating_sub(first.len());
        let params = TruncationParams {
            direction: TruncationDirection::Right,
            max_length: room,
            strategy,
            stride: overlap.min(free / 2),
        };
        if second.is_some() && strategy == TruncationStrategy::OnlySecond && free == 0 {
            return Err(ModelError::Input {
                index: 0,
                problem: format!(
                    "a question of {} tokens leaves no room: the model allows {}",
                    first.len(),
                    self.max_tokens
                ),
            });
        }
        let (first, second) = truncate_encodings(first, second, &params).map_err(|e| cannot(&e))?;
        let encoding = match &self.processor {
            Some(processor) => processor.process(first, second, true),
            None => Ok(Encoding::merge(std::iter::once(first).chain(second), false)),
        };
        Ok((encoding.map_err(|e| cannot(&e))?, n_whole))
    }

    fn ids(&self, text: &str) -> Result<Encoding, ModelError> {
        let encoding = if self.lower_case {
            self.tokenizer.encode(text.to_lowercase(), false)
        } else {
            self.tokenizer.encode(text, false)
        };
        encoding.map_err(|e| cannot(&e))
    }
}

fn cannot(e: &tokenizers::Error) -> ModelError {
    ModelError::Input {
        index: 0,
        problem: format!("tokenizer: {e}"),
    }
}

fn tokens(encoding: &Encoding, n_whole: usize) -> EncoderTokens {
    EncoderTokens {
        ids: encoding.get_ids().to_vec(),
        token_types: encoding.get_type_ids().to_vec(),
        texts: encoding.get_sequence_ids(),
        offsets: encoding.get_offsets().to_vec(),
        n_whole,
    }
}
