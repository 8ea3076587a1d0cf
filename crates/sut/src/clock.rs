//! The only reader of time in this crate. Everyone else is handed `now`.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The monotonic time.
#[expect(clippy::disallowed_methods, reason = "this is the crate's clock")]
#[must_use]
pub fn now() -> Instant {
    Instant::now()
}

/// Seconds since 1970, for fields that the API defines so; never for measuring.
#[expect(clippy::disallowed_methods, reason = "this is the crate's clock")]
#[must_use]
pub fn unix_seconds() -> u64 {
    // A clock set before 1970 is not worth failing a request for.
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_secs())
}
