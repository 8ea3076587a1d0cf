//! Where the value of a setting came from.

use std::fmt;
use std::path::PathBuf;

use crate::conf::keys::ConfKind;

/// The last thing that set a field.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Origin {
    /// Nothing did.
    #[default]
    Default,
    /// The rules of a round.
    Round {
        /// Name of the round.
        round: &'static str,
        /// The full key that matched.
        key: String,
        /// The value's text.
        value: String,
    },
    /// A line of a file.
    File {
        /// Which kind of file.
        kind: ConfKind,
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// The full key that matched.
        key: String,
        /// The value's text.
        value: String,
    },
    /// The command line or the calling program.
    Caller,
    /// The re-seeding of compliance test 05.
    Test05,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Round { round, key, value } => write!(f, "mlperf.conf {round}: {key} = {value}"),
            Self::File {
                path,
                line,
                key,
                value,
                ..
            } => {
                write!(f, "{}:{line}: {key} = {value}", path.display())
            }
            Self::Caller => f.write_str("given by the caller (--set, --scenario)"),
            Self::Test05 => f.write_str("test05 override"),
        }
    }
}
