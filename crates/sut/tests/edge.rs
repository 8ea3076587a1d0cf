//! Connections over real sockets: limits, silent peers, keys, certificates.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use prony_sut::api_keys::ApiKeys;
use prony_sut::config::EdgeLimits;
use prony_sut::guard::guarded;
use prony_sut::listen::{self, Edge};
use prony_sut::tls::Certificate;
use tokio::runtime::Runtime;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tokio_util::sync::CancellationToken;

/// A server with one route that ends with the test.
struct Server {
    address: SocketAddr,
    stop: CancellationToken,
    runtime: Runtime,
    task: Option<tokio::task::JoinHandle<()>>,
}

const NO_LIMITS: EdgeLimits = EdgeLimits {
    max_connections: 1000,
    idle_timeout: Duration::from_mins(10),
    stall_timeout: Duration::from_mins(10),
};

impl Server {
    fn start(limits: EdgeLimits, keys: Option<&str>, certificate: Option<Certificate>) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let routes = Router::new()
            .route("/", get(|| async { "here" }))
            .route("/endless", get(endless))
            .route("/health", get(|| async { "ok" }));
        let edge = Edge {
            service: guarded(routes, keys.map(ApiKeys::parse)),
            limits,
            certificate: certificate.map(Arc::new),
        };
        let listener = runtime
            .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
            .expect("a port");
        let address = listener.local_addr().expect("an address");
        let stop = CancellationToken::new();
        let task = runtime.spawn(listen::serve(listener, edge, stop.clone()));
        Server {
            address,
            stop,
            runtime,
            task: Some(task),
        }
    }

    fn connect(&self) -> TcpStream {
        let socket = TcpStream::connect(self.address).expect("a connection");
        let patience = Some(Duration::from_secs(20));
        socket.set_read_timeout(patience).expect("a time-out");
        socket
    }

    /// Asks once on a connection of its own; the whole answer.
    fn get(&self, path: &str, headers: &str) -> String {
        let mut socket = self.connect();
        let head = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}\r\n");
        socket.write_all(head.as_bytes()).expect("sent");
        rest_of(socket)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(task) = self.task.take() {
            let _ = self.runtime.block_on(task);
        }
    }
}

fn rest_of(mut socket: TcpStream) -> String {
    let mut text = String::new();
    socket.read_to_string(&mut text).expect("an end");
    text
}

#[test]
fn a_connection_over_the_limit_is_told_so_and_a_slot_comes_back() {
    let limits = EdgeLimits {
        max_connections: 1,
        ..NO_LIMITS
    };
    let server = Server::start(limits, None, None);
    let mut first = server.connect();
    let ask = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";
    first.write_all(ask).expect("sent");
    let mut answer = [0; 15];
    first.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 200 OK");

    let refused = server.get("/", "");
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    assert!(refused.contains("too_many_connections"), "{refused}");

    drop(first);
    // The server sees the end of the first one a moment later.
    let served = (0..1_000_000).any(|_| server.get("/", "").ends_with("here"));
    assert!(served, "the slot of a closed connection is free again");
}

#[test]
fn silent_and_half_sent_heads_are_let_go() {
    let limits = EdgeLimits {
        idle_timeout: Duration::from_millis(50),
        ..NO_LIMITS
    };
    let server = Server::start(limits, None, None);
    let silent = server.connect();
    let mut half = server.connect();
    half.write_all(b"GET / HTTP/1.1\r\nhos").expect("sent");
    let mut asked = server.connect();
    asked
        .write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        .expect("sent");

    assert_eq!(rest_of(silent), "");
    let half = rest_of(half);
    assert!(!half.contains("200 OK"), "{half}");
    // An answered one is kept for the next request, and let go in the same way.
    assert!(rest_of(asked).ends_with("here"));
}

/// More than any socket buffer takes.
async fn endless() -> Body {
    let pieces = std::iter::repeat_with(|| io::Result::Ok(vec![b'x'; 64 << 10]));
    Body::from_stream(futures_util::stream::iter(pieces))
}

#[test]
fn a_client_that_reads_nothing_is_cut() {
    let limits = EdgeLimits {
        max_connections: 1,
        stall_timeout: Duration::from_millis(100),
        ..NO_LIMITS
    };
    let server = Server::start(limits, None, None);
    let mut asleep = server.connect();
    let ask = b"GET /endless HTTP/1.1\r\nhost: x\r\n\r\n";
    asleep.write_all(ask).expect("sent");
    let mut answer = [0; 15];
    asleep.read_exact(&mut answer).expect("an answer");
    let served = (0..1_000_000).any(|_| server.get("/", "").ends_with("here"));
    assert!(served, "its slot is free again");
}

