//! The house rules of docs/STYLE.md and docs/ARCHITECTURE.md that a machine can check.

use std::collections::BTreeSet;

use e2e::source::{SourceFile, files_below, root};

/// Files allowed to be longer than 400 lines, each with its reason. Only ever shrinks.
const LONG_FILES: &[(&str, &str)] = &[];

const MAX_LINES: usize = 400;
const MAX_COLUMNS: usize = 100;
const MAX_INLINE_TEST_LINES: usize = 150;

fn crate_sources() -> Vec<SourceFile> {
    let mut all = files_below("crates", ".rs");
    all.extend(files_below("tests", ".rs"));
    assert!(all.len() > 20, "the source tree was not found");
    all
}

fn fail_with(title: &str, problems: &[String]) {
    assert!(problems.is_empty(), "{title}:\n  {}", problems.join("\n  "));
}

#[test]
fn files_are_short_and_say_what_they_are() {
    let mut problems = Vec::new();
    for file in crate_sources() {
        let n_lines = file.lines_without_tests().len();
        let excused = LONG_FILES.iter().any(|(path, _)| *path == file.path);
        if n_lines > MAX_LINES && !excused {
            problems.push(format!(
                "{}: {n_lines} lines, at most {MAX_LINES}",
                file.path
            ));
        }
        if file.test_lines() > MAX_INLINE_TEST_LINES {
            problems.push(format!(
                "{}: {} lines of inline tests, move them to a tests.rs beside",
                file.path,
                file.test_lines()
            ));
        }
        if !file.text.starts_with("//!") {
            problems.push(format!("{}: no module doc on the first line", file.path));
        }
        for (i, line) in file.text.lines().enumerate() {
            if line.chars().count() > MAX_COLUMNS && !line.contains("http") {
                problems.push(format!(
                    "{}:{}: over {MAX_COLUMNS} columns",
                    file.path,
                    i + 1
                ));
            }
        }
    }
    fail_with("files", &problems);
}

#[test]
fn names_say_something_and_folders_stay_flat() {
    const BANNED_FILES: [&str; 6] = [
        "utils.rs",
        "util.rs",
        "helpers.rs",
        "helper.rs",
        "common.rs",
        "misc.rs",
    ];
    let mut problems = Vec::new();
    for file in crate_sources() {
        let name = file.path.rsplit('/').next().unwrap_or_default();
        if BANNED_FILES.contains(&name) {
            problems.push(format!("{}: a name that says nothing", file.path));
        }
        if let Some((_, below)) = file.path.split_once("/src/")
            && below.matches('/').count() > 1
        {
            problems.push(format!("{}: deeper than src/dir/file.rs", file.path));
        }
        for line in file.text.lines() {
            let declares = ["struct ", "enum ", "trait "]
                .iter()
                .any(|k| line.contains(k));
            if declares && (line.contains("Manager") || line.contains("Processor")) {
                problems.push(format!("{}: {}", file.path, line.trim()));
            }
        }
    }
    fail_with("names", &problems);
}

#[test]
fn todos_carry_a_ticket_and_no_test_is_ignored() {
    // Spelled in two parts, or this file would find itself.
    let banned = [
        concat!("#[ig", "nore"),
        concat!("todo", "!("),
        concat!("unimpl", "emented!("),
    ];
    let marks = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("XX", "X"),
    ];
    let mut problems = Vec::new();
    for file in crate_sources() {
        for (i, line) in file.text.lines().enumerate() {
            let bare_mark = marks
                .iter()
                .any(|m| line.contains(m) && !line.contains(&format!("{m}(#")));
            if bare_mark || banned.iter().any(|b| line.contains(b)) {
                problems.push(format!("{}:{}: {}", file.path, i + 1, line.trim()));
            }
        }
    }
    fail_with("unfinished", &problems);
}

/// Names of the modules that `mod` lines of a file declare, in order.
fn declared_modules(file: &SourceFile) -> Vec<String> {
    let mut modules = Vec::new();
    let mut in_tests = false;
    for line in file.lines_without_tests() {
        if line == "#[cfg(test)]" {
            in_tests = true;
            continue;
        }
        let rest = ["pub mod ", "pub(crate) mod ", "mod "]
            .iter()
            .find_map(|k| line.strip_prefix(k));
        if let Some(name) = rest.and_then(|r| r.strip_suffix(';'))
            && !in_tests
        {
            modules.push(name.to_owned());
        }
        in_tests = false;
    }
    modules
}

/// Names of sibling modules that the production lines of `file` mention behind `prefix`.
fn used_modules(file: &SourceFile, prefix: &str) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    for line in file.lines_without_tests() {
        if line.trim_start().starts_with("//") {
            continue;
        }
        for (at, _) in line.match_indices(prefix) {
            let rest = &line[at + prefix.len()..];
            let name: String = rest
                .chars()
                .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
                .collect();
            used.insert(name);
        }
    }
    used
}

