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
    #[error("{}", model_problem(model, source))]
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

/// Names the model, once: most of what can be wrong with it names its path already.
#[cfg(feature = "torch")]
fn model_problem(model: &str, source: &prony_models::ModelError) -> String {
    let problem = source.to_string();
    if problem.contains(model) {
        problem
    } else {
        format!("model {model}: {problem}")
    }
}

#[cfg(all(test, feature = "torch"))]
mod tests {
    use super::*;

    #[test]
    fn a_model_that_is_not_there_is_named_once() {
        let message = |source| {
            let model = "folder/tiny".to_owned();
            SutError::Model { model, source }.to_string()
        };
        let gone = prony_models::ModelError::NotFound {
            path: "folder/tiny".into(),
        };
        assert_eq!(message(gone), "model folder/tiny: no such file or folder");
        let device = prony_models::ModelError::Device {
            device: "cuda:3".to_owned(),
            problem: "no such device".to_owned(),
        };
        let expected = "model folder/tiny: device cuda:3: no such device";
        assert_eq!(message(device), expected);
    }
}
