//! The source tree as the tidy test sees it: files, lines, and what counts as a test block.

use std::fs;
use std::path::{Path, PathBuf};

/// The repository's root folder.
#[must_use]
pub fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests
        .parent()
        .expect("tests/ stands in the repository root")
        .to_path_buf()
}

/// A text file with its path relative to the root.
#[derive(Debug)]
pub struct SourceFile {
    /// Relative path with forward slashes.
    pub path: String,
    /// The whole text.
    pub text: String,
}

impl SourceFile {
    /// Reads `path`, given relative to the root.
    ///
    /// # Panics
    /// If the file cannot be read: a test cannot go on without it.
    #[must_use]
    pub fn read(path: &str) -> Self {
        let text = fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
        Self {
            path: path.to_owned(),
            text,
        }
    }

    /// Lines that are not inside a `#[cfg(test)] mod … { … }` block.
    #[must_use]
    pub fn lines_without_tests(&self) -> Vec<&str> {
        let mut kept = Vec::new();
        let mut lines = self.text.lines().peekable();
        while let Some(line) = lines.next() {
            let opens_tests = line == "#[cfg(test)]"
                && lines
                    .peek()
                    .is_some_and(|next| next.starts_with("mod ") && next.ends_with('{'));
            if !opens_tests {
                kept.push(line);
                continue;
            }
            // rustfmt puts the closing brace of a top-level block in column 0.
            lines.by_ref().find(|l| *l == "}");
        }
        kept
    }

    /// Number of lines inside inline test blocks.
    #[must_use]
    pub fn test_lines(&self) -> usize {
        self.text.lines().count() - self.lines_without_tests().len()
    }
}

/// All files below `folder` (relative to the root) whose name ends in `suffix`, sorted by path.
#[must_use]
pub fn files_below(folder: &str, suffix: &str) -> Vec<SourceFile> {
    let mut paths = Vec::new();
    collect(&root().join(folder), suffix, &mut paths);
    paths.sort();
    paths
        .into_iter()
        .map(|p| {
            let relative = p.strip_prefix(root()).expect("found below the root");
            SourceFile::read(&relative.to_string_lossy())
        })
        .collect()
}

fn collect(folder: &Path, suffix: &str, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                collect(&path, suffix, found);
            }
        } else if name.ends_with(suffix) {
            found.push(path);
        }
    }
}
