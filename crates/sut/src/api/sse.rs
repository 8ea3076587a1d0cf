//! Event streams: turns a request's news into chunks, the same way for completions and chat.
//!
//! All news that is there when the connection can take more goes out in one write. The stream
//! ends with the usage, if asked for, and `[DONE]`; a failure after the start is an error event.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::Stream;
use prony_wire::openai::Usage;
use prony_wire::sse;
use serde::Serialize;

use super::Submitted;
use super::error::check_finish;
use crate::admission::OpenRequest;
use crate::stream::{Answer, Delta};

/// How an API writes its chunks.
pub(crate) trait ChunkWriter: Send + Unpin + 'static {
    /// Appends what is new in one sequence.
    fn delta(&mut self, delta: &Delta, out: &mut Vec<u8>);
    /// Appends the chunk that has no choices but the usage.
    fn usage(&mut self, usage: Usage, out: &mut Vec<u8>);
}

/// Writes one event.
pub(crate) fn write<T: Serialize>(out: &mut Vec<u8>, chunk: &T) {
    sse::encode_json(out, chunk).expect("wire types serialise");
}

/// The answer as an event stream. Dropping the response cancels the request.
pub(crate) fn response<W: ChunkWriter>(
    submitted: Submitted,
    writer: W,
    include_usage: bool,
) -> Response {
    let Submitted {
        answer,
        open,
        n_prompt,
    } = submitted;
    let events = Events {
        live: Some((answer, open)),
        writer,
        include_usage,
        n_prompt,
        n_generated: 0,
    };
    let headers = [
        (
            header::CONTENT_TYPE,
            HeaderValue::from_static("text/event-stream; charset=utf-8"),
        ),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    (headers, Body::from_stream(events)).into_response()
}

struct Events<W> {
    /// Gone once everything has been written.
    live: Option<(Answer, OpenRequest)>,
    writer: W,
    include_usage: bool,
    n_prompt: usize,
    n_generated: usize,
}

impl<W: ChunkWriter> Events<W> {
    /// Writes news; true when the stream ends with them.
    fn write_news(&mut self, news: &[Delta], out: &mut Vec<u8>) -> bool {
        for delta in news {
            self.n_generated += delta.n_tokens;
            if let Err(error) = check_finish(delta.finish) {
                write(out, &error.body());
                out.extend_from_slice(sse::DONE);
                return true;
            }
            self.writer.delta(delta, out);
        }
        if !news.is_empty() {
            return false;
        }
        // No news from a request that has none left: all its sequences are finished.
        if self.include_usage {
            self.writer
                .usage(usage(self.n_prompt, self.n_generated), out);
        }
        out.extend_from_slice(sse::DONE);
        true
    }
}

impl<W: ChunkWriter> Stream for Events<W> {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        let mut out = Vec::with_capacity(512);
        // The last text, the usage and [DONE] become one write: all news there are get taken.
        while let Some((answer, _)) = &mut this.live {
            let Poll::Ready(news) = answer.poll_next(cx) else {
                break;
            };
            if this.write_news(&news, &mut out) {
                this.live = None;
            }
        }
        if !out.is_empty() {
            return Poll::Ready(Some(Ok(out.into())));
        }
        if this.live.is_none() {
            Poll::Ready(None)
        } else {
            Poll::Pending
        }
    }
}

/// The usage of a whole request.
pub(crate) fn usage(n_prompt: usize, n_generated: usize) -> Usage {
    Usage {
        prompt_tokens: n_prompt as u64,
        completion_tokens: n_generated as u64,
        total_tokens: (n_prompt + n_generated) as u64,
    }
}
