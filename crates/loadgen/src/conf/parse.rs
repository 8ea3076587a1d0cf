//! The reference's parser for user.conf and audit.config, faults included.
//!
//! Words separated by white space, `model.scenario.key = value`. What looks like a mistake to a
//! reader (`key=value` without spaces) is often passed over in silence; `strict` refuses it.

use std::collections::HashMap;

use crate::conf::number::is_number;
use crate::error::ConfProblem;

/// A value and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The value's text, known to be a number.
    pub value: String,
    /// Line, from 1; 0 for entries that come from no file.
    pub line: usize,
}

/// Full keys with the values that hold: later lines win.
pub type Entries = HashMap<String, Entry>;

/// Reads a file's text.
///
/// # Errors
/// One problem for each bad line, in the reference's words; it then applies nothing of the file.
pub fn parse(text: &str) -> Result<Entries, Vec<ConfProblem>> {
    let mut entries = Entries::new();
    let mut problems = Vec::new();
    for (line, content) in (1..).zip(text.split('\n')) {
        if let Err(Fault { column, text }) = parse_line(content, line, &mut entries) {
            problems.push(ConfProblem { line, column, text });
        }
    }
    if problems.is_empty() {
        Ok(entries)
    } else {
        Err(problems)
    }
}

fn parse_line(content: &str, line: usize, entries: &mut Entries) -> Result<(), Fault> {
    let words = words(content);
    let Some(key) = words.first().filter(|word| word.text != "#") else {
        return Ok(());
    };
    match words.get(1) {
        // A lone word says nothing, and is let pass: so is `key=value`.
        None => return Ok(()),
        Some(word) if word.text == "#" => return Ok(()),
        Some(word) if word.text == "=" => {}
        Some(word) => return Err(word.problem("expected 'key=value'".to_owned())),
    }
    for value in &words[2..] {
        if !is_number(value.text) {
            return Err(value.problem("value needs to be integer or double".to_owned()));
        }
        entries.insert(
            key.text.to_owned(),
            Entry {
                value: value.text.to_owned(),
                line,
            },
        );
    }
    Ok(())
}

/// A problem within a line.
pub(crate) struct Fault {
    pub(crate) column: usize,
    pub(crate) text: String,
}

/// A word of a line.
#[derive(Clone, Copy)]
pub(crate) struct Word<'a> {
    pub(crate) text: &'a str,
    /// Of its first character, from 1.
    column: usize,
}

impl Word<'_> {
    pub(crate) fn problem(&self, text: String) -> Fault {
        Fault {
            column: self.column,
            text,
        }
    }

    /// A problem at a character inside the word.
    pub(crate) fn problem_at(&self, byte: usize, text: String) -> Fault {
        Fault {
            column: self.column + self.text[..byte].chars().count(),
            text,
        }
    }
}

/// The words of a line; white space is the C locale's, one byte a character.
pub(crate) fn words(content: &str) -> Vec<Word<'_>> {
    let mut words = Vec::new();
    let mut rest = content;
    let mut column = 1;
    loop {
        let trimmed = rest.trim_start_matches(is_c_space);
        column += rest.len() - trimmed.len();
        if trimmed.is_empty() {
            return words;
        }
        let (word, after) = trimmed.split_at(trimmed.find(is_c_space).unwrap_or(trimmed.len()));
        words.push(Word { text: word, column });
        column += word.chars().count();
        rest = after;
    }
}

/// Unicode's white space would split words the reference keeps whole.
fn is_c_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\x0b' | '\x0c')
}
