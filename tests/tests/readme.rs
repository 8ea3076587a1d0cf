//! The commands that README.md and docs/RUNNING.md print are run here as they are printed, but for
//! the address (a test's server has a port of its own) and a folder for the results.
//!
//! `make` targets are run by `.ci/run`, which this test checks.

use std::time::Duration;

use e2e::process::{self, Server};
use e2e::source::SourceFile;

const ADDRESS: &str = "http://127.0.0.1:8000";
const DEADLINE: Duration = Duration::from_secs(120);

/// The command lines inside the ```sh blocks of a Markdown file.
fn commands(path: &str) -> Vec<String> {
    let file = SourceFile::read(path);
    let mut in_shell = false;
    let mut found = Vec::new();
    for line in file.text.lines() {
        if line.starts_with("```") {
            in_shell = line == "```sh";
        } else if in_shell && !line.trim().is_empty() {
            found.push(line.trim().to_owned());
        }
    }
    assert!(!found.is_empty(), "{path} has no ```sh block");
    found
}

/// The words of a command line; single quotes keep spaces.
fn words(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (i, part) in command.split('\'').enumerate() {
        if i % 2 == 0 {
            words.extend(part.split_whitespace().map(str::to_owned));
        } else {
            words.push(part.to_owned());
        }
    }
    words
}

fn check(command: &str, server: &Server) {
    let mut args = words(&command.replace(ADDRESS, &server.url));
    let program = args.remove(0);
    let name = program.trim_start_matches("target/release/");
    // As printed, a shell must find it.
    assert_ne!(name, program, "{command}: target/release/ is missing");
    let folder = tempfile::tempdir().expect("a folder");
    let measures = matches!(
        args.first().map(String::as_str),
        Some("run" | "suite" | "find-peak")
    );
    // An hour's search is cut to the few trials that fit seconds.
    for arg in args.iter_mut().filter(|a| *a == "1h") {
        "4s".clone_into(arg);
    }
    if measures {
        let out = folder.path().join("out").to_string_lossy().into_owned();
        args.extend([
            "--out".to_owned(),
            out,
            "--quick".to_owned(),
            "--quiet".to_owned(),
        ]);
    }
    if name == "prony-sut" && args.first().is_some_and(|verb| verb == "serve") {
        // Loads the model and prints what it would do, instead of serving until a signal comes.
        args.push("--print-plan".to_owned());
    }
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let output = process::run(name, &args, DEADLINE);
    let code = output.status.code();
    // Shortened and beside other tests, a run may be INVALID or client-limited: results, too.
    let accepted = code == Some(0) || (measures && matches!(code, Some(1 | 4)));
    assert!(
        accepted,
        "{command}: {code:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn printed_commands_run() {
    let server = Server::echo(&[]);
    let ci = SourceFile::read(".ci/run").text;
    let makefile = SourceFile::read("Makefile").text;
    for path in ["README.md", "docs/RUNNING.md"] {
        for command in commands(path) {
            if let Some(target) = command.strip_prefix("make ") {
                assert!(
                    makefile.contains(&format!("\n{target}:")),
                    "{path}: {command}"
                );
                assert!(ci.contains(&command), "{path}: {command} is not in .ci/run");
            } else {
                check(&command, &server);
            }
        }
    }
}
