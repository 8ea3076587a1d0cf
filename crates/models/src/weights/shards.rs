//! Safetensors files: one, or several that an index names.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use safetensors::tensor::{Metadata, SafeTensors};

use super::Taken;
use crate::error::ModelError;
use crate::files::{parse_json, read_text};
use crate::mapped_file::MappedFile;

/// An open file.
pub(super) struct Shard {
    map: MappedFile,
    /// Byte at which tensor data starts.
    data_start: usize,
    /// Names, shapes and places.
    pub(super) metadata: Metadata,
}

impl Shard {
    pub(super) fn open(path: &Path) -> Result<Self, ModelError> {
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

    pub(super) fn read_rows(
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
pub(super) fn shard_files(folder: &Path, index: &Path) -> Result<Vec<PathBuf>, ModelError> {
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
