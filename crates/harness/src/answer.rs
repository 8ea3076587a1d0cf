//! One answer as it comes in: when its first and last output arrived, how many tokens it has, and
//! whether it is whole.
//!
//! Pure: stamps are handed in, no socket and no JSON here.

use prony_loadgen::clock::Nanos;
use prony_loadgen::sut::FailureKind;

use crate::api::Delta;

/// The answer under way on one connection; reused for the next one.
#[derive(Debug, Default)]
pub struct Answer {
    text: Vec<u8>,
    first: Option<Nanos>,
    last: Option<Nanos>,
    n_output_events: i64,
    n_token_ids: Option<i64>,
    usage_tokens: Option<i64>,
    finished: bool,
    done_seen: bool,
    error: Option<String>,
}

/// What a delta meant for the clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// Nothing the model produced.
    NoOutput,
    /// The first output of the answer.
    First,
    /// Later output, this long after the output before it.
    Next(Nanos),
}

impl Answer {
    /// Forgets everything but the buffer.
    pub fn reset(&mut self) {
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        *self = Self {
            text,
            ..Self::default()
        };
    }

    /// Where the API appends output text.
    pub fn text_mut(&mut self) -> &mut Vec<u8> {
        &mut self.text
    }

    /// All output text so far.
    #[must_use]
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Takes in what one event brought, stamped with the socket read it came in.
    ///
    /// The answer is complete at the read that carried its last output or its finish reason: a
    /// model that ends with an invisible token has worked for that one, too.
    pub fn take(&mut self, delta: Delta, at: Nanos) -> Arrival {
        if let Some(n) = delta.n_token_ids {
            self.n_token_ids = Some(self.n_token_ids.unwrap_or(0) + n);
        }
        self.usage_tokens = delta.usage_tokens.or(self.usage_tokens);
        self.finished |= delta.finished;
        if let Some(error) = delta.error {
            self.take_error(error);
        }
        if !delta.has_output {
            if delta.finished && self.last.is_some() {
                self.last = Some(at);
            }
            return Arrival::NoOutput;
        }
        self.n_output_events += 1;
        match self.last.replace(at) {
            Some(before) => Arrival::Next(at - before),
            None => {
                self.first = Some(at);
                Arrival::First
            }
        }
    }

    /// The server sent an event that is an error by its name; only the first error is kept.
    pub fn take_error(&mut self, text: String) {
        self.error.get_or_insert(text);
    }

    /// The stream's own end mark came.
    pub fn take_done(&mut self) {
        self.done_seen = true;
    }

    /// When the last output arrived, if any did.
    #[must_use]
    pub fn last(&self) -> Option<Nanos> {
        self.last
    }

    /// Whether output has come.
    #[must_use]
    pub fn has_output(&self) -> bool {
        self.first.is_some()
    }

    /// Whether the server reported an error inside the answer.
    #[must_use]
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// Output tokens: the server's own count, else the ids it sent, else one a streamed event.
    #[must_use]
    pub fn n_tokens(&self) -> i64 {
        self.usage_tokens
            .or(self.n_token_ids)
            .unwrap_or(self.n_output_events)
    }

    /// Whether the count comes from the server, not from counting events.
    #[must_use]
    pub fn is_counted_by_server(&self) -> bool {
        self.usage_tokens.is_some() || self.n_token_ids.is_some()
    }

    /// Why the answer does not count as one, now that nothing more will come.
    ///
    /// A stream must say that it is over, by its end mark or a finish reason: one that merely
    /// stops has been cut, however well the HTTP around it ended.
    #[must_use]
    pub fn shortcoming(&self, streamed: bool) -> Option<(FailureKind, String)> {
        if let Some(error) = &self.error {
            return Some((FailureKind::ErrorEvent, error.clone()));
        }
        if streamed && !self.done_seen && !self.finished {
            let text = format!("the stream ended after {} events", self.n_output_events);
            return Some((FailureKind::Truncated, text));
        }
        if !self.has_output() && !self.finished && self.usage_tokens.is_none() {
            // Well-formed, but not an answer: most likely another service, or another API.
            let text = "neither output nor a finish reason".to_owned();
            return Some((FailureKind::Malformed, text));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output() -> Delta {
        Delta {
            has_output: true,
            ..Delta::default()
        }
    }

    #[test]
    fn clocks_follow_output_only() {
        let mut answer = Answer::default();
        assert_eq!(answer.take(Delta::default(), Nanos(5)), Arrival::NoOutput);
        assert_eq!(answer.take(output(), Nanos(50)), Arrival::First);
        assert_eq!(answer.take(output(), Nanos(60)), Arrival::Next(Nanos(10)));
        let usage = Delta {
            usage_tokens: Some(8),
            ..Delta::default()
        };
        assert_eq!(answer.take(usage, Nanos(99)), Arrival::NoOutput);
        assert_eq!((answer.last(), answer.n_tokens()), (Some(Nanos(60)), 8));
    }

    #[test]
    fn a_finish_reason_without_text_still_ends_the_answer() {
        let mut answer = Answer::default();
        answer.take(output(), Nanos(50));
        answer.take(
            Delta {
                finished: true,
                ..Delta::default()
            },
            Nanos(60),
        );
        assert_eq!(answer.last(), Some(Nanos(60)));
        assert_eq!(answer.shortcoming(true), None);
    }

    #[test]
    fn tokens_are_counted_by_the_best_witness() {
        let mut answer = Answer::default();
        answer.take(output(), Nanos(1));
        answer.take(output(), Nanos(2));
        assert_eq!(
            (answer.n_tokens(), answer.is_counted_by_server()),
            (2, false)
        );
        answer.take(
            Delta {
                n_token_ids: Some(5),
                ..output()
            },
            Nanos(3),
        );
        assert_eq!(
            (answer.n_tokens(), answer.is_counted_by_server()),
            (5, true)
        );
    }

    #[test]
    fn an_answer_with_nothing_of_an_answer_in_it_is_malformed() {
        let mut answer = Answer::default();
        answer.take(Delta::default(), Nanos(1));
        answer.take_done();
        let kind = |answer: &Answer, streamed| answer.shortcoming(streamed).map(|s| s.0);
        assert_eq!(kind(&answer, true), Some(FailureKind::Malformed));
        assert_eq!(kind(&answer, false), Some(FailureKind::Malformed));
        // A model may well have nothing to say; the finish reason shows that it was asked.
        let finished = Delta {
            finished: true,
            ..Delta::default()
        };
        answer.take(finished, Nanos(2));
        assert_eq!(kind(&answer, true), None);
    }

    #[test]
    fn a_stream_that_just_stops_is_truncated() {
        let mut answer = Answer::default();
        answer.take(output(), Nanos(1));
        assert_eq!(
            answer.shortcoming(true).map(|s| s.0),
            Some(FailureKind::Truncated)
        );
        assert_eq!(answer.shortcoming(false), None);
        answer.take_done();
        assert_eq!(answer.shortcoming(true), None);
        answer.reset();
        answer.take(
            Delta {
                error: Some("oom".into()),
                ..Delta::default()
            },
            Nanos(1),
        );
        assert_eq!(
            answer.shortcoming(true),
            Some((FailureKind::ErrorEvent, "oom".to_owned()))
        );
    }
}
