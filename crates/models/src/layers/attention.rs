//! Self-attention over the key/value cache, and the cache's memory.

use std::sync::Arc;

use tch::{Kind, Tensor};

use super::norm::RmsNorm;
use super::rope::{Angles, Rope};
use super::{Compute, numbers_mut, shape};
use crate::kernels::attention::{Attention, LayerCache};
pub use crate::kernels::attention::{Heads, Span};
use crate::kv_cache::BLOCK_TOKENS;

/// The rows of a step, as the attention layers need to know them.
pub struct Batch {
    /// Rows of each sequence.
    pub spans: Vec<Span>,
    /// Angles of each row's position.
    angles: Angles,
}

impl Batch {
    /// A batch over spans that cover the rows from 0 without a gap.
    pub fn new(spans: Vec<Span>, rope: &Rope) -> Self {
        let positions = spans.iter().flat_map(|s| s.past..s.past + s.n_rows);
        let angles = rope.angles(positions);
        Self { spans, angles }
    }
}

/// Keys and values of one layer.
pub enum Cache {
    /// For our own loops.
    Own(LayerCache),
    /// For LibTorch's operators. Shape: `[slots, kv_heads, head_dim]` each.
    Torch {
        /// Keys, rotated.
        keys: Tensor,
        /// Values.
        values: Tensor,
    },
}

impl Cache {
    /// An empty cache of `n_blocks` blocks.
    pub fn new(compute: &Compute, heads: Heads, n_blocks: usize) -> Self {
        if compute.team.is_some() {
            return Self::Own(LayerCache::new(compute.kv_dtype, heads, n_blocks));
        }
        let shape = [n_blocks * BLOCK_TOKENS, heads.kv_heads, heads.head_dim].map(|n| n as i64);
        let options = (compute.kv_dtype.kind(), compute.device.torch());
        // Not zeroed: a slot is written before it is read.
        Self::Torch {
            keys: Tensor::empty(shape, options),
            values: Tensor::empty(shape, options),
        }
    }
}

/// The attention of one layer between its projections.
pub struct SelfAttention {
    compute: Arc<Compute>,
    heads: Heads,
    /// Keys a query sees, its own included.
    window: usize,
    /// Norms of each head of q and of k.
    qk_norm: Option<[RmsNorm; 2]>,
}

impl SelfAttention {
    /// Attention with the scale 1 / sqrt(head_dim), over all keys before a query or the last
    /// `window` of them.
    pub fn new(compute: &Arc<Compute>, heads: Heads, window: Option<usize>) -> Self {
        Self {
            compute: Arc::clone(compute),
            heads,
            window: window.unwrap_or(usize::MAX),
            qk_norm: None,
        }
    }

    /// Norms each head of q and of k, `head_dim` numbers, before it is rotated.
    pub fn with_qk_norm(mut self, q_norm: RmsNorm, k_norm: RmsNorm) -> Self {
        self.qk_norm = Some([q_norm, k_norm]);
        self
    }

    /// Memory the norms take. Unit: bytes.
    pub fn bytes(&self) -> usize {
        self.qk_norm.iter().flatten().map(RmsNorm::bytes).sum()
    }

    fn scale(&self) -> f64 {
        1.0 / (self.heads.head_dim as f64).sqrt()
    }

    /// Rotates, appends to the cache, attends.
    /// Shapes: `qkv: [rows, (heads + 2 kv_heads) * head_dim]` to `[rows, heads * head_dim]`.
    pub fn forward(&self, mut qkv: Tensor, batch: &Batch, cache: &mut Cache) -> Tensor {
        let (rows, width) = shape(&qkv);
        assert_eq!(
            width,
            self.heads.qkv_width(),
            "qkv has another width than the heads"
        );
        if let Some(norms) = &self.qk_norm {
            self.norm_heads(norms, &mut qkv);
        }
        match (cache, &self.compute.team) {
            (Cache::Own(cache), Some(team)) => {
                let mut out = self
                    .compute
                    .empty(rows, self.heads.heads * self.heads.head_dim);
                let attention = Attention {
                    spans: &batch.spans,
                    cos: &batch.angles.cos,
                    sin: &batch.angles.sin,
                    scale: self.scale() as f32,
                    window: self.window,
                };
                attention.run(team, cache, numbers_mut(&mut qkv), numbers_mut(&mut out));
                out
            }
            (Cache::Torch { keys, values }, _) => self.torch(&qkv, batch, keys, values),
            (Cache::Own(_), None) => unreachable!("the cache was made for a team"),
        }
    }

