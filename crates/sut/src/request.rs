//! What a client asked for, validated: inner code takes only [`Generate`].
//!
//! Not serialisable on purpose. The wire's optional fields arrive as [`RawParams`] and leave as
//! [`Params`], or as an [`Invalid`] that names the field.

use std::hash::{BuildHasher, RandomState};
use std::ops::RangeInclusive;
use std::time::Duration;

/// Most stop strings a request may bring.
pub const MAX_STOP_STRINGS: usize = 16;

/// Longest stop string in bytes. Text is held back by up to this much.
pub const MAX_STOP_BYTES: usize = 1024;

/// Farthest a priority may lie from 0.
pub const MAX_PRIORITY: u32 = 100;

/// Longest a client may want to wait: a day.
pub const MAX_DEADLINE: Duration = Duration::from_hours(24);

/// Most answers to one prompt.
pub const MAX_ANSWERS: usize = 128;

/// Most alternatives to each token.
pub const MAX_LOGPROBS: usize = 20;

/// One sequence to generate.
#[derive(Debug, Clone, PartialEq)]
pub struct Generate {
    /// The prompt's ids; never empty.
    pub prompt: Vec<u32>,
    /// Most tokens to generate; at least 1.
    pub max_tokens: usize,
    /// How to draw and when to stop.
    pub params: Params,
    /// Prompts share what is computed of their common beginning with others of the same root;
    /// `None` shares with nobody.
    pub cache_root: Option<u64>,
}

/// How to draw tokens and when to stop, whatever the prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct Params {
    /// How to draw.
    pub sampling: Sampling,
    /// Strings that end the text; none is empty.
    pub stop: Vec<String>,
    /// Go on past the end-of-text token.
    pub ignore_eos: bool,
    /// Its place in the queue; lower goes first, 0 is as good as any other without a wish.
    pub priority: i32,
    /// How long after its arrival the answer is still wanted.
    pub deadline: Option<Duration>,
    /// How many of the most likely tokens are wanted beside each; `None` asks for no
    /// probabilities.
    pub logprobs: Option<usize>,
    /// Whether the prompt's tokens are asked about too.
    pub score_prompt: bool,
}

impl Params {
    /// For one of several answers to a prompt: the same but for the random numbers.
    #[must_use]
    pub fn of_answer(&self, answer: usize) -> Self {
        let mut params = self.clone();
        params.sampling.seed = params.sampling.seed.wrapping_add(answer as u64);
        params
    }

    /// The most likely token each time, to the end of the text.
    #[must_use]
    pub fn greedy() -> Self {
        Params {
            sampling: Sampling::greedy(),
            stop: Vec::new(),
            ignore_eos: false,
            priority: 0,
            deadline: None,
            logprobs: None,
            score_prompt: false,
        }
    }
}

/// How the next token is drawn.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    /// 0 is greedy.
    pub temperature: f32,
    /// 0 keeps all candidates.
    pub top_k: usize,
    /// In (0, 1].
    pub top_p: f32,
    /// In [0, 1]; 0 keeps all candidates.
    pub min_p: f32,
    /// 1 changes nothing.
    pub repetition_penalty: f32,
    /// 0 changes nothing.
    pub presence_penalty: f32,
    /// 0 changes nothing.
    pub frequency_penalty: f32,
    /// Added to the logits of ids.
    pub logit_bias: Vec<(u32, f32)>,
    /// Names the sequence's own stream of random numbers.
    pub seed: u64,
}

impl Sampling {
    /// The most likely token each time.
    #[must_use]
    pub fn greedy() -> Self {
        Sampling {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: Vec::new(),
            seed: 0,
        }
    }
}

