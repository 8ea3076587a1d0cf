//! Every scenario and suite in the repository is read, validated and planned.

use std::path::{Path, PathBuf};

use prony_harness::datasets;
use prony_harness::scenario_file::{Overrides, ScenarioFile};
use prony_harness::suite_file::SuiteFile;
use prony_loadgen::settings::validate::validate;

fn toml_files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../scenarios")
        .join(folder);
    let entries = std::fs::read_dir(&folder)
        .expect("the folder is there")
        .flatten();
    let files = entries.map(|entry| entry.path());
    files
        .filter(|path| path.extension().is_some_and(|ext| ext == "toml"))
        .collect()
}

#[test]
fn every_scenario_file_is_valid() {
    let files = toml_files("");
    assert!(files.len() >= 7, "{files:?}");
    for path in files {
        let file = ScenarioFile::load(&path, &Overrides::default())
            .unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(file.name, path.file_stem().unwrap().to_str().unwrap());
        assert!(file.description.ends_with('.'), "{}", file.name);
        let n = datasets::open(&file.dataset).expect("a data set").len() as u64;
        validate(&file.settings, n, n).unwrap_or_else(|error| panic!("{}: {error}", file.name));
    }
}

#[test]
fn every_suite_names_scenarios_that_exist() {
    let suites = toml_files("suites");
    assert!(!suites.is_empty());
    for path in suites {
        let suite = SuiteFile::load(&path).unwrap_or_else(|error| panic!("{error}"));
        for scenario in suite.scenarios {
            assert!(
                scenario.is_file(),
                "{}: no {}",
                suite.name,
                scenario.display()
            );
        }
    }
}
