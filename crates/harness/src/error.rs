//! Operating errors of the command line, each with the exit code it leads to.
//!
//! A failed sample or an INVALID run is not an error: it is a result, see `exit`.

use std::path::PathBuf;

use prony_loadgen::LoadgenError;
use prony_loadgen::scenario::Scenario;

use crate::exit::ExitStatus;

/// What stops a command before it has a result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HarnessError {
    /// A file or folder could not be read, made or written.
    #[error("{path}: {source}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The load generator refused the settings or could not write its logs.
    #[error(transparent)]
    Loadgen(#[from] LoadgenError),
    /// A scenario file, or an option that overrides it, was refused.
    #[error("{}", lines(.0))]
    Scenario(Vec<ScenarioError>),
    /// The data set cannot be used.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    /// The data set and the API do not fit together.
    #[error("dataset {dataset} has token ids, and the API {api} takes only text")]
    TokenIdsNotTaken {
        /// Name of the data set.
        dataset: String,
        /// Name of the API.
        api: &'static str,
    },
    /// Only open-loop arrivals have a rate to search.
    #[error("find-peak needs a Server scenario, not {0}")]
    NotServer(Scenario),
    /// The endpoint cannot be reached, or is not what it was said to be.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The machine gave no thread, no signal handler or no poll handle.
    #[error("{what}: {source}")]
    System {
        /// What was asked for.
        what: &'static str,
        /// What the operating system said.
        source: std::io::Error,
    },
}

impl HarnessError {
    /// Wraps an input/output error with the path it happened on.
    pub fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }

    /// The exit code this error leads to.
    #[must_use]
    pub fn exit_status(&self) -> ExitStatus {
        match self {
            Self::Endpoint(_) => ExitStatus::SutFailed,
            Self::Io { .. }
            | Self::Loadgen(_)
            | Self::Scenario(_)
            | Self::Dataset(_)
            | Self::TokenIdsNotTaken { .. }
            | Self::NotServer(_)
            | Self::System { .. } => ExitStatus::Usage,
        }
    }
}

/// One thing wrong with a scenario: where, which key, what would have been right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{origin}: {problem}")]
pub struct ScenarioError {
    /// `file:line:column`, or the option that set the key.
    pub origin: String,
    /// The key, the value and what is expected.
    pub problem: String,
}

fn lines(errors: &[ScenarioError]) -> String {
    let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

/// Why a URL is not an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// Not a URL at all.
    #[error("{0}: not a URL; write http://host:port")]
    NotUrl(String),
    /// No scheme.
    #[error("{0}: no scheme; write http://host:port")]
    NoScheme(String),
    /// A scheme we do not speak.
    #[error("scheme {0}: only http is supported")]
    Scheme(String),
    /// A port that does not exist.
    #[error("port {0}: must be 0 to 65535")]
    Port(String),
    /// Credentials would end in logs and records.
    #[error("a user name or password in the URL is not supported; use headers")]
    UserInfo,
}

/// Why bytes are not an HTTP/1 response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResponseError {
    /// The head cannot be parsed.
    #[error("not an HTTP response: {0}")]
    NotHttp(httparse::Error),
    /// The head does not end.
    #[error("response head larger than {max_bytes} bytes")]
    HeadTooLarge {
        /// The limit.
        max_bytes: usize,
    },
    /// `content-length` is not a number.
    #[error("content-length is not a number")]
    BadLength,
    /// A chunk size that is none, or data that run past their chunk.
    #[error("malformed chunk in the response body")]
    BadChunk,
}

/// Why a data set cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DatasetError {
    /// The file cannot be read.
    #[error("{path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A line is not an item.
    #[error("{path}:{line}: {reason}")]
    Line {
        /// The file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// No items.
    #[error("{0}: no items")]
    Empty(PathBuf),
}

/// Why an endpoint cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// The host name leads nowhere.
    #[error("endpoint {url}: no address: {source}")]
    NoAddress {
        /// The endpoint.
        url: String,
        /// What the resolver said.
        source: std::io::Error,
    },
    /// Nobody answered in time.
    #[error(
        "endpoint {url}: {reason}, tried for {waited_s} s; is the server up? \
         (--wait-ready 60s waits longer)"
    )]
    NotReady {
        /// The endpoint.
        url: String,
        /// How the last try ended.
        reason: String,
        /// How long was tried.
        waited_s: u64,
    },
    /// It answered, and refuses.
    #[error("endpoint {url}: HTTP {status}: {body}")]
    Refused {
        /// The request's URL.
        url: String,
        /// The status code.
        status: u16,
        /// The start of the body.
        body: String,
    },
    /// The connections of the run could not be opened.
    #[error("endpoint {url}: connect: {source}")]
    Connect {
        /// The endpoint.
        url: String,
        /// What the operating system said.
        source: std::io::Error,
    },
}
