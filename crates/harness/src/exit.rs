//! The exit codes of `prony`, the one place that gives them numbers.

use std::process::ExitCode;

/// How a command ended, as scripts and CI see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExitStatus {
    /// 0: the run is valid and every assertion holds, or the command had no run to judge.
    Valid,
    /// 1: the run is INVALID, or an assertion failed.
    Invalid,
    /// 2: the command line, a scenario file or another input was refused.
    Usage,
    /// 3: the system under test could not be reached, or failed beyond the allowed rate.
    SutFailed,
    /// 4: the load that was asked for is not the load that was sent.
    ClientLimited,
}

impl ExitStatus {
    /// The number the shell sees.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Valid => 0,
            Self::Invalid => 1,
            Self::Usage => 2,
            Self::SutFailed => 3,
            Self::ClientLimited => 4,
        }
    }
}

impl From<ExitStatus> for ExitCode {
    fn from(status: ExitStatus) -> Self {
        Self::from(status.code())
    }
}
