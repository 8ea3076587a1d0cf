//! The engine's thread: starts it, loads the backend on it, ends it, and catches its panics.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use crate::backend::{BackendInfo, Loaded, Texts};
use crate::clock;
use crate::engine::{Engine, EngineParts};
use crate::error::SutError;
use crate::queue::Inbox;
use crate::status::Status;

/// The owner's hold on the engine thread.
#[derive(Debug)]
pub struct EngineHandle {
    status: Arc<Status>,
    inbox: Arc<Inbox>,
    thread: JoinHandle<()>,
    /// Resolves when the thread has ended, for whatever reason.
    ended: oneshot::Receiver<()>,
}

impl EngineHandle {
    /// What the outside may know.
    #[must_use]
    pub fn status(&self) -> &Arc<Status> {
        &self.status
    }

    /// Resolves when the engine thread has ended. Unless [`EngineHandle::stop`] came first, that is
    /// a failure.
    pub async fn ended(&mut self) {
        // The sender's drop says the same as its message.
        let _ = (&mut self.ended).await;
    }

    /// Ends the engine after its current step and waits for that. Whoever still waits for an
    /// answer gets [`crate::stream::Finish::Aborted`].
    pub fn stop(self) {
        self.status.tell_to_stop();
        self.inbox.bell().ring();
        // Its panics were caught and told already.
        let _ = self.thread.join();
    }
}

/// Starts the engine thread, loads the backend on it and waits until that is done.
///
/// # Errors
/// What `load` reports, or [`SutError::System`] when no thread can be had.
pub fn spawn<F>(load: F, parts: EngineParts) -> Result<(EngineHandle, BackendInfo, Texts), SutError>
where
    F: FnOnce() -> Result<Loaded, SutError> + Send + 'static,
{
    let status = Arc::new(Status::new(clock::now()));
    let inbox = Arc::clone(&parts.inbox);
    let (ended_tx, ended) = oneshot::channel();
    let (loaded_tx, loaded_rx) = std::sync::mpsc::sync_channel(1);
    let thread_status = Arc::clone(&status);
    let thread = std::thread::Builder::new()
        .name("engine".to_owned())
        .spawn(move || {
            let inbox = Arc::clone(&parts.inbox);
            let turns = || {
                let loaded = match load() {
                    Ok(loaded) => loaded,
                    Err(error) => {
                        let _ = loaded_tx.send(Err(error));
                        return;
                    }
                };
                let info = loaded.backend.info().clone();
                if loaded_tx.send(Ok((info, loaded.texts.clone()))).is_ok() {
                    Engine::new(loaded, parts, Arc::clone(&thread_status)).run();
                }
            };
            // A panic drops the engine while it unwinds, and with it every outlet: all waiters are
            // answered. Nothing that could be left half changed is used again.
            if catch_unwind(AssertUnwindSafe(turns)).is_err() {
                tracing::error!("the engine thread panicked");
            }
            thread_status.set_ended();
            inbox.close();
            let _ = ended_tx.send(());
        })
        .map_err(|source| SutError::System {
            what: "engine thread",
            source,
        })?;
    match loaded_rx.recv() {
        Ok(Ok((info, texts))) => Ok((
            EngineHandle {
                status,
                inbox,
                thread,
                ended,
            },
            info,
            texts,
        )),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(SutError::EngineFailed),
    }
}
