//! The tensors of a checkpoint, taken by name and shape; what does not fit is reported all at once.
//!
//! Safetensors files (one or sharded) and GGUF files are memory-mapped and decoded a few rows at a
//! time, straight into their final place, so loading needs little more memory than the weights.
//! Knows names and shapes; what a tensor is for is the architecture's business.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::error::{Misshaped, ModelError, TensorReport};
use crate::gguf::GgufFile;
use crate::quant::NibbleGroup;

mod shards;

use shards::{Shard, shard_files};

/// Rows are decoded in pieces of about this many numbers (1 MiB of f32).
const PIECE: usize = 1 << 18;

/// An open checkpoint.
pub struct Weights {
    path: PathBuf,
    store: Store,
    shapes: BTreeMap<String, Vec<usize>>,
    taken: BTreeSet<String>,
    report: TensorReport,
    /// Tensors that were read and hold a number that is none, or infinity.
    not_finite: Mutex<BTreeSet<String>>,
    /// Every number reads as 0, and no file is touched.
    unread: bool,
}

enum Store {
    Safetensors {
        shards: Vec<Shard>,
        shard_of: BTreeMap<String, usize>,
    },
    Gguf(GgufFile),
}

/// A tensor that was taken: a name to read rows by. Vectors count as one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    name: String,
    /// Row of the stored tensor that is this one's first.
    first_row: usize,
    rows: usize,
    cols: usize,
}

impl Taken {
    /// Rows of the matrix, 1 for a vector.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Numbers in a row.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Some rows of a tensor that fuses several.
    ///
    /// # Panics
    /// If it has fewer rows.
    pub fn part(&self, rows: Range<usize>) -> Self {
        assert!(rows.end <= self.rows, "{}: no rows {rows:?}", self.name);
        Self {
            name: self.name.clone(),
            first_row: self.first_row + rows.start,
            rows: rows.len(),
            cols: self.cols,
        }
    }
}

impl Weights {
    /// Opens the weights of a Hugging Face folder.
    ///
    /// # Errors
    /// [`ModelError::MissingFile`] without any; [`ModelError::RefusedFormat`] where there are only
    /// pickles; [`ModelError::Malformed`] for a bad header or index.
    pub fn open_folder(folder: &Path) -> Result<Self, ModelError> {
        let single = folder.join("model.safetensors");
        let index = folder.join("model.safetensors.index.json");
        let files = if index.exists() {
            shard_files(folder, &index)?
        } else if single.exists() {
            vec![single]
        } else {
            return Err(no_weights(folder));
        };
        let shards = files
            .iter()
            .map(|f| Shard::open(f))
            .collect::<Result<Vec<_>, _>>()?;
        let mut shapes = BTreeMap::new();
        let mut shard_of = BTreeMap::new();
        for (i, shard) in shards.iter().enumerate() {
            for (name, info) in shard.metadata.tensors() {
                shapes.insert(name.clone(), info.shape.clone());
                shard_of.insert(name, i);
            }
        }
        let store = Store::Safetensors { shards, shard_of };
        Ok(Self::new(folder.to_owned(), store, shapes))
    }

    /// The weights of an open GGUF file.
    pub fn from_gguf(file: GgufFile) -> Self {
        let shapes = file.tensors().collect();
        Self::new(file.path().to_owned(), Store::Gguf(file), shapes)
    }

    fn new(path: PathBuf, store: Store, shapes: BTreeMap<String, Vec<usize>>) -> Self {
        Self {
            path,
            store,
            shapes,
            taken: BTreeSet::new(),
            report: TensorReport::default(),
            not_finite: Mutex::default(),
            unread: false,
        }
    }

    /// True for a GGUF file.
    pub fn is_gguf(&self) -> bool {
        matches!(self.store, Store::Gguf(_))
    }

    /// The same names and shapes with every number 0: a model built from them costs what it will
    /// cost, but the pages of its matrices are never touched.
    pub(crate) fn unread(self) -> Self {
        Self {
            unread: true,
            ..self
        }
    }

