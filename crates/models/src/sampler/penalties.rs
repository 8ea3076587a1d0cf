//! What is done to logits before a token is drawn: biases, and penalties for what was said already.

use std::collections::{HashMap, HashSet};

use crate::error::ModelError;

/// Changes to the logits of one sequence. The default changes nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Penalties {
    /// Positive logits of tokens in prompt or output are divided by it, negative ones multiplied.
    /// Source: Keskar et al., "CTRL", section 4.1.
    pub repetition: f32,
    /// Subtracted from the logit of every token of the output. Source: OpenAI's API reference, as
    /// `frequency`.
    pub presence: f32,
    /// Subtracted once for every time the output has the token.
    pub frequency: f32,
    /// Added to the logits of some ids.
    pub logit_bias: Vec<(u32, f32)>,
}

impl Default for Penalties {
    fn default() -> Self {
        Self {
            repetition: 1.0,
            presence: 0.0,
            frequency: 0.0,
            logit_bias: Vec::new(),
        }
    }
}

impl Penalties {
    pub(super) fn validate(&self) -> Result<(), ModelError> {
        let refuse = |name, value: f32, allowed| {
            Err(ModelError::Sampling {
                name,
                value: f64::from(value),
                allowed,
            })
        };
        if !(self.repetition.is_finite() && self.repetition > 0.0) {
            return refuse("repetition_penalty", self.repetition, "must be above 0");
        }
        let finite = [
            ("presence_penalty", self.presence),
            ("frequency_penalty", self.frequency),
        ];
        let biases = self
            .logit_bias
            .iter()
            .map(|(_, bias)| ("logit_bias", *bias));
        match finite
            .into_iter()
            .chain(biases)
            .find(|(_, v)| !v.is_finite())
        {
            Some((name, value)) => refuse(name, value, "must be finite"),
            None => Ok(()),
        }
    }
}

/// [`Penalties`] at work on one sequence.
#[derive(Debug, Clone)]
pub(super) struct Adjuster {
    penalties: Penalties,
    prompt: HashSet<u32>,
    /// How often the output has a token.
    counts: HashMap<u32, u32>,
    adjusted: Vec<f32>,
}

impl Adjuster {
    /// `None` where nothing would ever change.
    pub(super) fn new(penalties: Penalties, prompt: &[u32]) -> Option<Self> {
        (penalties != Penalties::default()).then(|| Self {
            prompt: prompt.iter().copied().collect(),
            penalties,
            counts: HashMap::new(),
            adjusted: Vec::new(),
        })
    }

    /// The logits to draw from. Ids outside the vocabulary are passed over.
    pub(super) fn adjust(&mut self, logits: &[f32]) -> &[f32] {
        self.adjusted.clear();
        self.adjusted.extend_from_slice(logits);
        let Penalties {
            repetition,
            presence,
            frequency,
            logit_bias,
        } = &self.penalties;
        for (id, bias) in logit_bias {
            if let Some(logit) = self.adjusted.get_mut(*id as usize) {
                *logit += bias;
            }
        }
        if *repetition != 1.0 {
            let said = self.counts.keys();
            for id in said.chain(
                self.prompt
                    .iter()
                    .filter(|id| !self.counts.contains_key(id)),
            ) {
                if let Some(logit) = self.adjusted.get_mut(*id as usize) {
                    *logit = if *logit > 0.0 {
                        *logit / repetition
                    } else {
                        *logit * repetition
                    };
                }
            }
        }
        for (id, count) in &self.counts {
            if let Some(logit) = self.adjusted.get_mut(*id as usize) {
                *logit -= presence + frequency * *count as f32;
            }
        }
        &self.adjusted
    }

    /// Counts a token of the output.
    pub(super) fn note(&mut self, id: u32) {
        *self.counts.entry(id).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Prompt 0 and 1, output 1, 2, 2; repetition 2, presence 0.5, frequency 0.25; bias 1 on id 3.
    #[test]
    fn penalties_worked_by_hand() {
        let penalties = Penalties {
            repetition: 2.0,
            presence: 0.5,
            frequency: 0.25,
            logit_bias: vec![(3, 1.0), (99, 1.0)],
        };
        let mut adjuster = Adjuster::new(penalties, &[0, 1]).unwrap();
        for id in [1, 2, 2] {
            adjuster.note(id);
        }
        // 4/2 · -1·2 - 0.75 · 3/2 - 1.0 · 1 + 1 · 7
        let adjusted = adjuster.adjust(&[4.0, -1.0, 3.0, 1.0, 7.0]);
        assert_eq!(adjusted, [2.0, -2.75, 0.5, 2.0, 7.0]);
    }

    #[test]
    fn neutral_penalties_cost_nothing() {
        assert!(Adjuster::new(Penalties::default(), &[1]).is_none());
    }
}
