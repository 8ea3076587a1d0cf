//! Attention within each text of a batch that is packed without padding.

use std::sync::Arc;

use tch::Tensor;

use super::{Compute, numbers, numbers_mut, shape};
use crate::kernels::bidirectional::Bidirectional;
pub use crate::kernels::bidirectional::TextRows;

/// The attention of one layer between its projections.
pub struct BidirectionalAttention {
    compute: Arc<Compute>,
    heads: usize,
    head_dim: usize,
}

impl BidirectionalAttention {
    /// Attention with the scale 1 / sqrt(head_dim).
    pub fn new(compute: &Arc<Compute>, heads: usize, head_dim: usize) -> Self {
        Self {
            compute: Arc::clone(compute),
            heads,
            head_dim,
        }
    }

    /// Shapes: `qkv: [rows, 3 * heads * head_dim]` to `[rows, heads * head_dim]`. `texts` cover the
    /// rows from 0 without a gap; texts of one length stand together.
    pub fn forward(&self, qkv: &Tensor, texts: &[TextRows]) -> Tensor {
        let (rows, width) = shape(qkv);
        let hidden = self.heads * self.head_dim;
        assert_eq!(width, 3 * hidden, "qkv has another width than the heads");
        let Some(team) = &self.compute.team else {
            return self.torch(qkv, texts);
        };
        let mut out = self.compute.empty(rows, hidden);
        let job = Bidirectional {
            texts,
            heads: self.heads,
            head_dim: self.head_dim,
            dtype: self.compute.dtype,
        };
        job.run(team, numbers(qkv), numbers_mut(&mut out));
        out
    }

    /// One operator for all texts of one length: nothing is padded, and a batch of equal texts is
    /// one launch.
    fn torch(&self, qkv: &Tensor, texts: &[TextRows]) -> Tensor {
        let [heads, dim] = [self.heads, self.head_dim].map(|n| n as i64);
        let groups = equal_lengths(texts).map(|(first, n, len)| {
            let [first, n, len] = [first, n, len].map(|n| n as i64);
            // [part, text, head, token, column]
            let parts = qkv
                .narrow(0, first, n * len)
                .view([n, len, 3, heads, dim])
                .permute([2, 0, 3, 1, 4]);
            let [q, k, v] = [0, 1, 2].map(|part| parts.select(0, part));
            let mask = None::<&Tensor>;
            let out =
                Tensor::scaled_dot_product_attention(&q, &k, &v, mask, 0.0, false, None, false);
            out.transpose(1, 2).reshape([n * len, heads * dim])
        });
        let groups: Vec<Tensor> = groups.collect();
        match &groups[..] {
            [one] => one.shallow_clone(),
            all => Tensor::cat(all, 0),
        }
    }
}

/// Runs of texts of one length: first row, number of texts, length.
pub(crate) fn equal_lengths(
    texts: &[TextRows],
) -> impl Iterator<Item = (usize, usize, usize)> + '_ {
    let same = texts.chunk_by(|a, b| a.len() == b.len());
    same.map(|run| (run[0].start, run.len(), run[0].len()))
}
