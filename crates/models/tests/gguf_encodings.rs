//! Every GGUF encoding that is read, written by candle-core and read back in pieces.

#![allow(
    clippy::unwrap_used,
    reason = "clippy knows a test only by its attribute"
)]

use std::fs::File;
use std::path::Path;

use candle_core::quantized::gguf_file::{self, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use prony_models::gguf::GgufFile;
use prony_models::weights::Weights;

const ROWS: usize = 600;
const COLS: usize = 512;

/// Writes one tensor under a name that GGUF and Hugging Face share no mapping for.
fn write(path: &Path, dtype: GgmlDType) -> Vec<f32> {
    let numbers: Vec<f32> = (0..ROWS * COLS).map(|i| (i as f32 * 0.37).sin()).collect();
    let tensor = Tensor::from_vec(numbers, (ROWS, COLS), &Device::Cpu).unwrap();
    let quantised = QTensor::quantize(&tensor, dtype).unwrap();
    let family = Value::String("llama".to_owned());
    let mut file = File::create(path).unwrap();
    let metadata = [("general.architecture", &family)];
    gguf_file::write(&mut file, &metadata, &[("w", &quantised)]).unwrap();
    let whole = quantised.dequantize(&Device::Cpu).unwrap();
    whole.flatten_all().unwrap().to_vec1().unwrap()
}

fn read(path: &Path) -> Result<Vec<f32>, String> {
    let mut weights = Weights::from_gguf(GgufFile::open(path).unwrap());
    let w = weights.take("w", &[ROWS, COLS]);
    weights.finish().unwrap();
    let mut out = Vec::new();
    weights
        .read(&w, |_, piece| out.extend_from_slice(piece))
        .map_err(|e| e.to_string())?;
    Ok(out)
}

#[test]
fn each_encoding_is_read_in_pieces_as_in_whole() {
    use GgmlDType::{BF16, F16, F32, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q6K, Q8_0};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.gguf");
    // The largest error of a sine in each encoding, with room to spare.
    for (dtype, error) in [
        (F32, 0.0),
        (F16, 5e-4),
        (BF16, 4e-3),
        (Q4_0, 0.15),
        (Q4_1, 0.08),
        (Q5_0, 0.08),
        (Q5_1, 0.04),
        (Q8_0, 0.005),
        (Q4K, 0.15),
        (Q6K, 0.05),
    ] {
        let expected = write(&path, dtype);
        let got = read(&path).unwrap();
        assert!(got == expected, "{dtype:?}: pieces differ from the whole");
        for (i, x) in got.iter().enumerate() {
            let off = (x - (i as f32 * 0.37).sin()).abs();
            assert!(off <= error, "{dtype:?}: element {i} off by {off}");
        }
    }
}

#[test]
fn other_encodings_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.gguf");
    write(&path, GgmlDType::Q2K);
    assert_eq!(
        read(&path).unwrap_err(),
        "tensor w: Q2K is not supported (supported: F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, \
         Q8_0, Q4_K, Q6_K)"
    );
}

#[test]
fn a_tensor_that_ends_past_the_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.gguf");
    write(&path, GgmlDType::Q8_0);
    let file = File::options().write(true).open(&path).unwrap();
    let len = file.metadata().unwrap().len();
    file.set_len(len - 1000).unwrap();
    let problem = read(&path).unwrap_err();
    assert!(
        problem.contains("w.gguf: tensor w: ends at byte"),
        "{problem}"
    );
}
