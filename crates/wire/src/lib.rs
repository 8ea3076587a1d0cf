//! The shapes that a load generator and a server agree on, and nothing else.
//!
//! `prony` (the client) and `prony-sut` (the server) never link each other; they meet over a
//! socket and share only these types. Everything here is plain data with serde derives, plus the
//! framing of server-sent events. There is no I/O, no validation of values and no default that
//! only one of the two ends would know: a field that the sender left out stays `None`.
//!
//! Unknown fields are ignored on the way in, because both ends must also talk to programs that
//! are not ours. The bytes of the public APIs are pinned by files in `tests/golden/`, so that
//! the two ends cannot drift away from the world together.

pub mod sse;

pub mod openai;
