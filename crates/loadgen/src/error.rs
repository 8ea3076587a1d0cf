//! What can go wrong in setting up or recording a run; nothing here is about the SUT's answers.

use std::path::{Path, PathBuf};

/// One refused setting: what it is called, what it was, what would have been accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedSetting {
    /// Field name of `TestSettings`.
    pub name: String,
    /// The value as the user gave it.
    pub value: String,
    /// The range or rule that was broken.
    pub allowed: String,
}

/// One problem of a configuration file, and where in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfProblem {
    /// Line, from 1.
    pub line: usize,
    /// Character of the line, from 1.
    pub column: usize,
    /// What is wrong there.
    pub text: String,
}

/// Operating errors of the load generator.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadgenError {
    /// Settings that no run can honour; every one of them, not just the first.
    #[error("{}", refused_text(.0))]
    RefusedSettings(Vec<RefusedSetting>),
    /// A configuration file with problems; every one of them.
    #[error("{}", problems_text(path, problems))]
    BadConfiguration {
        /// The file.
        path: PathBuf,
        /// What is wrong in it, by line.
        problems: Vec<ConfProblem>,
    },
    /// A log file or folder could not be read, made or written.
    #[error("{path}: {source}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The output folder holds an earlier result and overwriting was not asked for.
    #[error("{0}: holds results of an earlier run; choose another folder or pass --force")]
    WouldOverwrite(PathBuf),
}

fn refused_text(refused: &[RefusedSetting]) -> String {
    let lines: Vec<String> = refused
        .iter()
        .map(|r| format!("{} = {}: {}", r.name, r.value, r.allowed))
        .collect();
    lines.join("\n")
}

fn problems_text(path: &Path, problems: &[ConfProblem]) -> String {
    let lines: Vec<String> = problems
        .iter()
        .map(|p| format!("{}:{}:{}: {}", path.display(), p.line, p.column, p.text))
        .collect();
    lines.join("\n")
}
