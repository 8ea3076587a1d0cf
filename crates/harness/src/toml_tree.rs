//! TOML text, and options that override it, as one tree in which every value knows where it came
//! from.
//!
//! Knows TOML, but no key of ours: what is allowed where is `section`'s and `scenario_file`'s
//! affair.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::ScenarioError;

impl Node {
    /// The value under `key`, where this is a table that has it.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Node> {
        let Value::Table(entries) = &self.value else {
            return None;
        };
        entries.iter().find(|(k, _)| k == key).map(|(_, node)| node)
    }
}

/// Where a value stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// In a file.
    File {
        /// Path as the user gave it.
        path: Arc<str>,
        /// From 1.
        line: usize,
        /// From 1, in characters.
        column: usize,
    },
    /// On the command line.
    Option(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line, column } => write!(f, "{path}:{line}:{column}"),
            Self::Option(text) => f.write_str(text),
        }
    }
}

/// A value and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Where its key stands.
    pub origin: Origin,
    /// The value.
    pub value: Value,
}

/// A TOML value, without dates: no key of ours takes one.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Text.
    Text(String),
    /// Whole number; wider than TOML asks for, because seeds are unsigned 64-bit numbers.
    Integer(i128),
    /// Any other number.
    Real(f64),
    /// `true` or `false`.
    Flag(bool),
    /// List.
    List(Vec<Node>),
    /// Table.
    Table(Vec<(String, Node)>),
    /// Something no key takes, as written.
    Other(String),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Integer(value) => value.fmt(f),
            Self::Real(value) => value.fmt(f),
            Self::Flag(value) => value.fmt(f),
            Self::List(_) => f.write_str("[…]"),
            Self::Table(_) => f.write_str("{…}"),
            Self::Other(text) => f.write_str(text),
        }
    }
}

/// Reads a file's text.
///
/// # Errors
/// The parser's complaint, with its place.
pub fn parse(path: &Path, text: &str) -> Result<Node, ScenarioError> {
    let places = Places {
        path: path.to_string_lossy().into(),
        text,
    };
    match DeTable::parse(text) {
        Ok(table) => Ok(Node {
            origin: places.origin(0),
            value: places.table(table.get_ref()),
        }),
        Err(error) => Err(ScenarioError {
            origin: places
                .origin(error.span().map_or(0, |span| span.start))
                .to_string(),
            problem: error.message().replace('\n', ", "),
        }),
    }
}

struct Places<'a> {
    path: Arc<str>,
    text: &'a str,
}

impl Places<'_> {
    fn origin(&self, byte: usize) -> Origin {
        let mut byte = byte.min(self.text.len());
        while !self.text.is_char_boundary(byte) {
            byte -= 1;
        }
        let before = &self.text[..byte];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Origin::File {
            path: Arc::clone(&self.path),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }

    fn table(&self, table: &DeTable<'_>) -> Value {
        let mut entries: Vec<(usize, String, Node)> = table
            .iter()
            .map(|(key, value)| {
                let start = key.span().start;
                let node = Node {
                    origin: self.origin(start),
                    value: self.value(value),
                };
                (start, key.get_ref().to_string(), node)
            })
            .collect();
        // As written, so that problems are told in the file's order.
        entries.sort_by_key(|(start, ..)| *start);
        Value::Table(
            entries
                .into_iter()
                .map(|(_, key, node)| (key, node))
                .collect(),
        )
    }

    fn value(&self, value: &Spanned<DeValue<'_>>) -> Value {
        match value.get_ref() {
            DeValue::String(text) => Value::Text(text.to_string()),
            DeValue::Integer(number) => i128::from_str_radix(number.as_str(), number.radix())
                .map_or_else(|_| Value::Other(number.to_string()), Value::Integer),
            DeValue::Float(number) => number
                .as_str()
                .parse()
                .map_or_else(|_| Value::Other(number.to_string()), Value::Real),
            DeValue::Boolean(flag) => Value::Flag(*flag),
            DeValue::Datetime(date) => Value::Other(date.to_string()),
            DeValue::Array(list) => Value::List(
                list.iter()
                    .map(|item| Node {
                        origin: self.origin(item.span().start),
                        value: self.value(item),
                    })
                    .collect(),
            ),
            DeValue::Table(table) => self.table(table),
        }
    }
}

