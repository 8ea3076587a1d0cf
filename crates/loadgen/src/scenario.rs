//! The four scenarios and four modes, with the spellings other tools read.

use std::fmt;

/// How queries arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scenario {
    /// One query of one sample at a time, the next when the last is answered.
    SingleStream,
    /// One query of several samples at a time, the next when the last is answered.
    MultiStream,
    /// Poisson arrivals of one-sample queries, open loop.
    Server,
    /// All samples in one query at the start.
    Offline,
}

impl Scenario {
    /// Every scenario, in the reference's order.
    pub const ALL: [Self; 4] = [
        Self::SingleStream,
        Self::MultiStream,
        Self::Server,
        Self::Offline,
    ];

    /// The name as configuration files write it: no space.
    #[must_use]
    pub fn conf_name(self) -> &'static str {
        match self {
            Self::SingleStream => "SingleStream",
            Self::MultiStream => "MultiStream",
            Self::Server => "Server",
            Self::Offline => "Offline",
        }
    }
}

/// What a run is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Accuracy over the whole data set, then performance.
    SubmissionRun,
    /// Every sample once, every answer logged, no timing result.
    AccuracyOnly,
    /// Timed run over the loadable set.
    PerformanceOnly,
    /// Search for the highest passing rate (Server).
    FindPeakPerformance,
}

/// A part of a test: which queries are made, and whether they are timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Every sample of the data set once, set by set.
    Accuracy,
    /// The timed part, over the first set.
    Performance,
}

impl fmt::Display for Scenario {
    /// The name as the summary writes it; checked against the golden logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.conf_name())
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SubmissionRun => "SubmissionRun",
            Self::AccuracyOnly => "AccuracyOnly",
            Self::PerformanceOnly => "PerformanceOnly",
            Self::FindPeakPerformance => "FindPeakPerformance",
        })
    }
}