    /// True for weights that all read as 0.
    pub(crate) fn is_unread(&self) -> bool {
        self.unread
    }

    /// Encodings in the checkpoint with how many tensors each has and what they take there. Unit:
    /// bytes.
    pub(crate) fn stored(&self) -> BTreeMap<String, (usize, u64)> {
        let mut stored = BTreeMap::new();
        let mut count = |encoding: String, bytes: u64| {
            let entry: &mut (usize, u64) = stored.entry(encoding).or_default();
            entry.0 += 1;
            entry.1 += bytes;
        };
        match &self.store {
            Store::Gguf(file) => file.stored().for_each(|(name, bytes)| count(name, bytes)),
            Store::Safetensors { shards, .. } => {
                for info in shards
                    .iter()
                    .flat_map(|s| s.metadata.tensors().into_values())
                {
                    let (start, end) = info.data_offsets;
                    count(format!("{:?}", info.dtype), (end - start) as u64);
                }
            }
        }
        stored
    }

    /// True where the checkpoint has a tensor of that name.
    pub fn has(&self, name: &str) -> bool {
        self.shapes.contains_key(name)
    }

    /// Takes a tensor. One that is missing or has another shape is noted and found by
    /// [`Weights::finish`], so that one run names everything that is wrong.
    ///
    /// # Panics
    /// On a shape that is no vector and no matrix.
    pub fn take(&mut self, name: &str, shape: &[usize]) -> Taken {
        let (rows, cols) = match *shape {
            [cols] => (1, cols),
            [rows, cols] => (rows, cols),
            _ => panic!("take {name}: shape {shape:?} is no vector or matrix"),
        };
        match self.shapes.get(name) {
            None => self.report.missing.push(name.to_owned()),
            Some(got) if got != shape => self.report.misshaped.push(Misshaped {
                name: name.to_owned(),
                expected: shape.to_vec(),
                got: got.clone(),
            }),
            Some(_) => {}
        }
        self.taken.insert(name.to_owned());
        Taken {
            name: name.to_owned(),
            first_row: 0,
            rows,
            cols,
        }
    }

    /// Leaves out tensors that carry nothing the architecture lacks, such as stored masks.
    pub fn ignore(&mut self, is_ignored: impl Fn(&str) -> bool) {
        self.shapes
            .retain(|name, _| self.taken.contains(name) || !is_ignored(name));
    }

    /// Call after the last [`Weights::take`], before the first read.
    ///
    /// # Errors
    /// [`ModelError::Tensors`] with everything missing, mis-shaped or left over.
    pub fn finish(&mut self) -> Result<(), ModelError> {
        let left = self.shapes.keys().filter(|n| !self.taken.contains(*n));
        self.report.unused = left.cloned().collect();
        if self.report.is_empty() {
            return Ok(());
        }
        Err(ModelError::Tensors {
            path: self.path.clone(),
            report: self.report.clone(),
        })
    }

    /// Numbers in the tensors taken.
    pub fn n_parameters(&self) -> u64 {
        let taken = self.taken.iter().filter_map(|name| self.shapes.get(name));
        taken
            .map(|shape| shape.iter().product::<usize>() as u64)
            .sum()
    }

    /// Hands the rows of a tensor as f32 to `sink`, a piece at a time, in order: the index of the
    /// piece's first row and whole rows one after the other.
    ///
    /// # Errors
    /// [`ModelError::UnsupportedEncoding`], [`ModelError::Malformed`].
    pub fn read(
        &self,
        tensor: &Taken,
        mut sink: impl FnMut(usize, &[f32]),
    ) -> Result<(), ModelError> {
        if self.unread {
            return Ok(());
        }
        let step = (PIECE / tensor.cols.max(1)).max(1);
        let mut piece = Vec::with_capacity(step.min(tensor.rows) * tensor.cols);
        let mut start = 0;
        while start < tensor.rows {
            let rows = start..(start + step).min(tensor.rows);
            piece.clear();
            self.read_rows(tensor, rows.clone(), &mut piece)?;
            sink(start, &piece);
            start = rows.end;
        }
        Ok(())
    }

