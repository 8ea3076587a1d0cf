//! `mlperf_log_accuracy.json`: answers as hexadecimal text, streamed as they are handed in.
//!
//! Compliance scripts cut lines out of this file by their literal text, so the spaces inside an
//! entry matter as much as the JSON. Does not decide which samples are logged.

use std::io::{self, Write};

/// One logged answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccuracyEntry<'a> {
    /// Sequence number of the sample in the test.
    pub seq_id: u64,
    /// Position of the sample in the data set.
    pub qsl_idx: u32,
    /// The answer.
    pub data: &'a [u8],
    /// What token mode adds.
    pub tokens: Option<TokenFields<'a>>,
}

/// What token mode adds to an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenFields<'a> {
    /// What came with the first token; none in Offline, which has no first token.
    pub first: Option<&'a [u8]>,
    /// Tokens as the SUT counted them, unchecked.
    pub n_tokens: i64,
}

/// Writes the accuracy log.
#[derive(Debug)]
pub struct AccuracyWriter<W: Write> {
    out: W,
    n_entries: u64,
    line: Vec<u8>,
}

impl<W: Write> AccuracyWriter<W> {
    /// Opens the list.
    ///
    /// # Errors
    /// What the writer says.
    pub fn new(mut out: W) -> io::Result<Self> {
        out.write_all(b"[")?;
        Ok(Self {
            out,
            n_entries: 0,
            line: Vec::new(),
        })
    }

    /// Adds one answer.
    ///
    /// # Errors
    /// What the writer says.
    pub fn push(&mut self, entry: &AccuracyEntry<'_>) -> io::Result<()> {
        self.line.clear();
        let separator = if self.n_entries == 0 { "\n" } else { ",\n" };
        let (seq_id, qsl_idx) = (entry.seq_id, entry.qsl_idx);
        write!(
            self.line,
            "{separator}{{ \"seq_id\" : {seq_id}, \"qsl_idx\" : {qsl_idx}, "
        )?;
        self.line.extend_from_slice(b"\"data\" : ");
        push_hex(&mut self.line, entry.data);
        if let Some(tokens) = entry.tokens {
            if let Some(first) = tokens.first {
                self.line.extend_from_slice(b", \"token_data\" : ");
                push_hex(&mut self.line, first);
            }
            write!(self.line, ", \"token_count\" : {}", tokens.n_tokens)?;
        }
        self.line.extend_from_slice(b" }");
        self.n_entries += 1;
        self.out.write_all(&self.line)
    }

    /// Closes the list and hands the writer back, flushed. Without entries: `[\n]\n`.
    ///
    /// # Errors
    /// What the writer says.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.write_all(b"\n]\n")?;
        self.out.flush()?;
        Ok(self.out)
    }
}

/// Two upper-case digits a byte, in memory order, quoted.
fn push_hex(line: &mut Vec<u8>, data: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    line.reserve(2 * data.len() + 2);
    line.push(b'"');
    for &byte in data {
        line.push(DIGITS[usize::from(byte >> 4)]);
        line.push(DIGITS[usize::from(byte & 15)]);
    }
    line.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn check(entries: &[AccuracyEntry<'_>], expected: Expect) {
        let mut writer = AccuracyWriter::new(Vec::new()).unwrap();
        for entry in entries {
            writer.push(entry).unwrap();
        }
        let text = String::from_utf8(writer.finish().unwrap()).unwrap();
        let parsed: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
        assert_eq!(parsed.len(), entries.len());
        expected.assert_eq(&text);
    }

    #[test]
    fn empty_list() {
        check(
            &[],
            expect![[r"
            [
            ]
        "]],
        );
    }

    #[test]
    fn plain_and_token_entries() {
        let plain = AccuracyEntry {
            seq_id: 7,
            qsl_idx: 1,
            data: &[0xaf],
            tokens: None,
        };
        let offline = TokenFields {
            first: None,
            n_tokens: -3,
        };
        let streamed = TokenFields {
            first: Some(&[]),
            n_tokens: 5,
        };
        check(
            &[
                plain,
                AccuracyEntry {
                    tokens: Some(offline),
                    ..plain
                },
                AccuracyEntry {
                    tokens: Some(streamed),
                    ..plain
                },
            ],
            expect![[r#"
                [
                { "seq_id" : 7, "qsl_idx" : 1, "data" : "AF" },
                { "seq_id" : 7, "qsl_idx" : 1, "data" : "AF", "token_count" : -3 },
                { "seq_id" : 7, "qsl_idx" : 1, "data" : "AF", "token_data" : "", "token_count" : 5 }
                ]
            "#]],
        );
    }
}
