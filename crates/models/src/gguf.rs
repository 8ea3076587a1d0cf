//! A GGUF file as configuration, vocabulary and tensors under their Hugging Face names.
//!
//! The container and the block formats are read by candle-core; this file gives the names and the
//! row order of a Hugging Face checkpoint to what it finds. It builds no tokenizer (tokenizer.rs)
//! and no tensors (weights.rs).

use std::collections::HashMap;
use std::io::Cursor;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use candle_core::quantized::gguf_file::{Content, TensorInfo, Value};
use candle_core::quantized::{GgmlDType, ggml_file};

use crate::error::ModelError;
use crate::mapped_file::MappedFile;
use crate::quant::NibbleGroup;

mod config;

mod names;

pub(crate) use names::Family;

/// Encodings that are decoded, for the message that refuses another.
const SUPPORTED: &str = "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q6_K";

/// What each rotary frequency is divided by, where the context was stretched as in Llama 3.1.
const ROPE_FACTORS: &str = "rope_freqs.weight";

/// An open GGUF file.
pub struct GgufFile {
    map: MappedFile,
    content: Content,
    /// Invariant: each value is a key of `content.tensor_infos`.
    hf_names: HashMap<String, String>,
    /// `None` for a family without a wiring here; its tensors keep their names.
    family: Option<Family>,
    /// Width of one rotary head, for the row order of q and k.
    head_dim: usize,
}

impl GgufFile {
    /// Opens and maps a file and reads its header.
    ///
    /// # Errors
    /// [`ModelError::Io`] and [`ModelError::Malformed`].
    pub fn open(path: &Path) -> Result<Self, ModelError> {
        let map = MappedFile::open(path)?;
        let malformed = |problem: String| ModelError::Malformed {
            path: path.to_owned(),
            problem,
        };
        // The reader divides by the header's alignment; a zero there panics inside the library.
        let content = catch_unwind(AssertUnwindSafe(|| {
            Content::read(&mut Cursor::new(&map[..]))
        }))
        .map_err(|_| malformed("the header is not valid".to_owned()))?
        .map_err(|e| malformed(first_line(&e)))?;
        let mut this = Self {
            map,
            content,
            hf_names: HashMap::new(),
            family: None,
            head_dim: 1,
        };
        this.family = this.string("general.architecture").and_then(Family::of);
        let stored = this.content.tensor_infos.keys();
        let names = stored.filter_map(|gguf| Some((this.hf_name(gguf)?, gguf.clone())));
        this.hf_names = names.collect();
        this.head_dim = this.head_dim_of_header();
        Ok(this)
    }

    fn hf_name(&self, gguf: &str) -> Option<String> {
        self.family?.hf_name(gguf)
    }

    /// A key of the family: `rope.freq_base` is `llama.rope.freq_base` in a file of Llama's.
    fn key(&self, rest: &str) -> String {
        let family = self.string("general.architecture").unwrap_or_default();
        format!("{family}.{rest}")
    }

    /// The file.
    pub fn path(&self) -> &Path {
        self.map.path()
    }

    fn head_dim_of_header(&self) -> usize {
        let split = || {
            let heads = self.size(&self.key("attention.head_count"))?;
            self.size(&self.key("embedding_length"))?.checked_div(heads)
        };
        let said = self.size(&self.key("attention.key_length"));
        // At least 1, so that a head can be divided by; contradictions are found in the config.
        said.or_else(split).unwrap_or(1).max(1)
    }

    fn embedding_rows(&self) -> Option<usize> {
        self.content
            .tensor_infos
            .get("token_embd.weight")?
            .shape
            .dims()
            .first()
            .copied()
    }

    /// A metadata string.
    pub fn string(&self, key: &str) -> Option<&str> {
        match self.content.metadata.get(key)? {
            Value::String(s) => Some(s),
            _ => None,
        }
    }

    /// A metadata array of strings.
    pub fn strings(&self, key: &str) -> Option<Vec<&str>> {
        let Value::Array(values) = self.content.metadata.get(key)? else {
            return None;
        };
        values
            .iter()
            .map(|v| v.to_string().ok().map(String::as_str))
            .collect()
    }

    /// A metadata array of integers.
    pub fn integers(&self, key: &str) -> Option<Vec<i64>> {
        let Value::Array(values) = self.content.metadata.get(key)? else {
            return None;
        };
        values.iter().map(integer).collect()
    }

    /// A metadata array of numbers.
    pub fn numbers(&self, key: &str) -> Option<Vec<f64>> {
        let Value::Array(values) = self.content.metadata.get(key)? else {
            return None;
        };
        values.iter().map(number).collect()
    }

    /// A metadata truth value.
    pub fn flag(&self, key: &str) -> Option<bool> {
        match self.content.metadata.get(key)? {
            Value::Bool(b) => Some(*b),
            _ => None,
        }
    }

    /// A metadata integer that is a token id.
    pub fn token_id(&self, key: &str) -> Option<u32> {
        u32::try_from(integer(self.content.metadata.get(key)?)?).ok()
    }

