//! Attention against a plain loop in f64, and the promises about blocks and neighbours.

use super::*;

/// Numbers that look random and are the same everywhere.
fn noise(n: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
    (0..n)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}

const HEADS: Heads = Heads {
    heads: 6,
    kv_heads: 2,
    head_dim: 32,
};

/// Angles for rows at the given positions.
fn angles(positions: &[usize]) -> (Vec<f32>, Vec<f32>) {
    let half = HEADS.head_dim / 2;
    let angle = |p: usize, i: usize| p as f32 * 0.9f32.powi(i as i32);
    let all: Vec<f32> = positions
        .iter()
        .flat_map(|&p| (0..half).map(move |i| angle(p, i)))
        .collect();
    (
        all.iter().map(|a| a.cos()).collect(),
        all.iter().map(|a| a.sin()).collect(),
    )
}

/// Attends rows `range` of one sequence whose qkv rows are `qkv`, appending to `cache`.
fn attend(team: &Team, cache: &mut LayerCache, qkv: &[f32], range: Range<usize>) -> Vec<f32> {
    let width = HEADS.qkv_width();
    let spans = [Span {
        first_row: 0,
        n_rows: range.len(),
        past: range.start,
        blocks: vec![3, 0, 2, 5],
    }];
    let (cos, sin) = angles(&range.clone().collect::<Vec<_>>());
    let attention = Attention {
        spans: &spans,
        cos: &cos,
        sin: &sin,
        scale: 0.2,
        window: usize::MAX,
    };
    let mut rows = qkv[range.start * width..range.end * width].to_vec();
    let mut out = vec![0.0; range.len() * HEADS.heads * HEADS.head_dim];
    attention.run(team, cache, &mut rows, &mut out);
    out
}

/// The same by the definition, in f64.
fn reference(qkv: &[f32], n: usize) -> Vec<f64> {
    let (width, dim, half) = (HEADS.qkv_width(), HEADS.head_dim, HEADS.head_dim / 2);
    let (cos, sin) = angles(&(0..n).collect::<Vec<_>>());
    let at = |row: usize, head: usize, d: usize| f64::from(qkv[row * width + head * dim + d]);
    let rotated = |row: usize, head: usize, d: usize| {
        let (c, s) = (row * half + d % half, row * half + d % half);
        let (x, y) = (at(row, head, d % half), at(row, head, d % half + half));
        let (c, s) = (f64::from(cos[c]), f64::from(sin[s]));
        if d < half {
            x * c - y * s
        } else {
            y * c + x * s
        }
    };
    let mut out = Vec::new();
    for row in 0..n {
        for head in 0..HEADS.heads {
            let kv = head / (HEADS.heads / HEADS.kv_heads);
            let weights: Vec<f64> = (0..=row)
                .map(|t| {
                    let dot = |d| rotated(row, head, d) * rotated(t, HEADS.heads + kv, d);
                    ((0..dim).map(dot).sum::<f64>() * 0.2).exp()
                })
                .collect();
            let total: f64 = weights.iter().sum();
            for d in 0..dim {
                let v = |t: usize| at(t, HEADS.heads + HEADS.kv_heads + kv, d);
                let sum: f64 = weights.iter().enumerate().map(|(t, w)| w * v(t)).sum();
                out.push(sum / total);
            }
        }
    }
    out
}

#[test]
fn equals_the_definition() {
    let n = 61;
    let qkv = noise(n * HEADS.qkv_width(), 1);
    let expected = reference(&qkv, n);
    for (dtype, tolerance) in [(Dtype::F32, 2e-6), (Dtype::Bf16, 2e-2)] {
        let mut cache = LayerCache::new(dtype, HEADS, 6);
        let out = attend(&Team::new(2), &mut cache, &qkv, 0..n);
        let worst = out
            .iter()
            .zip(&expected)
            .map(|(a, b)| (f64::from(*a) - b).abs())
            .fold(0.0, f64::max);
        assert!(worst < tolerance, "{dtype}: {worst}");
    }
}

#[test]
fn chunked_equals_whole_bit_for_bit() {
    let n = 61;
    let qkv = noise(n * HEADS.qkv_width(), 2);
    let mut cache = LayerCache::new(Dtype::F32, HEADS, 6);
    let whole = attend(&Team::new(1), &mut cache, &qkv, 0..n);
    for cuts in [
        vec![0, 1, 17, 18, 30, 61],
        vec![0, 16, 60, 61],
        (0..=61).collect(),
    ] {
        // Blocks come back to the pool full of other sequences' numbers: NaN is the worst of them.
        let mut cache = LayerCache::new(Dtype::F32, HEADS, 6);
        let Numbers::F32 { keys, values } = &mut cache.numbers else {
            panic!("is f32")
        };
        for row in keys.iter_mut().chain(values.iter_mut()) {
            (0..LANES).for_each(|lane| row.set(lane, f32::NAN));
        }
        let team = Team::new(3);
        let chunks: Vec<f32> = cuts
            .windows(2)
            .flat_map(|w| attend(&team, &mut cache, &qkv, w[0]..w[1]))
            .collect();
        assert!(chunks == whole, "{cuts:?}");
    }
}

#[test]
fn rows_are_cut_at_blocks() {
    let cut = |past, n_rows| {
        let span = Span {
            first_row: 0,
            n_rows,
            past,
            blocks: Vec::new(),
        };
        span.rows_by_block().collect::<Vec<_>>()
    };
    assert_eq!(cut(0, 16), vec![0..16; 1]);
    assert_eq!(cut(15, 18), [0..1, 1..17, 17..18]);
    assert_eq!(cut(5, 0), Vec::<Range<usize>>::new());
}
