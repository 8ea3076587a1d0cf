//! TorchScript modules: golden images, shapes, and what is refused.

#![allow(
    clippy::unwrap_used,
    reason = "clippy knows a test only by its attribute"
)]

mod golden;

use std::path::{Path, PathBuf};

use golden::{golden, ids, json, tensors, worst};
use prony_models::torchscript::{Array, ArrayData, ScriptModule, ScriptOptions};
use prony_models::{Device, Dtype};

/// Thirty times the reference's own noise.
const OUTPUTS: f32 = 1e-5;

fn script_options(dtype: Dtype) -> ScriptOptions {
    ScriptOptions {
        dtype,
        device: Device::Cpu,
        threads: 2,
        libraries: Vec::new(),
    }
}

fn model() -> PathBuf {
    golden("tiny/vision_torchscript/model.pt")
}

/// Shape, input and output of each golden case.
fn cases() -> Vec<(Array, Vec<f32>)> {
    let stored = tensors("tiny/vision_torchscript/golden.safetensors");
    let golden = json("tiny/vision_torchscript/golden.json");
    let cases = golden["cases"].as_array().unwrap().iter();
    cases
        .map(|case| {
            let name = case["name"].as_str().unwrap();
            let shape = ids(&case["input_shape"]);
            let input = Array {
                shape: shape.iter().map(|&d| d as usize).collect(),
                data: ArrayData::F32(stored[&format!("in/{name}")].clone()),
            };
            (input, stored[&format!("out/{name}")].clone())
        })
        .collect()
}

fn run(module: &mut ScriptModule, input: &Array) -> (Vec<usize>, Vec<f32>) {
    let mut outputs = module.run(std::slice::from_ref(input)).unwrap();
    let output = outputs.remove(0);
    assert!(outputs.is_empty());
    assert_eq!(output.name, "output_0");
    let ArrayData::F32(numbers) = output.array.data else {
        panic!("{:?}", output.array.data);
    };
    (output.array.shape, numbers)
}

#[test]
fn images_of_any_size_give_the_reference_numbers() {
    let mut module = ScriptModule::load(&model(), &script_options(Dtype::F32)).unwrap();
    for (input, expected) in cases() {
        // The just-in-time compiler changes the module's code over the first runs.
        for _ in 0..4 {
            let (shape, numbers) = run(&mut module, &input);
            assert_eq!(shape, [input.shape[0], 10]);
            let off = worst(&numbers, &expected);
            assert!(off < OUTPUTS, "{:?}: off by {off}", input.shape);
        }
    }
    let mut module = ScriptModule::load(&model(), &script_options(Dtype::Bf16)).unwrap();
    for (input, expected) in cases() {
        let off = worst(&run(&mut module, &input).1, &expected);
        assert!(off < 3e-2, "bf16 {:?}: off by {off}", input.shape);
    }
}

#[test]
fn what_does_not_fit_is_refused_in_one_line() {
    let mut module = ScriptModule::load(&model(), &script_options(Dtype::F32)).unwrap();
    let mut problem = |shape: &[usize], data: ArrayData| {
        let shape = shape.to_vec();
        let text = module
            .run(&[Array { shape, data }])
            .unwrap_err()
            .to_string();
        assert_eq!(text.lines().count(), 1, "{text}");
        text
    };
    assert_eq!(
        problem(&[2, 3], ArrayData::F32(vec![0.0; 5])),
        "input 0: 5 numbers for the shape [2, 3]"
    );
    let huge = [usize::MAX, usize::MAX];
    let text = problem(&huge, ArrayData::F32(Vec::new()));
    assert!(
        text.starts_with("input 0: 0 numbers for the shape"),
        "{text}"
    );
    let channels = problem(&[1, 4, 32, 32], ArrayData::F32(vec![0.0; 4096]));
    assert!(
        channels.contains("expected input[1, 4, 32, 32] to have 3 channels"),
        "{channels}"
    );
    let bytes = problem(&[1, 3, 32, 32], ArrayData::U8(vec![0; 3072]));
    assert!(bytes.contains("model.pt: torchscript: "), "{bytes}");
    // It still works afterwards.
    let (input, expected) = cases().remove(0);
    assert!(worst(&run(&mut module, &input).1, &expected) < OUTPUTS);
    let none = module.run(&[]).unwrap_err().to_string();
    assert_eq!(none.lines().count(), 1, "{none}");
}

#[test]
fn a_bad_file_or_library_is_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let problem = |path: &Path, options: &ScriptOptions| {
        let text = ScriptModule::load(path, options).err().unwrap().to_string();
        assert_eq!(text.lines().count(), 1, "{text}");
        text
    };
    let plain = script_options(Dtype::F32);
    let gone = folder.path().join("gone.pt");
    assert_eq!(
        problem(&gone, &plain),
        format!("model {}: no such file or folder", gone.display())
    );
    let whole = std::fs::read(model()).unwrap();
    for (name, bytes) in [
        ("empty", &[][..]),
        ("cut", &whole[..9000]),
        ("text", b"hello"),
    ] {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let text = problem(&path, &plain);
        let start = format!("{}: torchscript: ", path.display());
        assert!(
            text.len() > start.len() && text.starts_with(&start),
            "{text}"
        );
    }
    let missing = ScriptOptions {
        libraries: vec![PathBuf::from("/nonexistent/libplugin.so")],
        ..plain.clone()
    };
    let text = problem(&model(), &missing);
    assert!(
        text.contains("torchscript: library /nonexistent/libplugin.so"),
        "{text}"
    );
    // A library that is there is loaded before the module is.
    let present = ScriptOptions {
        libraries: vec![PathBuf::from("libm.so.6")],
        ..plain
    };
    assert!(ScriptModule::load(&model(), &present).is_ok());
}
