//! Operating errors of the command line, each with the exit code it leads to.
//!
//! A failed sample or an INVALID run is not an error: it is a result, see `exit`.

use std::path::PathBuf;

use prony_loadgen::LoadgenError;

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
            Self::Io { .. } | Self::Loadgen(_) => ExitStatus::Usage,
        }
    }
}
