//! A scenario file: one TOML, one run. Read strictly, overridden by options, validated once; inner
//! code sees only [`ScenarioFile`].
//!
//! Sections: `name` and `description` at the top, then `[endpoint]`, `[dataset]`,
//! `[generation]`, `[client]` and `[settings]` (the reference's own names).

use std::path::{Path, PathBuf};

use prony_loadgen::clock::Nanos;
use prony_loadgen::scenario::Scenario;
use prony_loadgen::settings::TestSettings;
use prony_loadgen::settings::validate::refused_whatever_the_data;

use crate::api::ApiKind;
use crate::datasets::DatasetConfig;
use crate::datasets::synthetic::SyntheticConfig;
use crate::error::{HarnessError, ScenarioError};
use crate::prompt::Generation;
use crate::scenario_settings;
use crate::section::{Problems, Section};
use crate::toml_tree::{self, Node, Origin, Value};
use crate::url::BaseUrl;

/// Everything that a run is told.
#[derive(Debug, Clone)]
pub struct ScenarioFile {
    /// Where it was read from.
    pub path: PathBuf,
    /// Short name, for tables and folders.
    pub name: String,
    /// What it is for, in a sentence.
    pub description: String,
    /// Where to send requests.
    pub endpoint: EndpointConfig,
    /// What to ask.
    pub dataset: DatasetConfig,
    /// How to answer.
    pub generation: Generation,
    /// How the client behaves.
    pub client: ClientConfig,
    /// What to measure.
    pub settings: TestSettings,
    /// Shortened: never an official result.
    pub is_quick: bool,
}

/// The `[endpoint]` table.
#[derive(Debug, Clone)]
pub struct EndpointConfig {
    /// Base URL.
    pub url: BaseUrl,
    /// Which API it speaks.
    pub api: ApiKind,
    /// Model to ask for; `None` takes the first one the endpoint lists.
    pub model: Option<String>,
    /// Further headers, with the environment's values put in.
    pub headers: Vec<(String, String)>,
}

/// The `[client]` table.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientConfig {
    /// Connections opened before the run; `None` follows the scenario.
    pub connections: Option<u32>,
    /// Most requests in flight at once; more wait in the client, which is reported.
    pub max_in_flight: u32,
    /// A request older than this has failed.
    pub timeout: Nanos,
    /// Untimed queries before the first timed one.
    pub warmup_queries: u32,
    /// Share of samples that may fail before the run is INVALID.
    pub max_failed_fraction: f64,
}

/// What the command line adds to a file.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    /// Dotted key, value and the option that said so.
    pub values: Vec<(&'static str, Value, String)>,
    /// `--set` assignments, in order.
    pub assignments: Vec<String>,
    /// Shorten the run.
    pub quick: bool,
}

impl ScenarioFile {
    /// Reads a file and applies the overrides, later ones over earlier ones.
    ///
    /// # Errors
    /// If the file cannot be read, or anything in it or in the overrides is refused.
    pub fn load(path: &Path, overrides: &Overrides) -> Result<Self, HarnessError> {
        let text = std::fs::read_to_string(path).map_err(HarnessError::io(path))?;
        Self::parse(path, &text, overrides).map_err(HarnessError::Scenario)
    }

    /// [`Self::load`] on text at hand.
    ///
    /// # Errors
    /// Everything that is refused, not just the first.
    pub fn parse(
        path: &Path,
        text: &str,
        overrides: &Overrides,
    ) -> Result<Self, Vec<ScenarioError>> {
        let mut root = toml_tree::parse(path, text).map_err(|error| vec![error])?;
        for (key, value, option) in &overrides.values {
            let origin = Origin::Option(option.clone());
            let node = Node {
                origin,
                value: value.clone(),
            };
            toml_tree::put(&mut root, key, node).map_err(|error| vec![error])?;
        }
        for assignment in &overrides.assignments {
            toml_tree::set(&mut root, &qualified(assignment)).map_err(|error| vec![error])?;
        }
        let problems = Problems::default();
        let file = read(path, &root, &problems);
        if let Some(file) = &file {
            refuse_settings(&file.settings, &root, &problems);
        }
        let problems = problems.into_vec();
        match file {
            Some(mut file) if problems.is_empty() => {
                if overrides.quick {
                    shorten(&mut file);
                }
                Ok(file)
            }
            _ => Err(problems),
        }
    }

