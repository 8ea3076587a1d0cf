//! Products against a plain loop in f64, every format on every level of instructions, every tile
//! shape, and rows that do not see each other.

use half::bf16;

use super::*;
use crate::config::Activation;

const FORMATS: [Format; 5] = [
    Format::F32,
    Format::Bf16,
    Format::Int8,
    Format::Int8Dynamic,
    Format::Int4,
];
const MOST_ROWS: usize = 40;

fn noise(n: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
    (0..n)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}

/// A packed matrix and the numbers it holds, row after row.
fn matrix(isa: Isa, format: Format, outputs: usize, inputs: usize) -> (PackedMatrix, Vec<f32>) {
    let mut packed = PackedMatrix::zeros_for(isa, format, outputs, inputs);
    for (o, row) in noise(outputs * inputs, 7).chunks(inputs).enumerate() {
        packed.set_output(o, row);
    }
    let mut held = vec![0.0; outputs * inputs];
    for (o, row) in held.chunks_mut(inputs).enumerate() {
        packed.read_output(o, row);
    }
    (packed, held)
}

/// A row of activations as a format computes with it.
fn seen(isa: Isa, format: Format, x: &[f32]) -> Vec<f64> {
    let most = x.iter().fold(0.0f32, |m, v| m.max(v.abs()));
    let stepped = |steps: f32| {
        // In f32, or a number half-way between two steps could go the other way here.
        let scale = most * (1.0 / steps);
        let step = |v: f32| f64::from((v * (1.0 / scale)).round_ties_even()) * f64::from(scale);
        let stepped: Vec<f64> = x.iter().map(|&v| step(v)).collect();
        for (v, s) in x.iter().zip(&stepped) {
            let off = (f64::from(*v) - s).abs();
            assert!(off < 0.501 * f64::from(scale), "{v} becomes {s}");
        }
        stepped
    };
    match format {
        Format::Bf16 if isa > Isa::Avx2 => x
            .iter()
            .map(|&v| f64::from(bf16::from_f32(v).to_f32()))
            .collect(),
        Format::F32 | Format::Bf16 => x.iter().map(|&v| f64::from(v)).collect(),
        Format::Int8 | Format::Int4 => stepped(127.0 * 256.0),
        Format::Int8Dynamic => stepped(127.0),
    }
}

fn product(isa: Isa, x: &[f32], w: &PackedMatrix, threads: usize) -> Vec<f32> {
    let mut out = vec![0.0; x.len() / w.inputs() * w.outputs()];
    let product = Matmul {
        x,
        w,
        bias: None,
        finish: Finish::Store,
    };
    product.run_on(isa, &Team::new(threads), &mut out);
    out
}

#[test]
fn equals_the_definition_in_every_tile_shape() {
    let team = Team::new(2);
    for (isa, format) in Isa::all().flat_map(|isa| FORMATS.map(|f| (isa, f))) {
        for (outputs, inputs) in [(1, 3), (16, 8), (50, 33), (200, 40), (350, 5), (70, 130)] {
            let (w, held) = matrix(isa, format, outputs, inputs);
            let bias = noise(outputs, 9);
            for m in 1..=MOST_ROWS {
                let x = noise(m * inputs, 11);
                let mut out = noise(m * outputs, 13);
                let before = out.clone();
                let product = Matmul {
                    x: &x,
                    w: &w,
                    bias: Some(&bias),
                    finish: Finish::Add,
                };
                product.run_on(isa, &team, &mut out);
                let x: Vec<Vec<f64>> = x.chunks(inputs).map(|x| seen(isa, format, x)).collect();
                for (i, got) in out.iter().enumerate() {
                    let (row, o) = (i / outputs, i % outputs);
                    let w = &held[o * inputs..(o + 1) * inputs];
                    let dot: f64 = x[row].iter().zip(w).map(|(x, &w)| x * f64::from(w)).sum();
                    let expected = dot + f64::from(bias[o]) + f64::from(before[i]);
                    let off = (f64::from(*got) - expected).abs();
                    assert!(
                        off < 1e-5,
                        "{isa} {format:?} {outputs}x{inputs} {m}: {got} {expected}"
                    );
                }
            }
        }
    }
}

#[test]
fn every_level_of_instructions_gives_the_same_bits() {
    let (outputs, inputs) = (100, 1536 + 37);
    let x = noise(MOST_ROWS * inputs, 5);
    for format in FORMATS {
        // bf16 has another layout below AVX-512, and rounds less there.
        let lowest = if format == Format::Bf16 {
            Isa::Avx512
        } else {
            Isa::Avx2
        };
        let levels: Vec<Isa> = Isa::all().filter(|&isa| isa >= lowest).collect();
        let Some(&first) = levels.first() else {
            continue;
        };
        let (w, _) = matrix(first, format, outputs, inputs);
        for m in 1..=MOST_ROWS {
            let expected = product(first, &x[..m * inputs], &w, 1);
            for &isa in &levels[1..] {
                let got = product(isa, &x[..m * inputs], &w, 1);
                assert!(got == expected, "{isa} and {first}: {format:?} {m}");
            }
        }
    }
}

