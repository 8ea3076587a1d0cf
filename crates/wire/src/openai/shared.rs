//! Pieces that completions and chat have in common: usage, finish reasons, stop strings.

use std::fmt;

use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// How many tokens a request took and gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the prompt as the model saw it, special tokens included.
    pub prompt_tokens: u64,
    /// Tokens generated, the one that ended the sequence included.
    #[serde(default)]
    pub completion_tokens: u64,
    /// The sum of the two.
    pub total_tokens: u64,
}

/// Why a sequence ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FinishReason {
    /// The model ended the text, or a stop string matched.
    Stop,
    /// The token limit was reached.
    Length,
    /// A value this crate has no name for; only ever read, never written by our server.
    Other,
}

impl FinishReason {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            FinishReason::Stop => "stop",
            FinishReason::Length => "length",
            FinishReason::Other => "other",
        }
    }
}

impl Serialize for FinishReason {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for FinishReason {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Words;
        impl Visitor<'_> for Words {
            type Value = FinishReason;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a finish reason such as \"stop\" or \"length\"")
            }
            fn visit_str<E: de::Error>(self, word: &str) -> Result<FinishReason, E> {
                Ok(match word {
                    "stop" => FinishReason::Stop,
                    "length" => FinishReason::Length,
                    _ => FinishReason::Other,
                })
            }
        }
        deserializer.deserialize_str(Words)
    }
}

/// `stream_options` of a streaming request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamOptions {
    /// Send one last chunk without choices that carries the usage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub include_usage: Option<bool>,
}

/// `stop`: one string or several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Stop {
    /// A single stop string.
    One(String),
    /// Several stop strings; the one that matches first ends the text.
    Many(Vec<String>),
}

impl Stop {
    /// The stop strings as a slice.
    pub fn as_slice(&self) -> &[String] {
        match self {
            Stop::One(one) => std::slice::from_ref(one),
            Stop::Many(many) => many,
        }
    }
}

impl<'de> Deserialize<'de> for Stop {
    // Not `untagged`: its error would name neither the field nor what was expected.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMany;
        impl<'de> Visitor<'de> for OneOrMany {
            type Value = Stop;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("stop: a string or a list of strings")
            }
            fn visit_str<E: de::Error>(self, one: &str) -> Result<Stop, E> {
                Ok(Stop::One(one.to_owned()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Stop, A::Error> {
                let mut many = Vec::new();
                while let Some(one) = seq.next_element()? {
                    many.push(one);
                }
                Ok(Stop::Many(many))
            }
        }
        deserializer.deserialize_any(OneOrMany)
    }
}

/// Keeps `null` apart from an absent field: absent → `None`, `null` → `Some(None)`.
///
/// With `include_usage` every chunk but the last says `"usage": null`; without it the field is
/// absent. One `Option` cannot tell the two.
pub(crate) fn present<'de, D, T>(deserializer: D) -> Result<Option<Option<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Option::<T>::deserialize(deserializer).map(Some)
}
