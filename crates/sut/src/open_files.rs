//! How many files and sockets the system lets this process hold.

use std::io;

/// Files that are no connections of clients: the model, logs, the listener, the runtime's own.
const OTHER_FILES: usize = 256;

/// Most connections the system allows beside everything else that is open, after asking it for as
/// many as `wanted` takes.
///
/// # Errors
/// What the system said.
#[allow(unsafe_code, reason = "see SAFETY; std has no call for it")]
pub fn allow_connections(wanted: usize) -> io::Result<usize> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the call fills the struct it is given, which lives until it returns.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let needed = wanted.saturating_add(OTHER_FILES) as libc::rlim_t;
    if limit.rlim_cur < needed {
        limit.rlim_cur = needed.min(limit.rlim_max);
        // SAFETY: the call only reads the struct.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    let allowed = usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX);
    Ok(allowed.saturating_sub(OTHER_FILES).min(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_wanted_and_than_the_system_has() {
        assert_eq!(allow_connections(10).expect("a limit"), 10);
        let most = allow_connections(usize::MAX / 2).expect("a limit");
        assert!(most >= 10);
        // What was raised stays.
        assert_eq!(allow_connections(most).expect("a limit"), most);
    }
}