/// Puts one `--set key=value` into the tree; the key may have dots.
///
/// A value that is no TOML is taken as text: `--set min_duration=30s` needs no quotes.
///
/// # Errors
/// If there is no `=`, or the key leads through something that is no table.
pub fn set(root: &mut Node, assignment: &str) -> Result<(), ScenarioError> {
    let Some((key, text)) = assignment.split_once('=') else {
        return Err(ScenarioError {
            origin: format!("--set {assignment}"),
            problem: "expected key=value".to_owned(),
        });
    };
    let origin = Origin::Option(format!("--set {assignment}"));
    put(
        root,
        key.trim(),
        Node {
            origin,
            value: option_value(text.trim()),
        },
    )
}

/// Puts a node under a dotted key, over whatever was there.
///
/// # Errors
/// If the key leads through something that is no table.
pub fn put(root: &mut Node, key: &str, node: Node) -> Result<(), ScenarioError> {
    let mut parts: Vec<&str> = key.split('.').map(str::trim).collect();
    let last = parts.pop().unwrap_or_default();
    let mut place = root;
    for part in parts {
        place = entry(place, part, &node.origin, || Value::Table(Vec::new()))?;
    }
    let origin = node.origin.clone();
    *entry(place, last, &origin, || Value::Table(Vec::new()))? = node;
    Ok(())
}

fn entry<'a>(
    table: &'a mut Node,
    key: &str,
    origin: &Origin,
    empty: impl FnOnce() -> Value,
) -> Result<&'a mut Node, ScenarioError> {
    let Value::Table(entries) = &mut table.value else {
        return Err(ScenarioError {
            origin: origin.to_string(),
            problem: format!("{key}: its parent is not a table"),
        });
    };
    let found = entries.iter().position(|(name, _)| name == key);
    let place = found.unwrap_or_else(|| {
        entries.push((
            key.to_owned(),
            Node {
                origin: origin.clone(),
                value: empty(),
            },
        ));
        entries.len() - 1
    });
    Ok(&mut entries[place].1)
}

fn option_value(text: &str) -> Value {
    let document = format!("value = {text}");
    let parsed = parse(Path::new("--set"), &document)
        .ok()
        .map(|node| node.value);
    if let Some(Value::Table(entries)) = parsed
        && let [(_, node)] = entries.as_slice()
        && !matches!(node.value, Value::Other(_))
    {
        return node.value.clone();
    }
    Value::Text(text.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_know_their_place() {
        let text = "a = 1\n\n[b]\n  \"ü\" = \"x\"\nlist = [1.5, true]\n";
        let root = parse(Path::new("f.toml"), text).unwrap();
        let Value::Table(entries) = &root.value else {
            panic!()
        };
        assert_eq!(entries[0].1.origin.to_string(), "f.toml:1:1");
        let Value::Table(b) = &entries[1].1.value else {
            panic!()
        };
        assert_eq!(
            (b[0].0.as_str(), b[0].1.origin.to_string().as_str()),
            ("ü", "f.toml:4:3")
        );
        let Value::List(list) = &b[1].1.value else {
            panic!()
        };
        assert_eq!(
            (&list[0].value, &list[1].value),
            (&Value::Real(1.5), &Value::Flag(true))
        );
    }

    #[test]
    fn broken_toml_is_told_with_its_place() {
        let error = parse(Path::new("f.toml"), "a = 1\nb = = 2\n").unwrap_err();
        assert!(error.origin.starts_with("f.toml:2:"), "{error}");
    }

    #[test]
    fn options_override_and_add() {
        let mut root = parse(Path::new("f"), "a = 1\n[b]\nc = 2\n").unwrap();
        for assignment in ["a=x y", "b.c=2.5", "b.d=30s", "e.f=true"] {
            set(&mut root, assignment).unwrap();
        }
        let Value::Table(entries) = &root.value else {
            panic!()
        };
        assert_eq!(entries[0].1.value, Value::Text("x y".to_owned()));
        assert_eq!(entries[0].1.origin.to_string(), "--set a=x y");
        let Value::Table(b) = &entries[1].1.value else {
            panic!()
        };
        assert_eq!(b[0].1.value, Value::Real(2.5));
        assert_eq!(b[1].1.value, Value::Text("30s".to_owned()));
        assert!(
            set(&mut root, "a.b=1")
                .unwrap_err()
                .problem
                .contains("not a table")
        );
        assert!(set(&mut root, "ab").is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,200}", assignment in ".{0,40}") {
            if let Ok(mut root) = parse(Path::new("f"), &text) {
                let _ = set(&mut root, &assignment);
            }
        }
    }
}
