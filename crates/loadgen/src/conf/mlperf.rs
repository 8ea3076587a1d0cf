//! The rules of an MLPerf round as configuration: what `mlperf.conf` sets per model and scenario.
//!
//! Our own table of the figures in force in round v6.1 (source: `loadgen/mlperf.conf` of
//! mlcommons/inference @b06627946, 2026-07-02; the models of later edits are in it too), with the
//! random seeds of each round since v5.0. Older rounds differ in more than the seeds; only the
//! seeds are kept for them.

use crate::conf::parse::{Entries, Entry};

/// A round of submissions, by its seeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Round {
    /// Name, as in "v6.1".
    pub name: &'static str,
    /// Order of the sets.
    pub qsl_rng_seed: u64,
    /// Order of the samples.
    pub sample_index_rng_seed: u64,
    /// Arrival times.
    pub schedule_rng_seed: u64,
}

/// Every round whose seeds are known, oldest first.
///
/// Source: the seed lines of `loadgen/mlperf.conf` in mlcommons/inference; v5.0 and v5.1 at the
/// tags of these names (@dcd0c3eadb, @75f297d44c), v6.0 @f131a0d2 (2026-01-13), v6.1 @b0662794
/// (2026-07-02). `tools/submission/submission_checker/constants.py` @b66003e10e has the same.
pub const ROUNDS: [Round; 4] = [
    Round {
        name: "v5.0",
        qsl_rng_seed: 6_023_615_788_873_153_749,
        sample_index_rng_seed: 15_036_839_855_038_426_416,
        schedule_rng_seed: 9_933_818_062_894_767_841,
    },
    Round {
        name: "v5.1",
        qsl_rng_seed: 1_780_908_523_862_526_354,
        sample_index_rng_seed: 14_771_362_308_971_278_857,
        schedule_rng_seed: 18_209_322_760_996_052_031,
    },
    Round {
        name: "v6.0",
        qsl_rng_seed: 2_465_351_861_681_999_779,
        sample_index_rng_seed: 14_276_810_075_590_677_512,
        schedule_rng_seed: 3_936_089_224_930_324_775,
    },
    Round {
        name: "v6.1",
        qsl_rng_seed: 2_085_463_073_848_966_840,
        sample_index_rng_seed: 2_747_215_439_041_700_203,
        schedule_rng_seed: 16_159_082_839_903_944_936,
    },
];

impl Round {
    /// The round in force when this was written.
    pub const CURRENT: Self = ROUNDS[3];

    /// The round called `name`.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        ROUNDS.into_iter().find(|round| round.name == name)
    }
}

/// What a model's Server runs are held to.
#[derive(Debug, Clone, Copy)]
enum Limit {
    /// The 10 ms every model has.
    Usual,
    /// Latency of the whole answer, ms.
    Latency(u64),
    /// Time to first token and per further token, ms; no limit on the whole.
    Tokens(u64, u64),
    /// Tokens are timed, against the limits `TestSettings` starts with.
    UsualTokens,
}

