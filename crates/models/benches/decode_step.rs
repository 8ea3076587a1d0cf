//! One decode step of SmolLM2-135M at batch 1, 4 and 16 with 128 tokens of context.
//!
//! Criterion reports elements per second: tokens per second, as a step gives one token a sequence.
//! Before each group a line says how long the fastest tenth and the median of 60 steps took: on a
//! machine that others use too, the fastest tenth is what compares.
//! `PRONY_BENCH_THREADS` (default 2) sets the threads, `PRONY_BENCH_DTYPES` (default
//! `bf16,f32,bf16/int8,bf16/int8-dynamic,bf16/int4`) the formats: a dtype, and after a slash how
//! matrices are quantised. `scripts/bench_hf.py` measures the peer.

use std::path::Path;
use std::time::Instant;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use prony_models::{Decoder, Device, LoadOptions, ModelSource, Sampler, Sequence, StepRow, load};

const CONTEXT: usize = 128;
const DTYPES: &str = "bf16,f32,bf16/int8,bf16/int8-dynamic,bf16/int4";

fn decode_step(criterion: &mut Criterion) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.models/SmolLM2-135M-Instruct");
    let dtypes = std::env::var("PRONY_BENCH_DTYPES").unwrap_or_else(|_| DTYPES.to_owned());
    let threads = std::env::var("PRONY_BENCH_THREADS")
        .ok()
        .and_then(|v| v.parse().ok());
    for dtype in dtypes.split(',') {
        let (number, quant) = dtype.split_once('/').unwrap_or((dtype, "none"));
        let options = LoadOptions {
            dtype: number.parse().expect("PRONY_BENCH_DTYPES lists dtypes"),
            quant: quant.parse().expect("PRONY_BENCH_DTYPES lists quants"),
            device: Device::Cpu,
            threads: threads.unwrap_or(2),
            kv_dtype: None,
            kv_capacity_tokens: 16 * (CONTEXT + 64),
            own_kernels: true,
        };
        let source = ModelSource::Path(path.clone());
        let mut model = load(&source, &options).expect("run scripts/setup.sh first");
        let mut group = criterion.benchmark_group(format!("decode_step/{dtype}"));
        for batch in [1, 4, 16] {
            let mut sequences = prefill(&mut *model.decoder, batch);
            report(&format!("{dtype} batch {batch}"), batch, 60, || {
                step(&mut *model.decoder, &mut sequences);
            });
            group.throughput(Throughput::Elements(batch as u64));
            group.bench_function(BenchmarkId::from_parameter(batch), |bencher| {
                bencher.iter(|| step(&mut *model.decoder, &mut sequences));
            });
        }
        group.finish();
        let mut group = criterion.benchmark_group(format!("prefill/{dtype}"));
        group.throughput(Throughput::Elements(CONTEXT as u64));
        group.sample_size(20);
        report(&format!("{dtype} prefill"), CONTEXT, 10, || {
            prefill(&mut *model.decoder, 1);
        });
        group.bench_function(BenchmarkId::from_parameter(CONTEXT), |bencher| {
            bencher.iter(|| prefill(&mut *model.decoder, 1));
        });
    }
}

/// Times `runs` calls one by one and prints tokens per second.
#[expect(clippy::print_stdout, reason = "a bench reports on standard output")]
#[expect(clippy::disallowed_methods, reason = "a bench measures real time")]
fn report(name: &str, tokens: usize, runs: usize, mut run: impl FnMut()) {
    let mut seconds: Vec<f64> = (0..runs)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed().as_secs_f64()
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    let rate = |at: usize| tokens as f64 / seconds[at];
    let (fast, median) = (rate(runs / 10), rate(runs / 2));
    println!("{name}: fastest tenth {fast:.1}, median {median:.1} tokens/s");
}

/// Sequences of [`CONTEXT`] tokens, no two alike.
fn prefill(decoder: &mut dyn Decoder, batch: usize) -> Vec<Sequence> {
    (0..batch)
        .map(|i| {
            let tokens: Vec<u32> = (0..CONTEXT)
                .map(|t| (100 + 37 * t + 1009 * i) as u32)
                .collect();
            let mut seq = decoder
                .new_sequence(CONTEXT + 64)
                .expect("the cache has room");
            let mut sampler = Sampler::greedy();
            let mut rows = [StepRow {
                seq: &mut seq,
                tokens: &tokens,
                sampler: Some(&mut sampler),
                scoring: None,
            }];
            decoder.step(&mut rows).expect("a prefill works");
            seq
        })
        .collect()
}

/// One token more for every sequence, then back to the context, so that every step costs the same.
fn step(decoder: &mut dyn Decoder, sequences: &mut [Sequence]) {
    let mut samplers = vec![Sampler::greedy(); sequences.len()];
    let mut rows: Vec<StepRow<'_>> = sequences
        .iter_mut()
        .zip(&mut samplers)
        .map(|(seq, sampler)| StepRow {
            seq,
            tokens: &[1234],
            sampler: Some(sampler),
            scoring: None,
        })
        .collect();
    decoder.step(&mut rows).expect("a step works");
    sequences.iter_mut().for_each(|s| s.truncate(CONTEXT));
}

criterion_group!(benches, decode_step);
criterion_main!(benches);