/// The fields as a client may send them, completions and chat alike.
#[derive(Debug, Clone, Default)]
#[expect(
    missing_docs,
    reason = "named and meant as in the API; see prony_wire::openai"
)]
pub struct RawParams {
    pub temperature: Option<f64>,
    pub top_p: Option<f64>,
    pub top_k: Option<i64>,
    pub seed: Option<i64>,
    pub stop: Vec<String>,
    pub ignore_eos: Option<bool>,
    pub min_tokens: Option<u64>,
    pub presence_penalty: Option<f64>,
    pub frequency_penalty: Option<f64>,
    pub repetition_penalty: Option<f64>,
    pub min_p: Option<f64>,
    pub has_stop_token_ids: bool,
    pub logit_bias: Option<serde_json::Map<String, serde_json::Value>>,
    pub priority: Option<i64>,
    pub deadline_ms: Option<u64>,
    /// Field and value, as the two APIs call it differently.
    pub logprobs: Option<(&'static str, u64)>,
    pub score_prompt: bool,
}

/// A field whose value cannot be honoured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid {
    /// The field.
    pub param: &'static str,
    /// What it was and what would have been accepted.
    pub message: String,
}

impl Invalid {
    /// `param` and why it is refused.
    pub fn new(param: &'static str, message: impl Into<String>) -> Self {
        Invalid {
            param,
            message: message.into(),
        }
    }
}

impl RawParams {
    /// Fills in OpenAI's defaults and refuses what would silently be ignored otherwise.
    ///
    /// # Errors
    /// [`Invalid`] for the first field that is out of range or not supported.
    pub fn validate(self) -> Result<Params, Invalid> {
        self.refuse_unsupported()?;
        let temperature = self.temperature.unwrap_or(1.0);
        if !(0.0..=2.0).contains(&temperature) {
            return Err(out_of_range("temperature", temperature, "from 0 to 2"));
        }
        let top_p = self.top_p.unwrap_or(1.0);
        // Checked after rounding: the engine computes in f32, where a tiny value becomes 0.
        if !(top_p as f32 > 0.0 && top_p <= 1.0) {
            return Err(out_of_range("top_p", top_p, "above 0 and at most 1"));
        }
        let top_k = match self.top_k.unwrap_or(0) {
            -1 => 0,
            k => usize::try_from(k)
                .map_err(|_| out_of_range("top_k", k, "-1 or 0 (all), or a positive number"))?,
        };
        check_stop(&self.stop)?;
        // A negative seed is as good as any other: its bits name the stream.
        let seed = self.seed.map_or_else(random_seed, i64::cast_unsigned);
        Ok(Params {
            sampling: Sampling {
                temperature: temperature as f32,
                top_k,
                top_p: top_p as f32,
                min_p: within("min_p", self.min_p, 0.0, 0.0..=1.0)?,
                repetition_penalty: within(
                    "repetition_penalty",
                    self.repetition_penalty,
                    1.0,
                    0.01..=100.0,
                )?,
                presence_penalty: within(
                    "presence_penalty",
                    self.presence_penalty,
                    0.0,
                    -2.0..=2.0,
                )?,
                frequency_penalty: within(
                    "frequency_penalty",
                    self.frequency_penalty,
                    0.0,
                    -2.0..=2.0,
                )?,
                logit_bias: logit_bias(self.logit_bias.as_ref())?,
                seed,
            },
            stop: self.stop,
            ignore_eos: self.ignore_eos.unwrap_or(false),
            priority: priority(self.priority)?,
            deadline: deadline(self.deadline_ms)?,
            logprobs: logprobs(self.logprobs)?,
            score_prompt: self.score_prompt,
        })
    }

    fn refuse_unsupported(&self) -> Result<(), Invalid> {
        if self.min_tokens.unwrap_or(0) > 0 {
            return Err(Invalid::new(
                "min_tokens",
                "min_tokens: not supported; use ignore_eos",
            ));
        }
        if self.has_stop_token_ids {
            return Err(Invalid::new(
                "stop_token_ids",
                "stop_token_ids: not supported; use stop",
            ));
        }
        Ok(())
    }
}

/// The number of tokens a client asked for, as the engine counts.
///
/// # Errors
/// [`Invalid`] for 0; what is too large for the model is refused at admission, with counts.
pub fn max_tokens(param: &'static str, asked: Option<u64>) -> Result<Option<usize>, Invalid> {
    match asked {
        Some(0) => Err(out_of_range(param, 0, "at least 1")),
        Some(n) => Ok(Some(
            usize::try_from(n)
                .unwrap_or(usize::MAX / 2)
                .min(usize::MAX / 2),
        )),
        None => Ok(None),
    }
}

