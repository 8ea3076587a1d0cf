//! The four log files on disk: names, folder, and the rule that results are never overwritten.
//!
//! Files are opened before a run, so that a full disk or a typed-over path costs no run.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::error::LoadgenError;

use super::accuracy::{AccuracyEntry, AccuracyWriter};
use super::detail::DetailLog;
use super::format::iso_datetime;
use super::trace::TraceWriter;

/// Where logs go and what is in them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSettings {
    /// Folder; made if it is missing.
    pub outdir: PathBuf,
    /// Start of every file name.
    pub prefix: String,
    /// End of every file name, before the extension.
    pub suffix: String,
    /// Puts the start of the test (UTC) between prefix and name.
    pub prefix_with_datetime: bool,
    /// Writes the detail log to standard output as well.
    pub copy_detail_to_stdout: bool,
    /// Writes the summary to standard output as well.
    pub copy_summary_to_stdout: bool,
    /// Fills the trace file. Off by default; the reference's default is on, at 650 bytes a query.
    pub enable_trace: bool,
    /// Allows earlier results of the same name to be lost.
    pub force: bool,
    /// Adds lines the reference does not write, after its own.
    pub own_keys: bool,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self {
            outdir: PathBuf::from("."),
            prefix: "mlperf_log_".to_owned(),
            suffix: String::new(),
            prefix_with_datetime: false,
            copy_detail_to_stdout: false,
            copy_summary_to_stdout: false,
            enable_trace: false,
            force: false,
            own_keys: false,
        }
    }
}

/// Names of the four files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPaths {
    /// `…summary….txt`
    pub summary: PathBuf,
    /// `…detail….txt`
    pub detail: PathBuf,
    /// `…accuracy….json`
    pub accuracy: PathBuf,
    /// `…trace….json`
    pub trace: PathBuf,
}

impl LogPaths {
    /// The names for a test started at `started_unix_ns` (ns since 1970-01-01 UTC).
    #[must_use]
    pub fn new(settings: &LogSettings, started_unix_ns: i64) -> Self {
        let datetime = if settings.prefix_with_datetime {
            iso_datetime(started_unix_ns) + "_"
        } else {
            String::new()
        };
        let path = |name: &str, extension: &str| {
            let (prefix, suffix) = (&settings.prefix, &settings.suffix);
            settings
                .outdir
                .join(format!("{prefix}{datetime}{name}{suffix}.{extension}"))
        };
        Self {
            summary: path("summary", "txt"),
            detail: path("detail", "txt"),
            accuracy: path("accuracy", "json"),
            trace: path("trace", "json"),
        }
    }

    fn all(&self) -> [&Path; 4] {
        [&self.summary, &self.detail, &self.accuracy, &self.trace]
    }
}

/// The four files, open for one test.
#[derive(Debug)]
pub struct LogFiles {
    paths: LogPaths,
    summary: File,
    detail: BufWriter<File>,
    accuracy: AccuracyWriter<BufWriter<File>>,
    /// None if the trace is off; its file stays empty.
    trace: Option<TraceWriter<BufWriter<File>>>,
    copy_detail: bool,
    copy_summary: bool,
}

impl LogFiles {
    /// Makes the folder if needed and opens all four files, empty.
    ///
    /// # Errors
    /// [`LoadgenError::WouldOverwrite`] if one of them has content and `force` is off; nothing
    /// is touched then. [`LoadgenError::Io`] with the path that could not be made or written.
    pub fn create(settings: &LogSettings, started_unix_ns: i64) -> Result<Self, LoadgenError> {
        let paths = LogPaths::new(settings, started_unix_ns);
        let has_content = |path: &Path| fs::metadata(path).is_ok_and(|meta| meta.len() > 0);
        if !settings.force && paths.all().into_iter().any(has_content) {
            return Err(LoadgenError::WouldOverwrite(settings.outdir.clone()));
        }
        fs::create_dir_all(&settings.outdir).map_err(at(&settings.outdir))?;
        let accuracy = BufWriter::new(open(&paths.accuracy)?);
        let trace = BufWriter::new(open(&paths.trace)?);
        let trace = settings
            .enable_trace
            .then(|| TraceWriter::new(trace, std::process::id()));
        Ok(Self {
            summary: open(&paths.summary)?,
            detail: BufWriter::new(open(&paths.detail)?),
            accuracy: AccuracyWriter::new(accuracy).map_err(at(&paths.accuracy))?,
            trace: trace.transpose().map_err(at(&paths.trace))?,
            copy_detail: settings.copy_detail_to_stdout,
            copy_summary: settings.copy_summary_to_stdout,
            paths,
        })
    }

    /// Adds an answer to the accuracy log.
    ///
    /// # Errors
    /// [`LoadgenError::Io`] with the file.
    pub fn answer(&mut self, entry: &AccuracyEntry<'_>) -> Result<(), LoadgenError> {
        self.accuracy.push(entry).map_err(at(&self.paths.accuracy))
    }

