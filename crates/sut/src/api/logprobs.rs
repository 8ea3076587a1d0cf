//! How likely tokens were, in the API's two shapes.

use prony_wire::openai::logprobs::{ChatLogprobs, CompletionLogprobs, TokenLogprob, TopLogprob};
use serde_json::{Map, Value};

use crate::stream::Drawn;
use crate::tokenize::TokenTable;

/// JSON knows no infinity; the value that other servers write for it.
const LEAST: f32 = -9999.0;

/// Tokens in the order of a text, and where the next one begins.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// Characters of the text so far. Bytes inside a character do not count, so a character that is
    /// spread over tokens begins where its first byte is.
    n_chars: usize,
}

impl Written {
    /// The entries of tokens that follow those before. `None` is a token whose probability nobody
    /// knows: the first of all.
    pub(crate) fn completion(
        &mut self,
        table: &TokenTable,
        tokens: impl IntoIterator<Item = (u32, Option<Drawn>)>,
        n_top: usize,
    ) -> Value {
        let mut lists = CompletionLogprobs {
            top_logprobs: (n_top > 0).then(Vec::new),
            ..CompletionLogprobs::default()
        };
        for (id, drawn) in tokens {
            let bytes = bytes_of(table, id);
            lists.tokens.push(text_of(&bytes));
            lists.text_offset.push(self.n_chars);
            self.n_chars += bytes.iter().filter(|&byte| byte & 0xC0 != 0x80).count();
            let logprob = drawn.as_ref().map(|drawn| drawn.logprob.max(LEAST));
            lists.token_logprobs.push(logprob);
            if let Some(tops) = &mut lists.top_logprobs {
                tops.push(drawn.map(|drawn| top_of(table, &drawn)));
            }
        }
        value(&lists)
    }
}

/// The likeliest tokens and the chosen one, which may not be among them.
fn top_of(table: &TokenTable, drawn: &Drawn) -> Map<String, Value> {
    let chosen = (drawn.id, drawn.logprob);
    let all = drawn.top.iter().copied().chain([chosen]);
    let entry = |(id, logprob): (u32, f32)| {
        let logprob = Value::from(logprob.max(LEAST));
        (text_of(&bytes_of(table, id)), logprob)
    };
    all.map(entry).collect()
}

/// The entries of a chat answer's tokens.
pub(crate) fn chat(table: &TokenTable, tokens: &[Drawn]) -> Value {
    let top = |&(id, logprob): &(u32, f32)| {
        let bytes = bytes_of(table, id);
        TopLogprob {
            token: text_of(&bytes),
            logprob: logprob.max(LEAST),
            bytes: Some(bytes),
        }
    };
    let entry = |drawn: &Drawn| {
        let bytes = bytes_of(table, drawn.id);
        TokenLogprob {
            token: text_of(&bytes),
            logprob: drawn.logprob.max(LEAST),
            bytes: Some(bytes),
            top_logprobs: drawn.top.iter().map(top).collect(),
        }
    };
    value(&ChatLogprobs {
        content: tokens.iter().map(entry).collect(),
        refusal: None,
    })
}

fn value<T: serde::Serialize>(lists: &T) -> Value {
    serde_json::to_value(lists).expect("wire types serialise")
}

fn bytes_of(table: &TokenTable, id: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    table.append(id, &mut bytes);
    bytes
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn drawn(id: u8, logprob: f32, top: &[(u8, f32)]) -> Drawn {
        Drawn {
            id: u32::from(id),
            logprob,
            top: top.iter().map(|&(id, l)| (u32::from(id), l)).collect(),
        }
    }

    #[test]
    fn offsets_count_characters_and_go_on_from_piece_to_piece() {
        let mut written = Written::default();
        let table = TokenTable::Bytes;
        let token = |id: u8| (u32::from(id), Some(drawn(id, -1.0, &[])));
        // "é" is two tokens of a byte each, neither of them text alone.
        let first = written.completion(&table, [(b'a'.into(), None), token(0xC3)], 0);
        assert_eq!(
            first,
            json!({
                "tokens": ["a", "\u{fffd}"], "token_logprobs": [null, -1.0],
                "top_logprobs": null, "text_offset": [0, 1],
            })
        );
        let second = written.completion(&table, [token(0xA9), token(b'b')], 0);
        assert_eq!(second["text_offset"], json!([2, 2]));
    }

    #[test]
    fn the_chosen_token_is_among_the_likeliest_and_nothing_is_infinite() {
        let chosen = drawn(b'c', f32::NEG_INFINITY, &[(b'a', -0.5), (b'b', -1.5)]);
        let tokens = [(b'c'.into(), Some(chosen.clone()))];
        let lists = Written::default().completion(&TokenTable::Bytes, tokens, 2);
        let top = json!([{"a": -0.5, "b": -1.5, "c": -9999.0}]);
        assert_eq!(lists["top_logprobs"], top);
        let answer = chat(&TokenTable::Bytes, &[chosen]);
        let entry = &answer["content"][0];
        assert_eq!(
            (&entry["token"], &entry["logprob"]),
            (&json!("c"), &json!(-9999.0))
        );
        let expected = json!({"token": "b", "logprob": -1.5, "bytes": [98]});
        assert_eq!(entry["top_logprobs"][1], expected);
        assert_eq!(answer["refusal"], Value::Null);
    }
}