/// The number of answers a client asked for.
///
/// # Errors
/// [`Invalid`] for 0 and for more than [`MAX_ANSWERS`].
pub fn answers(asked: Option<u64>) -> Result<usize, Invalid> {
    let n = asked.unwrap_or(1);
    let within = usize::try_from(n).ok();
    within
        .filter(|n| (1..=MAX_ANSWERS).contains(n))
        .ok_or_else(|| out_of_range("n", n, &format!("from 1 to {MAX_ANSWERS}")))
}

fn logprobs(asked: Option<(&'static str, u64)>) -> Result<Option<usize>, Invalid> {
    match asked {
        None => Ok(None),
        Some((_, n)) if n <= MAX_LOGPROBS as u64 => Ok(Some(n as usize)),
        Some((param, n)) => {
            let allowed = format!("at most {MAX_LOGPROBS}");
            Err(out_of_range(param, n, &allowed))
        }
    }
}

/// `value` if it lies in `range`, `neutral` where it is missing.
fn within(
    param: &'static str,
    value: Option<f64>,
    neutral: f64,
    range: RangeInclusive<f64>,
) -> Result<f32, Invalid> {
    let value = value.unwrap_or(neutral);
    if range.contains(&value) {
        return Ok(value as f32);
    }
    let allowed = format!("from {} to {}", range.start(), range.end());
    Err(out_of_range(param, value, &allowed))
}

/// OpenAI's map of ids in text to biases.
fn logit_bias(
    map: Option<&serde_json::Map<String, serde_json::Value>>,
) -> Result<Vec<(u32, f32)>, Invalid> {
    let entries = map.into_iter().flatten();
    let entry = |(id, bias): (&String, &serde_json::Value)| {
        let parsed = id.parse::<u32>().ok().zip(bias.as_f64());
        match parsed.filter(|(_, bias)| (-100.0..=100.0).contains(bias)) {
            Some((id, bias)) => Ok((id, bias as f32)),
            None => Err(Invalid::new(
                "logit_bias",
                format!(
                    "logit_bias: {id:?}: {bias}, must be a token id and a number from -100 to \
                     100"
                ),
            )),
        }
    };
    entries.map(entry).collect()
}

fn priority(asked: Option<i64>) -> Result<i32, Invalid> {
    let asked = asked.unwrap_or(0);
    let within = i32::try_from(asked).ok();
    within
        .filter(|p| p.unsigned_abs() <= MAX_PRIORITY)
        .ok_or_else(|| {
            let allowed = format!("from -{MAX_PRIORITY} to {MAX_PRIORITY}");
            out_of_range("priority", asked, &allowed)
        })
}

fn deadline(asked: Option<u64>) -> Result<Option<Duration>, Invalid> {
    match asked.map(Duration::from_millis) {
        Some(after) if after.is_zero() || after > MAX_DEADLINE => Err(out_of_range(
            "deadline_ms",
            after.as_millis(),
            "from 1 to 86400000",
        )),
        deadline => Ok(deadline),
    }
}

fn check_stop(stop: &[String]) -> Result<(), Invalid> {
    if stop.len() > MAX_STOP_STRINGS {
        let message = format!("stop: {} strings, at most {MAX_STOP_STRINGS}", stop.len());
        return Err(Invalid::new("stop", message));
    }
    for string in stop {
        if string.is_empty() || string.len() > MAX_STOP_BYTES {
            let message = format!(
                "stop: a string of {} bytes, must be 1 to {MAX_STOP_BYTES}",
                string.len()
            );
            return Err(Invalid::new("stop", message));
        }
    }
    Ok(())
}

fn out_of_range(param: &'static str, value: impl std::fmt::Display, allowed: &str) -> Invalid {
    Invalid::new(param, format!("{param}: {value}, must be {allowed}"))
}

/// Different in every call and every process; nobody who wants repeatable text leaves `seed` out.
fn random_seed() -> u64 {
    RandomState::new().hash_one(0u8)
}

#[cfg(test)]
mod tests;
