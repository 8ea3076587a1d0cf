//! Reads answers of the OpenAI family without building them: one pass over the JSON, nothing kept
//! but the text and a few flags.
//!
//! Completions and chat differ only in where the text stands (`text`, `delta.content`,
//! `message.content`), so one reader serves both, streamed or whole. `reasoning_content`,
//! `reasoning` and tool calls count as output: the model produced them.

use std::fmt;

use serde::Deserialize;
use serde::de::{self, DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{Delta, Unreadable};

/// Reads one JSON object.
pub(super) fn read(data: &[u8], text: &mut Vec<u8>) -> Result<Delta, Unreadable> {
    let mut delta = Delta::default();
    let mut deserializer = serde_json::Deserializer::from_slice(data);
    let found = Whole {
        delta: &mut delta,
        text,
    }
    .deserialize(&mut deserializer)
    .and_then(|()| deserializer.end());
    match found {
        Ok(()) => Ok(delta),
        Err(error) => Err(Unreadable {
            reason: error.to_string(),
        }),
    }
}

/// A visitor that reads an object key by key; the macro spares each its ceremony.
macro_rules! object_seed {
    ($name:ident, $what:literal) => {
        impl<'de> DeserializeSeed<'de> for $name<'_> {
            type Value = ();
            fn deserialize<D: de::Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
                d.deserialize_any(self)
            }
        }

        impl<'de> Visitor<'de> for $name<'_> {
            type Value = ();
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($what)
            }
            fn visit_unit<E: de::Error>(self) -> Result<(), E> {
                Ok(())
            }
            fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
                while let Some(key) = map.next_key::<Key>()? {
                    self.field(key, &mut map)?;
                }
                Ok(())
            }
        }
    };
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Key {
    Choices,
    Usage,
    Error,
    Object,
    Message,
    Text,
    Delta,
    Content,
    ReasoningContent,
    Reasoning,
    ToolCalls,
    FinishReason,
    TokenIds,
    #[serde(other)]
    Other,
}

struct Whole<'a> {
    delta: &'a mut Delta,
    text: &'a mut Vec<u8>,
}

object_seed!(Whole, "an answer object");

impl Whole<'_> {
    fn field<'de, A: MapAccess<'de>>(&mut self, key: Key, map: &mut A) -> Result<(), A::Error> {
        match key {
            Key::Choices => map.next_value_seed(Choices {
                delta: self.delta,
                text: self.text,
            }),
            Key::Usage => {
                let usage: Option<UsageCount> = map.next_value()?;
                self.delta.usage_tokens = usage.and_then(|u| u.completion_tokens).map(i64::from);
                Ok(())
            }
            Key::Error => {
                let error: serde_json::Value = map.next_value()?;
                if !error.is_null() {
                    self.delta.error = Some(error_text(&error));
                }
                Ok(())
            }
            // `{"object": "error", "message": …}`: the older form of vLLM and FastChat.
            Key::Message => {
                let message: serde_json::Value = map.next_value()?;
                if let Some(text) = message.as_str() {
                    self.delta.error = Some(text.to_owned());
                }
                Ok(())
            }
            _ => skip(map),
        }
    }
}

#[derive(Deserialize)]
struct UsageCount {
    /// Unsigned on the wire: a negative count would enter the sums of a whole run.
    #[serde(default)]
    completion_tokens: Option<u32>,
}

fn error_text(error: &serde_json::Value) -> String {
    match error.get("message").and_then(serde_json::Value::as_str) {
        Some(message) => message.to_owned(),
        None => error
            .as_str()
            .map_or_else(|| error.to_string(), str::to_owned),
    }
}

fn skip<'de, A: MapAccess<'de>>(map: &mut A) -> Result<(), A::Error> {
    map.next_value::<IgnoredAny>().map(drop)
}

struct Choices<'a> {
    delta: &'a mut Delta,
    text: &'a mut Vec<u8>,
}

impl<'de> DeserializeSeed<'de> for Choices<'_> {
    type Value = ();
    fn deserialize<D: de::Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Choices<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of choices")
    }
    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        Ok(())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        loop {
            let choice = Choice {
                delta: &mut *self.delta,
                text: &mut *self.text,
            };
            if seq.next_element_seed(choice)?.is_none() {
                return Ok(());
            }
        }
    }
}

struct Choice<'a> {
    delta: &'a mut Delta,
    text: &'a mut Vec<u8>,
}

object_seed!(Choice, "a choice object");

