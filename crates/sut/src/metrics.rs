//! Every metric the server has, as a typed handle, there with 0 before the first request.
//!
//! Names are vLLM's where vLLM has the same thing, so that dashboards work unchanged; what is ours
//! starts with `prony_`. Buckets reach lower than vLLM's, because small models on a CPU answer in
//! milliseconds. Definitions with clock points stand in `docs/METRICS.md`.

use std::collections::HashMap;

use prometheus::core::Collector;
use prometheus::{
    Counter, Encoder, Gauge, Histogram, HistogramOpts, IntCounter, IntGauge, Opts, Registry,
    TextEncoder,
};

use crate::clock;

/// Seconds from 0.5 ms up: queueing, first tokens, whole requests.
const SECONDS: &[f64] = &[
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5,
    5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0,
];

/// Seconds from 0.1 ms up: single tokens and steps.
const TOKEN_SECONDS: &[f64] = &[
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.05, 0.075, 0.1,
    0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0,
];

/// Counts of tokens or rows, the 1-2-5 series.
const COUNTS: &[f64] = &[
    1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10000.0, 20000.0,
];

/// All handles. Cheap to share behind an `Arc`; every handle is atomic.
#[derive(Debug)]
#[expect(
    missing_docs,
    reason = "each field's help text is the document; see Metrics::new"
)]
pub struct Metrics {
    registry: Registry,
    pub requests_running: IntGauge,
    pub requests_waiting: IntGauge,
    pub cache: CacheMetrics,
    pub prompt_tokens: IntCounter,
    pub generation_tokens: IntCounter,
    pub success_stop: IntCounter,
    pub success_length: IntCounter,
    pub canceled: IntCounter,
    pub failed: IntCounter,
    pub expired: IntCounter,
    pub rejected_queue_full: IntCounter,
    pub rejected_too_long: IntCounter,
    pub rejected_unavailable: IntCounter,
    pub ttft_seconds: Histogram,
    pub itl_seconds: Histogram,
    pub e2e_seconds: Histogram,
    pub queue_seconds: Histogram,
    pub prefill_seconds: Histogram,
    pub decode_seconds: Histogram,
    pub inference_seconds: Histogram,
    pub request_prompt_tokens: Histogram,
    pub request_generation_tokens: Histogram,
    pub request_params_max_tokens: Histogram,
    pub request_params_n: Histogram,
    pub iteration_tokens: Histogram,
    pub step_seconds: Histogram,
    pub batch_rows: Histogram,
    resident_bytes: IntGauge,
    cpu_seconds: Counter,
}