    fn size(&self, key: &str) -> Option<usize> {
        usize::try_from(integer(self.content.metadata.get(key)?)?).ok()
    }

    fn number(&self, key: &str) -> Option<f64> {
        number(self.content.metadata.get(key)?)
    }

    /// All tensors: Hugging Face name where there is one, else the GGUF name, with the shape. The
    /// factors of the rotary angles are part of the configuration.
    pub(crate) fn tensors(&self) -> impl Iterator<Item = (String, Vec<usize>)> + '_ {
        let tensors = self.content.tensor_infos.iter();
        let weights = tensors.filter(|(gguf, _)| *gguf != ROPE_FACTORS);
        weights.map(|(gguf, info)| {
            let name = self.hf_name(gguf).unwrap_or_else(|| gguf.clone());
            (name, info.shape.dims().to_vec())
        })
    }

    /// Encoding and size in bytes of every tensor.
    pub(crate) fn stored(&self) -> impl Iterator<Item = (String, u64)> + '_ {
        self.content.tensor_infos.values().map(|info| {
            let encoding = info.ggml_dtype;
            let blocks = info.shape.elem_count() / encoding.block_size();
            let bytes = blocks * encoding.type_size();
            (format!("{encoding:?}"), bytes as u64)
        })
    }

    /// Decodes rows `start..start + n` of a tensor, in Hugging Face row order, onto `out`.
    /// A vector counts as one row.
    ///
    /// # Errors
    /// [`ModelError::UnsupportedEncoding`], and [`ModelError::Malformed`] for a tensor that ends
    /// past the file.
    pub(crate) fn read_rows(
        &self,
        name: &str,
        rows: std::ops::Range<usize>,
        out: &mut Vec<f32>,
    ) -> Result<(), ModelError> {
        let gguf = self.hf_names.get(name).map_or(name, String::as_str);
        let info = &self.content.tensor_infos[gguf];
        if !self.is_interleaved(gguf) {
            return self.decode(gguf, info, rows, out);
        }
        if info.shape.rank() == 1 {
            let mut stored = Vec::new();
            self.decode(gguf, info, rows, &mut stored)?;
            let order = (0..stored.len()).map(|i| stored_row(i, self.head_dim));
            out.extend(order.map(|i| stored[i]));
            return Ok(());
        }
        for row in rows.clone() {
            let stored = stored_row(row, self.head_dim);
            self.decode(gguf, info, stored..stored + 1, out)?;
        }
        // One row is too little to let go; the heads they belong to are not.
        let first = rows.start / self.head_dim * self.head_dim;
        let end = rows.end.next_multiple_of(self.head_dim);
        self.map.let_go(self.byte_range(gguf, info, first..end)?);
        Ok(())
    }

    fn is_interleaved(&self, gguf: &str) -> bool {
        self.family.is_some_and(|f| f.is_interleaved(gguf))
    }

    /// Decodes rows as stored.
    fn decode(
        &self,
        gguf: &str,
        info: &TensorInfo,
        rows: std::ops::Range<usize>,
        out: &mut Vec<f32>,
    ) -> Result<(), ModelError> {
        let encoding = info.ggml_dtype;
        if !is_supported(encoding) {
            return Err(ModelError::UnsupportedEncoding {
                tensor: gguf.to_owned(),
                encoding: format!("{encoding:?}"),
                supported: SUPPORTED,
            });
        }
        let range = self.byte_range(gguf, info, rows.clone())?;
        let cols = *info.shape.dims().last().unwrap_or(&1);
        let cpu = candle_core::Device::Cpu;
        let bytes = &self.map[range.clone()];
        let decoded = ggml_file::qtensor_from_ggml(encoding, bytes, vec![rows.len(), cols], &cpu)
            .and_then(|q| q.dequantize(&cpu))
            .and_then(|t| t.flatten_all()?.to_vec1::<f32>())
            .map_err(|e| self.malformed(gguf, &first_line(&e)))?;
        out.extend_from_slice(&decoded);
        self.map.let_go(range);
        Ok(())
    }

    /// Row `row` of a tensor, in Hugging Face row order, as the groups it is stored in, onto
    /// `out`. False where it is stored otherwise.
    ///
    /// # Errors
    /// [`ModelError::Malformed`] for a tensor that ends past the file.
    pub(crate) fn read_groups(
        &self,
        name: &str,
        row: usize,
        out: &mut Vec<NibbleGroup>,
    ) -> Result<bool, ModelError> {
        let gguf = self.hf_names.get(name).map_or(name, String::as_str);
        let info = &self.content.tensor_infos[gguf];
        if !matches!(info.ggml_dtype, GgmlDType::Q4_0 | GgmlDType::Q4_1) {
            return Ok(false);
        }
        let row = if self.is_interleaved(gguf) {
            stored_row(row, self.head_dim)
        } else {
            row
        };
        let bytes = &self.map[self.byte_range(gguf, info, row..row + 1)?];
        if info.ggml_dtype == GgmlDType::Q4_0 {
            out.extend(bytes.as_chunks().0.iter().map(NibbleGroup::from_q4_0));
        } else {
            out.extend(bytes.as_chunks().0.iter().map(NibbleGroup::from_q4_1));
        }
        Ok(true)
    }

    /// Where rows of a tensor lie in the file.
    fn byte_range(
        &self,
        gguf: &str,
        info: &TensorInfo,
        rows: std::ops::Range<usize>,
    ) -> Result<std::ops::Range<usize>, ModelError> {
        let encoding = info.ggml_dtype;
        let cols = *info.shape.dims().last().unwrap_or(&1);
        if !cols.is_multiple_of(encoding.block_size()) {
            let problem = format!(
                "row of {cols} is not a multiple of the block of {}",
                encoding.block_size()
            );
            return Err(self.malformed(gguf, &problem));
        }
        let row_bytes = cols / encoding.block_size() * encoding.type_size();
        let base = self.content.tensor_data_offset.saturating_add(info.offset);
        let at = |row: usize| base.saturating_add((row * row_bytes) as u64);
        let (from, to) = (at(rows.start), at(rows.end));
        let range =
            usize::try_from(from).unwrap_or(usize::MAX)..usize::try_from(to).unwrap_or(usize::MAX);
        if self.map.get(range.clone()).is_none() {
            let problem = format!("ends at byte {to}, the file at {}", self.map.len());
            return Err(self.malformed(gguf, &problem));
        }
        Ok(range)
    }

    fn malformed(&self, gguf: &str, problem: &str) -> ModelError {
        ModelError::Malformed {
            path: self.path().to_owned(),
            problem: format!("tensor {gguf}: {problem}"),
        }
    }
}

