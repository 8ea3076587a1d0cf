//! Texts per second of all-MiniLM-L6-v2: 128 tokens in batches of 1, 8 and 32, 16 tokens in 32.
//!
//! One text of 128 tokens is 2.72 GFLOP in the linear layers (10.6 M weights, two operations, 128
//! rows) and 0.15 in attention; it reads 21 MB of bf16 weights, shared by the texts of a pass.
//! Before each group a line says how fast the fastest tenth and the median of the runs were: on a
//! machine that others use too, the fastest tenth is what compares.
//! `PRONY_BENCH_THREADS` (default 2) sets the threads, `PRONY_BENCH_DTYPES` the formats: a dtype,
//! and after a slash how matrices are quantised. `PRONY_BENCH_TORCH=1` takes LibTorch's operators
//! instead of our own loops. `scripts/bench_hf_encode.py` measures the peer.

use std::path::Path;
use std::time::Instant;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use prony_models::{Device, Encoder, EncoderInput, LoadOptions, ModelSource, load_encoder};

const DTYPES: &str = "bf16,bf16/int8,bf16/int8-dynamic,f32";

/// Tokens of a text and texts of a batch.
const SHAPES: [(usize, usize); 4] = [(128, 1), (128, 8), (128, 32), (16, 32)];

fn encode(criterion: &mut Criterion) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.models/all-MiniLM-L6-v2");
    let set = |name: &str| std::env::var(name).ok();
    let dtypes = set("PRONY_BENCH_DTYPES").unwrap_or_else(|| DTYPES.to_owned());
    let threads = set("PRONY_BENCH_THREADS").and_then(|v| v.parse().ok());
    for dtype in dtypes.split(',') {
        let (number, quant) = dtype.split_once('/').unwrap_or((dtype, "none"));
        let options = LoadOptions {
            dtype: number.parse().expect("PRONY_BENCH_DTYPES lists dtypes"),
            device: Device::Cpu,
            threads: threads.unwrap_or(2),
            kv_dtype: None,
            kv_capacity_tokens: 0,
            quant: quant.parse().expect("PRONY_BENCH_DTYPES lists quants"),
            own_kernels: set("PRONY_BENCH_TORCH").is_none(),
        };
        let source = ModelSource::Path(path.clone());
        let mut model = load_encoder(&source, &options).expect("run scripts/setup.sh first");
        let encoder = &mut *model.encoder;
        let mut group = criterion.benchmark_group(format!("encode/{dtype}"));
        group.sample_size(20);
        for (tokens, batch) in SHAPES {
            let texts = texts(tokens, batch);
            let name = format!("{tokens}x{batch}");
            report(&format!("{dtype} {name}"), batch, || run(encoder, &texts));
            group.throughput(Throughput::Elements(batch as u64));
            group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
                bencher.iter(|| run(encoder, &texts));
            });
        }
        group.finish();
    }
}

/// Texts of one length, no two alike, with the ids of `[CLS]` and `[SEP]` around them.
fn texts(tokens: usize, batch: usize) -> Vec<Vec<u32>> {
    let text = |i: usize| {
        let inner = (0..tokens - 2).map(|t| (2000 + (37 * t + 1009 * i) % 20_000) as u32);
        std::iter::once(101).chain(inner).chain([102]).collect()
    };
    (0..batch).map(text).collect()
}

fn run(encoder: &mut dyn Encoder, texts: &[Vec<u32>]) {
    let inputs: Vec<EncoderInput<'_>> = texts
        .iter()
        .map(|ids| EncoderInput {
            ids,
            token_types: &[],
        })
        .collect();
    encoder.encode(&inputs).expect("a batch works");
}

/// Times calls one by one, for two seconds or so, and prints texts per second.
#[expect(clippy::print_stdout, reason = "a bench reports on standard output")]
#[expect(clippy::disallowed_methods, reason = "a bench measures real time")]
fn report(name: &str, batch: usize, mut run: impl FnMut()) {
    let mut seconds: Vec<f64> = (0..(600 / batch).clamp(10, 200))
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed().as_secs_f64()
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    let rate = |at: usize| batch as f64 / seconds[at];
    let (fast, median) = (rate(seconds.len() / 10), rate(seconds.len() / 2));
    println!("{name}: fastest tenth {fast:.1}, median {median:.1} texts/s");
}

criterion_group!(benches, encode);
criterion_main!(benches);
