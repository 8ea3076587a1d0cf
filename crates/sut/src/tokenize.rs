//! Text to ids ([`Tokenizer`]) and ids to bytes ([`TokenTable`]).
//!
//! Bytes, not text: a character may be spread over several tokens, so only the sequence of bytes
//! has a meaning token by token. Putting characters together is `detokenize`'s task.

use crate::error::SutError;

/// The echo backend's end-of-text id, one past the bytes.
pub const BYTE_EOS: u32 = 256;

/// Turns text into ids. Shared by all handlers.
#[derive(Debug)]
pub enum Tokenizer {
    /// One id a byte; needs no files.
    Bytes,
    /// A model's own.
    Model(Box<tokenizers::Tokenizer>),
}

/// The tokenizer library could not encode a text; its own words.
#[derive(Debug, thiserror::Error)]
#[error("the text cannot be tokenized: {0}")]
pub struct TokenizeError(String);

impl Tokenizer {
    /// A model's tokenizer, its truncation and padding switched off: cutting a prompt silently
    /// would answer another question (MiniLM's file, for one, asks for a cut at 128).
    ///
    /// # Errors
    /// [`SutError::Tokenizer`] with the library's words.
    pub fn from_model(mut tokenizer: tokenizers::Tokenizer, model: &str) -> Result<Self, SutError> {
        tokenizer.with_padding(None);
        tokenizer
            .with_truncation(None)
            .map_err(|e| SutError::Tokenizer {
                model: model.to_owned(),
                problem: e.to_string(),
            })?;
        Ok(Tokenizer::Model(Box::new(tokenizer)))
    }

    /// The ids of `text`. `special` adds what the model puts around every text; a chat template
    /// has written that itself, so chat passes false (no double start token).
    ///
    /// # Errors
    /// [`TokenizeError`] where the library refuses the text.
    pub fn encode(&self, text: &str, special: bool) -> Result<Vec<u32>, TokenizeError> {
        match self {
            Tokenizer::Bytes => Ok(text.bytes().map(u32::from).collect()),
            Tokenizer::Model(tokenizer) => tokenizer
                .encode_fast(text, special)
                .map(|encoding| encoding.get_ids().to_vec())
                .map_err(|e| TokenizeError(e.to_string())),
        }
    }
}

/// The bytes behind each id.
#[derive(Debug)]
pub enum TokenTable {
    /// Ids below 256 are that byte, 256 is nothing, others show their number.
    Bytes,
    /// A model's vocabulary.
    Vocabulary {
        /// All tokens' bytes, one after the other in id order.
        bytes: Vec<u8>,
        /// Where token `i` ends in `bytes`; it starts where `i - 1` ends.
        ends: Vec<u32>,
    },
}

impl TokenTable {
    /// Reads a tokenizer's whole vocabulary once. Special tokens become nothing.
    ///
    /// # Errors
    /// [`SutError::Tokenizer`] for a decoder that is neither byte-level nor SentencePiece-like.
    pub fn from_model(tokenizer: &tokenizers::Tokenizer, model: &str) -> Result<Self, SutError> {
        let spelling = Spelling::of(tokenizer).map_err(|problem| SutError::Tokenizer {
            model: model.to_owned(),
            problem,
        })?;
        let added = tokenizer.get_added_tokens_decoder();
        let highest_added = added.keys().max().map_or(0, |&id| id as usize + 1);
        let n_ids = tokenizer.get_vocab_size(true).max(highest_added);
        let mut bytes = Vec::new();
        let mut ends = Vec::with_capacity(n_ids);
        for id in 0..n_ids as u32 {
            match added.get(&id) {
                Some(token) if token.special => {}
                Some(token) => bytes.extend_from_slice(token.content.as_bytes()),
                None => {
                    if let Some(token) = tokenizer.id_to_token(id) {
                        spelling.append(&token, &mut bytes);
                    }
                }
            }
            ends.push(bytes.len() as u32);
        }
        Ok(TokenTable::Vocabulary { bytes, ends })
    }