impl Choice<'_> {
    fn field<'de, A: MapAccess<'de>>(&mut self, key: Key, map: &mut A) -> Result<(), A::Error> {
        match key {
            Key::Text => append(map, self.delta, self.text),
            Key::Delta | Key::Message => map.next_value_seed(Message {
                delta: self.delta,
                text: self.text,
            }),
            Key::FinishReason => {
                let reason: Option<IgnoredAny> = map.next_value()?;
                self.delta.finished |= reason.is_some();
                Ok(())
            }
            Key::TokenIds => {
                let ids: Option<Count> = map.next_value()?;
                if let Some(Count(n)) = ids {
                    self.delta.n_token_ids = Some(self.delta.n_token_ids.unwrap_or(0) + n);
                    self.delta.has_output |= n > 0;
                }
                Ok(())
            }
            _ => skip(map),
        }
    }
}

struct Message<'a> {
    delta: &'a mut Delta,
    text: &'a mut Vec<u8>,
}

object_seed!(Message, "a message object");

impl Message<'_> {
    fn field<'de, A: MapAccess<'de>>(&mut self, key: Key, map: &mut A) -> Result<(), A::Error> {
        match key {
            Key::Content | Key::ReasoningContent | Key::Reasoning => {
                append(map, self.delta, self.text)
            }
            Key::ToolCalls => {
                let calls: Option<Count> = map.next_value()?;
                self.delta.has_output |= calls.is_some_and(|Count(n)| n > 0);
                Ok(())
            }
            _ => skip(map),
        }
    }
}

fn append<'de, A: MapAccess<'de>>(
    map: &mut A,
    delta: &mut Delta,
    text: &mut Vec<u8>,
) -> Result<(), A::Error> {
    let before = text.len();
    map.next_value_seed(Append(text))?;
    delta.has_output |= text.len() > before;
    Ok(())
}

/// Appends a string where it is one; null is read over.
struct Append<'a>(&'a mut Vec<u8>);

impl<'de> DeserializeSeed<'de> for Append<'_> {
    type Value = ();
    fn deserialize<D: de::Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Append<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text or null")
    }
    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// Number of elements of a list.
struct Count(i64);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: de::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Counter;
        impl<'de> Visitor<'de> for Counter {
            type Value = Count;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Count, A::Error> {
                let mut n = 0;
                while seq.next_element::<IgnoredAny>()?.is_some() {
                    n += 1;
                }
                Ok(Count(n))
            }
        }
        d.deserialize_seq(Counter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(data: &str, expected: &str) {
        let mut text = Vec::new();
        let shown = match read(data.as_bytes(), &mut text) {
            Ok(delta) => format!(
                "{:?} output={} ids={:?} finished={} usage={:?} error={:?}",
                String::from_utf8_lossy(&text),
                delta.has_output,
                delta.n_token_ids,
                delta.finished,
                delta.usage_tokens,
                delta.error.as_deref()
            ),
            Err(error) => error.reason,
        };
        assert_eq!(shown, expected, "{data}");
    }

    #[test]
    fn a_role_only_chunk_is_no_output() {
        check(
            r#"{"choices":[{"delta":{"role":"assistant","content":""},"finish_reason":null}]}"#,
            r#""" output=false ids=None finished=false usage=None error=None"#,
        );
    }

    #[test]
    fn text_reasoning_and_tool_calls_are_output() {
        check(
            r#"{"choices":[{"text":" a\nb","finish_reason":null}],"usage":null}"#,
            r#"" a\nb" output=true ids=None finished=false usage=None error=None"#,
        );
        check(
            r#"{"choices":[{"delta":{"reasoning_content":"hm"}}]}"#,
            r#""hm" output=true ids=None finished=false usage=None error=None"#,
        );
        check(
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0}],"content":null}}]}"#,
            r#""" output=true ids=None finished=false usage=None error=None"#,
        );
    }

    #[test]
    fn finish_usage_and_ids_are_seen() {
        check(
            r#"{"choices":[{"text":"x","token_ids":[1,2],"finish_reason":"length"}],
                "usage":{"prompt_tokens":3,"completion_tokens":7}}"#,
            r#""x" output=true ids=Some(2) finished=true usage=Some(7) error=None"#,
        );
        check(
            r#"{"choices":[],"usage":{"completion_tokens":7}}"#,
            r#""" output=false ids=None finished=false usage=Some(7) error=None"#,
        );
    }

    #[test]
    fn errors_inside_an_answer_are_seen() {
        check(
            r#"{"error":{"message":"out of memory","code":500}}"#,
            r#""" output=false ids=None finished=false usage=None error=Some("out of memory")"#,
        );
        check(
            r#"{"object":"error","message":"no such model"}"#,
            r#""" output=false ids=None finished=false usage=None error=Some("no such model")"#,
        );
    }

    #[test]
    fn what_is_not_an_answer_is_refused() {
        check("<html>", "expected value at line 1 column 1");
        check(
            "[1]",
            "invalid type: sequence, expected an answer object at line 1 column 1",
        );
        check(r#"{"choices":[}"#, "expected value at line 1 column 13");
        check(
            r#"{"usage":{"completion_tokens":-5}}"#,
            "invalid value: integer `-5`, expected u32 at line 1 column 32",
        );
    }
}