    /// Connections to open before the run.
    ///
    /// As many as the scenario can use at once; Server opens a few more than it needs on average,
    /// and what it opens later is counted and reported.
    #[must_use]
    pub fn n_connections(&self) -> u32 {
        let settings = &self.settings;
        let by_scenario = match settings.scenario {
            Scenario::SingleStream => 1,
            Scenario::MultiStream => {
                u32::try_from(settings.multi_stream_samples_per_query).unwrap_or(u32::MAX)
            }
            // Little's law with ten seconds an answer, a guess that costs idle sockets only.
            Scenario::Server => (settings.server_target_qps * 10.0).clamp(8.0, 256.0) as u32,
            Scenario::Offline => 64,
        };
        self.client
            .connections
            .unwrap_or(by_scenario)
            .min(self.client.max_in_flight)
    }
}

/// A bare key means a setting: `--set server_target_qps=3`.
fn qualified(assignment: &str) -> String {
    let key = assignment.split('=').next().unwrap_or_default().trim();
    if key.contains('.') || key == "name" || key == "description" {
        assignment.to_owned()
    } else {
        format!("settings.{}", assignment.trim_start())
    }
}

/// `--quick`: at most this long, and this many queries asked for.
const QUICK_DURATION_MS: u64 = 3_000;
const QUICK_QUERIES: u64 = 8;

fn shorten(file: &mut ScenarioFile) {
    let settings = &mut file.settings;
    settings.min_duration_ms = settings.min_duration_ms.min(QUICK_DURATION_MS);
    settings.min_query_count = settings.min_query_count.min(QUICK_QUERIES);
    file.is_quick = true;
}

/// Notes what no run could honour, where it was written: before anything is measured.
fn refuse_settings(settings: &TestSettings, root: &Node, problems: &Problems) {
    let table = root.get("settings").unwrap_or(root);
    for refused in refused_whatever_the_data(settings) {
        let name = refused.name.as_str();
        let short = name.strip_suffix("_ns").or(name.strip_suffix("_ms"));
        let node = table.get(name).or(short.and_then(|name| table.get(name)));
        let origin = &node.unwrap_or(table).origin;
        let (value, allowed) = (refused.value, refused.allowed);
        problems.push(
            origin,
            format!("settings.{name} = {value}: must be {allowed}"),
        );
    }
}

fn read(path: &Path, root: &Node, problems: &Problems) -> Option<ScenarioFile> {
    let top = Section::top(root, problems);
    let stem = path
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let name = top.text("name").map_or(stem, str::to_owned);
    let description = top.text("description").unwrap_or_default().to_owned();
    let endpoint = match top.section("endpoint") {
        Some(section) => read_endpoint(section, problems),
        None => {
            top.miss("endpoint", "a table with url, or --endpoint URL");
            None
        }
    };
    let folder = path.parent().unwrap_or_else(|| Path::new(""));
    let dataset = match top.section("dataset") {
        Some(section) => read_dataset(section, folder),
        None => Some(DatasetConfig::Builtin),
    };
    let generation = top
        .section("generation")
        .map_or_else(default_generation, read_generation);
    let client = top
        .section("client")
        .map_or_else(default_client, read_client);
    let settings = top.section("settings").map(scenario_settings::read);
    if settings.is_none() {
        top.miss("settings", "a table with at least scenario");
    }
    top.finish();
    Some(ScenarioFile {
        path: path.to_owned(),
        name,
        description,
        endpoint: endpoint?,
        dataset: dataset?,
        generation,
        client,
        settings: settings?,
        is_quick: false,
    })
}

fn read_endpoint(section: Section<'_>, problems: &Problems) -> Option<EndpointConfig> {
    let url = match section.node("url") {
        Some(Node {
            value: Value::Text(text),
            origin,
        }) => BaseUrl::parse(text)
            .map_err(|e| problems.push(origin, format!("endpoint.url: {e}")))
            .ok(),
        Some(node) => section.refuse("url", node, "a URL in quotes"),
        None => {
            section.miss(
                "url",
                "a URL such as \"http://127.0.0.1:8000\", or --endpoint URL",
            );
            None
        }
    };
    let choices = ApiKind::ALL.map(|api| (api.name(), api));
    let api = section
        .choice("api", &choices)
        .unwrap_or(ApiKind::OpenAiCompletions);
    let model = section.text("model").map(str::to_owned);
    let mut headers = section
        .section("headers")
        .map(Section::all_texts)
        .unwrap_or_default();
    for (name, value) in &mut headers {
        match header_value(name, value) {
            Ok(found) => *value = found,
            Err(problem) => problems.push(section.origin(), problem),
        }
    }
    section.finish();
    Some(EndpointConfig {
        url: url?,
        api,
        model,
        headers,
    })
}

