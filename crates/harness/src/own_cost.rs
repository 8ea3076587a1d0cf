//! What this process has cost so far, from `/proc`: a load generator that needs a core itself
//! should say so.

/// Ticks of `/proc/PID/stat` in a second; `USER_HZ` is 100 on every Linux there is.
const TICKS_PER_S: f64 = 100.0;

/// Processor seconds of all threads, user and system.
#[must_use]
pub fn cpu_s() -> Option<f64> {
    parse_cpu_s(&std::fs::read_to_string("/proc/self/stat").ok()?)
}

/// Largest resident memory so far.
#[must_use]
pub fn max_rss_bytes() -> Option<u64> {
    parse_max_rss(&std::fs::read_to_string("/proc/self/status").ok()?)
}

fn parse_cpu_s(stat: &str) -> Option<f64> {
    // The command's name, in parentheses, may hold blanks; what follows is counted from its end.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS_PER_S)
}

fn parse_max_rss(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_proc() {
        let stat = "12 (a b) c) S 1 2 3 4 5 6 7 8 9 10 250 150 0 0";
        assert_eq!(parse_cpu_s(stat), Some(4.0));
        assert_eq!(
            parse_max_rss("VmPeak: 9 kB\nVmHWM:\t  16 kB\n"),
            Some(16_384)
        );
        assert_eq!(parse_cpu_s("nothing"), None);
    }
}