#[test]
fn a_head_without_an_end_is_refused() {
    let server = Server::start(NO_LIMITS, None, None);
    let answer = server.get("/", &format!("x: {}\r\n", "y".repeat(100 << 10)));
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
}

#[test]
fn keys_guard_all_but_the_probes() {
    let server = Server::start(NO_LIMITS, Some("secret"), None);
    let refused = server.get("/", "");
    assert!(refused.starts_with("HTTP/1.1 401 "), "{refused}");
    assert!(
        refused.contains("www-authenticate: Bearer\r\n"),
        "{refused}"
    );
    assert!(refused.contains(r#""code":"invalid_api_key""#), "{refused}");
    assert!(
        server
            .get("/", "authorization: Bearer secret\r\n")
            .ends_with("here")
    );
    assert!(server.get("/health", "").ends_with("ok"));
    // What is not there is not told to strangers either.
    assert!(server.get("/nothing", "").starts_with("HTTP/1.1 401 "));
}

#[test]
fn a_request_is_named_by_its_client_or_by_us() {
    let server = Server::start(NO_LIMITS, None, None);
    let named = server.get("/", "x-request-id: a-1\r\n");
    assert!(named.contains("x-request-id: a-1\r\n"), "{named}");
    for odd in [
        "",
        "x-request-id: a b\r\n",
        &format!("x-request-id: {}\r\n", "y".repeat(129)),
    ] {
        let ours = server.get("/", odd);
        assert!(ours.contains("x-request-id: req-"), "{odd}: {ours}");
    }
}

/// A certificate and its key in PEM, in files of `folder`; the client's trust in it.
fn issue(folder: &std::path::Path) -> RootCertStore {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    std::fs::write(folder.join("cert.pem"), &chain).expect("written");
    std::fs::write(folder.join("key.pem"), key).expect("written");
    let mut roots = RootCertStore::empty();
    let der = CertificateDer::from_pem_slice(chain.as_bytes()).expect("a certificate");
    roots.add(der).expect("a root");
    roots
}

/// Asks over TLS, trusting `roots` only.
async fn get_tls(address: SocketAddr, roots: &RootCertStore) -> io::Result<String> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots.clone())
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").expect("a name");
    let socket = tokio::net::TcpStream::connect(address).await?;
    let mut stream = tokio_rustls::TlsConnector::from(Arc::new(config))
        .connect(name, socket)
        .await?;
    let ask = b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    stream.write_all(ask).await?;
    let mut answer = String::new();
    // The server closes without a farewell of TLS where the connection ends.
    let _ = stream.read_to_string(&mut answer).await;
    Ok(answer)
}

#[test]
fn a_new_certificate_is_used_and_a_broken_one_is_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let (chain, key) = (
        folder.path().join("cert.pem"),
        folder.path().join("key.pem"),
    );
    let old = issue(folder.path());
    let certificate = Certificate::read(&chain, &key).expect("a certificate");
    assert!(!certificate.refresh().expect("unchanged"));
    let server = Server::start(NO_LIMITS, None, Some(certificate));
    let answer = server.runtime.block_on(get_tls(server.address, &old));
    assert!(answer.expect("trusted").ends_with("here"));

    // A file time of its own, whatever the clock's grain.
    let rewritten = |path: &std::path::Path, text: &str| {
        std::fs::write(path, text).expect("written");
        let file = std::fs::File::options()
            .append(true)
            .open(path)
            .expect("there");
        let before = file
            .metadata()
            .and_then(|data| data.modified())
            .expect("a file time");
        let later = before + Duration::from_mins(1);
        file.set_modified(later).expect("a file time");
    };
    let certificate = Certificate::read(&chain, &key).expect("a certificate");
    let good = std::fs::read_to_string(&chain).expect("there");
    rewritten(&chain, "no certificate");
    let error = certificate
        .refresh()
        .expect_err("no certificate")
        .to_string();
    assert!(error.contains("cert.pem: no certificate in it"), "{error}");
    let new = issue(folder.path());
    rewritten(&chain, &std::fs::read_to_string(&chain).expect("there"));
    assert!(certificate.refresh().expect("a good one"));
    let server = Server::start(NO_LIMITS, None, Some(certificate));
    let trusting = |roots| server.runtime.block_on(get_tls(server.address, roots));
    assert!(trusting(&new).expect("trusted").ends_with("here"));
    assert!(trusting(&old).is_err(), "the old certificate is gone");
    // The key of another certificate.
    rewritten(&chain, &good);
    let error = Certificate::read(&chain, &key)
        .expect_err("no pair")
        .to_string();
    assert!(error.contains("key.pem: "), "{error}");
}
