//! `org/name` to a folder on this machine: the hub's cache first, the hub itself where allowed.
//!
//! Follows the variables that Hugging Face's own tools follow: `HF_HOME` (where the cache is),
//! `HF_ENDPOINT` (which hub), `HF_TOKEN`, `HF_HUB_OFFLINE` (never ask the network). Downloads are
//! hf-hub's: resumed where they broke off, shown with progress.

use std::path::{Path, PathBuf};

use hf_hub::api::sync::{Api, ApiBuilder, ApiError};
use hf_hub::{Cache, Repo, RepoType};

use crate::error::ModelError;

/// Small files that a model may have; weights are added by what the repository holds.
const SIDE_FILES: [&str; 12] = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    // Without these an encoder would pool and cut otherwise than it was trained.
    "modules.json",
    "config_sentence_transformers.json",
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_xlm-roberta_config.json",
];

/// How to reach the hub; read from the environment once.
#[derive(Debug, Clone)]
pub struct Hub {
    cache: Cache,
    endpoint: Option<String>,
    token: Option<String>,
    offline: bool,
}

impl Hub {
    /// As the environment says.
    pub fn from_env() -> Self {
        Self::from_vars(|name| std::env::var(name).ok())
    }

    /// As the variables say that `var` knows.
    pub fn from_vars(var: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| var(name).filter(|v| !v.is_empty());
        let yes = |v: String| !matches!(v.to_ascii_lowercase().as_str(), "0" | "false" | "no");
        Self {
            cache: match set("HF_HOME") {
                Some(home) => Cache::new(Path::new(&home).join("hub")),
                None => Cache::default(),
            },
            endpoint: set("HF_ENDPOINT"),
            token: set("HF_TOKEN"),
            offline: set("HF_HUB_OFFLINE").is_some_and(yes),
        }
    }

    /// A hub that is only its cache folder.
    pub fn offline(cache: PathBuf) -> Self {
        Self {
            cache: Cache::new(cache),
            endpoint: None,
            token: None,
            offline: true,
        }
    }

    /// A hub at `endpoint` with its cache folder, without a token.
    pub fn at(endpoint: String, cache: PathBuf) -> Self {
        Self {
            endpoint: Some(endpoint),
            offline: false,
            ..Self::offline(cache)
        }
    }

    /// The folder that holds a revision of a repository, downloaded where needed.
    ///
    /// # Errors
    /// [`ModelError::Hub`] naming the repository and what was tried.
    pub fn folder(&self, repo: &str, revision: &str) -> Result<PathBuf, ModelError> {
        let refuse = |problem: String| ModelError::Hub {
            repo: repo.to_owned(),
            revision: revision.to_owned(),
            problem,
        };
        // The revision becomes part of a path.
        if Path::new(revision)
            .components()
            .any(|c| !matches!(c, std::path::Component::Normal(_)))
        {
            return Err(refuse("this is no branch, tag or commit".to_owned()));
        }
        let named = Repo::with_revision(repo.to_owned(), RepoType::Model, revision.to_owned());
        let cached = self.cached(&named);
        if self.offline {
            let cache = self.cache.path().display();
            return cached.ok_or_else(|| {
                refuse(format!(
                    "not in the cache {cache}, and HF_HUB_OFFLINE is set"
                ))
            });
        }
        match (self.download(&named), cached) {
            (Ok(folder), _) => Ok(folder),
            (Err(problem), Some(folder)) => {
                // A download that broke off has moved the name to a commit that is not whole.
                let whole = folder.file_name().unwrap_or_default().to_string_lossy();
                if let Err(e) = self.cache.repo(named.clone()).create_ref(&whole) {
                    tracing::warn!(repo, revision, error = %e, "cache not written");
                }
                tracing::warn!(repo, revision, %problem, "hub not reached, cached model used");
                Ok(folder)
            }
            (Err(problem), None) => {
                let endpoint = self.endpoint.as_deref().unwrap_or("the default endpoint");
                Err(refuse(format!("{endpoint}: {problem}")))
            }
        }
    }

    /// The snapshot that the cache has for a revision: a name in `refs`, or a commit itself.
    fn cached(&self, repo: &Repo) -> Option<PathBuf> {
        let root = self.cache.path().join(repo.folder_name());
        let named = std::fs::read_to_string(root.join("refs").join(repo.revision())).ok();
        let commit = named.as_deref().map_or(repo.revision(), str::trim);
        let folder = root.join("snapshots").join(commit);
        let has_model = |f: &Path| {
            let mut entries = std::fs::read_dir(f).into_iter().flatten().flatten();
            entries.any(|e| is_weights(&e.file_name().to_string_lossy()))
        };
        has_model(&folder).then_some(folder)
    }

