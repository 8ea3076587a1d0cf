//! Products against a plain loop in f64, every tile shape, and rows that do not see each other.

use super::*;

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
fn matrix(dtype: Dtype, outputs: usize, inputs: usize) -> (PackedMatrix, Vec<f32>) {
    let mut packed = PackedMatrix::zeros(dtype, outputs, inputs);
    for (o, row) in noise(outputs * inputs, 7).chunks(inputs).enumerate() {
        packed.set_output(o, row);
    }
    let mut held = vec![0.0; outputs * inputs];
    for (o, row) in held.chunks_mut(inputs).enumerate() {
        packed.read_output(o, row);
    }
    (packed, held)
}

#[test]
fn equals_the_definition_in_every_tile_shape() {
    let team = Team::new(2);
    for dtype in [Dtype::F32, Dtype::Bf16] {
        for (outputs, inputs) in [(1, 3), (16, 8), (50, 33), (200, 40), (350, 5)] {
            let (w, held) = matrix(dtype, outputs, inputs);
            let bias = noise(outputs, 9);
            for m in 1..=14 {
                let x = noise(m * inputs, 11);
                let mut out = noise(m * outputs, 13);
                let before = out.clone();
                let product = Matmul {
                    x: &x,
                    w: &w,
                    bias: Some(&bias),
                    finish: Finish::Add,
                };
                product.run(&team, &mut out);
                for (i, got) in out.iter().enumerate() {
                    let (row, o) = (i / outputs, i % outputs);
                    let (x, w) = (&x[row * inputs..], &held[o * inputs..]);
                    let dot: f64 = (0..inputs).map(|k| f64::from(x[k]) * f64::from(w[k])).sum();
                    let expected = dot + f64::from(bias[o]) + f64::from(before[i]);
                    let off = (f64::from(*got) - expected).abs();
                    assert!(
                        off < 1e-5,
                        "{dtype} {outputs}x{inputs} {m}: {got} {expected}"
                    );
                }
            }
        }
    }
}

#[test]
fn gate_multiplies_pairs_of_panels() {
    let (inner, inputs) = (20, 12);
    let (w, held) = matrix(Dtype::F32, 64, inputs);
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
        product.run(&Team::new(1), &mut out);
        for (i, got) in out.iter().enumerate() {
            let x = &x[i / inner * inputs..];
            let dot = |w: &[f32]| (0..inputs).map(|k| f64::from(x[k]) * f64::from(w[k])).sum();
            let (gate, up): (f64, f64) = (dot(weight(0, i % inner)), dot(weight(1, i % inner)));
            let expected = gate / (1.0 + (-gate).exp()) * up;
            assert!(
                (f64::from(*got) - expected).abs() < 1e-5,
                "{m} {i}: {got} {expected}"
            );
        }
    }
}

#[test]
fn a_row_is_the_same_alone_and_in_any_batch_bit_for_bit() {
    for dtype in [Dtype::F32, Dtype::Bf16] {
        let (outputs, inputs) = (330, 100);
        let (w, _) = matrix(dtype, outputs, inputs);
        let x = noise(40 * inputs, 5);
        let run = |x: &[f32], threads| {
            let mut out = vec![0.0; x.len() / inputs * outputs];
            let product = Matmul {
                x,
                w: &w,
                bias: None,
                finish: Finish::Store,
            };
            product.run(&Team::new(threads), &mut out);
            out
        };
        let alone: Vec<f32> = x.chunks(inputs).flat_map(|row| run(row, 1)).collect();
        for m in [2, 3, 4, 7, 16, 40] {
            for threads in [1, 3] {
                assert!(
                    run(&x[..m * inputs], threads) == alone[..m * outputs],
                    "{dtype} {m}"
                );
            }
        }
    }
}
