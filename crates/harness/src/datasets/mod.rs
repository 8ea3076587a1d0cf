//! Data sets: numbered items, the same for the same configuration, whoever asks.
//!
//! To add one: a file here, a variant of [`DatasetConfig`] and an arm of [`open`]. How items
//! become requests, and which are in memory when, is `library`'s affair.

pub mod builtin;

pub mod jsonl;

pub mod synthetic;

use std::path::PathBuf;

use sha2::{Digest, Sha256};

use crate::error::DatasetError;
use crate::prompt::{Item, Prompt};

/// A data set; its items are numbered from 0.
pub trait Dataset: std::fmt::Debug + Send {
    /// Name for logs and records.
    fn name(&self) -> &str;

    /// Number of items, at least one.
    fn len(&self) -> usize;

    /// One item.
    ///
    /// # Panics
    /// If `index` is not below `len`.
    fn item(&self, index: usize) -> Item;

    /// Whether there is no item; never true of an opened data set.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether items are token ids.
    fn has_token_ids(&self) -> bool {
        (0..self.len()).any(|index| matches!(self.item(index).prompt, Prompt::TokenIds(_)))
    }

    /// SHA-256 over all items: equal digests mean that the same was asked.
    fn digest(&self) -> String {
        let mut hash = Sha256::new();
        for index in 0..self.len() {
            let item = self.item(index);
            match &item.prompt {
                Prompt::Text(text) => hash_part(&mut hash, b't', text.as_bytes()),
                Prompt::TokenIds(ids) => {
                    let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
                    hash_part(&mut hash, b'i', &bytes);
                }
                Prompt::Chat(turns) => {
                    for turn in turns {
                        hash_part(&mut hash, b'r', turn.role.as_bytes());
                        hash_part(&mut hash, b'c', turn.content.as_bytes());
                    }
                }
            }
            hash_part(&mut hash, b'm', &item.max_tokens.unwrap_or(0).to_le_bytes());
        }
        hash.finalize()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }
}

/// Kind and length go in front, so that no two lists of parts have the same bytes.
fn hash_part(hash: &mut Sha256, kind: u8, bytes: &[u8]) {
    hash.update([kind]);
    hash.update((bytes.len() as u64).to_le_bytes());
    hash.update(bytes);
}

/// A data set as a scenario file names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DatasetConfig {
    /// The short texts that come with `prony`.
    Builtin,
    /// One JSON object a line.
    Jsonl {
        /// The file.
        path: PathBuf,
        /// Which key holds the prompt.
        key: String,
    },
    /// Random token ids of a fixed length.
    Synthetic(synthetic::SyntheticConfig),
}

impl DatasetConfig {
    /// The kinds, as scenario files spell them.
    pub const KINDS: [&'static str; 3] = ["builtin", "jsonl", "synthetic"];
}

/// Opens a data set and reads what must be read.
///
/// # Errors
/// If a file cannot be read, a line is not an item, or there is no item at all.
pub fn open(config: &DatasetConfig) -> Result<Box<dyn Dataset>, DatasetError> {
    Ok(match config {
        DatasetConfig::Builtin => Box::new(builtin::Builtin),
        DatasetConfig::Jsonl { path, key } => Box::new(jsonl::Jsonl::open(path, key)?),
        DatasetConfig::Synthetic(config) => Box::new(synthetic::Synthetic::new(*config)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_tell_data_sets_apart() {
        let synthetic = |seed| {
            open(&DatasetConfig::Synthetic(synthetic::SyntheticConfig {
                n_samples: 3,
                prompt_tokens: 4,
                vocab_size: 100,
                seed,
            }))
            .unwrap()
        };
        assert_eq!(synthetic(1).digest(), synthetic(1).digest());
        assert_ne!(synthetic(1).digest(), synthetic(2).digest());
        assert!(synthetic(1).has_token_ids());
        let builtin = open(&DatasetConfig::Builtin).unwrap();
        assert!(!builtin.has_token_ids() && !builtin.is_empty());
    }
}
