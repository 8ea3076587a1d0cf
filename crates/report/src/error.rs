//! What can go wrong in reading a record.

/// Operating errors of this crate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// The text is no record.
    #[error("not a run record: {reason}")]
    NotARecord {
        /// The parser's words.
        reason: String,
    },
    /// The record has a form this program does not know.
    #[error("run record: version {found}, this program reads up to {known}")]
    Version {
        /// Version of the record.
        found: u32,
        /// Newest version known.
        known: u32,
    },
}
