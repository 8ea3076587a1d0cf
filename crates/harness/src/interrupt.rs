//! Ctrl-C and SIGTERM call the run off, so that what was measured is still reported; a second one
//! ends the program at once.

use std::thread::JoinHandle;

use prony_loadgen::progress::Cancel;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use signal_hook::low_level::emulate_default_handler;

use crate::error::HarnessError;
use crate::terminal;

/// Listens until it is dropped.
#[derive(Debug)]
pub struct Interrupt {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl Interrupt {
    /// Pulls `cancel` at the first signal.
    ///
    /// # Errors
    /// If the system refuses the handler or the thread.
    pub fn listen(cancel: Cancel) -> Result<Self, HarnessError> {
        let system = |source| HarnessError::System {
            what: "signal handler",
            source,
        };
        let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(system)?;
        let handle = signals.handle();
        let listen = move || {
            for signal in signals.forever() {
                if cancel.is_canceled() {
                    let _ = emulate_default_handler(signal);
                }
                terminal::note(
                    "stopping; what was measured will be reported (again: stop at once)",
                );
                cancel.cancel();
            }
        };
        let thread = std::thread::Builder::new()
            .name("prony-signals".to_owned())
            .spawn(listen)
            .map_err(system)?;
        Ok(Self {
            handle,
            thread: Some(thread),
        })
    }
}

impl Drop for Interrupt {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