    /// Norms the heads of q and k where they stand.
    fn norm_heads(&self, norms: &[RmsNorm; 2], qkv: &mut Tensor) {
        let Heads {
            heads,
            kv_heads,
            head_dim,
        } = self.heads;
        let mut start = 0;
        for (norm, n) in norms.iter().zip([heads, kv_heads]) {
            let mut part = qkv.narrow(1, start, (n * head_dim) as i64);
            start += (n * head_dim) as i64;
            let (rows, width) = shape(&part);
            let normed = norm.forward(&part.reshape([-1, head_dim as i64]));
            part.copy_(&normed.view([rows as i64, width as i64]));
        }
    }

    fn torch(&self, qkv: &Tensor, batch: &Batch, keys: &Tensor, values: &Tensor) -> Tensor {
        let [h, kv, d] =
            [self.heads.heads, self.heads.kv_heads, self.heads.head_dim].map(|n| n as i64);
        let device = self.compute.device.torch();
        let rows = qkv.size()[0];
        let heads_of = |start: i64, n: i64| qkv.narrow(1, start * d, n * d).view([rows, n, d]);
        let table = |t: &[f32]| {
            Tensor::from_slice(t)
                .view([rows, 1, d / 2])
                .to_device(device)
        };
        let (cos, sin) = (table(&batch.angles.cos), table(&batch.angles.sin));
        let q = rotate(&heads_of(0, h), &cos, &sin);
        let k = rotate(&heads_of(h, kv), &cos, &sin);
        let v = heads_of(h + kv, kv);
        let slots = |span: &Span, range: std::ops::Range<usize>| -> Vec<i64> {
            let slot =
                |t: usize| span.blocks[t / BLOCK_TOKENS] as usize * BLOCK_TOKENS + t % BLOCK_TOKENS;
            range.map(|t| slot(t) as i64).collect()
        };
        let new: Vec<i64> = batch
            .spans
            .iter()
            .flat_map(|s| slots(s, s.past..s.past + s.n_rows))
            .collect();
        let new = Tensor::from_slice(&new).to_device(device);
        let write = |cache: &Tensor, numbers: &Tensor| {
            // The shallow clone shares memory with the cache: this writes to it.
            let mut cache = cache.shallow_clone();
            let numbers = numbers.to_kind(cache.kind());
            let _ = cache.index_copy_(0, &new, &numbers);
        };
        write(keys, &k);
        write(values, &v);
        let outs: Vec<Tensor> = batch
            .spans
            .iter()
            .map(|span| {
                let (n, all) = (span.n_rows as i64, span.past + span.n_rows);
                let seen = Tensor::from_slice(&slots(span, 0..all)).to_device(device);
                let gather = |t: &Tensor| {
                    let all = t.index_select(0, &seen).to_kind(qkv.kind());
                    all.transpose(0, 1).unsqueeze(0)
                };
                let q = q
                    .narrow(0, span.first_row as i64, n)
                    .transpose(0, 1)
                    .unsqueeze(0);
                let mask = causal_mask(span, self.window, device);
                let (keys, values) = (gather(keys), gather(values));
                Tensor::scaled_dot_product_attention(
                    &q,
                    &keys,
                    &values,
                    mask,
                    0.0,
                    false,
                    self.scale(),
                    h != kv,
                )
                .squeeze_dim(0)
                .transpose(0, 1)
                .reshape([n, h * d])
            })
            .collect();
        Tensor::cat(&outs, 0)
    }
}

/// Rotates pairs (i, i + half). Shapes: `x: [rows, heads, dim]`, `cos`, `sin: [rows, 1, dim / 2]`.
fn rotate(x: &Tensor, cos: &Tensor, sin: &Tensor) -> Tensor {
    let halves = x.to_kind(Kind::Float).chunk(2, -1);
    let (a, b) = (&halves[0], &halves[1]);
    Tensor::cat(&[a * cos - b * sin, b * cos + a * sin], -1).to_kind(x.kind())
}

/// True where a row sees a key; `None` where a single row sees all.
fn causal_mask(span: &Span, window: usize, device: tch::Device) -> Option<Tensor> {
    let (n, all) = (span.n_rows as i64, (span.past + span.n_rows) as i64);
    if n == 1 && window as u64 >= all as u64 {
        return None;
    }
    let mask = Tensor::ones([n, all], (Kind::Bool, device)).tril(span.past as i64);
    // Row r stands at key past + r, so the first it sees is past + r - (window - 1).
    let first = i64::try_from(window).map_or(i64::MIN, |w| span.past as i64 + 1 - w);
    Some(if first > -n { mask.triu(first) } else { mask })
}
