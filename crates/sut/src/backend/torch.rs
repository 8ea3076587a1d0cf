//! A model on LibTorch: adapts `prony_models::Decoder` to the engine's flat steps.
//!
//! Keeps each open sequence's cache handle and sampler under the id it gave out. Batching, stop
//! rules and text are decided elsewhere.

use std::sync::Arc;
use std::time::Instant;

use prony_models::kv_cache::BLOCK_TOKENS;
use prony_models::{
    Decoder, Device, Dtype, LoadOptions, LoadedModel, ModelError, ModelSource, NextToken,
    Penalties, Quant, Sampler, SamplingParams, Scoring, Sequence, StepRow,
};

use super::{Answers, Backend, BackendError, BackendInfo, KnownPrefix, Loaded, SeqId, Step, Texts};
use crate::chat_template::ChatTemplate;
use crate::config::{DtypeName, Limits, QuantName, TorchConfig};
use crate::error::SutError;
use crate::request::{Generate, Sampling};
use crate::stream::Drawn;
use crate::tokenize::{TokenTable, Tokenizer};

/// A decoder and the sequences open in it.
struct Torch {
    decoder: Box<dyn Decoder>,
    info: BackendInfo,
    /// Indexed by [`SeqId`]; `None` where the id is in `unused` or its row is in a step.
    seqs: Vec<Option<Open>>,
    unused: Vec<u32>,
    /// The sequences of the step under way; kept for its allocation.
    in_step: Vec<Open>,
}

struct Open {
    /// `None` while it has no seat.
    seq: Option<Sequence>,
    sampler: Sampler,
    cache_root: Option<u64>,
    /// How many of the most likely tokens are told.
    n_top: usize,
}

/// Loads the model, its tokenizer and its chat template.
///
/// # Errors
/// [`SutError::Model`], [`SutError::Tokenizer`], [`SutError::ChatTemplate`] or
/// [`SutError::Flag`] for a device that has no such name.
pub fn load(config: &TorchConfig, limits: &Limits) -> Result<Loaded, SutError> {
    let options = options(config, limits.kv_tokens)?;
    let Ok(source) = config.model.parse::<ModelSource>();
    let of_model = |source| SutError::Model {
        model: config.model.clone(),
        source,
    };
    if !config.force {
        // Without its numbers, in a fraction of the time: a system out of memory ends the process
        // without a word.
        let seen = prony_models::inspect(&source, &options).map_err(of_model)?;
        seen.check_memory().map_err(of_model)?;
    }
    let model = prony_models::load(&source, &options).map_err(of_model)?;
    let texts = texts(&model, &config.model)?;
    let info = BackendInfo {
        max_model_len: model.info.max_tokens.min(model.info.kv_capacity_tokens),
        vocab_size: model.info.vocab_size,
        eos_ids: model.info.eos_ids.clone(),
        kv_capacity_tokens: model.info.kv_capacity_tokens,
        kv_block_tokens: BLOCK_TOKENS,
    };
    let backend = Torch {
        decoder: model.decoder,
        info,
        seqs: Vec::new(),
        unused: Vec::new(),
        in_step: Vec::new(),
    };
    Ok(Loaded {
        backend: Box::new(backend),
        texts,
    })
}

/// How to load, in the words of `prony_models`.
///
/// # Errors
/// [`SutError::Flag`] for a device that has no such name.
pub(crate) fn options(config: &TorchConfig, kv_tokens: usize) -> Result<LoadOptions, SutError> {
    Ok(LoadOptions {
        dtype: dtype(config.dtype),
        kv_dtype: Some(dtype(config.kv_dtype)),
        quant: match config.quant {
            QuantName::None => Quant::None,
            QuantName::Int8 => Quant::Int8,
            QuantName::Int8Dynamic => Quant::Int8Dynamic,
            QuantName::Int4 => Quant::Int4,
        },
        device: device(&config.device)?,
        threads: config.threads,
        kv_capacity_tokens: kv_tokens,
        own_kernels: true,
    })
}

fn texts(model: &LoadedModel, name: &str) -> Result<Texts, SutError> {
    let table = TokenTable::from_model(&model.tokenizer, name)?;
    let tokenizer = Tokenizer::from_model(model.tokenizer.clone(), name)?;
    let bos = model.bos_text.as_deref().unwrap_or_default();
    let eos = model.eos_text.as_deref().unwrap_or_default();
    let template = model.chat_template.as_deref();
    let template = template
        .map(|t| ChatTemplate::compile(t, bos, eos, name))
        .transpose()?;
    Ok(Texts {
        tokenizer: Arc::new(tokenizer),
        table: Arc::new(table),
        chat_template: template.map(Arc::new),
    })
}

fn device(name: &str) -> Result<Device, SutError> {
    let index = match name {
        "cpu" => return Ok(Device::Cpu),
        "cuda" => Some(0),
        _ => name.strip_prefix("cuda:").and_then(|n| n.parse().ok()),
    };
    index.map(Device::Cuda).ok_or_else(|| SutError::Flag {
        flag: "--device",
        value: name.to_owned(),
        problem: "must be cpu, cuda or cuda:N".to_owned(),
    })
}