impl Metrics {
    /// All metrics at 0, labelled with the model's name.
    ///
    /// # Panics
    /// Never for names written here; they are all distinct and valid.
    #[must_use]
    pub fn new(model_name: &str) -> Self {
        let r = &Registrar {
            registry: Registry::new(),
            model_name: model_name.to_owned(),
        };
        let metrics = Metrics {
            requests_running: r.gauge("vllm:num_requests_running", "Sequences being computed."),
            requests_waiting: r.gauge("vllm:num_requests_waiting", "Sequences in the queue."),
            cache: CacheMetrics::new(r),
            prompt_tokens: r.counter(
                "vllm:prompt_tokens_total",
                "Prompt tokens of sequences that reached their first token.",
            ),
            generation_tokens: r.counter("vllm:generation_tokens_total", "Tokens generated."),
            success_stop: r.success("stop"),
            success_length: r.success("length"),
            canceled: r.counter(
                "prony_requests_canceled_total",
                "Sequences whose client left.",
            ),
            failed: r.counter(
                "prony_requests_failed_total",
                "Sequences the engine failed.",
            ),
            expired: r.counter(
                "prony_requests_expired_total",
                "Sequences whose deadline passed.",
            ),
            rejected_queue_full: r.rejected("queue_full"),
            rejected_too_long: r.rejected("too_long"),
            rejected_unavailable: r.rejected("unavailable"),
            ttft_seconds: r.seconds(
                "vllm:time_to_first_token_seconds",
                "Arrival to first token of a sequence.",
            ),
            itl_seconds: r.histogram(
                "vllm:inter_token_latency_seconds",
                "Time between two tokens of a sequence.",
                TOKEN_SECONDS,
            ),
            e2e_seconds: r.seconds("vllm:e2e_request_latency_seconds", "Arrival to last token."),
            queue_seconds: r.seconds("vllm:request_queue_time_seconds", "Arrival to start."),
            prefill_seconds: r
                .seconds("vllm:request_prefill_time_seconds", "Start to first token."),
            decode_seconds: r.seconds("vllm:request_decode_time_seconds", "First to last token."),
            inference_seconds: r.seconds("vllm:request_inference_time_seconds", "Start to end."),
            request_prompt_tokens: r.counts("vllm:request_prompt_tokens", "Tokens of a prompt."),
            request_generation_tokens: r.counts(
                "vllm:request_generation_tokens",
                "Tokens generated for a sequence.",
            ),
            request_params_max_tokens: r
                .counts("vllm:request_params_max_tokens", "Most tokens asked for."),
            request_params_n: r.counts("vllm:request_params_n", "Answers asked for per prompt."),
            iteration_tokens: r.counts("vllm:iteration_tokens_total", "Tokens of one step."),
            step_seconds: r.histogram("prony_step_seconds", "Time of one step.", TOKEN_SECONDS),
            batch_rows: r.counts("prony_batch_rows", "Sequences in one step."),
            resident_bytes: r.gauge("process_resident_memory_bytes", "Resident memory."),
            cpu_seconds: r.float_counter("process_cpu_seconds_total", "User and system CPU time."),
            registry: r.registry.clone(),
        };
        r.gauge(
            "process_start_time_seconds",
            "Unix time the process started at.",
        )
        .set(i64::try_from(clock::unix_seconds()).unwrap_or(0));
        metrics
    }

    /// The exposition text that `/metrics` answers with.
    #[must_use]
    pub fn render(&self) -> String {
        self.read_process();
        let mut text = Vec::new();
        // Writing into memory fails only for a metric without samples, which none of ours is.
        let _ = TextEncoder::new().encode(&self.registry.gather(), &mut text);
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Source: proc(5), `/proc/pid/stat` fields 14, 15 (ticks of 1/100 s) and 24 (pages).
    fn read_process(&self) {
        let Ok(stat) = std::fs::read_to_string("/proc/self/stat") else {
            return;
        };
        // The second field is the command in parentheses and may itself hold spaces.
        let Some((_, fields)) = stat.rsplit_once(')') else {
            return;
        };
        let field =
            |n: usize| -> Option<u64> { fields.split_whitespace().nth(n - 3)?.parse().ok() };
        if let (Some(user), Some(system)) = (field(14), field(15)) {
            let used = (user + system) as f64 / 100.0;
            self.cpu_seconds
                .inc_by((used - self.cpu_seconds.get()).max(0.0));
        }
        if let Some(pages) = field(24) {
            self.resident_bytes
                .set(i64::try_from(pages * 4096).unwrap_or(i64::MAX));
        }
    }
}

/// Handles of the key/value cache.
#[derive(Debug)]
#[expect(
    missing_docs,
    reason = "each field's help text is the document; see CacheMetrics::new"
)]
pub struct CacheMetrics {
    pub usage: Gauge,
    pub requests_preempted: IntGauge,
    pub preemptions: IntCounter,
    pub prefix_queries: IntCounter,
    pub prefix_hits: IntCounter,
    pub prompt_tokens_computed: Histogram,
}

impl CacheMetrics {
    fn new(r: &Registrar) -> Self {
        CacheMetrics {
            usage: r.float_gauge(
                "vllm:kv_cache_usage_perc",
                "Share of the key/value cache in use, 0 to 1.",
            ),
            requests_preempted: r.gauge(
                "prony_requests_preempted",
                "Sequences that gave their cache back and wait to go on.",
            ),
            preemptions: r.counter(
                "vllm:num_preemptions_total",
                "Times a sequence gave its cache back to older ones.",
            ),
            prefix_queries: r.counter(
                "vllm:prefix_cache_queries_total",
                "Tokens of started sequences that were looked up in the prefix cache.",
            ),
            prefix_hits: r.counter(
                "vllm:prefix_cache_hits_total",
                "Tokens of started sequences that the prefix cache had.",
            ),
            prompt_tokens_computed: r.counts(
                "vllm:request_prefill_kv_computed_tokens",
                "Prompt tokens computed, those of the prefix cache left out.",
            ),
        }
    }
}

