//! A suite file: a list of scenario files that are run one after the other.

use std::path::{Path, PathBuf};

use crate::error::{HarnessError, ScenarioError};
use crate::section::{Problems, Section};
use crate::toml_tree::{self, Node, Value};

/// A list of runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuiteFile {
    /// Short name, for folders.
    pub name: String,
    /// What it is for, in a sentence.
    pub description: String,
    /// The scenario files, paths resolved against the suite's own folder.
    pub scenarios: Vec<PathBuf>,
}

impl SuiteFile {
    /// Reads a suite file.
    ///
    /// # Errors
    /// If it cannot be read, or anything in it is refused.
    pub fn load(path: &Path) -> Result<Self, HarnessError> {
        let text = std::fs::read_to_string(path).map_err(HarnessError::io(path))?;
        Self::parse(path, &text).map_err(HarnessError::Scenario)
    }

    /// [`Self::load`] on text at hand.
    ///
    /// # Errors
    /// Everything that is refused.
    pub fn parse(path: &Path, text: &str) -> Result<Self, Vec<ScenarioError>> {
        let root = toml_tree::parse(path, text).map_err(|error| vec![error])?;
        let problems = Problems::default();
        let top = Section::top(&root, &problems);
        let stem = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let suite = Self {
            name: top.text("name").map_or(stem, str::to_owned),
            description: top.text("description").unwrap_or_default().to_owned(),
            scenarios: scenarios(&top, path.parent().unwrap_or_else(|| Path::new(""))),
        };
        top.finish();
        let problems = problems.into_vec();
        if problems.is_empty() {
            Ok(suite)
        } else {
            Err(problems)
        }
    }
}

fn scenarios(top: &Section<'_>, folder: &Path) -> Vec<PathBuf> {
    const EXPECTED: &str = "a list of scenario files, relative to this one";
    let Some(node) = top.node("scenarios") else {
        top.miss("scenarios", EXPECTED);
        return Vec::new();
    };
    let list = match &node.value {
        Value::List(list) if !list.is_empty() => list.as_slice(),
        _ => {
            let _: Option<()> = top.refuse("scenarios", node, EXPECTED);
            &[]
        }
    };
    list.iter()
        .filter_map(|item| scenario(top, item, folder))
        .collect()
}

fn scenario(top: &Section<'_>, item: &Node, folder: &Path) -> Option<PathBuf> {
    match &item.value {
        Value::Text(path) => Some(folder.join(path)),
        _ => top.refuse("scenarios", item, "a path in quotes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let shown = match SuiteFile::parse(Path::new("a/s.toml"), text) {
            Ok(suite) => format!("{} {:?}", suite.name, suite.scenarios),
            Err(errors) => errors
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("\n"),
        };
        assert_eq!(shown, expected, "{text}");
    }

    #[test]
    fn paths_are_relative_to_the_suite() {
        check(
            "scenarios = [\"x.toml\", \"../y.toml\"]",
            r#"s ["a/x.toml", "a/../y.toml"]"#,
        );
    }

    #[test]
    fn says_what_is_wrong() {
        let expected = "a list of scenario files, relative to this one";
        check("", &format!("a/s.toml:1:1: scenarios: missing; {expected}"));
        check(
            "scenarios = []",
            &format!("a/s.toml:1:1: scenarios = […]: expected {expected}"),
        );
        check(
            "scenarios = [1]\nnam = \"x\"",
            "a/s.toml:1:14: scenarios = 1: expected a path in quotes\n\
             a/s.toml:2:1: nam: unknown key; did you mean name?",
        );
    }
}
