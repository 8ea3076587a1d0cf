//! Reads the machine: `/proc`, `/sys` and what the compiler left in the binary.
//!
//! Every reader takes text and returns a value, so tests need no particular machine. What cannot
//! be read stays `None`.

use std::fs;
use std::path::Path;

use prony_report::environment::Environment;

/// The machine and the build, as of now.
#[must_use]
pub fn read() -> Environment {
    let cpuinfo = text("/proc/cpuinfo").unwrap_or_default();
    Environment {
        cpu_model: field(&cpuinfo, "model name").or_else(|| field(&cpuinfo, "CPU part")),
        n_cpus: n_cpus(),
        cpu_quota: text("/sys/fs/cgroup/cpu.max").and_then(|t| parse_cpu_max(&t)),
        cpu_governor: line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        virtual_machine: (!cpuinfo.is_empty())
            .then(|| field(&cpuinfo, "flags").is_some_and(|f| has_word(&f, "hypervisor"))),
        memory_bytes: text("/proc/meminfo").and_then(|t| parse_mem_total(&t)),
        gpus: gpus(Path::new("/proc/driver/nvidia/gpus")),
        os: text("/etc/os-release").and_then(|t| parse_os_name(&t)),
        kernel: line("/proc/sys/kernel/osrelease"),
        load_average_1m: text("/proc/loadavg").and_then(|t| {
            t.split_whitespace()
                .next()
                .and_then(|first| first.parse().ok())
        }),
        rustc: env!("PRONY_RUSTC").to_owned(),
        git_revision: env!("PRONY_GIT_REVISION").to_owned(),
        prony_version: env!("CARGO_PKG_VERSION").to_owned(),
        build_profile: if cfg!(debug_assertions) {
            "debug"
        } else {
            "release"
        }
        .to_owned(),
    }
}

/// Logical processors this process may use: the affinity mask and, where set, the quota.
#[must_use]
pub fn n_cpus() -> Option<u32> {
    std::thread::available_parallelism()
        .ok()
        .and_then(|n| u32::try_from(n.get()).ok())
}

fn text(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()
}

fn line(path: &str) -> Option<String> {
    text(path)
        .map(|t| t.trim().to_owned())
        .filter(|t| !t.is_empty())
}

/// The first `name : value` of a `/proc` listing.
fn field(listing: &str, name: &str) -> Option<String> {
    listing.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

fn has_word(text: &str, word: &str) -> bool {
    text.split_whitespace().any(|w| w == word)
}

/// `max 100000` → no quota; `150000 100000` → 1.5 processors.
fn parse_cpu_max(text: &str) -> Option<f64> {
    let mut parts = text.split_whitespace();
    let quota: f64 = parts.next()?.parse().ok()?;
    let period: f64 = parts.next()?.parse().ok()?;
    (period > 0.0).then(|| quota / period)
}

fn parse_mem_total(meminfo: &str) -> Option<u64> {
    let value = field(meminfo, "MemTotal")?;
    let kib: u64 = value.strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

fn parse_os_name(os_release: &str) -> Option<String> {
    os_release.lines().find_map(|line| {
        let value = line.strip_prefix("PRETTY_NAME=")?;
        Some(value.trim_matches('"').to_owned())
    })
}

/// One line a card, from the driver's own listing; no tool of the vendor needs to be installed.
fn gpus(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut gpus: Vec<String> = entries
        .flatten()
        .filter_map(|entry| fs::read_to_string(entry.path().join("information")).ok())
        .filter_map(|listing| field(&listing, "Model"))
        .collect();
    gpus.sort();
    gpus
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_proc_listings() {
        let cpuinfo = "processor\t: 0\nmodel name\t: Some CPU @ 2.1GHz\nflags\t: fpu hypervisor\n";
        assert_eq!(
            field(cpuinfo, "model name").as_deref(),
            Some("Some CPU @ 2.1GHz")
        );
        assert_eq!(field(cpuinfo, "model"), None);
        assert!(has_word("fpu hypervisor", "hypervisor"));
        assert_eq!(parse_mem_total("MemTotal:       16 kB\n"), Some(16_384));
        assert_eq!(parse_mem_total("MemTotal: many\n"), None);
    }

    #[test]
    fn reads_quota_and_os_name() {
        assert_eq!(parse_cpu_max("max 100000\n"), None);
        assert_eq!(parse_cpu_max("150000 100000\n"), Some(1.5));
        let os = "NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 13 (trixie)\"\n";
        assert_eq!(
            parse_os_name(os).as_deref(),
            Some("Debian GNU/Linux 13 (trixie)")
        );
    }
}
