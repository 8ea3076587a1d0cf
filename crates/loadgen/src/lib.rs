//! MLPerf LoadGen semantics without network, async runtime or model.

pub mod clock;
pub mod error;
pub mod rng;
pub mod scenario;
pub mod settings;

pub mod sample;

pub mod schedule;

pub mod sut;

pub mod metrics;

pub use error::LoadgenError;