/// A model's row: samples in memory (0: the data set's own count), whether every sample is issued
/// equally often, Server limits, fewest Offline samples (0: the usual).
struct Model(&'static str, u64, bool, Limit, u64);

use Limit::{Latency, Tokens, Usual, UsualTokens};

#[rustfmt::skip]
const MODELS: &[Model] = &[
    Model("3d-unet",                        0, true,  Usual,              43),
    Model("bert",                      10_833, false, Latency(130),       10_833),
    Model("deepseek-r1",                4_388, true,  Tokens(2000, 80),   4_388),
    Model("deepseek-r1-interactive",    4_388, true,  Tokens(1500, 15),   0),
    Model("dlrm",                     204_800, false, Latency(60),        0),
    Model("dlrm-v2",                  204_800, false, Latency(60),        24_576),
    Model("dlrm-v3",                        0, false, Latency(80),        0),
    Model("gpt-oss-120b",               6_396, true,  Tokens(3000, 80),   0),
    Model("gpt-oss-120b-interactive",   6_396, true,  Tokens(2000, 15),   0),
    Model("gptj",                      13_368, true,  Latency(20_000),    13_368),
    Model("llama2-70b",                24_576, true,  Tokens(2000, 200),  24_576),
    Model("llama2-70b-interactive",    24_576, true,  Tokens(450, 40),    0),
    Model("llama3_1-405b",              8_313, true,  Tokens(6000, 175),  8_313),
    Model("llama3_1-405b-interactive",  8_313, true,  Tokens(4500, 80),   0),
    Model("llama3_1-8b",               13_368, true,  Tokens(2000, 100),  13_368),
    Model("llama3_1-8b-edge",           5_000, true,  UsualTokens,        5_000),
    Model("llama3_1-8b-interactive",   13_368, true,  Tokens(500, 30),    0),
    Model("mixtral-8x7b",              15_000, true,  Tokens(2000, 200),  15_000),
    Model("pointpainting",              1_024, false, Usual,              0),
    Model("qwen3-vl-235b-a22b",        48_289, true,  Latency(12_000),    48_289),
    Model("resnet50",                   1_024, false, Latency(15),        24_576),
    Model("retinanet",                     64, false, Latency(100),       24_576),
    Model("rgat",                     788_379, true,  Usual,              788_379),
    Model("rnnt",                       2_513, false, Latency(1000),      2_513),
    Model("ssd-mobilenet",                256, false, Usual,              0),
    Model("stable-diffusion-xl",        5_000, false, Latency(20_000),    5_000),
    Model("wan-2.2-t2v-a14b",             248, false, Usual,              248),
    Model("whisper",                    1_633, true,  UsualTokens,        1_633),
    Model("yolo",                          64, false, Usual,              0),
];

/// What holds for every model.
const EVERY_MODEL: &[(&str, &str)] = &[
    ("SingleStream.target_latency", "10"),
    ("SingleStream.target_latency_percentile", "90"),
    ("SingleStream.min_duration", "600000"),
    ("MultiStream.target_latency", "80"),
    ("MultiStream.target_latency_percentile", "99"),
    ("MultiStream.samples_per_query", "8"),
    ("MultiStream.min_duration", "600000"),
    ("MultiStream.min_query_count", "662"),
    ("Server.target_latency", "10"),
    ("Server.target_latency_percentile", "99"),
    ("Server.min_duration", "600000"),
    ("Server.target_qps", "1.0"),
    ("Offline.min_duration", "600000"),
    ("Offline.target_qps", "1.0"),
    ("*.test05_qsl_rng_seed", "7975553102935885558"),
    ("*.test05_sample_index_rng_seed", "11403566307062068064"),
    ("*.test05_schedule_rng_seed", "15816800565822761601"),
];

/// What fits no column.
const FURTHER: &[(&str, &str)] = &[
    ("gpt-oss-120b.*.accuracy_sample_count_override", "4395"),
    (
        "gpt-oss-120b-interactive.*.accuracy_sample_count_override",
        "4395",
    ),
    ("gptj.*.infer_token_latencies", "1"),
    ("gptj.*.token_latency_scaling_factor", "69"),
    (
        "pointpainting.SingleStream.target_latency_percentile",
        "99.9",
    ),
    ("retinanet.MultiStream.target_latency", "528"),
];

/// The models the rules know.
pub fn model_names() -> impl Iterator<Item = &'static str> {
    MODELS.iter().map(|model| model.0)
}

/// The rules of `round` as entries of a configuration file.
#[must_use]
pub fn entries(round: Round) -> Entries {
    let mut table = Table(Entries::new());
    for (key, value) in EVERY_MODEL {
        table.add(format!("*.{key}"), value);
    }
    table.add("*.*.qsl_rng_seed".to_owned(), round.qsl_rng_seed);
    table.add(
        "*.*.sample_index_rng_seed".to_owned(),
        round.sample_index_rng_seed,
    );
    table.add("*.*.schedule_rng_seed".to_owned(), round.schedule_rng_seed);
    MODELS.iter().for_each(|model| table.add_model(model));
    for (key, value) in FURTHER {
        table.add((*key).to_owned(), value);
    }
    table.0
}

struct Table(Entries);

impl Table {
    fn add(&mut self, key: String, value: impl ToString) {
        self.0.insert(
            key,
            Entry {
                value: value.to_string(),
                line: 0,
            },
        );
    }

    fn add_model(&mut self, Model(name, loaded, equal_issue, limit, offline): &Model) {
        if *loaded > 0 {
            self.add(
                format!("{name}.*.performance_sample_count_override"),
                loaded,
            );
        }
        if *equal_issue {
            self.add(format!("{name}.*.sample_concatenate_permutation"), 1);
        }
        if *offline > 0 {
            self.add(format!("{name}.Offline.min_query_count"), offline);
        }
        match limit {
            Usual => {}
            Latency(ms) => self.add(format!("{name}.Server.target_latency"), ms),
            UsualTokens => self.add(format!("{name}.*.use_token_latencies"), 1),
            Tokens(ttft_ms, tpot_ms) => {
                self.add(format!("{name}.*.use_token_latencies"), 1);
                self.add(format!("{name}.Server.target_latency"), 0);
                self.add(format!("{name}.Server.ttft_latency"), ttft_ms);
                self.add(format!("{name}.Server.tpot_latency"), tpot_ms);
            }
        }
    }
}
