//! From logits to one token: greedy, temperature, top-k, top-p, each sequence with its own stream.
//!
//! The random numbers are counter-based (Philox): draw `n` of seed `s` is a pure function of
//! `(s, n)`, so what a sequence draws depends on nothing else in the batch. Works on a row of
//! logits in memory; knows no tensors and no sequences.

use crate::error::ModelError;

mod likelihood;
mod penalties;

use likelihood::Likelihood;
use penalties::Adjuster;
pub use penalties::Penalties;

/// How the next token is drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SamplingParams {
    /// 0 takes the most likely token; above 0 divides the logits.
    pub temperature: f32,
    /// Draw from the `top_k` most likely tokens only; 0 keeps all.
    pub top_k: usize,
    /// Draw from the smallest set of tokens whose probabilities reach `top_p`; 1 keeps all.
    pub top_p: f32,
    /// Draw from tokens at least this share as likely as the most likely one; 0 keeps all.
    pub min_p: f32,
    /// Names the stream of random numbers.
    pub seed: u64,
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            seed: 0,
        }
    }
}

impl SamplingParams {
    /// Refuses values that no distribution belongs to.
    ///
    /// # Errors
    /// [`ModelError::Sampling`] for a temperature that is negative or not finite, for a `top_p`
    /// outside (0, 1], and for a `min_p` outside [0, 1].
    pub fn validate(&self) -> Result<(), ModelError> {
        if !self.temperature.is_finite() || self.temperature < 0.0 {
            return Err(ModelError::Sampling {
                name: "temperature",
                value: f64::from(self.temperature),
                allowed: "must be finite and not negative",
            });
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return Err(ModelError::Sampling {
                name: "top_p",
                value: f64::from(self.top_p),
                allowed: "must be above 0 and at most 1",
            });
        }
        if !(0.0..=1.0).contains(&self.min_p) {
            return Err(ModelError::Sampling {
                name: "min_p",
                value: f64::from(self.min_p),
                allowed: "must be from 0 to 1",
            });
        }
        Ok(())
    }
}

/// The token chosen for a sequence.
#[derive(Debug, Clone, PartialEq)]
pub struct NextToken {
    /// Its id.
    pub id: u32,
    /// Natural logarithm of its probability under the model, before anything of the sampling.
    pub logprob: f32,
    /// The most likely tokens and their logarithms, as many as were asked for, the likeliest first.
    pub top: Vec<(u32, f32)>,
}

/// How likely the model holds token `id` after the text that `logits` belong to. Shape: `[vocab]`.
///
/// # Errors
/// [`ModelError::NoLogits`] from a broken model, [`ModelError::TokenOutOfRange`].
pub fn score(logits: &[f32], id: u32, n_top: usize) -> Result<NextToken, ModelError> {
    let vocab_size = logits.len();
    if id as usize >= vocab_size {
        return Err(ModelError::TokenOutOfRange { id, vocab_size });
    }
    Ok(Likelihood::of(logits)?.token(id as usize, n_top))
}

/// Draws the tokens of one sequence.
#[derive(Debug, Clone)]
pub struct Sampler {
    params: SamplingParams,
    /// Invariant: number of random draws made so far; draw `n` uses counter `n`.
    drawn: u64,
    adjuster: Option<Adjuster>,
    n_top: usize,
}

impl Sampler {
    /// A sampler that always takes the most likely token.
    pub fn greedy() -> Self {
        Self {
            params: SamplingParams::default(),
            drawn: 0,
            adjuster: None,
            n_top: 0,
        }
    }

    /// A sampler for `params`, at the start of its stream.
    ///
    /// # Errors
    /// What [`SamplingParams::validate`] refuses.
    pub fn new(params: SamplingParams) -> Result<Self, ModelError> {
        params.validate()?;
        Ok(Self {
            params,
            drawn: 0,
            adjuster: None,
            n_top: 0,
        })
    }

    /// Also applies `penalties`; `prompt` counts for those of repetition.
    ///
    /// # Errors
    /// [`ModelError::Sampling`] for numbers that are not finite, and for a repetition penalty that
    /// is not above 0.
    pub fn with_penalties(
        mut self,
        penalties: Penalties,
        prompt: &[u32],
    ) -> Result<Self, ModelError> {
        penalties.validate()?;
        self.adjuster = Adjuster::new(penalties, prompt);
        Ok(self)
    }

    /// Also tells the `n` most likely tokens at each draw.
    #[must_use]
    pub fn with_top(mut self, n: usize) -> Self {
        self.n_top = n;
        self
    }

    /// Chooses the next token from one row of logits. Shape: `[vocab]`.
    ///
    /// Ties go to the lower id, and a logit that is not a number is never chosen.
    ///
    /// # Errors
    /// [`ModelError::NoLogits`] where no logit is a number or the largest is infinite: the model is
    /// broken, not the request.
    pub fn next_token(&mut self, logits: &[f32]) -> Result<NextToken, ModelError> {
        let Some(mut adjuster) = self.adjuster.take() else {
            return self.choose(logits, None);
        };
        let next = self.choose(logits, Some(adjuster.adjust(logits)));
        if let Ok(next) = &next {
            adjuster.note(next.id);
        }
        self.adjuster = Some(adjuster);
        next
    }

