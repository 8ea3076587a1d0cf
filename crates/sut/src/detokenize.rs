//! Bytes of tokens to text, as they come: whole characters, stop strings cut off, nothing early.
//!
//! Bytes are matched against all stop strings at once (Knuth-Morris-Pratt, one state a string).
//! The largest state is exactly how many bytes could still become part of a stop string; only
//! those are held back, and the rest of an unfinished character. Streamed and whole answers go
//! through the same code, and the result does not depend on how the bytes were cut into tokens.

/// Puts the text of one sequence together.
#[derive(Debug, Default)]
pub struct Assembler {
    matchers: Vec<Matcher>,
    /// Bytes that have not left yet.
    held: Vec<u8>,
    stopped: bool,
}

impl Assembler {
    /// An assembler that ends the text before the first of `stop`. No string may be empty.
    #[must_use]
    pub fn new(stop: &[String]) -> Self {
        let matchers = stop.iter().map(|s| Matcher::new(s.as_bytes())).collect();
        Assembler {
            matchers,
            held: Vec::new(),
            stopped: false,
        }
    }

    /// Takes a token's bytes and appends to `out` what has become certain. Returns true when a
    /// stop string is complete; the text before it has then left in full.
    ///
    /// Of several stop strings the one that is complete first wins, the longest if that is a tie.
    pub fn push(&mut self, bytes: &[u8], out: &mut String) -> bool {
        if self.stopped {
            return true;
        }
        for &byte in bytes {
            self.held.push(byte);
            let matched = self.matchers.iter_mut().filter_map(|m| m.push(byte)).max();
            if let Some(stop_len) = matched {
                self.held.truncate(self.held.len() - stop_len);
                self.stopped = true;
                self.flush(out);
                return true;
            }
        }
        let undecided = self.matchers.iter().map(|m| m.state).max().unwrap_or(0);
        let certain = self.held.len() - undecided;
        let taken = append_whole_chars(&self.held[..certain], out);
        self.held.drain(..taken);
        false
    }

    /// The sequence is over: whatever was held back is text, a character without its end is U+FFFD.
    pub fn flush(&mut self, out: &mut String) {
        out.push_str(&String::from_utf8_lossy(&self.held));
        self.held.clear();
    }
}

/// Appends the characters of `bytes` and returns how many bytes that were; what is missing is the
/// start of a character. Bytes that can never be one become U+FFFD, as `from_utf8_lossy` has it.
fn append_whole_chars(bytes: &[u8], out: &mut String) -> usize {
    let mut taken = 0;
    loop {
        match std::str::from_utf8(&bytes[taken..]) {
            Ok(text) => {
                out.push_str(text);
                return bytes.len();
            }
            Err(error) => {
                let valid = taken + error.valid_up_to();
                out.push_str(&String::from_utf8_lossy(&bytes[taken..valid]));
                let Some(invalid) = error.error_len() else {
                    return valid;
                };
                out.push(char::REPLACEMENT_CHARACTER);
                taken = valid + invalid;
            }
        }
    }
}

/// One stop string's Knuth-Morris-Pratt automaton.
#[derive(Debug)]
struct Matcher {
    pattern: Vec<u8>,
    /// `shorter[i]`: the longest proper prefix of the pattern that ends `pattern[..=i]`.
    shorter: Vec<usize>,
    /// Length of the longest prefix of the pattern that the bytes so far end with.
    state: usize,
}

impl Matcher {
    fn new(pattern: &[u8]) -> Self {
        let mut shorter = vec![0; pattern.len()];
        let mut state = 0;
        for i in 1..pattern.len() {
            while state > 0 && pattern[i] != pattern[state] {
                state = shorter[state - 1];
            }
            state += usize::from(pattern[i] == pattern[state]);
            shorter[i] = state;
        }
        Matcher {
            pattern: pattern.to_vec(),
            shorter,
            state: 0,
        }
    }

    /// The pattern's length once it is complete.
    fn push(&mut self, byte: u8) -> Option<usize> {
        while self.state > 0 && self.pattern[self.state] != byte {
            self.state = self.shorter[self.state - 1];
        }
        self.state += usize::from(self.pattern[self.state] == byte);
        (self.state == self.pattern.len()).then_some(self.state)
    }
}

#[cfg(test)]
mod tests;
