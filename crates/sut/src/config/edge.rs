//! The flags of the server's outer side: connections, TLS, keys.

use std::path::PathBuf;
use std::time::Duration;

use super::{at_least_one, duration, refused};
use crate::error::SutError;
use crate::open_files::allow_connections;

/// Unless the command line says otherwise, or the system allows fewer.
const DEFAULT_CONNECTIONS: usize = 16_384;

/// The flags about connections, not yet checked against each other.
#[derive(Debug, clap::Args)]
pub struct EdgeArgs {
    /// Most connections at one time; over it they get 503 and are closed [default: 16384, or what
    /// the system's limit of open files leaves]
    #[arg(long)]
    pub max_connections: Option<usize>,
    /// How long a connection may take to send (the rest of) a request's head, such as 2s
    #[arg(long, default_value = "120s", value_parser = duration)]
    pub idle_timeout: Duration,
    /// How long a client may take none of the bytes it is sent, such as 30s
    #[arg(long, default_value = "30s", value_parser = duration)]
    pub stall_timeout: Duration,
    /// File of keys that open the API, one a line; more in the environment: PRONY_API_KEYS
    #[arg(long)]
    pub api_key_file: Option<PathBuf>,
    /// Certificate chain in PEM: serve HTTPS; read again when it changes
    #[arg(long)]
    pub tls_cert: Option<PathBuf>,
    /// Key of --tls-cert in PEM
    #[arg(long)]
    pub tls_key: Option<PathBuf>,
}

/// How the server meets the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EdgeConfig {
    /// Bounds of connections.
    pub limits: EdgeLimits,
    /// Keys that open the API, beside those of the environment.
    pub api_key_file: Option<PathBuf>,
    /// Certificate chain and key.
    pub tls: Option<[PathBuf; 2]>,
}

/// Bounds of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EdgeLimits {
    /// Most at one time.
    pub max_connections: usize,
    /// Longest wait for a request's head, its first byte included.
    pub idle_timeout: Duration,
    /// Longest time in which a peer takes no bytes.
    pub stall_timeout: Duration,
}

impl EdgeArgs {
    pub(super) fn validate(self) -> Result<EdgeConfig, SutError> {
        let max_connections = connections(self.max_connections)?;
        for (flag, timeout) in [
            ("--idle-timeout", self.idle_timeout),
            ("--stall-timeout", self.stall_timeout),
        ] {
            if timeout < Duration::from_millis(1) {
                return Err(refused(
                    flag,
                    format!("{timeout:?}"),
                    "must be at least 1ms",
                ));
            }
        }
        let tls = match (self.tls_cert, self.tls_key) {
            (Some(chain), Some(key)) => Some([chain, key]),
            (None, None) => None,
            (Some(chain), None) => {
                return Err(refused("--tls-cert", chain.display(), "needs --tls-key"));
            }
            (None, Some(key)) => {
                return Err(refused("--tls-key", key.display(), "needs --tls-cert"));
            }
        };
        Ok(EdgeConfig {
            limits: EdgeLimits {
                max_connections,
                idle_timeout: self.idle_timeout,
                stall_timeout: self.stall_timeout,
            },
            api_key_file: self.api_key_file,
            tls,
        })
    }
}

/// The number asked for, for which the system must have sockets; or as many as are useful and it
/// has.
fn connections(asked: Option<usize>) -> Result<usize, SutError> {
    const FLAG: &str = "--max-connections";
    let wanted = asked.unwrap_or(DEFAULT_CONNECTIONS);
    at_least_one(FLAG, wanted)?;
    let allowed = allow_connections(wanted).map_err(|source| SutError::System {
        what: "limit of open files",
        source,
    })?;
    match asked {
        Some(asked) if asked > allowed => {
            let problem = format!("the system's limit of open files allows {allowed}");
            Err(refused(FLAG, asked, problem))
        }
        _ => Ok(allowed.max(1)),
    }
}
