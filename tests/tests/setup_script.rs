//! `scripts/setup.sh`: a second run needs no network; what it cannot use it names in one line.

use std::fs;
use std::process::{Command, Output};

use e2e::source::root;

fn setup(variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(root().join("scripts/setup.sh"));
    command
        .current_dir(root())
        .env_remove("LIBTORCH")
        .env_remove("CUDA");
    // Nothing listens on the discard port: a run that asks for a download fails.
    command
        .env("PIP_INDEX_URL", "http://127.0.0.1:9/")
        .env("PIP_RETRIES", "0");
    command.envs(variables.iter().copied());
    command.output().expect("the script starts")
}

fn refused(variables: &[(&str, &str)], needles: &[&str]) {
    let output = setup(variables);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert_eq!(stderr.trim().lines().count(), 1, "{stderr}");
    for needle in needles {
        assert!(stderr.contains(needle), "{needle}: {stderr}");
    }
}

#[test]
fn a_second_run_needs_no_network() {
    // A LIBTORCH of the user's own replaces the download, here as in `make setup`.
    let own = std::env::var("LIBTORCH").unwrap_or_default();
    let output = setup(&[("LIBTORCH", &own)]);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn what_a_killed_run_left_half_unpacked_is_removed() {
    let cache = tempfile::tempdir().expect("a folder");
    // No process has a number as large as this.
    let left = [
        root().join(".models.part.99999999"),
        cache.path().join(".part.99999999"),
    ];
    for folder in &left {
        fs::create_dir_all(folder.join("half")).expect("a folder");
    }
    let own = std::env::var("LIBTORCH").unwrap_or_default();
    let path = cache.path().to_string_lossy();
    let output = setup(&[("LIBTORCH", &own), ("PRONY_CACHE", &path)]);
    assert!(output.status.success(), "{output:?}");
    for folder in &left {
        assert!(!folder.exists(), "{}", folder.display());
    }
}

#[test]
fn a_libtorch_that_is_none_or_another_version_is_named() {
    refused(
        &[("LIBTORCH", "/no/such/libtorch")],
        &["/no/such/libtorch", "libtorch_cpu.so"],
    );
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir(folder.path().join("lib")).expect("a folder");
    fs::write(folder.path().join("lib/libtorch_cpu.so"), "").expect("written");
    fs::write(folder.path().join("build-version"), "2.5.1+cpu\n").expect("written");
    let path = folder.path().to_string_lossy();
    refused(&[("LIBTORCH", &path)], &["2.5.1", "2.11.0"]);
}

#[test]
fn a_missing_tool_is_named_with_what_to_do() {
    let folder = tempfile::tempdir().expect("a folder");
    // Only what the script needs before it looks for tools.
    for tool in ["bash", "dirname", "env"] {
        let found = ["/usr/bin", "/bin"].iter().map(|d| format!("{d}/{tool}"));
        let found = found.into_iter().find(|p| fs::exists(p).unwrap_or(false));
        let link = folder.path().join(tool);
        std::os::unix::fs::symlink(found.expect("a Unix tool"), link).expect("linked");
    }
    refused(
        &[("PATH", &folder.path().to_string_lossy())],
        &["cargo is missing", "install"],
    );
}
