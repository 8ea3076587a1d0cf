//! The socket side of the server: who may connect, and for how long a silent peer is kept.
//!
//! A connection costs a slot from its acceptance to its end, and every wait on a peer has a limit:
//! the TLS handshake, the head of a request (which is also the longest idle time between two), and
//! bytes that the peer does not take. Bodies have theirs in `api`.

use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::api::error::ApiError;
use crate::config::EdgeLimits;
use crate::tls::Certificate;

/// Largest head of a request. Unit: bytes.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// How long a peer may take over the TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Most connections over the limit that are told so at one time; further ones are just closed.
const MAX_REFUSALS: usize = 64;

/// How long a refused peer may take over reading why.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);

/// After an error that is the system's, not one peer's: no file descriptors left, say.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a connection is served with.
pub struct Edge {
    /// The routes.
    pub service: Router,
    /// Bounds of connections.
    pub limits: EdgeLimits,
    /// Given, connections are TLS.
    pub certificate: Option<Arc<Certificate>>,
}

/// Accepts connections until `stop`, then ends once the answers under way have left.
pub async fn serve(listener: TcpListener, edge: Edge, stop: CancellationToken) {
    let connections = Arc::new(Semaphore::new(edge.limits.max_connections));
    let refusals = Arc::new(Semaphore::new(MAX_REFUSALS));
    let graceful = GracefulShutdown::new();
    let tasks = TaskTracker::new();
    let edge = Arc::new(edge);
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let socket = match accepted {
            Ok((socket, _)) => socket,
            Err(error) if is_peers_fault(&error) => continue,
            Err(error) => {
                tracing::warn!(%error, "cannot accept");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        if let Ok(slot) = Arc::clone(&connections).try_acquire_owned() {
            let (edge, stop) = (Arc::clone(&edge), stop.clone());
            tasks.spawn(connection(edge, socket, slot, (stop, graceful.watcher())));
        } else if let Ok(turn) = Arc::clone(&refusals).try_acquire_owned() {
            // Not to be understood by a TLS client, who sees a failed handshake instead.
            tasks.spawn(refuse(socket, turn));
        }
    }
    drop(listener);
    graceful.shutdown().await;
    tasks.close();
    tasks.wait().await;
}

/// One connection from its handshake to its end.
async fn connection(
    edge: Arc<Edge>,
    socket: TcpStream,
    _slot: OwnedSemaphorePermit,
    (stop, watcher): (CancellationToken, Watcher),
) {
    prepare(&socket, edge.limits.stall_timeout);
    let Some(certificate) = &edge.certificate else {
        return talk(&edge, socket, watcher).await;
    };
    let handshake = stop.run_until_cancelled(certificate.acceptor().accept(socket));
    match timeout(HANDSHAKE_TIMEOUT, handshake).await {
        Ok(Some(Ok(stream))) => talk(&edge, stream, watcher).await,
        Ok(Some(Err(error))) => tracing::debug!(%error, "TLS handshake failed"),
        Ok(None) => {}
        Err(_) => tracing::debug!("TLS handshake not complete in time"),
    }
}

/// The peer gave up between its knock and our answer.
fn is_peers_fault(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    )
}

/// A failure leaves the socket slower or kept longer, never wrong.
fn prepare(socket: &TcpStream, stall: Duration) {
    // A token a packet: waiting to fill one would add up to 40 ms to it.
    let _ = socket.set_nodelay(true);
    // The system ends a connection whose peer takes nothing for so long, whether it has vanished
    // or has stopped reading.
    let _ = SockRef::from(&socket.as_fd()).set_tcp_user_timeout(Some(stall));
}

async fn talk<S>(edge: &Edge, stream: S, watcher: Watcher)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = TowerToHyperService::new(edge.service.clone());
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(edge.limits.idle_timeout)
        .max_header_size(MAX_HEAD_BYTES)
        .max_buf_size(2 * MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = watcher.watch(connection).await {
        // A peer that leaves in the middle of an answer, mostly.
        tracing::debug!(%error, "connection ended");
    }
}

/// Tells a peer over the limit why it is not served, and reads what it had to say: closing with
/// bytes unread would take the words back.
async fn refuse(mut socket: TcpStream, _turn: OwnedSemaphorePermit) {
    let body = serde_json::to_string(&ApiError::TooManyConnections.body()).unwrap_or_default();
    let full = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n\
         retry-after: 1\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let farewell = async {
        socket.write_all(full.as_bytes()).await?;
        socket.shutdown().await?;
        let mut rest = [0; 1024];
        while socket.read(&mut rest).await? > 0 {}
        io::Result::Ok(())
    };
    let _ = timeout(REFUSAL_TIMEOUT, farewell).await;
}
