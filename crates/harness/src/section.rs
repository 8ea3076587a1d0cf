//! Reads one table of a scenario file strictly: each key is asked for by name and kind, and
//! whatever was not asked for is refused with the nearest key that exists.
//!
//! Problems are collected, not thrown: the user sees all of them at once.

use std::cell::RefCell;

use prony_loadgen::clock::Nanos;
use prony_loadgen::settings::fields::nearest;

use crate::duration;
use crate::error::ScenarioError;
use crate::toml_tree::{Node, Origin, Value};

/// Everything that was refused so far.
#[derive(Debug, Default)]
pub struct Problems(RefCell<Vec<ScenarioError>>);

impl Problems {
    /// Notes one.
    pub fn push(&self, origin: &Origin, problem: String) {
        self.0.borrow_mut().push(ScenarioError {
            origin: origin.to_string(),
            problem,
        });
    }

    /// All of them.
    #[must_use]
    pub fn into_vec(self) -> Vec<ScenarioError> {
        self.0.into_inner()
    }
}

/// One table under reading.
#[derive(Debug)]
pub struct Section<'a> {
    /// Dotted name, empty for the top.
    name: String,
    origin: Origin,
    entries: &'a [(String, Node)],
    known: RefCell<Vec<&'static str>>,
    problems: &'a Problems,
}

impl<'a> Section<'a> {
    /// The top of a file.
    #[must_use]
    pub fn top(root: &'a Node, problems: &'a Problems) -> Self {
        Self::new(String::new(), root, problems)
    }

    fn new(name: String, node: &'a Node, problems: &'a Problems) -> Self {
        let entries = match &node.value {
            Value::Table(entries) => entries.as_slice(),
            other => {
                problems.push(&node.origin, format!("{name} = {other}: expected a table"));
                &[]
            }
        };
        let origin = node.origin.clone();
        Self {
            name,
            origin,
            entries,
            known: RefCell::default(),
            problems,
        }
    }

    /// Where the section begins; for problems with what it lacks.
    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// A table below this one, if it is there.
    #[must_use]
    pub fn section(&self, key: &'static str) -> Option<Section<'a>> {
        let node = self.node(key)?;
        Some(Section::new(self.full(key), node, self.problems))
    }

    /// Any value.
    #[must_use]
    pub fn node(&self, key: &'static str) -> Option<&'a Node> {
        let mut known = self.known.borrow_mut();
        if !known.contains(&key) {
            known.push(key);
        }
        self.entries
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, node)| node)
    }

    /// A text.
    #[must_use]
    pub fn text(&self, key: &'static str) -> Option<&'a str> {
        match self.node(key)? {
            Node {
                value: Value::Text(text),
                ..
            } => Some(text),
            node => self.refuse(key, node, "a text in quotes"),
        }
    }

    /// A switch.
    #[must_use]
    pub fn flag(&self, key: &'static str) -> Option<bool> {
        match self.node(key)? {
            Node {
                value: Value::Flag(flag),
                ..
            } => Some(*flag),
            node => self.refuse(key, node, "true or false"),
        }
    }

    /// A whole number from `least` up.
    #[must_use]
    pub fn count(&self, key: &'static str, least: u32) -> Option<u32> {
        let node = self.node(key)?;
        let value = match node.value {
            Value::Integer(value) => u32::try_from(value).ok().filter(|value| *value >= least),
            _ => None,
        };
        value.or_else(|| {
            self.refuse(
                key,
                node,
                &format!("a whole number from {least} to {}", u32::MAX),
            )
        })
    }

    /// A whole number of any sign.
    #[must_use]
    pub fn integer(&self, key: &'static str) -> Option<i64> {
        let node = self.node(key)?;
        let value = match node.value {
            Value::Integer(value) => i64::try_from(value).ok(),
            _ => None,
        };
        value.or_else(|| self.refuse(key, node, "a whole number of 64 bits"))
    }

    /// A number between two others, both included.
    #[must_use]
    pub fn real(&self, key: &'static str, least: f64, most: f64) -> Option<f64> {
        let node = self.node(key)?;
        let value = match node.value {
            Value::Integer(value) => Some(value as f64),
            Value::Real(value) => Some(value),
            _ => None,
        };
        value
            .filter(|value| (least..=most).contains(value))
            .or_else(|| self.refuse(key, node, &format!("a number from {least} to {most}")))
    }

    /// A duration with its unit.
    #[must_use]
    pub fn duration(&self, key: &'static str) -> Option<Nanos> {
        let node = self.node(key)?;
        let Value::Text(text) = &node.value else {
            return self.refuse(key, node, "a duration with its unit, such as \"120s\"");
        };
        match duration::parse(text) {
            Ok(duration) => Some(duration),
            Err(expected) => self.refuse(key, node, expected),
        }
    }

    /// A duration that something must have: with its unit, and longer than nothing.
    #[must_use]
    pub fn time_limit(&self, key: &'static str) -> Option<Nanos> {
        let limit = self.duration(key)?;
        if limit > Nanos::ZERO {
            return Some(limit);
        }
        self.refuse(key, self.node(key)?, "a duration above 0")
    }

    /// One of a few words.
    #[must_use]
    pub fn choice<T: Copy>(&self, key: &'static str, choices: &[(&str, T)]) -> Option<T> {
        let node = self.node(key)?;
        let text = match &node.value {
            Value::Text(text) => text.as_str(),
            _ => "",
        };
        let found = choices
            .iter()
            .find(|(name, _)| *name == text)
            .map(|(_, value)| *value);
        found.or_else(|| {
            let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
            self.refuse(key, node, &format!("one of {}", names.join(", ")))
        })
    }

    /// Every key with its text value, whatever the keys are called.
    #[must_use]
    pub fn all_texts(self) -> Vec<(String, String)> {
        let mut texts = Vec::new();
        for (key, node) in self.entries {
            match &node.value {
                Value::Text(text) => texts.push((key.clone(), text.clone())),
                _ => {
                    let name = format!("{}.{key}", self.name);
                    let value = &node.value;
                    let text = format!("{name} = {value}: expected a text in quotes");
                    self.problems.push(&node.origin, text);
                }
            }
        }
        texts
    }

    /// Says what is wrong with a value.
    pub fn refuse<T>(&self, key: &str, node: &Node, expected: &str) -> Option<T> {
        let text = format!("{} = {}: expected {expected}", self.full(key), node.value);
        self.problems.push(&node.origin, text);
        None
    }

    /// Says that a key is missing.
    pub fn miss(&self, key: &str, expected: &str) {
        self.problems.push(
            &self.origin,
            format!("{}: missing; {expected}", self.full(key)),
        );
    }

    /// Refuses every key that nobody asked for.
    pub fn finish(self) {
        let known = self.known.borrow();
        for (key, node) in self.entries {
            if known.contains(&key.as_str()) {
                continue;
            }
            let near = match nearest(key, known.iter().copied()) {
                Some(near) => format!("; did you mean {}?", self.full(near)),
                None => format!("; known here: {}", known.join(", ")),
            };
            self.problems.push(
                &node.origin,
                format!("{}: unknown key{near}", self.full(key)),
            );
        }
    }

    fn full(&self, key: &str) -> String {
        if self.name.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.name)
        }
    }
}