struct Registrar {
    registry: Registry,
    model_name: String,
}

impl Registrar {
    fn register<C: Collector + Clone + 'static>(&self, made: prometheus::Result<C>) -> C {
        let collector = made.expect("metric names here are valid");
        self.registry
            .register(Box::new(collector.clone()))
            .expect("metric names here are distinct");
        collector
    }

    fn opts(&self, name: &str, help: &str) -> Opts {
        Opts::new(name, help).const_label("model_name", &self.model_name)
    }

    fn gauge(&self, name: &str, help: &str) -> IntGauge {
        self.register(IntGauge::with_opts(self.opts(name, help)))
    }

    fn float_gauge(&self, name: &str, help: &str) -> Gauge {
        self.register(Gauge::with_opts(self.opts(name, help)))
    }

    fn counter(&self, name: &str, help: &str) -> IntCounter {
        self.register(IntCounter::with_opts(self.opts(name, help)))
    }

    fn float_counter(&self, name: &str, help: &str) -> Counter {
        self.register(Counter::with_opts(self.opts(name, help)))
    }

    fn success(&self, reason: &str) -> IntCounter {
        let opts = self.opts(
            "vllm:request_success_total",
            "Sequences answered, by how they ended.",
        );
        self.register(IntCounter::with_opts(
            opts.const_label("finished_reason", reason),
        ))
    }

    fn rejected(&self, reason: &str) -> IntCounter {
        let opts = self.opts(
            "vllm:admission_rejections_total",
            "Requests refused, by reason.",
        );
        self.register(IntCounter::with_opts(opts.const_label("reason", reason)))
    }

    fn seconds(&self, name: &str, help: &str) -> Histogram {
        self.histogram(name, help, SECONDS)
    }

    fn counts(&self, name: &str, help: &str) -> Histogram {
        self.histogram(name, help, COUNTS)
    }

    fn histogram(&self, name: &str, help: &str, buckets: &[f64]) -> Histogram {
        let labels = HashMap::from([("model_name".to_owned(), self.model_name.clone())]);
        let opts = HistogramOpts::new(name, help)
            .const_labels(labels)
            .buckets(buckets.to_vec());
        self.register(Histogram::with_opts(opts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_is_there_at_zero_before_traffic() {
        let text = Metrics::new("m").render();
        for series in [
            "vllm:num_requests_running{model_name=\"m\"} 0",
            "vllm:num_requests_waiting{model_name=\"m\"} 0",
            "vllm:kv_cache_usage_perc{model_name=\"m\"} 0",
            "vllm:generation_tokens_total{model_name=\"m\"} 0",
            "vllm:request_success_total{finished_reason=\"stop\",model_name=\"m\"} 0",
            "vllm:request_success_total{finished_reason=\"length\",model_name=\"m\"} 0",
            "vllm:admission_rejections_total{model_name=\"m\",reason=\"queue_full\"} 0",
            "vllm:time_to_first_token_seconds_count{model_name=\"m\"} 0",
            "vllm:inter_token_latency_seconds_sum{model_name=\"m\"} 0",
            "vllm:num_preemptions_total{model_name=\"m\"} 0",
            "vllm:prefix_cache_queries_total{model_name=\"m\"} 0",
            "vllm:prefix_cache_hits_total{model_name=\"m\"} 0",
            "vllm:request_prefill_kv_computed_tokens_count{model_name=\"m\"} 0",
            "vllm:request_params_max_tokens_count{model_name=\"m\"} 0",
            "vllm:request_params_n_count{model_name=\"m\"} 0",
            "prony_requests_preempted{model_name=\"m\"} 0",
            "prony_requests_expired_total{model_name=\"m\"} 0",
            "prony_requests_canceled_total{model_name=\"m\"} 0",
            "prony_step_seconds_bucket{model_name=\"m\",le=\"0.0001\"} 0",
        ] {
            assert!(text.contains(series), "{series} is not in\n{text}");
        }
        assert!(!text.contains("process_resident_memory_bytes{model_name=\"m\"} 0\n"));
    }
}
