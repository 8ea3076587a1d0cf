//! The small text files of a model folder: read, and parsed as JSON, with the file in every error.

use std::io::ErrorKind;
use std::path::Path;

use serde::de::DeserializeOwned;

use crate::error::ModelError;

/// A file that must be there.
///
/// # Errors
/// [`ModelError::Io`].
pub(crate) fn read_text(path: &Path) -> Result<String, ModelError> {
    std::fs::read_to_string(path).map_err(|source| ModelError::Io {
        path: path.to_owned(),
        source,
    })
}

/// A side file that a model need not have. One that is there but cannot be read is an error:
/// without its end ids or its template the model would answer something else.
///
/// # Errors
/// [`ModelError::Io`].
pub(crate) fn read_text_if_there(path: &Path) -> Result<Option<String>, ModelError> {
    match read_text(path) {
        Err(ModelError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}

/// Text of the file at `path` as JSON.
///
/// # Errors
/// [`ModelError::Malformed`] for bad JSON or a wrong type.
pub(crate) fn parse_json<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, ModelError> {
    serde_json::from_str(text).map_err(|e| ModelError::Malformed {
        path: path.to_owned(),
        problem: e.to_string(),
    })
}