    /// All numbers of a small tensor as f32, row after row.
    ///
    /// # Errors
    /// As [`Weights::read`].
    pub fn read_all(&self, tensor: &Taken) -> Result<Vec<f32>, ModelError> {
        if self.unread {
            return Ok(vec![0.0; tensor.rows * tensor.cols]);
        }
        let mut all = Vec::with_capacity(tensor.rows * tensor.cols);
        self.read_rows(tensor, 0..tensor.rows, &mut all)?;
        Ok(all)
    }

    /// Hands every row to `sink` as the groups of 4 bits it is stored in. False, and nothing
    /// handed on, where the tensor is stored otherwise.
    ///
    /// # Errors
    /// [`ModelError::Malformed`].
    pub fn read_groups(
        &self,
        tensor: &Taken,
        mut sink: impl FnMut(usize, &[NibbleGroup]),
    ) -> Result<bool, ModelError> {
        if self.unread {
            return Ok(true);
        }
        let Store::Gguf(file) = &self.store else {
            return Ok(false);
        };
        let mut groups = Vec::new();
        for row in 0..tensor.rows {
            groups.clear();
            if !file.read_groups(&tensor.name, tensor.first_row + row, &mut groups)? {
                return Ok(false);
            }
            let finite = groups.iter().all(|g| g.d.is_finite() && g.m.is_finite());
            self.note_finite(tensor, finite);
            sink(row, &groups);
        }
        Ok(true)
    }

    fn read_rows(
        &self,
        tensor: &Taken,
        rows: Range<usize>,
        out: &mut Vec<f32>,
    ) -> Result<(), ModelError> {
        let rows = tensor.first_row + rows.start..tensor.first_row + rows.end;
        let start = out.len();
        match &self.store {
            Store::Gguf(file) => file.read_rows(&tensor.name, rows, out)?,
            Store::Safetensors { shards, shard_of } => {
                let shard = &shards[shard_of[&tensor.name]];
                shard.read_rows(tensor, rows, out)?;
            }
        }
        // Without a branch a number, which costs less than the reading.
        let finite = out[start..].iter().fold(true, |all, x| all & x.is_finite());
        self.note_finite(tensor, finite);
        Ok(())
    }

    fn note_finite(&self, tensor: &Taken, finite: bool) {
        if !finite {
            // A set is whole after every insertion.
            let mut names = self
                .not_finite
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            names.insert(tensor.name.clone());
        }
    }

    /// Tensors read so far that hold a number that is none, or infinity.
    pub fn not_finite(&self) -> BTreeSet<String> {
        let names = self.not_finite.lock();
        names.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Says once which tensors would make every answer worthless. A warning and no refusal: a
    /// row of the embedding that no text reaches harms nobody.
    pub fn warn_not_finite(&self) {
        let names: Vec<String> = self.not_finite().into_iter().collect();
        if !names.is_empty() {
            tracing::warn!(
                path = %self.path.display(),
                n_tensors = names.len(),
                tensors = %names.join(", "),
                "weights hold numbers that are not finite"
            );
        }
    }
}

fn no_weights(folder: &Path) -> ModelError {
    let pickle = ["pytorch_model.bin", "pytorch_model.bin.index.json"];
    match pickle.iter().map(|n| folder.join(n)).find(|p| p.exists()) {
        Some(path) => ModelError::RefusedFormat {
            path,
            format: "a pickle",
            advice: "it can run code when opened; convert the model to safetensors",
        },
        None => ModelError::MissingFile {
            folder: folder.to_owned(),
            file: "model.safetensors, model.safetensors.index.json or .gguf file",
        },
    }
}

#[cfg(test)]
mod tests;
