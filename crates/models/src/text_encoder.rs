//! A BERT-like model behind the [`Encoder`] trait: checks inputs, packs them, runs them.

use std::sync::Arc;

use tch::Tensor;

use crate::device::Device;
use crate::encoder::{Encoder, EncoderInfo, EncoderInput, EncoderOutput};
use crate::encoder_config::{EncoderConfig, Family};
use crate::encoder_stack::{EncoderStack, PackedTexts, StatesNeeded};
use crate::error::ModelError;
use crate::heads::{Head, plain};
use crate::layers::{Compute, numbers};
use crate::pooling::Pooling;
use crate::weights::Weights;
use crate::{bert, distilbert};

/// Tokens that go through the layers together, unless one text alone is longer.
///
/// More would push the activations of a layer out of the cache, fewer would read the weights more
/// often: 512 rows of a 1536 wide MLP are 3 MiB.
const TOKENS_PER_PASS: usize = 512;

/// The same on an accelerator, which is fast only with many rows.
const TOKENS_PER_PASS_ACCELERATOR: usize = 16_384;

/// An encoder of one of the families of `encoder_config`.
pub struct TextEncoder {
    stack: EncoderStack,
    head: Head,
    compute: Arc<Compute>,
    config: EncoderConfig,
    info: EncoderInfo,
}

impl TextEncoder {
    /// Takes and reads the tensors that `config` implies. `max_tokens` is the longest sequence.
    ///
    /// # Errors
    /// [`ModelError::Tensors`] with everything that does not fit; what reading can give.
    ///
    /// # Panics
    /// If `max_tokens` is more than the positions allow.
    pub fn load(
        config: EncoderConfig,
        (pooling, max_tokens): (Pooling, usize),
        weights: &mut Weights,
        compute: &Arc<Compute>,
    ) -> Result<Self, ModelError> {
        assert!(
            max_tokens <= config.max_tokens(),
            "the positions end before max_tokens"
        );
        let (parts, head) = match config.family {
            Family::Bert | Family::Roberta => (
                bert::take(&config, weights),
                bert::take_head(&config, weights),
            ),
            Family::DistilBert => (
                distilbert::take(&config, weights),
                distilbert::take_head(&config, weights),
            ),
        };
        weights.ignore(match config.family {
            Family::Bert | Family::Roberta => bert::is_spare,
            Family::DistilBert => distilbert::is_spare,
        });
        weights.finish()?;
        let stack = EncoderStack::read(&config, weights, compute, &parts)?;
        let head = Head::read(&head, &pooling, weights, compute)?;
        let inner = config.hidden_size * (4 * config.hidden_size + 2 * config.intermediate_size);
        let info = EncoderInfo {
            architecture: config.architecture.clone(),
            head: config.head,
            n_parameters: weights.n_parameters(),
            weight_bytes: (stack.bytes() + head.bytes()) as u64,
            vocab_size: config.vocab_size,
            n_layers: config.n_layers,
            hidden_size: config.hidden_size,
            linear_flops_per_token: 2 * (config.n_layers * inner) as u64,
            max_tokens,
            n_token_types: config.n_token_types,
            labels: config.labels.clone(),
            score_kind: config.score_kind,
            pooling,
            dtype: compute.dtype,
            device: compute.device,
            threads: compute.threads(),
        };
        Ok(Self {
            stack,
            head,
            compute: Arc::clone(compute),
            config,
            info,
        })
    }

    fn check(&self, index: usize, input: EncoderInput<'_>) -> Result<(), ModelError> {
        let refuse = |problem: String| ModelError::Input { index, problem };
        let EncoderInput { ids, token_types } = input;
        if ids.is_empty() {
            return Err(refuse("no tokens".to_owned()));
        }
        if ids.len() > self.info.max_tokens {
            return Err(ModelError::TooLong {
                length: ids.len(),
                limit: self.info.max_tokens,
            });
        }
        let vocab_size = self.info.vocab_size;
        if let Some(&id) = ids.iter().find(|&&id| id as usize >= vocab_size) {
            return Err(ModelError::TokenOutOfRange { id, vocab_size });
        }
        if !token_types.is_empty() && token_types.len() != ids.len() {
            let n = token_types.len();
            return Err(refuse(format!("{n} token types for {} tokens", ids.len())));
        }
        let known = self.info.n_token_types;
        match token_types.iter().find(|&&t| t as usize >= known) {
            Some(t) if known > 1 => Err(refuse(format!("token type {t}: the model has {known}"))),
            _ => Ok(()),
        }
    }

