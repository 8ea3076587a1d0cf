//! Random token ids of a fixed length, from a seed: the prompt length is exact on any model.
//!
//! Ids are drawn uniformly from the vocabulary's ordinary range; what they say means nothing, so
//! answers should be given a fixed length (`ignore_eos`).

use super::Dataset;
use crate::prompt::{Item, Prompt};

/// Ids below this are control tokens in the vocabularies we serve and are not drawn.
const FIRST_ORDINARY_ID: u32 = 64;

/// What to draw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyntheticConfig {
    /// Number of prompts.
    pub n_samples: u32,
    /// Tokens of each prompt.
    pub prompt_tokens: u32,
    /// Ids are below this.
    pub vocab_size: u32,
    /// Same seed, same prompts.
    pub seed: u64,
}

/// The data set; items are drawn anew each time they are asked for.
#[derive(Debug)]
pub struct Synthetic {
    config: SyntheticConfig,
    name: String,
}

impl Synthetic {
    /// A data set of `config`.
    #[must_use]
    pub fn new(config: SyntheticConfig) -> Self {
        let name = format!(
            "synthetic-{}x{}-seed{}",
            config.n_samples, config.prompt_tokens, config.seed
        );
        Self { config, name }
    }
}

impl Dataset for Synthetic {
    fn name(&self) -> &str {
        &self.name
    }

    fn len(&self) -> usize {
        self.config.n_samples as usize
    }

    fn item(&self, index: usize) -> Item {
        assert!(index < self.len(), "item {index} of {}", self.len());
        // A stream of its own per item, so that an item does not depend on its neighbours.
        let mut random = SplitMix64(self.config.seed ^ (index as u64).wrapping_mul(GOLDEN_GAMMA));
        let n_ordinary = u64::from(
            self.config
                .vocab_size
                .saturating_sub(FIRST_ORDINARY_ID)
                .max(1),
        );
        let first = FIRST_ORDINARY_ID.min(self.config.vocab_size.saturating_sub(1));
        let ids = (0..self.config.prompt_tokens)
            .map(|_| first + u32::try_from(random.next() % n_ordinary).unwrap_or(0))
            .collect();
        Item {
            prompt: Prompt::TokenIds(ids),
            max_tokens: None,
        }
    }

    fn has_token_ids(&self) -> bool {
        true
    }
}

const GOLDEN_GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// Source: Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators (OOPSLA 2014).
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN_GAMMA);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitmix_gives_its_published_first_value() {
        // First output for seed 0, as in the reference implementation's tests.
        assert_eq!(SplitMix64(0).next(), 0xE220_A839_7B1D_CDAF);
    }

    #[test]
    fn prompts_have_their_length_and_range() {
        let config = SyntheticConfig {
            n_samples: 20,
            prompt_tokens: 33,
            vocab_size: 70,
            seed: 5,
        };
        let data = Synthetic::new(config);
        for index in 0..20 {
            let Prompt::TokenIds(ids) = data.item(index).prompt else {
                panic!("ids")
            };
            assert_eq!(ids.len(), 33);
            assert!(ids.iter().all(|id| (64..70).contains(id)), "{ids:?}");
        }
        assert_ne!(data.item(0), data.item(1));
    }

    #[test]
    fn a_tiny_vocabulary_still_works() {
        let config = SyntheticConfig {
            n_samples: 1,
            prompt_tokens: 2,
            vocab_size: 1,
            seed: 0,
        };
        assert_eq!(
            Synthetic::new(config).item(0).prompt,
            Prompt::TokenIds(vec![0, 0])
        );
    }
}