#[test]
fn modules_use_only_modules_listed_above_them() {
    let mut problems = Vec::new();
    let all = crate_sources();
    for lib in all.iter().filter(|f| f.path.ends_with("/src/lib.rs")) {
        let modules = declared_modules(lib);
        let src = lib.path.trim_end_matches("lib.rs");
        for (rank, module) in modules.iter().enumerate() {
            let own = [format!("{src}{module}.rs"), format!("{src}{module}/")];
            let files = all.iter().filter(|f| {
                (f.path == own[0] || f.path.starts_with(&own[1])) && !f.path.ends_with("tests.rs")
            });
            for file in files {
                for used in used_modules(file, "crate::") {
                    if modules.iter().skip(rank + 1).any(|later| *later == used) {
                        problems.push(format!(
                            "{}: uses `{used}`, which {} lists below `{module}`",
                            file.path, lib.path
                        ));
                    }
                }
            }
        }
    }
    fail_with("module order", &problems);
}

#[test]
fn crates_depend_in_one_direction() {
    let allowed: &[(&str, &[&str])] = &[
        ("wire", &[]),
        ("models", &[]),
        ("loadgen", &[]),
        ("sut", &["models", "wire"]),
        ("report", &["loadgen"]),
        ("harness", &["loadgen", "report", "wire"]),
    ];
    let banned: &[(&str, &[&str])] = &[
        ("wire", &["tokio", "tch", "axum", "hyper"]),
        ("models", &["tokio", "axum", "hyper"]),
        ("loadgen", &["tokio", "tch", "axum", "hyper"]),
        ("report", &["tokio", "tch", "axum", "hyper"]),
        ("harness", &["tch"]),
        ("sut", &["tch"]),
    ];
    let mut problems = Vec::new();
    for (name, edges) in allowed {
        let manifest = SourceFile::read(&format!("crates/{name}/Cargo.toml"));
        let table: toml::Table = manifest.text.parse().expect("Cargo.toml is TOML");
        let dependencies = table.get("dependencies").and_then(toml::Value::as_table);
        for dependency in dependencies.into_iter().flat_map(toml::Table::keys) {
            let bad_edge = dependency
                .strip_prefix("prony-")
                .is_some_and(|d| !edges.contains(&d));
            let bad_crate = banned
                .iter()
                .any(|(n, list)| n == name && list.contains(&dependency.as_str()));
            if bad_edge || bad_crate {
                problems.push(format!("crates/{name} must not depend on {dependency}"));
            }
        }
    }
    fail_with("crate edges", &problems);
}

/// True if `code` has a path that begins with `name::`; `batch::` does not name `tch`.
fn names_crate(code: &str, name: &str) -> bool {
    code.match_indices(&format!("{name}::"))
        .any(|(at, _)| !code[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_'))
}

#[test]
fn only_models_names_tch_and_only_clocks_read_time() {
    let mut problems = Vec::new();
    for file in files_below("crates", ".rs") {
        let is_clock = file.path.ends_with("/clock.rs");
        let is_bench = file.path.contains("/benches/") || file.path.contains("/examples/");
        for (i, line) in file.lines_without_tests().iter().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            if names_crate(code, "tch") && !file.path.starts_with("crates/models/") {
                problems.push(format!("{}:{}: names tch", file.path, i + 1));
            }
            let reads_time = code.contains("Instant::now(") || code.contains("SystemTime::now(");
            if reads_time && !is_clock && !is_bench && !file.path.contains("/tests/") {
                problems.push(format!("{}:{}: reads the time", file.path, i + 1));
            }
        }
    }
    fail_with("tch and clocks", &problems);
}

#[test]
fn every_scenario_file_is_in_running_md() {
    let running = SourceFile::read("docs/RUNNING.md").text;
    let missing: Vec<String> = files_below("scenarios", ".toml")
        .into_iter()
        .filter(|f| !running.contains(&f.path))
        .map(|f| format!("{} is not in docs/RUNNING.md", f.path))
        .collect();
    fail_with("scenarios", &missing);
}

/// Every metric name a crate's `metrics.rs` declares as a string literal.
fn server_metric_names() -> BTreeSet<String> {
    let source = SourceFile::read("crates/sut/src/metrics.rs");
    let production = source.lines_without_tests().join("\n");
    production
        .split('"')
        .skip(1)
        .step_by(2)
        .filter(|literal| literal.starts_with("vllm:") || literal.starts_with("prony_"))
        .map(|literal| literal.split('{').next().unwrap_or_default().to_owned())
        .collect()
}

#[test]
fn metrics_md_defines_every_server_metric() {
    let metrics_md = SourceFile::read("docs/METRICS.md").text;
    let names = server_metric_names();
    assert!(
        names.len() >= 8,
        "found only {names:?} in crates/sut/src/metrics.rs"
    );
    let missing: Vec<String> = names
        .iter()
        .filter(|name| !metrics_md.contains(&format!("`{name}`")))
        .map(|name| format!("`{name}` is not in docs/METRICS.md"))
        .collect();
    fail_with("metrics", &missing);
}

#[test]
fn repository_names_no_machine() {
    let needles = [
        concat!("/wo", "rk/"),
        concat!("/ro", "ot/"),
        concat!("/tm", "p/wh"),
    ];
    let mut problems = Vec::new();
    for folder in ["crates", "scripts", "docs", "scenarios", "docker", "tests"] {
        for suffix in [".rs", ".sh", ".md", ".toml", ".py", ".yaml", ".yml"] {
            for file in files_below(folder, suffix) {
                for needle in needles.iter().filter(|n| file.text.contains(**n)) {
                    problems.push(format!("{}: contains {needle}", file.path));
                }
            }
        }
    }
    assert!(root().join("README.md").exists(), "no README.md");
    fail_with("machine paths", &problems);
}
