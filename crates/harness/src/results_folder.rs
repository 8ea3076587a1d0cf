//! The folder a run's files go to: never over an earlier result unless that was asked for.

use std::path::{Path, PathBuf};

use prony_loadgen::LoadgenError;
use prony_loadgen::report::format::iso_datetime;

use crate::error::HarnessError;

/// The record of a run, by which a folder with results is known.
pub const RECORD_FILE: &str = "run.json";

/// The page of a run or a suite.
pub const PAGE_FILE: &str = "report.html";

/// Files by which a folder with results is known.
const RESULT_FILES: [&str; 4] = [
    RECORD_FILE,
    PAGE_FILE,
    "mlperf_log_summary.txt",
    "mlperf_log_detail.txt",
];

/// A folder's name for a run that begins now: `results/NAME-2026-11-30T22-11-13Z`.
#[must_use]
pub fn default_folder(name: &str, unix_ns: i64) -> PathBuf {
    // Colons are not allowed in names on every file system.
    let time = iso_datetime(unix_ns).replace(':', "-");
    Path::new("results").join(format!("{}-{time}", file_name(name)))
}

/// A name that is safe as a part of a path.
#[must_use]
pub fn file_name(name: &str) -> String {
    let safe: String = name
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || "-_.".contains(c) {
                c
            } else {
                '-'
            }
        })
        .collect();
    match safe.trim_start_matches('.') {
        "" => "run".to_owned(),
        safe => safe.to_owned(),
    }
}

/// Makes the folder, before anything is measured.
///
/// # Errors
/// If it holds results and `force` is off, or cannot be made.
pub fn prepare(folder: &Path, force: bool) -> Result<(), HarnessError> {
    let holds_results = RESULT_FILES.iter().any(|file| folder.join(file).exists());
    if holds_results && !force {
        return Err(LoadgenError::WouldOverwrite(folder.to_owned()).into());
    }
    std::fs::create_dir_all(folder).map_err(HarnessError::io(folder))
}

/// Writes one file, whole or not at all: aside first, then renamed.
///
/// # Errors
/// If it cannot be written.
pub fn write(folder: &Path, name: &str, text: &str) -> Result<PathBuf, HarnessError> {
    let path = folder.join(name);
    let aside = folder.join(format!(".{name}.part"));
    std::fs::write(&aside, text).map_err(HarnessError::io(&aside))?;
    std::fs::rename(&aside, &path).map_err(HarnessError::io(&path))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_safe() {
        assert_eq!(file_name("smollm2 server/1"), "smollm2-server-1");
        assert_eq!(
            (file_name("../.."), file_name("")),
            ("-..".to_owned(), "run".to_owned())
        );
    }

    #[test]
    fn earlier_results_stay_unless_forced() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("a/b");
        prepare(&folder, false).unwrap();
        prepare(&folder, false).unwrap();
        write(&folder, RECORD_FILE, "{}").unwrap();
        let refused = prepare(&folder, false).unwrap_err().to_string();
        assert!(
            refused.contains("holds results of an earlier run"),
            "{refused}"
        );
        prepare(&folder, true).unwrap();
        assert_eq!(
            std::fs::read_to_string(folder.join(RECORD_FILE)).unwrap(),
            "{}"
        );
    }
}