    /// Puts inputs one behind the other.
    fn pack(&self, inputs: &[EncoderInput<'_>]) -> PackedTexts {
        let mut batch = PackedTexts::default();
        let rows = &mut batch.rows;
        for input in inputs {
            let start = rows.ids.len();
            rows.ids.extend_from_slice(input.ids);
            self.push_positions(input.ids, &mut rows.positions);
            // A model with one type takes 0 whatever the tokenizer says.
            if input.token_types.is_empty() || self.info.n_token_types < 2 {
                rows.token_types.resize(rows.ids.len(), 0);
            } else {
                rows.token_types.extend_from_slice(input.token_types);
            }
            batch.texts.push(start..rows.ids.len());
        }
        batch
    }

    /// RoBERTa counts the tokens that are no padding; a padding id inside a text takes the padding
    /// position, as the reference does it.
    fn push_positions(&self, ids: &[u32], positions: &mut Vec<u32>) {
        let first = self.config.first_position as u32;
        if self.config.family != Family::Roberta {
            positions.extend(first..first + ids.len() as u32);
            return;
        }
        let mut next = first;
        for id in ids {
            if *id == self.config.pad_id {
                positions.push(first - 1);
            } else {
                positions.push(next);
                next += 1;
            }
        }
    }

    fn states(&self, batch: &PackedTexts, needed: StatesNeeded) -> Tensor {
        tch::no_grad(|| self.stack.forward(batch, needed))
    }
}

impl Encoder for TextEncoder {
    fn info(&self) -> &EncoderInfo {
        &self.info
    }

    fn encode(&mut self, inputs: &[EncoderInput<'_>]) -> Result<Vec<EncoderOutput>, ModelError> {
        for (i, input) in inputs.iter().enumerate() {
            self.check(i, *input)?;
        }
        let mut order: Vec<usize> = (0..inputs.len()).collect();
        order.sort_by_key(|&i| inputs[i].ids.len());
        let mut outputs: Vec<Option<EncoderOutput>> = vec![None; inputs.len()];
        let most = match self.compute.device {
            Device::Cpu => TOKENS_PER_PASS,
            Device::Cuda(_) => TOKENS_PER_PASS_ACCELERATOR,
        };
        for pass in passes(&order, most, |i| inputs[i].ids.len()) {
            let texts: Vec<EncoderInput<'_>> = pass.iter().map(|&i| inputs[i]).collect();
            let batch = self.pack(&texts);
            let hidden = self.states(&batch, self.head.needs());
            let results = tch::no_grad(|| self.head.forward(&hidden, &batch, &self.compute));
            for (i, output) in pass.iter().zip(results) {
                outputs[*i] = Some(output);
            }
        }
        let all = outputs.into_iter();
        Ok(all
            .map(|o| o.expect("every input is in one pass"))
            .collect())
    }

    fn hidden(&mut self, input: EncoderInput<'_>) -> Result<Vec<f32>, ModelError> {
        self.check(0, input)?;
        let hidden = self.states(&self.pack(&[input]), StatesNeeded::All);
        Ok(numbers(&plain(&hidden)).to_vec())
    }
}

/// Cuts `order` into runs of at most `most` tokens, one text at least.
fn passes(order: &[usize], most: usize, length: impl Fn(usize) -> usize) -> Vec<&[usize]> {
    let mut passes = Vec::new();
    let (mut start, mut n_tokens) = (0, 0);
    for (at, &i) in order.iter().enumerate() {
        if at > start && n_tokens + length(i) > most {
            passes.push(&order[start..at]);
            (start, n_tokens) = (at, 0);
        }
        n_tokens += length(i);
    }
    if start < order.len() {
        passes.push(&order[start..]);
    }
    passes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_hold_whole_texts_and_every_text_once() {
        let check = |lengths: &[usize], expected: &[&[usize]]| {
            let order: Vec<usize> = (0..lengths.len()).collect();
            assert_eq!(passes(&order, 512, |i| lengths[i]), expected, "{lengths:?}");
        };
        check(&[], &[]);
        check(&[600], &[&[0]]);
        check(&[600, 600], &[&[0], &[1]]);
        check(&[200, 300, 12, 1, 511], &[&[0, 1, 2], &[3, 4]]);
        check(&[256, 256, 256], &[&[0, 1], &[2]]);
    }
}
