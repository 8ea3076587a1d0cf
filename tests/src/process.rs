//! Starts the real binaries, waits for them with a deadline, and never leaves one behind.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

const READY_DEADLINE: Duration = Duration::from_secs(120);

/// Path of one of our binaries, built by `cargo build --workspace --bins` in the same profile.
///
/// # Panics
/// If it is not there, saying how to build it.
#[must_use]
pub fn binary(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path is known");
    let profile = test
        .parent()
        .and_then(|deps| deps.parent())
        .expect("tests run from target/*/deps");
    let path = profile.join(name);
    assert!(
        path.exists(),
        "{}: run `cargo build --workspace --bins`",
        path.display()
    );
    path
}

/// A running `prony-sut`; asked to stop, then killed, when dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    /// `http://127.0.0.1:PORT`.
    pub url: String,
}

impl Server {
    /// Starts `prony-sut serve --port 0` with `args` added and waits for its ready line.
    ///
    /// # Panics
    /// If the server ends or stays silent for two minutes.
    #[must_use]
    pub fn start(args: &[&str]) -> Self {
        let mut child = Command::new(binary("prony-sut"))
            .args(["serve", "--port", "0"])
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("prony-sut starts");
        let stdout = child.stdout.take().expect("stdout is piped");
        let (send, lines) = mpsc::sync_channel(64);
        // Reads on to the end, so that the server never blocks on a full pipe.
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = send.try_send(line);
            }
        });
        let mut server = Self {
            child,
            url: String::new(),
        };
        while server.url.is_empty() {
            let line = lines
                .recv_timeout(READY_DEADLINE)
                .unwrap_or_else(|e| panic!("prony-sut serve {args:?} was not ready: {e}"));
            if let Some(rest) = line.strip_prefix("listening on ") {
                server.url = rest
                    .split_whitespace()
                    .next()
                    .unwrap_or_default()
                    .to_owned();
            }
        }
        server
    }

    /// A server with the echo backend.
    #[must_use]
    pub fn echo(args: &[&str]) -> Self {
        let mut all = vec!["--backend", "echo"];
        all.extend_from_slice(args);
        Self::start(&all)
    }

    /// `127.0.0.1:PORT`.
    #[must_use]
    pub fn address(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    /// Sends a signal (15 = SIGTERM).
    #[allow(
        unsafe_code,
        reason = "std has no way to send a signal other than SIGKILL"
    )]
    pub fn signal(&self, signal: i32) {
        let pid = i32::try_from(self.child.id()).expect("a pid fits i32");
        // SAFETY: kill takes two integers; the pid is our own child, not yet waited for.
        unsafe { libc::kill(pid, signal) };
    }

    /// Waits for the end.
    ///
    /// # Panics
    /// If the process still runs after `deadline`.
    pub fn wait(&mut self, deadline: Duration) -> ExitStatus {
        wait_for(&mut self.child, deadline).expect("the server ends in time")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.signal(libc::SIGTERM);
            if wait_for(&mut self.child, Duration::from_secs(10)).is_none() {
                let _ = self.child.kill();
                let _ = self.child.wait();
            }
        }
    }
}

fn wait_for(child: &mut Child, deadline: Duration) -> Option<ExitStatus> {
    const POLL: Duration = Duration::from_millis(10);
    let mut left = deadline;
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        left = left.checked_sub(POLL)?;
        thread::sleep(POLL);
    }
}

/// Runs one of our binaries to its end.
///
/// # Panics
/// If it still runs after `deadline`; it is killed first.
#[must_use]
pub fn run(name: &str, args: &[&str], deadline: Duration) -> Output {
    let mut child = Command::new(binary(name))
        .args(args)
        .current_dir(crate::source::root())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let stdout = drain(child.stdout.take());
    let stderr = drain(child.stderr.take());
    let status = wait_for(&mut child, deadline);
    if status.is_none() {
        let _ = child.kill();
        let _ = child.wait();
    }
    let stdout = stdout.join().expect("reader ends");
    let stderr = stderr.join().expect("reader ends");
    let status = status.unwrap_or_else(|| {
        panic!(
            "{name} {args:?} ran past {deadline:?}: {}",
            String::from_utf8_lossy(&stderr)
        )
    });
    Output {
        status,
        stdout,
        stderr,
    }
}

fn drain<R: Read + Send + 'static>(pipe: Option<R>) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.read_to_end(&mut bytes);
        }
        bytes
    })
}