    /// Chooses from `adjusted` where it is there; `logits` are the model's own.
    fn choose(
        &mut self,
        logits: &[f32],
        adjusted: Option<&[f32]>,
    ) -> Result<NextToken, ModelError> {
        let likelihood = Likelihood::of(logits)?;
        let (from, best) = match adjusted {
            None => (logits, likelihood.best),
            // Adjusting adds finite numbers, so a finite largest is still there.
            Some(adjusted) => (adjusted, argmax(adjusted).unwrap_or(likelihood.best)),
        };
        let chosen = if self.params.temperature == 0.0 || self.params.top_k == 1 {
            best
        } else {
            self.draw(from, from[best])
        };
        Ok(likelihood.token(chosen, self.n_top))
    }

    fn draw(&mut self, logits: &[f32], max: f32) -> usize {
        let inverse = 1.0 / f64::from(self.params.temperature);
        let least = f64::from(self.params.min_p);
        let weight = |l: f32| (f64::from(l - max) * inverse).exp();
        let mut candidates: Vec<Candidate> = logits
            .iter()
            .enumerate()
            .filter(|(_, l)| !l.is_nan())
            .map(|(id, &l)| Candidate {
                id,
                weight: weight(l),
            })
            .filter(|c| c.weight > 0.0 && c.weight >= least)
            .collect();
        keep_top_k(&mut candidates, self.params.top_k);
        keep_top_p(&mut candidates, f64::from(self.params.top_p));
        let u = uniform(self.params.seed, self.drawn);
        self.drawn += 1;
        pick(&candidates, u)
    }
}

/// One token that may still be drawn.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    id: usize,
    /// Not normalised: exp((logit - max) / temperature), 1 for the most likely token.
    weight: f64,
}

/// More likely first, lower id first among equals: a total order, so that cuts are reproducible.
fn more_likely_first(a: &Candidate, b: &Candidate) -> std::cmp::Ordering {
    b.weight.total_cmp(&a.weight).then(a.id.cmp(&b.id))
}

fn keep_top_k(candidates: &mut Vec<Candidate>, top_k: usize) {
    if top_k > 0 && top_k < candidates.len() {
        candidates.select_nth_unstable_by(top_k - 1, more_likely_first);
        candidates.truncate(top_k);
        // Selection leaves an order that depends on the algorithm; the draw must not.
        candidates.sort_unstable_by(more_likely_first);
    }
}

/// Keeps the shortest run of the most likely tokens whose share reaches `top_p`.
fn keep_top_p(candidates: &mut Vec<Candidate>, top_p: f64) {
    if top_p >= 1.0 || candidates.len() < 2 {
        return;
    }
    let total: f64 = candidates.iter().map(|c| c.weight).sum();
    // Tokens each below (1 - p) / n of the whole add up to less than 1 - p, so the others reach p
    // without them. Dropping them first leaves a short list to sort, at no change in the result.
    let negligible = total * (1.0 - top_p) / candidates.len() as f64;
    candidates.retain(|c| c.weight >= negligible);
    candidates.sort_unstable_by(more_likely_first);
    let mut sum = 0.0;
    let enough = candidates.iter().position(|c| {
        sum += c.weight;
        sum >= top_p * total
    });
    candidates.truncate(enough.map_or(candidates.len(), |last| last + 1));
}

/// The candidate at share `u` (in [0, 1)) of the total weight.
fn pick(candidates: &[Candidate], u: f64) -> usize {
    let total: f64 = candidates.iter().map(|c| c.weight).sum();
    let mut sum = 0.0;
    let hit = candidates.iter().find(|c| {
        sum += c.weight;
        sum > u * total
    });
    // Rounding can leave the last sum a hair below the total: the last candidate takes that.
    hit.or(candidates.last())
        .expect("the most likely token has weight 1 and is always kept")
        .id
}

/// Index of the largest number; the lowest index among equals. `None` if there is no number.
fn argmax(logits: &[f32]) -> Option<usize> {
    // Lanes let the compiler compare several at a time; a NaN is never greater, so it drops out.
    const LANES: usize = 16;
    let mut lanes = [f32::NEG_INFINITY; LANES];
    for chunk in logits.chunks(LANES) {
        for (lane, &l) in lanes.iter_mut().zip(chunk) {
            *lane = if l > *lane { l } else { *lane };
        }
    }
    let max = lanes.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    logits.iter().position(|&l| l == max)
}

/// Draw `counter` of stream `seed`, uniform in [0, 1) with 53 bits.
fn uniform(seed: u64, counter: u64) -> f64 {
    let words = philox4x32(
        [counter as u32, (counter >> 32) as u32, 0, 0],
        [seed as u32, (seed >> 32) as u32],
    );
    let bits = (u64::from(words[0]) << 32) | u64::from(words[1]);
    (bits >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// Philox-4x32 with ten rounds.
///
/// Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011),
/// section 4.3; constants as in the authors' Random123.
fn philox4x32(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    const MULTIPLIERS: [u64; 2] = [0xD251_1F53, 0xCD9E_8D57];
    const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
    for _ in 0..10 {
        let product = [
            MULTIPLIERS[0] * u64::from(counter[0]),
            MULTIPLIERS[1] * u64::from(counter[2]),
        ];
        counter = [
            (product[1] >> 32) as u32 ^ counter[1] ^ key[0],
            product[1] as u32,
            (product[0] >> 32) as u32 ^ counter[3] ^ key[1],
            product[0] as u32,
        ];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

#[cfg(test)]
mod tests;
