//! Carries a request's text from the engine thread to its handler.
//!
//! A shared box, not a channel: the engine adds to it and never waits, the handler takes all there
//! is. A slow client thus gets fewer, larger pieces; memory is bounded by the request's own
//! `max_tokens`. Dropping the handler's end cancels the request, whatever stage it is in; dropping
//! the engine's end without a result answers the handler with a failure, so nobody waits for ever.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::bell::Bell;

/// How a sequence ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// End-of-text token or stop string.
    Stop,
    /// As many tokens as asked for.
    Length,
    /// Its deadline passed.
    Expired,
    /// The engine could not go on with this sequence.
    Failed,
    /// The server is going down, or its engine broke.
    Aborted,
}

/// A token, and how likely it was.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Drawn {
    /// Its id.
    pub id: u32,
    /// Natural logarithm of its probability under the model.
    pub logprob: f32,
    /// The most likely ids and theirs, as many as the request asked for.
    pub top: Vec<(u32, f32)>,
}

impl Drawn {
    /// From a backend that knows no other token.
    #[must_use]
    pub fn certain(id: u32) -> Self {
        Drawn {
            id,
            ..Drawn::default()
        }
    }
}

/// What is new in one sequence.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Delta {
    /// Which sequence of the request.
    pub index: usize,
    /// New text.
    pub text: String,
    /// New ids, when asked for.
    pub ids: Vec<u32>,
    /// How likely the new tokens were, when asked for.
    pub drawn: Vec<Drawn>,
    /// How likely the prompt's tokens were, the first left out; with the first token, when asked
    /// for.
    pub prompt: Vec<Drawn>,
    /// New tokens.
    pub n_tokens: usize,
    /// Set once, with the last text.
    pub finish: Option<Finish>,
}

impl Delta {
    fn is_empty(&self) -> bool {
        self.n_tokens == 0 && self.finish.is_none()
    }
}

/// When the handler is woken, and what it wants to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wishes {
    /// Wake for every token, not just when all sequences are finished.
    pub stream: bool,
    /// Keep the ids beside the text.
    pub ids: bool,
    /// Keep how likely the tokens were.
    pub logprobs: bool,
}

/// Makes the two ends for a request of `n` sequences.
#[must_use]
pub fn open(n: usize, wishes: Wishes, bell: Arc<Bell>) -> (Answer, Vec<Outlet>) {
    let shared = Arc::new(Shared {
        wishes,
        canceled: AtomicBool::new(false),
        state: Mutex::new(State {
            news: (0..n)
                .map(|index| Delta {
                    index,
                    ..Delta::default()
                })
                .collect(),
            n_open: n,
            waker: None,
        }),
    });
    let outlets = (0..n)
        .map(|index| Outlet {
            shared: Arc::clone(&shared),
            index,
            finished: false,
        })
        .collect();
    (Answer { shared, bell }, outlets)
}

#[derive(Debug)]
struct Shared {
    wishes: Wishes,
    canceled: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// What has not been taken yet, one entry a sequence.
    news: Vec<Delta>,
    /// Sequences without a finish.
    n_open: usize,
    waker: Option<Waker>,
}

impl Shared {
    /// Every change below is complete before anything could panic.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The engine's end, one a sequence.
#[derive(Debug)]
pub struct Outlet {
    shared: Arc<Shared>,
    index: usize,
    finished: bool,
}

impl Outlet {
    /// Whether the client has left.
    #[must_use]
    pub fn is_canceled(&self) -> bool {
        // Relaxed: Bell's flag orders it; a late sight costs one step.
        self.shared.canceled.load(Ordering::Relaxed)
    }

    /// Adds a token and the text that has become certain with it.
    pub fn push(&mut self, token: Drawn, text: &str, finish: Option<Finish>) {
        self.add(Some(token), text, finish);
    }

    /// Tells how likely the prompt's tokens were; they go out with the next token.
    pub fn tell_prompt(&mut self, scores: Vec<Drawn>) {
        self.shared.lock().news[self.index].prompt = scores;
    }

    /// Ends the sequence without another token.
    pub fn finish(&mut self, finish: Finish) {
        self.add(None, "", Some(finish));
    }