/// `${NAME}` anywhere in a header's value is the environment's: keys do not belong into files.
fn header_value(name: &str, value: &str) -> Result<String, String> {
    let is_token = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || !name.chars().all(is_token) {
        return Err(format!("endpoint.headers: {name:?} is not a header name"));
    }
    let mut out = String::new();
    let mut rest = value;
    while let Some((before, after)) = rest.split_once("${") {
        let (variable, after) = after
            .split_once('}')
            .ok_or_else(|| format!("endpoint.headers.{name}: no }} after ${{"))?;
        let found = std::env::var(variable)
            .map_err(|_| format!("endpoint.headers.{name}: {variable} is not set"))?;
        out.push_str(before);
        out.push_str(&found);
        rest = after;
    }
    out.push_str(rest);
    if out.contains(['\r', '\n']) {
        return Err(format!(
            "endpoint.headers.{name}: a header value is one line"
        ));
    }
    Ok(out)
}

fn read_dataset(section: Section<'_>, folder: &Path) -> Option<DatasetConfig> {
    let kinds = DatasetConfig::KINDS.map(|kind| (kind, kind));
    let config = match section.choice("kind", &kinds) {
        Some("builtin") => Some(DatasetConfig::Builtin),
        Some("jsonl") => {
            let key = section.text("prompt_key").unwrap_or("prompt").to_owned();
            match section.text("path") {
                Some(path) => Some(DatasetConfig::Jsonl {
                    path: folder.join(path),
                    key,
                }),
                None => {
                    section.miss("path", "the file, relative to this one");
                    None
                }
            }
        }
        Some(_) => Some(DatasetConfig::Synthetic(SyntheticConfig {
            n_samples: section.count("n_samples", 1).unwrap_or(256),
            prompt_tokens: section.count("prompt_tokens", 1).unwrap_or(128),
            vocab_size: section.count("vocab_size", 1).unwrap_or(32_000),
            seed: section.integer("seed").unwrap_or(0).cast_unsigned(),
        })),
        None => {
            section.miss("kind", "one of builtin, jsonl, synthetic");
            None
        }
    };
    section.finish();
    config
}

fn default_generation() -> Generation {
    Generation {
        max_tokens: 64,
        temperature: 0.0,
        top_p: None,
        seed: None,
        ignore_eos: false,
        stream: true,
    }
}

fn read_generation(section: Section<'_>) -> Generation {
    let default = default_generation();
    let generation = Generation {
        max_tokens: section.count("max_tokens", 1).unwrap_or(default.max_tokens),
        temperature: section
            .real("temperature", 0.0, 2.0)
            .unwrap_or(default.temperature),
        top_p: section.real("top_p", 0.0, 1.0),
        seed: section.integer("seed"),
        ignore_eos: section.flag("ignore_eos").unwrap_or(default.ignore_eos),
        stream: section.flag("stream").unwrap_or(default.stream),
    };
    section.finish();
    generation
}

fn default_client() -> ClientConfig {
    ClientConfig {
        connections: None,
        max_in_flight: 1024,
        timeout: Nanos::from_secs(120),
        warmup_queries: 0,
        max_failed_fraction: 0.0,
    }
}

fn read_client(section: Section<'_>) -> ClientConfig {
    let default = default_client();
    let client = ClientConfig {
        connections: section.count("connections", 0),
        max_in_flight: section
            .count("max_in_flight", 1)
            .unwrap_or(default.max_in_flight),
        timeout: section.time_limit("timeout").unwrap_or(default.timeout),
        warmup_queries: section
            .count("warmup_queries", 0)
            .unwrap_or(default.warmup_queries),
        max_failed_fraction: section
            .real("max_failed_fraction", 0.0, 1.0)
            .unwrap_or(default.max_failed_fraction),
    };
    section.finish();
    client
}

#[cfg(test)]
mod tests;
