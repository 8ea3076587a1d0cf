//! The decoder that serves any causal architecture: sequences, cache, steps, sampling.
//!
//! An architecture gives the two functions of [`CausalModel`]; everything about sequences is here.

use std::sync::Arc;

use tch::{Kind, Tensor};

use crate::config::ModelConfig;
use crate::decoder::{Decoder, ModelInfo, StepRow};
use crate::error::ModelError;
use crate::kv_cache::{BlockPool, KnownPrefix, Sequence};
use crate::layers::attention::{Batch, Cache, Heads, Span};
use crate::layers::rope::Rope;
use crate::layers::{Compute, numbers};
use crate::sampler::{NextToken, score};

/// What an architecture wires up.
pub trait CausalModel: Send {
    /// Memory the weights take. Unit: bytes.
    fn weight_bytes(&self) -> usize;

    /// Runs the layers. Shape: `[ids, hidden]`. `caches` has one entry a layer.
    fn forward(&self, ids: &[u32], batch: &Batch, caches: &mut [Cache]) -> Tensor;

    /// Final norm and output matrix. Shapes: `[rows, hidden]` to `[rows, vocab]`.
    fn head(&self, hidden: &Tensor) -> Tensor;
}

/// A decoder over an architecture.
pub struct CausalDecoder<M> {
    model: M,
    rope: Rope,
    pool: BlockPool,
    caches: Vec<Cache>,
    info: ModelInfo,
}

impl<M: CausalModel> CausalDecoder<M> {
    /// Sets up the cache for `kv_capacity_tokens` tokens. `n_parameters` is for the information.
    pub fn new(
        model: M,
        config: &ModelConfig,
        compute: &Arc<Compute>,
        kv_capacity_tokens: usize,
        n_parameters: u64,
    ) -> Self {
        let heads = Heads::of(config);
        let pool = BlockPool::new(kv_capacity_tokens);
        let caches = (0..config.n_layers)
            .map(|_| Cache::new(compute, heads, pool.n_blocks()))
            .collect();
        let kv_numbers = 2 * config.n_layers * config.n_kv_heads * config.head_dim;
        let info = ModelInfo {
            architecture: config.architecture.clone(),
            n_parameters,
            weight_bytes: model.weight_bytes() as u64,
            vocab_size: config.vocab_size,
            n_layers: config.n_layers,
            max_tokens: config.max_positions,
            kv_bytes_per_token: (kv_numbers * compute.kv_dtype.size()) as u64,
            kv_capacity_tokens: pool.capacity_tokens(),
            eos_ids: config.eos_ids.clone(),
            bos_id: config.bos_id,
            dtype: compute.dtype,
            kv_dtype: compute.kv_dtype,
            quant: compute.quant,
            device: compute.device,
            threads: compute.team.as_ref().map_or_else(
                || usize::try_from(tch::get_num_threads()).unwrap_or(1),
                crate::parallel::Team::threads,
            ),
        };
        let rope = Rope::new(&config.rope, config.rotary_dim, config.head_dim);
        Self {
            model,
            rope,
            pool,
            caches,
            info,
        }
    }

    /// Refuses a row before anything of the step has changed, and takes the blocks it needs.
    fn prepare(&self, row: usize, seq: &mut Sequence, tokens: &[u32]) -> Result<(), ModelError> {
        assert!(
            seq.belongs_to(&self.pool),
            "step of a sequence of another decoder"
        );
        if tokens.is_empty() {
            return Err(ModelError::EmptyRow { row });
        }
        let vocab_size = self.info.vocab_size;
        if let Some(&id) = tokens.iter().find(|&&id| id as usize >= vocab_size) {
            return Err(ModelError::TokenOutOfRange { id, vocab_size });
        }
        let length = seq.len() + tokens.len();
        if length > self.info.max_tokens {
            return Err(ModelError::TooLong {
                length,
                limit: self.info.max_tokens,
            });
        }
        // Taking blocks changes no sequence's content, so a later row's refusal undoes nothing.
        seq.reserve(length)
    }

