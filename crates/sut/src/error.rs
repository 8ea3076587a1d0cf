//! What keeps the server from starting or makes it end; nothing here is about one request.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

/// Operating errors of the process.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SutError {
    /// A flag holds a value that cannot be honoured.
    #[error("{flag} {value}: {problem}")]
    Flag {
        /// The flag as typed, with its dashes.
        flag: &'static str,
        /// The value as given.
        value: String,
        /// The rule that was broken.
        problem: String,
    },
    /// The address cannot be listened on.
    #[error("{address}: cannot listen: {source}")]
    Bind {
        /// Host and port.
        address: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// The model or its device could not be loaded.
    #[cfg(feature = "torch")]
    #[error("model {model}: {source}")]
    Model {
        /// As given by `--model`.
        model: String,
        /// What was missing or did not fit.
        source: prony_models::ModelError,
    },
    /// The model's tokenizer does something that output text cannot be made from byte by byte.
    #[error("tokenizer of {model}: {problem}")]
    Tokenizer {
        /// As given by `--model`.
        model: String,
        /// What is not supported.
        problem: String,
    },
    /// The model's chat template is no valid template.
    #[error("chat template of {model}: {problem}")]
    ChatTemplate {
        /// As given by `--model`.
        model: String,
        /// What the template engine said.
        problem: String,
    },
    /// The certificate or its key cannot be used.
    #[error("{}: {problem}", path.display())]
    Tls {
        /// The file at fault.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// Standard output, threads, signals: the operating system refused something.
    #[error("{what}: {source}")]
    System {
        /// What was asked for.
        what: &'static str,
        /// What the operating system said.
        source: io::Error,
    },
    /// The engine thread ended while it was needed; its own message says why.
    #[error("the engine failed; every waiting request was answered with an error")]
    EngineFailed,
}

impl SutError {
    /// The documented exit code (see `--help`).
    #[must_use]
    pub fn exit_code(&self) -> ExitCode {
        match self {
            SutError::Flag { .. } | SutError::Bind { .. } | SutError::Tls { .. } => {
                ExitCode::from(2)
            }
            #[cfg(feature = "torch")]
            SutError::Model { .. } => ExitCode::from(3),
            SutError::Tokenizer { .. } | SutError::ChatTemplate { .. } => ExitCode::from(3),
            SutError::System { .. } | SutError::EngineFailed => ExitCode::from(1),
        }
    }
}
