//! Tells the binary which compiler and which revision built it, for the record of every run.

use std::process::Command;

fn main() {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let version = output(&rustc, &["--version"]).unwrap_or_default();
    println!("cargo::rustc-env=PRONY_RUSTC={version}");

    // Outside a checkout (a source archive) the revision stays empty rather than wrong.
    let revision = output("git", &["describe", "--always", "--dirty", "--abbrev=12"]);
    println!(
        "cargo::rustc-env=PRONY_GIT_REVISION={}",
        revision.unwrap_or_default()
    );
    for name in ["HEAD", "logs/HEAD"] {
        if let Some(path) = output("git", &["rev-parse", "--git-path", name]) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    println!("cargo::rerun-if-changed=build.rs");
}

fn output(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
