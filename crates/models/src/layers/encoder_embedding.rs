//! Word, position and token type to one row, and its norm: the entrance of an encoder.

use std::sync::Arc;

use half::bf16;
use tch::Tensor;

use super::layer_norm::{LayerNorm, LayerNormParts};
use super::linear::Matrix;
use super::{Compute, numbers_mut};
use crate::device::Dtype;
use crate::error::ModelError;
use crate::kernels::memory::Shared;
use crate::weights::{Taken, Weights};

/// Numbers that one piece of the loop takes.
const PIECE: usize = 8192;

/// The three tables and the norm.
pub struct EncoderEmbedding {
    compute: Arc<Compute>,
    word: Table,
    position: Table,
    token_type: Option<Table>,
    norm: LayerNorm,
    hidden_size: usize,
}

/// Tensors of an [`EncoderEmbedding`].
pub struct EncoderEmbeddingParts {
    /// Shape: `[vocab, hidden]`.
    pub word: Taken,
    /// Shape: `[positions, hidden]`.
    pub position: Taken,
    /// Shape: `[token types, hidden]`.
    pub token_type: Option<Taken>,
    /// The norm over the sum.
    pub norm: LayerNormParts,
}

/// What each row of a batch is made of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenRows {
    /// Rows of the word table.
    pub ids: Vec<u32>,
    /// Rows of the position table.
    pub positions: Vec<u32>,
    /// Rows of the token type table.
    pub token_types: Vec<u32>,
}

/// A table whose rows are looked up. Whole rows lie together, unlike in the matrices of linears: a
/// look-up there would touch a cache line for each number.
enum Table {
    F32(Vec<f32>),
    Bf16(Vec<bf16>),
    /// For LibTorch's operators.
    Torch(Tensor),
}

impl Table {
    fn read(compute: &Compute, weights: &Weights, part: &Taken) -> Result<Self, ModelError> {
        if compute.team.is_none() {
            return match Matrix::read(compute, weights, &[part])? {
                Matrix::Torch(tensor) => Ok(Self::Torch(tensor)),
                Matrix::Packed(_) => unreachable!("packed matrices come with a team"),
            };
        }
        let n = part.rows() * part.cols();
        match compute.dtype {
            Dtype::F32 => {
                let mut all = Vec::with_capacity(n);
                weights.read(part, |_, piece| all.extend_from_slice(piece))?;
                Ok(Self::F32(all))
            }
            Dtype::Bf16 => {
                let mut all = Vec::with_capacity(n);
                weights.read(part, |_, piece| {
                    all.extend(piece.iter().map(|v| bf16::from_f32(*v)));
                })?;
                Ok(Self::Bf16(all))
            }
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::F32(all) => size_of_val(&all[..]),
            Self::Bf16(all) => size_of_val(&all[..]),
            Self::Torch(tensor) => tensor.numel() * tensor.kind().elt_size_in_bytes(),
        }
    }

    /// The table for our own loops: tensors must not be shared by threads, slices may.
    fn own(&self) -> OwnTable<'_> {
        match self {
            Self::F32(all) => OwnTable::F32(all),
            Self::Bf16(all) => OwnTable::Bf16(all),
            Self::Torch(_) => unreachable!("with a team tables are ours"),
        }
    }

    fn torch_rows(&self, rows: &[u32], compute: &Compute) -> Tensor {
        let Self::Torch(table) = self else {
            unreachable!("without a team tables are tensors");
        };
        let rows: Vec<i64> = rows.iter().map(|&row| i64::from(row)).collect();
        let rows = Tensor::from_slice(&rows).to_device(compute.device.torch());
        table.index_select(0, &rows)
    }
}

/// A [`Table`] as a slice.
#[derive(Clone, Copy)]
enum OwnTable<'a> {
    F32(&'a [f32]),
    Bf16(&'a [bf16]),
}

impl OwnTable<'_> {
    /// Sets `out` to row `row`.
    fn copy_row(self, row: u32, out: &mut [f32]) {
        let range = row as usize * out.len()..(row as usize + 1) * out.len();
        match self {
            Self::F32(all) => out.copy_from_slice(&all[range]),
            Self::Bf16(all) => {
                let pairs = out.iter_mut().zip(&all[range]);
                pairs.for_each(|(o, v)| *o = v.to_f32_const());
            }
        }
    }

    /// Adds row `row` to `out`.
    fn add_row(self, row: u32, out: &mut [f32]) {
        let range = row as usize * out.len()..(row as usize + 1) * out.len();
        match self {
            Self::F32(all) => out.iter_mut().zip(&all[range]).for_each(|(o, v)| *o += v),
            Self::Bf16(all) => {
                let pairs = out.iter_mut().zip(&all[range]);
                pairs.for_each(|(o, v)| *o += v.to_f32_const());
            }
        }
    }
}

impl EncoderEmbedding {
    /// Reads tables and norm.
    ///
    /// # Errors
    /// What reading a tensor can give; see [`Weights::read`].
    pub fn read(
        compute: &Arc<Compute>,
        weights: &Weights,
        parts: &EncoderEmbeddingParts,
        eps: f64,
    ) -> Result<Self, ModelError> {
        let table = |part: &Taken| Table::read(compute, weights, part);
        Ok(Self {
            compute: Arc::clone(compute),
            word: table(&parts.word)?,
            position: table(&parts.position)?,
            token_type: parts.token_type.as_ref().map(table).transpose()?,
            norm: LayerNorm::read(compute, weights, &parts.norm, eps)?,
            hidden_size: parts.word.cols(),
        })
    }

    /// Memory of the tables and the norm. Unit: bytes.
    pub fn bytes(&self) -> usize {
        self.word.bytes()
            + self.position.bytes()
            + self.token_type.as_ref().map_or(0, Table::bytes)
            + self.norm.bytes()
    }

    /// Shape: `[rows, hidden]`.
    ///
    /// # Panics
    /// On a row that a table does not have.
    pub fn forward(&self, rows: &TokenRows) -> Tensor {
        let n = rows.ids.len();
        assert!(
            rows.positions.len() == n && rows.token_types.len() == n,
            "every row has an id, a position and a type"
        );
        let Some(team) = &self.compute.team else {
            let look_up = |table: &Table, rows: &[u32]| table.torch_rows(rows, &self.compute);
            let mut sum = look_up(&self.word, &rows.ids);
            if let Some(table) = &self.token_type {
                sum += look_up(table, &rows.token_types);
            }
            sum += look_up(&self.position, &rows.positions);
            self.norm.apply(&mut sum);
            return sum;
        };
        let cols = self.hidden_size;
        let mut out = self.compute.empty(n, cols);
        let (word, position) = (self.word.own(), self.position.own());
        let token_type = self.token_type.as_ref().map(Table::own);
        let norm = self.norm.own();
        let shared = Shared::new(numbers_mut(&mut out));
        let per_piece = (PIECE / cols).max(1);
        team.run(n.div_ceil(per_piece), &|piece| {
            for i in piece * per_piece..((piece + 1) * per_piece).min(n) {
                #[allow(unsafe_code, reason = "pieces of one output")]
                // SAFETY: every row is in one piece.
                let row = unsafe { shared.part(i * cols, cols) };
                word.copy_row(rows.ids[i], row);
                if let Some(table) = token_type {
                    table.add_row(rows.token_types[i], row);
                }
                position.add_row(rows.positions[i], row);
                norm.apply(row);
            }
        });
        out
    }
}
