//! The server's certificate: read at start, read again when its files change.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::error::SutError;

/// A certificate chain with its key, as last read from their files.
pub struct Certificate {
    chain: PathBuf,
    key: PathBuf,
    current: Mutex<Current>,
}

struct Current {
    acceptor: TlsAcceptor,
    /// When the files were last written.
    written: [SystemTime; 2],
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate")
            .field("chain", &self.chain)
            .finish_non_exhaustive()
    }
}

impl Certificate {
    /// Reads the certificate chain and the key of a server, both in PEM.
    ///
    /// # Errors
    /// [`SutError::Tls`] for a file that is not there, holds something else, or does not belong to
    /// the other.
    pub fn read(chain: &Path, key: &Path) -> Result<Self, SutError> {
        Ok(Certificate {
            chain: chain.to_owned(),
            key: key.to_owned(),
            current: Mutex::new(read(chain, key)?),
        })
    }

    /// Makes TLS of a connection, with the certificate of now.
    pub fn acceptor(&self) -> TlsAcceptor {
        self.lock().acceptor.clone()
    }

    /// Reads the files again where they were written since. True when the new ones are in use.
    ///
    /// # Errors
    /// As [`Certificate::read`]; the old certificate stays in use.
    pub fn refresh(&self) -> Result<bool, SutError> {
        if written(&self.chain, &self.key)? == self.lock().written {
            return Ok(false);
        }
        let fresh = read(&self.chain, &self.key)?;
        *self.lock() = fresh;
        Ok(true)
    }

    /// A panic cannot leave it half changed.
    fn lock(&self) -> std::sync::MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(chain: &Path, key: &Path) -> Result<Current, SutError> {
    let wrong = |path: &Path, problem: String| SutError::Tls {
        path: path.to_owned(),
        problem,
    };
    // Before the contents: a change in between is seen at the next look.
    let written = written(chain, key)?;
    let certificates = CertificateDer::pem_file_iter(chain)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|e| wrong(chain, e.to_string()))?;
    if certificates.is_empty() {
        return Err(wrong(chain, "no certificate in it".to_owned()));
    }
    let private = PrivateKeyDer::from_pem_file(key).map_err(|e| wrong(key, e.to_string()))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| wrong(chain, e.to_string()))?
        .with_no_client_auth()
        .with_single_cert(certificates, private)
        .map_err(|e| wrong(key, e.to_string()))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Current {
        acceptor: TlsAcceptor::from(Arc::new(config)),
        written,
    })
}

fn written(chain: &Path, key: &Path) -> Result<[SystemTime; 2], SutError> {
    let of = |path: &Path| {
        let time = || -> io::Result<SystemTime> { std::fs::metadata(path)?.modified() };
        time().map_err(|e| SutError::Tls {
            path: path.to_owned(),
            problem: e.to_string(),
        })
    };
    Ok([of(chain)?, of(key)?])
}