#[test]
fn gate_multiplies_pairs_of_runs() {
    let (inner, inputs) = (20, 12);
    for (isa, format) in Isa::all().flat_map(|isa| FORMATS.map(|f| (isa, f))) {
        let (w, held) = matrix(isa, format, 64, inputs);
        let weight = |half: usize, i: usize| &held[((i / 16 * 2 + half) * 16 + i % 16) * inputs..];
        for m in [1, 2, 5, 9] {
            let x = noise(m * inputs, 3);
            let mut out = vec![0.0; m * inner];
            let product = Matmul {
                x: &x,
                w: &w,
                bias: None,
                finish: Finish::Gate,
            };
            product.run_on(isa, &Team::new(1), &mut out);
            for (i, got) in out.iter().enumerate() {
                let row = i / inner * inputs;
                let x = seen(isa, format, &x[row..row + inputs]);
                let dot = |w: &[f32]| x.iter().zip(w).map(|(x, &w)| x * f64::from(w)).sum();
                let (gate, up): (f64, f64) = (dot(weight(0, i % inner)), dot(weight(1, i % inner)));
                let expected = gate / (1.0 + (-gate).exp()) * up;
                assert!(
                    (f64::from(*got) - expected).abs() < 1e-5,
                    "{isa} {format:?} {m} {i}: {got} {expected}"
                );
            }
        }
    }
}

#[test]
fn a_row_is_the_same_alone_and_in_any_batch_bit_for_bit() {
    let (outputs, inputs) = (330, 100);
    for (isa, format) in Isa::all().flat_map(|isa| FORMATS.map(|f| (isa, f))) {
        let (w, _) = matrix(isa, format, outputs, inputs);
        let x = noise(MOST_ROWS * inputs, 5);
        let alone: Vec<f32> = x
            .chunks(inputs)
            .flat_map(|row| product(isa, row, &w, 1))
            .collect();
        for m in 2..=MOST_ROWS {
            for threads in [1, 3] {
                assert!(
                    product(isa, &x[..m * inputs], &w, threads) == alone[..m * outputs],
                    "{isa} {format:?} {m}"
                );
            }
        }
    }
}

#[test]
fn many_rows_are_cut_into_blocks_that_cover_them() {
    let (rows, outputs, inputs) = (300, 330, 40);
    for (isa, format) in Isa::all().flat_map(|isa| FORMATS.map(|f| (isa, f))) {
        let (w, _) = matrix(isa, format, outputs, inputs);
        let x = noise(rows * inputs, 5);
        let alone: Vec<f32> = x
            .chunks(inputs)
            .flat_map(|row| product(isa, row, &w, 1))
            .collect();
        for m in [128, 129, 250, rows] {
            let together = product(isa, &x[..m * inputs], &w, 2);
            assert!(together == alone[..m * outputs], "{isa} {format:?} {m}");
        }
    }
}

#[test]
fn a_curve_bends_the_product_and_its_bias() {
    let (outputs, inputs) = (33, 12);
    let bias = noise(outputs, 9);
    for (isa, format) in Isa::all().flat_map(|isa| FORMATS.map(|f| (isa, f))) {
        let (w, _) = matrix(isa, format, outputs, inputs);
        for m in [1, 2, 20] {
            let x = noise(m * inputs, 3);
            let run = |finish: Finish| {
                let mut out = vec![0.0; m * outputs];
                let product = Matmul {
                    x: &x,
                    w: &w,
                    bias: Some(&bias),
                    finish,
                };
                product.run_on(isa, &Team::new(1), &mut out);
                out
            };
            let plain = run(Finish::Store);
            let bent = [Activation::Relu, Activation::GeluTanh, Activation::Gelu]
                .map(|a| run(Finish::Bend(a)));
            for (i, &p) in plain.iter().enumerate() {
                let inner = 0.797_884_6 * (p + 0.044_715 * p * p * p);
                let gelu = 0.5 * p * (1.0 + inner.tanh());
                // The two kinds of GELU are 5e-4 apart at most.
                let expected = [(p.max(0.0), 0.0), (gelu, 1e-6), (gelu, 1e-3)];
                for (bent, (expected, allowed)) in bent.iter().zip(expected) {
                    let off = (bent[i] - expected).abs();
                    assert!(off <= allowed, "{isa} {format:?} {m} {i}: off by {off}");
                }
            }
        }
    }
}

#[test]
fn a_number_that_is_none_spoils_its_own_row_only() {
    let (outputs, inputs) = (40, 70);
    for (isa, format) in Isa::all().flat_map(|isa| FORMATS.map(|f| (isa, f))) {
        let (w, _) = matrix(isa, format, outputs, inputs);
        for broken in [f32::NAN, f32::INFINITY] {
            let mut x = noise(3 * inputs, 5);
            x[inputs + 65] = broken;
            let out = product(isa, &x, &w, 1);
            for (i, v) in out.iter().enumerate() {
                let spoilt = i / outputs == 1;
                assert_eq!(v.is_finite(), !spoilt, "{isa} {format:?} {broken} {i}: {v}");
            }
        }
    }
}

#[test]
fn rows_and_weights_of_almost_nothing_give_almost_nothing() {
    let (outputs, inputs) = (33, 70);
    for (isa, format) in Isa::all().flat_map(|isa| FORMATS.map(|f| (isa, f))) {
        for (small_x, small_w) in [(1e-41, 1.0), (1.0, 1e-41), (0.0, 1.0), (1.0, 0.0)] {
            let mut w = PackedMatrix::zeros_for(isa, format, outputs, inputs);
            for (o, row) in noise(outputs * inputs, 7).chunks(inputs).enumerate() {
                let row: Vec<f32> = row.iter().map(|v| v * small_w).collect();
                w.set_output(o, &row);
            }
            let x: Vec<f32> = noise(2 * inputs, 5).iter().map(|v| v * small_x).collect();
            for v in product(isa, &x, &w, 1) {
                assert!(v.abs() < 1e-38, "{isa} {format:?} {small_x} {small_w}: {v}");
            }
        }
    }
}