    fn add(&mut self, token: Option<Drawn>, text: &str, finish: Option<Finish>) {
        debug_assert!(!self.finished, "nothing follows the end of a sequence");
        self.finished |= finish.is_some();
        let mut state = self.shared.lock();
        let news = &mut state.news[self.index];
        news.text.push_str(text);
        if let Some(token) = token {
            news.n_tokens += 1;
            if self.shared.wishes.ids {
                news.ids.push(token.id);
            }
            if self.shared.wishes.logprobs {
                news.drawn.push(token);
            }
        }
        news.finish = finish.or(news.finish);
        state.n_open -= usize::from(finish.is_some());
        let wake = self.shared.wishes.stream || state.n_open == 0;
        let waker = if wake { state.waker.take() } else { None };
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        if !self.finished {
            self.finish(Finish::Aborted);
        }
    }
}

/// The handler's end.
#[derive(Debug)]
pub struct Answer {
    shared: Arc<Shared>,
    bell: Arc<Bell>,
}

impl Answer {
    /// Waits for news and takes all there is; empty once every sequence's end has been taken.
    pub async fn next(&mut self) -> Vec<Delta> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Waits until all sequences are finished and takes everything, in the order of the prompts.
    pub async fn all(&mut self) -> Vec<Delta> {
        poll_fn(|cx| self.poll_when(cx, |state| state.n_open == 0, |_| true)).await
    }

    /// As [`Answer::next`], for hand-written streams.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Vec<Delta>> {
        let ready = |state: &State| state.n_open == 0 || state.news.iter().any(|d| !d.is_empty());
        self.poll_when(cx, ready, |delta| !delta.is_empty())
    }

    fn poll_when(
        &mut self,
        cx: &mut Context<'_>,
        ready: impl Fn(&State) -> bool,
        wanted: impl Fn(&Delta) -> bool,
    ) -> Poll<Vec<Delta>> {
        let mut state = self.shared.lock();
        if !ready(&state) {
            match &mut state.waker {
                Some(waker) => waker.clone_from(cx.waker()),
                none => *none = Some(cx.waker().clone()),
            }
            return Poll::Pending;
        }
        let taken = state
            .news
            .iter_mut()
            .filter(|delta| wanted(delta))
            .map(|delta| {
                let empty = Delta {
                    index: delta.index,
                    ..Delta::default()
                };
                std::mem::replace(delta, empty)
            });
        Poll::Ready(taken.collect())
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        let finished = self.shared.lock().n_open == 0;
        if !finished {
            self.shared.canceled.store(true, Ordering::Relaxed);
            self.bell.ring_client_left();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: Wishes = Wishes {
        stream: true,
        ids: true,
        logprobs: false,
    };

    fn poll(answer: &mut Answer) -> Option<Vec<Delta>> {
        match answer.poll_next(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(news) => Some(news),
            Poll::Pending => None,
        }
    }

    #[test]
    fn news_wait_for_a_slow_reader_in_one_piece() {
        let (mut answer, mut outlets) = open(2, STREAM, Arc::default());
        assert_eq!(poll(&mut answer), None);
        outlets[1].push(Drawn::certain(5), "a", None);
        outlets[1].push(Drawn::certain(6), "b", Some(Finish::Length));
        let news = poll(&mut answer).unwrap();
        assert_eq!(news.len(), 1);
        assert_eq!(
            (news[0].index, news[0].text.as_str(), news[0].n_tokens),
            (1, "ab", 2)
        );
        assert_eq!(
            (&news[0].ids[..], news[0].finish),
            (&[5, 6][..], Some(Finish::Length))
        );
        assert_eq!(poll(&mut answer), None);
        outlets[0].finish(Finish::Stop);
        assert_eq!(poll(&mut answer).unwrap()[0].finish, Some(Finish::Stop));
        assert_eq!(poll(&mut answer), Some(vec![]));
    }

    #[test]
    fn an_engine_that_goes_away_answers_everybody() {
        let (mut answer, outlets) = open(1, STREAM, Arc::default());
        drop(outlets);
        assert_eq!(poll(&mut answer).unwrap()[0].finish, Some(Finish::Aborted));
    }

    #[test]
    fn a_client_that_leaves_is_noticed_and_a_served_one_is_not_a_cancel() {
        let bell = Arc::new(Bell::default());
        let (answer, outlets) = open(1, STREAM, Arc::clone(&bell));
        assert!(!outlets[0].is_canceled());
        drop(answer);
        assert!(outlets[0].is_canceled() && bell.take_client_left());
        assert!(!bell.take_client_left());

        let (answer, mut outlets) = open(1, STREAM, Arc::clone(&bell));
        outlets[0].finish(Finish::Stop);
        drop(answer);
        assert!(!bell.take_client_left());
    }
}
