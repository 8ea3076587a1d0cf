//! The tensors of a checkpoint, taken by name and shape; what does not fit is reported all at once.
//!
//! Safetensors files (one or sharded) and GGUF files are memory-mapped and decoded a few rows at a
//! time, straight into their final place, so loading needs little more memory than the weights.
//! Knows names and shapes; what a tensor is for is the architecture's business.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use safetensors::tensor::{Metadata, SafeTensors};

use crate::error::{Misshaped, ModelError, TensorReport};
use crate::files::{parse_json, read_text};
use crate::gguf::GgufFile;
use crate::mapped_file::MappedFile;
use crate::quant::NibbleGroup;

/// Rows are decoded in pieces of about this many numbers (1 MiB of f32).
const PIECE: usize = 1 << 18;

/// An open checkpoint.
pub struct Weights {
    path: PathBuf,
    store: Store,
    shapes: BTreeMap<String, Vec<usize>>,
    taken: BTreeSet<String>,
    report: TensorReport,
}

enum Store {
    Safetensors {
        shards: Vec<Shard>,
        shard_of: BTreeMap<String, usize>,
    },
    Gguf(GgufFile),
}

struct Shard {
    map: MappedFile,
    /// Byte at which tensor data starts.
    data_start: usize,
    metadata: Metadata,
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
        }
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
        let Store::Gguf(file) = &self.store else {
            return Ok(false);
        };
        let mut groups = Vec::new();
        for row in 0..tensor.rows {
            groups.clear();
            if !file.read_groups(&tensor.name, tensor.first_row + row, &mut groups)? {
                return Ok(false);
            }
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
        match &self.store {
            Store::Gguf(file) => file.read_rows(&tensor.name, rows, out),
            Store::Safetensors { shards, shard_of } => {
                let shard = &shards[shard_of[&tensor.name]];
                shard.read_rows(tensor, rows, out)
            }
        }
    }
}

impl Shard {
    fn open(path: &Path) -> Result<Self, ModelError> {
        let map = MappedFile::open(path)?;
        // The library checks that the offsets are contiguous and end with the file.
        let (header, metadata) =
            SafeTensors::read_metadata(&map).map_err(|e| ModelError::Malformed {
                path: path.to_owned(),
                problem: e.to_string(),
            })?;
        Ok(Self {
            map,
            data_start: header + size_of::<u64>(),
            metadata,
        })
    }

    fn read_rows(
        &self,
        tensor: &Taken,
        rows: Range<usize>,
        out: &mut Vec<f32>,
    ) -> Result<(), ModelError> {
        use safetensors::Dtype::{BF16, F16, F32};
        let info = self
            .metadata
            .info(&tensor.name)
            .expect("the index was made from this header");
        let size = match info.dtype {
            F32 => 4,
            F16 | BF16 => 2,
            other => {
                return Err(ModelError::UnsupportedEncoding {
                    tensor: tensor.name.clone(),
                    encoding: format!("{other:?}"),
                    supported: "F32, F16, BF16",
                });
            }
        };
        let start = self.data_start + info.data_offsets.0 + rows.start * tensor.cols * size;
        let len = rows.len() * tensor.cols * size;
        let bytes = self
            .map
            .get(start..start + len)
            .ok_or_else(|| ModelError::Malformed {
                path: self.map.path().to_owned(),
                problem: format!("tensor {}: ends past the file", tensor.name),
            })?;
        let pair = |b: &[u8]| [b[0], b[1]];
        match info.dtype {
            F16 => out.extend(
                bytes
                    .chunks_exact(2)
                    .map(|b| f16::from_le_bytes(pair(b)).to_f32()),
            ),
            BF16 => out.extend(
                bytes
                    .chunks_exact(2)
                    .map(|b| bf16::from_le_bytes(pair(b)).to_f32()),
            ),
            _ => out.extend(
                bytes
                    .chunks_exact(4)
                    .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])),
            ),
        }
        self.map.let_go(start..start + len);
        Ok(())
    }
}

/// The shard files that an index names.
fn shard_files(folder: &Path, index: &Path) -> Result<Vec<PathBuf>, ModelError> {
    #[derive(serde::Deserialize)]
    struct Index {
        weight_map: BTreeMap<String, String>,
    }
    let parsed: Index = parse_json(index, &read_text(index)?)?;
    let names: BTreeSet<String> = parsed.weight_map.into_values().collect();
    // A name with a slash would reach outside the folder.
    if let Some(name) = names.iter().find(|n| n.contains('/') || n.contains('\\')) {
        return Err(ModelError::Malformed {
            path: index.to_owned(),
            problem: format!("weight_map names {name}, which is not in this folder"),
        });
    }
    Ok(names.into_iter().map(|n| folder.join(n)).collect())
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
