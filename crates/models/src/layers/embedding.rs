//! Token ids to rows of the embedding.

use std::sync::Arc;

use tch::Tensor;

use super::linear::Matrix;
use super::{Compute, numbers_mut};

/// An embedding; its matrix may also be the output matrix.
pub struct Embedding {
    compute: Arc<Compute>,
    table: Matrix,
    hidden_size: usize,
}

impl Embedding {
    /// An embedding over a matrix of `[vocab, hidden_size]`.
    pub fn new(compute: &Arc<Compute>, table: Matrix, hidden_size: usize) -> Self {
        Self {
            compute: Arc::clone(compute),
            table,
            hidden_size,
        }
    }

    /// Looks ids up. Shape: `[ids, hidden_size]`.
    ///
    /// # Panics
    /// On an id outside the vocabulary.
    pub fn forward(&self, ids: &[u32]) -> Tensor {
        match &self.table {
            Matrix::Packed(packed) => {
                let mut out = self.compute.empty(ids.len(), self.hidden_size);
                let rows = numbers_mut(&mut out).chunks_exact_mut(self.hidden_size);
                for (id, row) in ids.iter().zip(rows) {
                    packed.read_output(*id as usize, row);
                }
                out
            }
            Matrix::Torch(table) => {
                let ids: Vec<i64> = ids.iter().map(|&id| i64::from(id)).collect();
                let ids = Tensor::from_slice(&ids).to_device(self.compute.device.torch());
                table.index_select(0, &ids)
            }
        }
    }
}