    fn download(&self, repo: &Repo) -> Result<PathBuf, String> {
        let failed = |e: ApiError| e.to_string();
        let api = self.api().map_err(failed)?.repo(repo.clone());
        let info = api.info().map_err(failed)?;
        let names: Vec<&str> = info.siblings.iter().map(|s| s.rfilename.as_str()).collect();
        if !names.iter().any(|n| is_weights(n)) {
            return Err("the repository holds no safetensors or GGUF weights".to_owned());
        }
        let cache = self.cache.repo(repo.clone());
        // Points the revision at this commit first: files of an older one are then not mixed in.
        cache
            .create_ref(&info.sha)
            .map_err(|e| format!("{}: {e}", self.cache.path().display()))?;
        for name in names
            .into_iter()
            .filter(|n| SIDE_FILES.contains(n) || is_pooling(n) || is_weights(n))
        {
            api.get(name).map_err(failed)?;
        }
        Ok(cache.pointer_path(&info.sha))
    }

    fn api(&self) -> Result<Api, ApiError> {
        let mut builder = ApiBuilder::from_cache(self.cache.clone()).with_retries(3);
        if let Some(endpoint) = &self.endpoint {
            builder = builder.with_endpoint(endpoint.trim_end_matches('/').to_owned());
        }
        if self.token.is_some() {
            builder = builder.with_token(self.token.clone());
        }
        builder.build()
    }
}

/// True for weights in a format that is read, at the top of a repository.
fn is_weights(name: &str) -> bool {
    let ours = name.starts_with("model") && name.ends_with(".safetensors");
    !name.contains('/') && (ours || name == "model.safetensors.index.json")
        || (!name.contains('/') && name.ends_with(".gguf"))
}

/// True for the configuration of a sentence-transformers pooling module: `1_Pooling/config.json`.
fn is_pooling(name: &str) -> bool {
    let folder = name.strip_suffix("/config.json");
    folder.is_some_and(|f| f.ends_with("_Pooling") && !f.contains('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(hub: &Hub, repo: &str, revision: &str) -> Result<PathBuf, String> {
        hub.folder(repo, revision).map_err(|e| e.to_string())
    }

    #[test]
    fn the_cache_is_read_offline() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().join("models--org--name");
        let snapshot = root.join("snapshots/abc123");
        std::fs::create_dir_all(root.join("refs")).unwrap();
        std::fs::create_dir_all(&snapshot).unwrap();
        std::fs::write(root.join("refs/main"), "abc123").unwrap();
        let hub = Hub::offline(home.path().to_owned());
        // A snapshot without weights is a download that never ended.
        assert!(folder(&hub, "org/name", "main").is_err());
        std::fs::write(snapshot.join("model.safetensors"), "").unwrap();
        assert_eq!(folder(&hub, "org/name", "main").unwrap(), snapshot);
        assert_eq!(folder(&hub, "org/name", "abc123").unwrap(), snapshot);
        let problem = folder(&hub, "org/name", "v2").unwrap_err();
        let expected = format!(
            "org/name@v2: not in the cache {}, and HF_HUB_OFFLINE is set",
            home.path().display()
        );
        assert_eq!(problem, expected);
        let outside = folder(&hub, "org/name", "../x").unwrap_err();
        assert_eq!(outside, "org/name@../x: this is no branch, tag or commit");
    }

    #[test]
    fn weights_are_told_by_name() {
        for name in [
            "model.safetensors",
            "model-00001-of-00003.safetensors",
            "x.Q4_1.gguf",
        ] {
            assert!(is_weights(name), "{name}");
        }
        for name in [
            "onnx/model.safetensors",
            "pytorch_model.bin",
            "adapter.safetensors",
        ] {
            assert!(!is_weights(name), "{name}");
        }
    }

    #[test]
    fn pooling_modules_are_told_by_name() {
        assert!(is_pooling("1_Pooling/config.json"));
        for name in [
            "config.json",
            "onnx/config.json",
            "a/1_Pooling/config.json",
            "1_Pooling/x.json",
        ] {
            assert!(!is_pooling(name), "{name}");
        }
    }
}
