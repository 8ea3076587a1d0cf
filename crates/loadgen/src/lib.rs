//! MLPerf LoadGen semantics without network, async runtime or model.

pub mod clock;
pub mod error;
pub mod rng;
pub mod scenario;
pub mod settings;

pub mod conf;

pub mod sample;

pub mod schedule;

pub mod plan;

pub mod progress;

pub mod incident;

pub mod recorder;

pub mod sut;

pub mod stats;

pub mod early_stopping;

pub mod metrics;

mod advice;

pub mod verdict;

pub mod report;

pub mod find_peak;

pub mod issue;

pub mod options;

pub mod outcome;

pub mod run;

pub mod testing;

pub use error::LoadgenError;
pub use options::RunOptions;
pub use outcome::Outcome;
pub use run::run;