    /// Lets `add` write events to the trace, if it is on.
    ///
    /// # Errors
    /// [`LoadgenError::Io`] with the file.
    pub fn trace_with(
        &mut self,
        add: impl FnOnce(&mut TraceWriter<BufWriter<File>>) -> io::Result<()>,
    ) -> Result<(), LoadgenError> {
        match &mut self.trace {
            Some(trace) => add(trace).map_err(at(&self.paths.trace)),
            None => Ok(()),
        }
    }

    /// Writes summary and detail log and closes all four files.
    ///
    /// `origin_unix_ns` is what the times of the trace are relative to.
    ///
    /// # Errors
    /// [`LoadgenError::Io`] with the file that could not be written.
    pub fn finish(
        mut self,
        summary: &str,
        detail: &DetailLog,
        origin_unix_ns: i64,
    ) -> Result<LogPaths, LoadgenError> {
        let paths = self.paths;
        detail
            .write_to(&mut self.detail)
            .map_err(at(&paths.detail))?;
        self.summary
            .write_all(summary.as_bytes())
            .map_err(at(&paths.summary))?;
        self.accuracy.finish().map_err(at(&paths.accuracy))?;
        if let Some(trace) = self.trace {
            trace.finish(origin_unix_ns).map_err(at(&paths.trace))?;
        }
        let stdout = Path::new("standard output");
        if self.copy_detail {
            detail
                .write_to(&mut io::stdout().lock())
                .map_err(at(stdout))?;
        }
        if self.copy_summary {
            io::stdout()
                .lock()
                .write_all(summary.as_bytes())
                .map_err(at(stdout))?;
        }
        Ok(paths)
    }
}

/// Writes all four files at once, for tests and tools that hold everything in memory.
///
/// # Errors
/// As [`LogFiles::create`] and [`LogFiles::finish`].
pub fn write_logs(
    settings: &LogSettings,
    started_unix_ns: i64,
    summary: &str,
    detail: &DetailLog,
    accuracy: &[AccuracyEntry<'_>],
) -> Result<LogPaths, LoadgenError> {
    let mut files = LogFiles::create(settings, started_unix_ns)?;
    for entry in accuracy {
        files.answer(entry)?;
    }
    files.finish(summary, detail, started_unix_ns)
}

fn open(path: &Path) -> Result<File, LoadgenError> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)
        .map_err(at(path))
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> LoadgenError {
    let path = path.to_owned();
    |source| LoadgenError::Io { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(dir: &Path) -> LogSettings {
        LogSettings {
            outdir: dir.join("not/there/yet"),
            ..LogSettings::default()
        }
    }

    #[test]
    fn makes_the_folder_and_four_files() {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(dir.path());
        let paths = write_logs(&settings, 0, "text\n", &DetailLog::new(1, 1), &[]).unwrap();
        assert_eq!(fs::read_to_string(&paths.summary).unwrap(), "text\n");
        assert_eq!(fs::read_to_string(&paths.accuracy).unwrap(), "[\n]\n");
        assert_eq!(fs::read_to_string(&paths.trace).unwrap(), "");
        assert_eq!(fs::read_to_string(&paths.detail).unwrap(), "");
        assert!(paths.summary.ends_with("mlperf_log_summary.txt"));
    }

    #[test]
    fn earlier_results_stay_unless_forced() {
        let dir = tempfile::tempdir().unwrap();
        let mut settings = settings(dir.path());
        let detail = DetailLog::new(1, 1);
        let paths = write_logs(&settings, 0, "first\n", &detail, &[]).unwrap();
        let refused = write_logs(&settings, 0, "second\n", &detail, &[]).unwrap_err();
        assert!(matches!(refused, LoadgenError::WouldOverwrite(_)));
        assert_eq!(fs::read_to_string(&paths.summary).unwrap(), "first\n");
        settings.force = true;
        write_logs(&settings, 0, "second\n", &detail, &[]).unwrap();
        assert_eq!(fs::read_to_string(&paths.summary).unwrap(), "second\n");
    }

    #[test]
    fn names_with_datetime_and_suffix() {
        let settings = LogSettings {
            suffix: "_a".into(),
            prefix_with_datetime: true,
            outdir: "logs".into(),
            ..LogSettings::default()
        };
        let paths = LogPaths::new(&settings, 1_796_076_673_000_000_000);
        let expected = Path::new("logs/mlperf_log_2026-11-30T22:11:13Z_trace_a.json");
        assert_eq!(paths.trace, expected);
    }

    #[test]
    fn a_file_in_place_of_the_folder_is_an_error_with_its_path() {
        let dir = tempfile::tempdir().unwrap();
        let blocked = dir.path().join("taken");
        fs::write(&blocked, "x").unwrap();
        let settings = LogSettings {
            outdir: blocked.clone(),
            ..LogSettings::default()
        };
        let error = LogFiles::create(&settings, 0).unwrap_err();
        assert!(error.to_string().contains("taken"), "{error}");
    }
}