    /// The text of `ids`, the replacement character for what is none.
    #[must_use]
    pub fn text(&self, ids: &[u32]) -> String {
        let mut bytes = Vec::new();
        ids.iter().for_each(|&id| self.append(id, &mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Appends the bytes of token `id`; nothing for an id outside the vocabulary.
    pub fn append(&self, id: u32, out: &mut Vec<u8>) {
        match self {
            TokenTable::Bytes => match u8::try_from(id) {
                Ok(byte) => out.push(byte),
                Err(_) if id == BYTE_EOS => {}
                Err(_) => out.extend_from_slice(format!("<{id}>").as_bytes()),
            },
            TokenTable::Vocabulary { bytes, ends } => {
                let idx = id as usize;
                let Some(&end) = ends.get(idx) else { return };
                let start = if idx == 0 { 0 } else { ends[idx - 1] };
                out.extend_from_slice(&bytes[start as usize..end as usize]);
            }
        }
    }
}

/// How a vocabulary spells bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spelling {
    /// GPT-2's alphabet: one printable character a byte.
    ByteLevel,
    /// `▁` for a space, `<0xAB>` for a byte without a token of its own.
    SentencePiece,
}

impl Spelling {
    fn of(tokenizer: &tokenizers::Tokenizer) -> Result<Self, String> {
        let decoder = tokenizer.get_decoder().ok_or("there is no decoder")?;
        let json = serde_json::to_string(decoder).map_err(|e| e.to_string())?;
        // The library's decoder types cannot be looked into; their JSON form can.
        let has = |kind: &str| json.contains(&format!("\"type\":\"{kind}\""));
        if has("ByteLevel") {
            Ok(Spelling::ByteLevel)
        } else if has("ByteFallback") || has("Metaspace") {
            Ok(Spelling::SentencePiece)
        } else {
            Err(format!("decoder {json} is not supported"))
        }
    }

    fn append(self, token: &str, out: &mut Vec<u8>) {
        match self {
            Spelling::ByteLevel => {
                for c in token.chars() {
                    match byte_of_level_char(c) {
                        Some(byte) => out.push(byte),
                        // Not of the alphabet: the token stands for itself.
                        None => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
                    }
                }
            }
            Spelling::SentencePiece => match byte_token(token) {
                Some(byte) => out.push(byte),
                None => out.extend_from_slice(token.replace('▁', " ").as_bytes()),
            },
        }
    }
}

/// `<0xAB>` → 0xAB.
fn byte_token(token: &str) -> Option<u8> {
    let hex = token.strip_prefix("<0x")?.strip_suffix('>')?;
    if hex.len() == 2 {
        u8::from_str_radix(hex, 16).ok()
    } else {
        None
    }
}

/// GPT-2's alphabet: printable Latin-1 stands for itself, the other 68 bytes for U+0100 onward,
/// in order.
///
/// Source: `bytes_to_unicode` in openai/gpt-2, `src/encoder.py`.
fn byte_of_level_char(c: char) -> Option<u8> {
    let code = u32::from(c);
    let byte = match code {
        0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF => code,
        0x100..=0x120 => code - 0x100,
        0x121..=0x142 => code - 0x121 + 0x7F,
        0x143 => 0xAD,
        _ => return None,
    };
    u8::try_from(byte).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_byte_level_alphabet_names_every_byte_once() {
        let mut seen: Vec<u8> = (0..0x200)
            .filter_map(char::from_u32)
            .filter_map(byte_of_level_char)
            .collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..=255).collect::<Vec<u8>>());
        // Hand-picked from the published table: Ġ is the space, Ċ the line feed.
        assert_eq!(byte_of_level_char('Ġ'), Some(b' '));
        assert_eq!(byte_of_level_char('Ċ'), Some(b'\n'));
        assert_eq!(byte_of_level_char('Ń'), Some(0xAD));
        assert_eq!(byte_of_level_char('Ł'), Some(0x9F));
        assert_eq!(byte_of_level_char('ł'), Some(0xA0));
        assert_eq!(byte_of_level_char('€'), None);
    }

    #[test]
    fn spellings() {
        let bytes = |spelling: Spelling, token: &str| {
            let mut out = Vec::new();
            spelling.append(token, &mut out);
            out
        };
        assert_eq!(bytes(Spelling::ByteLevel, "ĠworldĊ"), b" world\n");
        assert_eq!(bytes(Spelling::ByteLevel, "ðŁĺĢ"), "😀".as_bytes());
        assert_eq!(bytes(Spelling::SentencePiece, "▁the"), b" the");
        assert_eq!(bytes(Spelling::SentencePiece, "<0xF0>"), [0xF0]);
        assert_eq!(bytes(Spelling::SentencePiece, "<0xFFF>"), b"<0xFFF>");
    }

    #[test]
    fn bytes_and_back() {
        let ids = Tokenizer::Bytes.encode("é\n", true).unwrap();
        assert_eq!(ids, [0xC3, 0xA9, 0x0A]);
        let mut out = Vec::new();
        for id in ids.into_iter().chain([BYTE_EOS, 300]) {
            TokenTable::Bytes.append(id, &mut out);
        }
        assert_eq!(out, "é\n<300>".as_bytes());
    }
}
