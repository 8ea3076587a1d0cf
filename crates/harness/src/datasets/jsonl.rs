//! Prompts from a file, one JSON object a line.
//!
//! An object holds the prompt under a key of the user's choice: a string, a list of token ids, or
//! a list of `{"role", "content"}` turns. `max_tokens` beside it sets that answer's own length.

use std::path::Path;

use serde_json::Value;

use super::Dataset;
use crate::error::DatasetError;
use crate::prompt::{Item, Prompt, Turn};

/// The file's items, in its order.
#[derive(Debug)]
pub struct Jsonl {
    name: String,
    items: Vec<Item>,
}

impl Jsonl {
    /// Reads the whole file; blank lines are skipped.
    ///
    /// # Errors
    /// If the file cannot be read, a line is not an item, or there is none.
    pub fn open(path: &Path, key: &str) -> Result<Self, DatasetError> {
        let bytes = std::fs::read(path).map_err(|source| DatasetError::Read {
            path: path.to_owned(),
            source,
        })?;
        let mut items = Vec::new();
        // Some editors put a byte order mark before everything; it is no part of the first line.
        let text = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&bytes);
        for (number, line) in text.split(|&byte| byte == b'\n').enumerate() {
            if line.trim_ascii().is_empty() {
                continue;
            }
            let item = parse_line(line, key).map_err(|reason| DatasetError::Line {
                path: path.to_owned(),
                line: number + 1,
                reason,
            })?;
            items.push(item);
        }
        if items.is_empty() {
            return Err(DatasetError::Empty(path.to_owned()));
        }
        let name = path
            .file_stem()
            .unwrap_or(path.as_os_str())
            .to_string_lossy()
            .into_owned();
        Ok(Self { name, items })
    }
}

impl Dataset for Jsonl {
    fn name(&self) -> &str {
        &self.name
    }

    fn len(&self) -> usize {
        self.items.len()
    }

    fn item(&self, index: usize) -> Item {
        self.items[index].clone()
    }
}

fn parse_line(line: &[u8], key: &str) -> Result<Item, String> {
    let object: serde_json::Map<String, Value> =
        serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let value = object.get(key).ok_or_else(|| {
        let keys: Vec<&str> = object.keys().map(String::as_str).collect();
        format!("no key {key}; the line has {}", keys.join(", "))
    })?;
    let max_tokens = match object.get("max_tokens") {
        None | Some(Value::Null) => None,
        Some(value) => Some(
            value
                .as_u64()
                .and_then(|n| u32::try_from(n).ok())
                .filter(|n| *n > 0)
                .ok_or_else(|| format!("max_tokens = {value}: a whole number from 1"))?,
        ),
    };
    Ok(Item {
        prompt: parse_prompt(value, key)?,
        max_tokens,
    })
}

fn parse_prompt(value: &Value, key: &str) -> Result<Prompt, String> {
    let expected = || format!("{key}: a text, a list of token ids, or a list of turns");
    match value {
        Value::String(text) => Ok(Prompt::Text(text.clone())),
        Value::Array(list) if list.first().is_some_and(Value::is_object) => {
            let turns: Option<Vec<Turn>> = list.iter().map(parse_turn).collect();
            turns.map(Prompt::Chat).ok_or_else(expected)
        }
        Value::Array(list) if !list.is_empty() => {
            let ids: Option<Vec<u32>> = list
                .iter()
                .map(|id| id.as_u64().and_then(|id| u32::try_from(id).ok()))
                .collect();
            ids.map(Prompt::TokenIds).ok_or_else(expected)
        }
        _ => Err(expected()),
    }
}

fn parse_turn(value: &Value) -> Option<Turn> {
    Some(Turn {
        role: value.get("role")?.as_str()?.to_owned(),
        content: value.get("content")?.as_str()?.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: &str) {
        let shown = match parse_line(line.as_bytes(), "prompt") {
            Ok(item) => format!("{:?} {:?}", item.prompt, item.max_tokens),
            Err(reason) => reason,
        };
        assert_eq!(shown, expected, "{line}");
    }

    #[test]
    fn reads_every_form_of_prompt() {
        check(r#"{"prompt":"hi","max_tokens":3}"#, r#"Text("hi") Some(3)"#);
        check(r#"{"prompt":[1,2]}"#, "TokenIds([1, 2]) None");
        check(
            r#"{"prompt":[{"role":"user","content":"hi"}]}"#,
            r#"Chat([Turn { role: "user", content: "hi" }]) None"#,
        );
    }

    #[test]
    fn says_what_is_wrong_with_a_line() {
        check(
            r#"{"text":"hi","id":1}"#,
            "no key prompt; the line has text, id",
        );
        check(
            r#"{"prompt":7}"#,
            "prompt: a text, a list of token ids, or a list of turns",
        );
        check(
            r#"{"prompt":[]}"#,
            "prompt: a text, a list of token ids, or a list of turns",
        );
        check(
            r#"{"prompt":"a","max_tokens":0}"#,
            "max_tokens = 0: a whole number from 1",
        );
        check("nonsense", "expected ident at line 1 column 2");
    }

    fn check_file(bytes: &[u8], expected: &str) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        let shown = match Jsonl::open(file.path(), "prompt") {
            Ok(data) => format!("{} items", data.len()),
            Err(error) => error.to_string(),
        };
        let shown = shown.replace(&file.path().display().to_string(), "FILE");
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_first_line() {
        check_file(
            b"\xEF\xBB\xBF{\"prompt\": \"a\"}\r\n\r\n{\"prompt\": \"b\"}",
            "2 items",
        );
    }

    #[test]
    fn a_line_that_is_no_utf_8_is_named() {
        check_file(
            b"{\"prompt\": \"a\"}\n{\"prompt\": \"\xff\"}\n",
            "FILE:2: invalid unicode code point at line 1 column 13",
        );
    }
}