    /// Runs rows that are prepared and returns the hidden states of all of them.
    fn forward<'a>(&mut self, rows: impl Iterator<Item = (&'a Sequence, &'a [u32])>) -> Tensor {
        let mut ids = Vec::new();
        let mut spans = Vec::new();
        for (seq, tokens) in rows {
            spans.push(Span {
                first_row: ids.len(),
                n_rows: tokens.len(),
                past: seq.len(),
                blocks: seq.blocks().to_vec(),
            });
            ids.extend_from_slice(tokens);
        }
        let batch = Batch::new(spans, &self.rope);
        tch::no_grad(|| self.model.forward(&ids, &batch, &mut self.caches))
    }

    /// Logits of some rows, on the CPU. Shape: `[rows, vocab]`.
    fn logits_of(&self, hidden: &Tensor, rows: &[i64]) -> Tensor {
        tch::no_grad(|| {
            let all = hidden.size()[0] as usize == rows.len();
            let logits = if all {
                self.model.head(hidden)
            } else {
                let rows = Tensor::from_slice(rows).to_device(hidden.device());
                self.model.head(&hidden.index_select(0, &rows))
            };
            logits
                .to_device(tch::Device::Cpu)
                .to_kind(Kind::Float)
                .contiguous()
        })
    }
}

impl<M: CausalModel> Decoder for CausalDecoder<M> {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn new_sequence(&mut self, max_tokens: usize) -> Result<Sequence, ModelError> {
        if max_tokens > self.info.max_tokens {
            return Err(ModelError::TooLong {
                length: max_tokens,
                limit: self.info.max_tokens,
            });
        }
        self.pool.sequence(max_tokens)
    }

    fn known_prefix(&self, root: u64, tokens: &[u32]) -> KnownPrefix {
        self.pool.known_prefix(root, tokens)
    }

    fn sharing_sequence(&mut self, root: u64, tokens: &[u32]) -> Sequence {
        self.pool.sharing_sequence(root, tokens)
    }

    fn kv_free_tokens(&self) -> usize {
        self.pool.free_tokens()
    }

    fn step(&mut self, rows: &mut [StepRow<'_>]) -> Result<Vec<Option<NextToken>>, ModelError> {
        for (i, row) in rows.iter_mut().enumerate() {
            self.prepare(i, row.seq, row.tokens)?;
        }
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let hidden = self.forward(rows.iter().map(|r| (&*r.seq, r.tokens)));
        let mut wanted = Vec::new();
        let mut start = 0;
        for row in rows.iter_mut() {
            let end = start + row.tokens.len() as i64;
            row.seq.advance(row.tokens);
            let n_scored = row.scoring.as_ref().map_or(0, |s| s.followers.len());
            assert!(n_scored <= row.tokens.len(), "more followers than tokens");
            wanted.extend(start..start + n_scored as i64);
            if row.sampler.is_some() {
                wanted.push(end - 1);
            }
            start = end;
        }
        if wanted.is_empty() {
            return Ok(rows.iter().map(|_| None).collect());
        }
        let logits = self.logits_of(&hidden, &wanted);
        let mut logits = numbers(&logits).chunks_exact(self.info.vocab_size);
        rows.iter_mut()
            .map(|row| answer(row, &mut logits))
            .collect()
    }

    fn logits(&mut self, seq: &mut Sequence, tokens: &[u32]) -> Result<Vec<f32>, ModelError> {
        self.prepare(0, seq, tokens)?;
        let hidden = self.forward(std::iter::once((&*seq, tokens)));
        seq.advance(tokens);
        let rows: Vec<i64> = (0..tokens.len() as i64).collect();
        Ok(numbers(&self.logits_of(&hidden, &rows)).to_vec())
    }
}

/// Scores and draws for one row; takes from `logits` as many rows as it needs.
fn answer<'a>(
    row: &mut StepRow<'_>,
    logits: &mut impl Iterator<Item = &'a [f32]>,
) -> Result<Option<NextToken>, ModelError> {
    let mut next_logits = || logits.next().expect("a row of logits for each wish");
    if let Some(scoring) = &mut row.scoring {
        for &follower in scoring.followers {
            let scored = score(next_logits(), follower, scoring.n_top)?;
            scoring.out.push(scored);
        }
    }
    let sampler = row.sampler.as_deref_mut();
    sampler.map(|s| s.next_token(next_logits())).transpose()
}
