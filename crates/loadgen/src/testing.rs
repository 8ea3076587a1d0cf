//! Virtual time and a simulated SUT: whole runs in milliseconds, the same bytes for the same seed.
//!
//! For tests of this crate and of its users. No thread, no sleep, no random number that is not
//! seeded.

mod clock;

mod sut;

pub use clock::VirtualClock;
pub use sut::{Fault, Service, SimulatedSut};