fn dtype(name: DtypeName) -> Dtype {
    match name {
        DtypeName::F32 => Dtype::F32,
        DtypeName::Bf16 => Dtype::Bf16,
    }
}

fn sampling(sampling: &Sampling) -> SamplingParams {
    SamplingParams {
        temperature: sampling.temperature,
        top_k: sampling.top_k,
        top_p: sampling.top_p,
        min_p: sampling.min_p,
        seed: sampling.seed,
    }
}

fn penalties(sampling: &Sampling) -> Penalties {
    Penalties {
        repetition: sampling.repetition_penalty,
        presence: sampling.presence_penalty,
        frequency: sampling.frequency_penalty,
        logit_bias: sampling.logit_bias.clone(),
    }
}

/// Which of two the fault of a step is: the request's, found before anything changed, or not.
fn fault(error: &ModelError) -> BackendError {
    match error {
        ModelError::TokenOutOfRange { .. }
        | ModelError::TooLong { .. }
        | ModelError::KvExhausted { .. }
        | ModelError::EmptyRow { .. }
        | ModelError::Sampling { .. } => BackendError::BadRow(error.to_string()),
        _ => BackendError::Step(error.to_string()),
    }
}

impl Backend for Torch {
    fn info(&self) -> &BackendInfo {
        &self.info
    }

    fn kv_free_tokens(&self) -> usize {
        self.decoder.kv_free_tokens()
    }

    fn open(&mut self, request: &Generate, _now: Instant) -> Result<SeqId, BackendError> {
        let asked = &request.params.sampling;
        let n_top = request.params.logprobs.unwrap_or(0);
        let sampler = Sampler::new(sampling(asked))
            .and_then(|s| s.with_penalties(penalties(asked), &request.prompt))
            .map_err(|e| fault(&e))?;
        let open = Some(Open {
            seq: None,
            sampler: sampler.with_top(n_top),
            cache_root: request.cache_root,
            n_top,
        });
        if let Some(id) = self.unused.pop() {
            self.seqs[id as usize] = open;
            return Ok(SeqId(id));
        }
        self.seqs.push(open);
        Ok(SeqId(self.seqs.len() as u32 - 1))
    }

    fn known_prefix(&self, root: u64, ids: &[u32]) -> Option<KnownPrefix> {
        let known = self.decoder.known_prefix(root, ids);
        Some(KnownPrefix {
            tokens: known.tokens,
            owned_tokens: known.owned_tokens,
        })
    }

    fn seat(&mut self, seq: SeqId, ids: &[u32]) -> usize {
        let open = self.seqs[seq.0 as usize].as_mut();
        let open = open.expect("an open sequence is seated");
        let seq = match open.cache_root {
            Some(root) => self.decoder.sharing_sequence(root, ids),
            None => self.decoder.new_sequence(0).expect("it asks for no room"),
        };
        open.seq.insert(seq).len()
    }

    fn unseat(&mut self, seq: SeqId) {
        if let Some(Some(open)) = self.seqs.get_mut(seq.0 as usize) {
            open.seq = None;
        }
    }

    fn close(&mut self, seq: SeqId) {
        let slot = self.seqs.get_mut(seq.0 as usize);
        if slot.and_then(Option::take).is_some() {
            self.unused.push(seq.0);
        }
    }

    fn step(&mut self, step: &Step, answers: &mut Answers) -> Result<(), BackendError> {
        self.in_step.clear();
        for row in &step.rows {
            let open = self.seqs[row.seq.0 as usize].take();
            self.in_step
                .push(open.expect("a step names open sequences, each once"));
        }
        let mut ids = &step.ids[..];
        let mut followers = &step.followers[..];
        let mut scores: Vec<Vec<NextToken>> = step.rows.iter().map(|_| Vec::new()).collect();
        let mut rows: Vec<StepRow<'_>> = self
            .in_step
            .iter_mut()
            .zip(&step.rows)
            .zip(&mut scores)
            .map(|((open, row), out)| StepRow {
                seq: open.seq.as_mut().expect("a step names seated sequences"),
                tokens: take(&mut ids, row.n_ids),
                sampler: row.draw.then_some(&mut open.sampler),
                scoring: (row.n_scored > 0).then(|| Scoring {
                    followers: take(&mut followers, row.n_scored),
                    n_top: open.n_top,
                    out,
                }),
            })
            .collect();
        let next = self.decoder.step(&mut rows);
        drop(rows);
        for (open, row) in self.in_step.drain(..).zip(&step.rows) {
            self.seqs[row.seq.0 as usize] = Some(open);
        }
        let next = next.map_err(|e| fault(&e))?;
        answers.next.extend(next.into_iter().map(|t| t.map(drawn)));
        answers
            .scores
            .extend(scores.into_iter().flatten().map(drawn));
        Ok(())
    }
}

/// The first `n`, which `rest` then lacks.
fn take<'a>(rest: &mut &'a [u32], n: usize) -> &'a [u32] {
    let (taken, left) = rest.split_at(n);
    *rest = left;
    taken
}

fn drawn(token: NextToken) -> Drawn {
    Drawn {
        id: token.id,
        logprob: token.logprob,
        top: token.top,
    }
}