fn is_supported(encoding: GgmlDType) -> bool {
    use GgmlDType::{BF16, F16, F32, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q6K, Q8_0};
    matches!(
        encoding,
        F32 | F16 | BF16 | Q4_0 | Q4_1 | Q5_0 | Q5_1 | Q8_0 | Q4K | Q6K
    )
}

fn number(value: &Value) -> Option<f64> {
    match value {
        // The shortest decimal that names the f32: 1e-5 was meant, not 9.999999747e-06.
        Value::F32(v) => v.to_string().parse().ok(),
        Value::F64(v) => Some(*v),
        other => integer(other).map(|i| i as f64),
    }
}

fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::U8(v) => Some(i64::from(*v)),
        Value::I8(v) => Some(i64::from(*v)),
        Value::U16(v) => Some(i64::from(*v)),
        Value::I16(v) => Some(i64::from(*v)),
        Value::U32(v) => Some(i64::from(*v)),
        Value::I32(v) => Some(i64::from(*v)),
        Value::U64(v) => i64::try_from(*v).ok(),
        Value::I64(v) => Some(*v),
        Value::F32(_) | Value::F64(_) | Value::Bool(_) | Value::String(_) | Value::Array(_) => None,
    }
}

/// Where a row of Hugging Face order is stored.
///
/// Hugging Face rotates (i, i + half) of a head, GGUF's Llama (2i, 2i + 1). With heads of 64, row
/// 33 (the partner of row 1) is stored third: `stored_row(33, 64) == 3`.
fn stored_row(row: usize, head_dim: usize) -> usize {
    let (head, within) = (row / head_dim, row % head_dim);
    let half = head_dim / 2;
    head * head_dim + 2 * (within % half) + within / half
}

/// The library adds its backtrace to the text where RUST_BACKTRACE is set.
fn first_line(error: &candle_core::Error) -> String {
    let text = error.to_string();
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_go_from_pairs_to_halves() {
        let order: Vec<usize> = (0..8).map(|r| stored_row(r, 4)).collect();
        assert_eq!(order, [0, 2, 1, 3, 4, 6, 5, 7]);
        assert_eq!(stored_row(33, 64), 3);
    }

    #[test]
    fn a_broken_file_is_an_error_not_a_panic() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.gguf");
        let mut zero_alignment = Vec::new();
        zero_alignment.extend_from_slice(b"GGUF\x03\0\0\0");
        zero_alignment.extend_from_slice(&0u64.to_le_bytes());
        zero_alignment.extend_from_slice(&1u64.to_le_bytes());
        zero_alignment.extend_from_slice(&17u64.to_le_bytes());
        zero_alignment.extend_from_slice(b"general.alignment\x04\0\0\0\0\0\0\0");
        for bytes in [
            &b"GGUF"[..],
            b"GGUF\x03\0\0\0\xff\xff\xff\xff\xff",
            &zero_alignment,
        ] {
            std::fs::write(&path, bytes).unwrap();
            let problem = GgufFile::open(&path).err().expect("refused").to_string();
            assert!(problem.contains("x.gguf: "), "{problem}");
        }
    }
}
