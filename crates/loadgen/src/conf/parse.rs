//! The reference's parser for user.conf and audit.config, faults included.
//!
//! Words separated by white space, `model.scenario.key = value`. What looks like a mistake to a
//! reader (`key=value` without spaces) is often passed over in silence; `strict` refuses it.

use std::collections::HashMap;

use crate::conf::number::is_number;
use crate::settings::{NoteKind, SettingsNote};

/// Log key of everything wrong with a configuration file.
pub const ERROR_INVALID_CONFIG: &str = "error_invalid_config";

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
/// One note for each bad line; the reference then applies nothing of the file.
pub fn parse(text: &str) -> Result<Entries, Vec<SettingsNote>> {
    let mut entries = Entries::new();
    let mut errors = Vec::new();
    for (line, content) in (1..).zip(text.split('\n')) {
        if let Err(what) = parse_line(content, line, &mut entries) {
            errors.push(SettingsNote {
                kind: NoteKind::Error,
                key: ERROR_INVALID_CONFIG,
                text: format!("{what}, line={line}"),
            });
        }
    }
    if errors.is_empty() {
        Ok(entries)
    } else {
        Err(errors)
    }
}

fn parse_line(content: &str, line: usize, entries: &mut Entries) -> Result<(), &'static str> {
    let mut words = content.split(is_c_space).filter(|word| !word.is_empty());
    let Some(key) = words.next().filter(|word| *word != "#") else {
        return Ok(());
    };
    match words.next() {
        // A lone word says nothing, and is let pass: so is `key=value`.
        None | Some("#") => return Ok(()),
        Some("=") => {}
        Some(_) => return Err("expected 'key=value'"),
    }
    for value in words {
        if !is_number(value) {
            return Err("value needs to be integer or double");
        }
        entries.insert(
            key.to_owned(),
            Entry {
                value: value.to_owned(),
                line,
            },
        );
    }
    Ok(())
}

/// White space of the C locale; Unicode's would split words the reference keeps whole.
pub(crate) fn is_c_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\x0b' | '\x0c')
}
