//! Checkpoints that do not fit, and files that are not what they say.

use super::*;

/// Writes a safetensors file of f32 tensors counting up from 0.
fn write_safetensors(path: &Path, tensors: &[(&str, &[usize])]) {
    let data: Vec<(String, Vec<usize>, Vec<u8>)> = tensors
        .iter()
        .map(|(name, shape)| {
            let n: usize = shape.iter().product();
            let bytes = (0..n).flat_map(|i| (i as f32).to_le_bytes()).collect();
            ((*name).to_owned(), shape.to_vec(), bytes)
        })
        .collect();
    let views = data.iter().map(|(name, shape, bytes)| {
        let dtype = safetensors::Dtype::F32;
        (
            name,
            safetensors::tensor::TensorView::new(dtype, shape.clone(), bytes).unwrap(),
        )
    });
    safetensors::serialize_to_file(views, None, path).unwrap();
}

#[test]
fn everything_that_does_not_fit_is_reported_at_once() {
    let folder = tempfile::tempdir().unwrap();
    write_safetensors(
        &folder.path().join("model.safetensors"),
        &[
            ("a", &[2, 3]),
            ("b", &[4]),
            ("mask", &[1]),
            ("extra.1", &[1]),
            ("extra.2", &[1]),
        ],
    );
    let mut weights = Weights::open_folder(folder.path()).unwrap();
    let a = weights.take("a", &[2, 3]);
    weights.take("b", &[5]);
    weights.take("c", &[2, 2]);
    weights.ignore(|name| name == "mask");
    let problem = weights.finish().unwrap_err().to_string();
    let expected = "1 missing tensors: c; 1 mis-shaped tensors: tensor b: expected [5], got [4]; \
                    2 unused tensors: extra.1, extra.2";
    assert_eq!(problem.split_once(": ").unwrap().1, expected);
    assert_eq!(
        weights.read_all(&a).unwrap(),
        [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    );
}

#[test]
fn tensors_that_are_not_finite_are_named_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    write_safetensors(&path, &[("a", &[2, 3]), ("b", &[4]), ("c", &[2, 2])]);
    let mut bytes = std::fs::read(&path).unwrap();
    let data = bytes.len() - 14 * 4;
    bytes[data + 5 * 4..][..4].copy_from_slice(&f32::NAN.to_le_bytes());
    bytes[data + 11 * 4..][..4].copy_from_slice(&f32::NEG_INFINITY.to_le_bytes());
    std::fs::write(&path, bytes).unwrap();
    let mut weights = Weights::open_folder(folder.path()).unwrap();
    let a = weights.take("a", &[2, 3]);
    let [b, c] = [("b", &[4][..]), ("c", &[2, 2])].map(|(n, shape)| weights.take(n, shape));
    weights.finish().unwrap();
    assert!(weights.not_finite().is_empty());
    for tensor in [&a, &a, &b, &c] {
        weights.read(tensor, |_, _| {}).unwrap();
    }
    assert_eq!(Vec::from_iter(weights.not_finite()), ["a", "c"]);
}

#[test]
fn long_tensors_arrive_in_whole_rows() {
    let folder = tempfile::tempdir().unwrap();
    let (rows, cols) = (700, 1000);
    write_safetensors(
        &folder.path().join("model.safetensors"),
        &[("w", &[rows, cols])],
    );
    let mut weights = Weights::open_folder(folder.path()).unwrap();
    let w = weights.take("w", &[rows, cols]);
    weights.finish().unwrap();
    let (mut next_row, mut pieces) = (0, 0);
    weights
        .read(&w, |start, piece| {
            assert_eq!(start, next_row);
            assert_eq!(piece[0], (start * cols) as f32);
            assert_eq!(piece.len() % cols, 0);
            next_row += piece.len() / cols;
            pieces += 1;
        })
        .unwrap();
    assert_eq!((next_row, pieces), (rows, 3));
}

#[test]
fn files_that_lie_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let open = || {
        Weights::open_folder(folder.path())
            .err()
            .map(|e| e.to_string())
    };
    assert!(open().unwrap().contains("no model.safetensors"));
    std::fs::write(folder.path().join("pytorch_model.bin"), b"x").unwrap();
    assert!(
        open()
            .unwrap()
            .contains("pytorch_model.bin: a pickle is not read")
    );

    write_safetensors(&path, &[("a", &[2, 3])]);
    let good = std::fs::read(&path).unwrap();
    assert_eq!(open(), None);
    for bad in [
        &good[..good.len() - 1],
        &good[..4],
        b"\xff\xff\xff\xff\xff\xff\xff\x7f{}",
    ] {
        std::fs::write(&path, bad).unwrap();
        assert!(open().unwrap().contains("model.safetensors: "));
    }

    let index = folder.path().join("model.safetensors.index.json");
    std::fs::write(&index, r#"{"weight_map": {"a": "../x.safetensors"}}"#).unwrap();
    let problem = open().unwrap();
    assert!(
        problem.contains("weight_map names ../x.safetensors"),
        "{problem}"
    );
    std::fs::write(&index, r#"{"weight_map": {"a": "gone.safetensors"}}"#).unwrap();
    assert!(open().unwrap().contains("gone.safetensors: No such file"));
}

#[test]
fn integers_are_no_weights() {
    let folder = tempfile::tempdir().unwrap();
    let view = safetensors::tensor::TensorView::new(safetensors::Dtype::I8, vec![2], &[1, 2]);
    let path = folder.path().join("model.safetensors");
    safetensors::serialize_to_file([("q", view.unwrap())], None, &path).unwrap();
    let mut weights = Weights::open_folder(folder.path()).unwrap();
    let q = weights.take("q", &[2]);
    weights.finish().unwrap();
    let problem = weights.read_all(&q).unwrap_err().to_string();
    assert_eq!(
        problem,
        "tensor q: I8 is not supported (supported: F32, F16, BF16)"
    );
}
