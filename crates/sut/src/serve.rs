//! The life of the process: bind → load → serve → wait for a signal → drain → end.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::admission::{Admission, ModelBounds};
use crate::api::models::engine_card;
use crate::api::{App, CacheRoots, LongTexts, RequestIds};
use crate::api_keys::ApiKeys;
use crate::backend;
use crate::batch::StepLimits;
use crate::bell::Bell;
use crate::clock;
use crate::config::Config;
use crate::engine::EngineParts;
use crate::engine_thread::{self, EngineHandle};
use crate::error::SutError;
use crate::guard::guarded;
use crate::listen::{self, Edge};
use crate::metrics::Metrics;
use crate::queue::Inbox;
use crate::server::router;
use crate::tls::Certificate;

/// How long finished answers may take to leave the sockets, and a step to end, once the server
/// has made up its mind to go.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// Keys that open the API, beside those of `--api-key-file`.
const KEYS_VARIABLE: &str = "PRONY_API_KEYS";

/// How often the certificate's files are looked at.
const CERTIFICATE_LOOK: Duration = Duration::from_secs(10);

/// How often a draining server looks whether everybody has been answered.
const DRAIN_LOOK: Duration = Duration::from_millis(5);

/// Serves until a signal comes.
///
/// # Errors
/// [`SutError`] for what kept the server from starting or made it end early.
pub fn serve(config: Config) -> Result<(), SutError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(config.http_threads)
        .enable_all()
        .build()
        .map_err(|source| SutError::System {
            what: "runtime",
            source,
        })?;
    // Before the model is loaded: an address in use is told at once, not after minutes. Connections
    // that come meanwhile wait in the listener's backlog.
    let listener = runtime.block_on(bind(&config))?;
    let keys = api_keys(&config)?;
    let certificate = match &config.edge.tls {
        Some([chain, key]) => Some(Arc::new(Certificate::read(chain, key)?)),
        None => None,
    };
    let (app, engine) = start(&config)?;
    let max_model_len = app.admission.bounds().max_model_len;
    if config.print_plan {
        engine.stop();
        return print(&config.plan(max_model_len));
    }
    tracing::info!(model = app.model_name, max_model_len, "ready");
    let edge = Edge {
        service: guarded(router(Arc::clone(&app)), keys),
        limits: config.edge.limits,
        certificate,
    };
    let ended = runtime.block_on(run(&config, (listener, edge), &app, engine));
    shut_down(runtime);
    if app.status.is_alive() {
        // A step that does not end: the destructors that run at exit must not meet it.
        tracing::error!("the engine did not stop");
        end_at_once();
    }
    ended
}

/// Loads the backend on an engine thread of its own and puts the application around it, without a
/// socket: tests call its [`router`] directly.
///
/// # Errors
/// The [`SutError`] of a model that cannot be used, or of a thread that cannot be had.
pub fn start(config: &Config) -> Result<(Arc<App>, EngineHandle), SutError> {
    let inbox = Arc::new(Inbox::new(Arc::new(Bell::default())));
    let metrics = Arc::new(Metrics::new(&config.served_model_name));
    let parts = EngineParts {
        inbox: Arc::clone(&inbox),
        metrics: Arc::clone(&metrics),
        limits: StepLimits {
            max_rows: config.limits.max_batch_rows,
            max_tokens: config.limits.max_batch_tokens,
        },
        target_itl: config.schedule.target_itl,
    };
    let load_config = config.clone();
    let (engine, info, texts) = engine_thread::spawn(move || backend::load(&load_config), parts)?;
    let bounds = ModelBounds {
        max_model_len: info.max_model_len,
        vocab_size: info.vocab_size,
    };
    let app = Arc::new(App {
        model_name: config.served_model_name.clone(),
        texts,
        admission: Admission::new(config.limits, bounds, Arc::clone(&metrics)),
        roots: CacheRoots::new(config.schedule.prefix_cache),
        inbox,
        status: Arc::clone(engine.status()),
        metrics,
        engine: engine_card(config),
        created: clock::unix_seconds(),
        request_ids: RequestIds::default(),
        long_texts: LongTexts::default(),
    });
    Ok((app, engine))
}

async fn bind(config: &Config) -> Result<TcpListener, SutError> {
    TcpListener::bind((config.host.as_str(), config.port))
        .await
        .map_err(|source| SutError::Bind {
            address: format!("{}:{}", config.host, config.port),
            source,
        })
}

/// Keys of the file and of the environment; `None` where there are neither and the API is open.
fn api_keys(config: &Config) -> Result<Option<ApiKeys>, SutError> {
    let of_environment = ApiKeys::parse(&std::env::var(KEYS_VARIABLE).unwrap_or_default());
    Ok(match &config.edge.api_key_file {
        Some(path) => Some(ApiKeys::read(path)?.and(&of_environment)),
        None => (!of_environment.is_empty()).then_some(of_environment),
    })
}

/// Keeps the certificate as its files are, until `stop`.
async fn follow(certificate: Arc<Certificate>, stop: CancellationToken) {
    while timeout(CERTIFICATE_LOOK, stop.cancelled()).await.is_err() {
        match certificate.refresh() {
            Ok(true) => tracing::info!("new certificate in use"),
            Ok(false) => {}
            Err(error) => tracing::warn!(%error, "the old certificate stays in use"),
        }
    }
}

/// The one line that scripts read, or what was asked for; nothing else ever goes to standard
/// output.
///
/// # Errors
/// [`SutError::System`].
pub fn print(text: &str) -> Result<(), SutError> {
    let mut stdout = std::io::stdout();
    stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
        .map_err(|source| SutError::System {
            what: "standard output",
            source,
        })
}

/// SIGTERM and SIGINT, which mean the same here.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> Result<Self, SutError> {
        let listen = |kind| {
            signal(kind).map_err(|source| SutError::System {
                what: "signal handler",
                source,
            })
        };
        Ok(Signals {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    /// Cancel-safe: a signal is not lost when another branch of a select wins.
    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

async fn run(
    config: &Config,
    (listener, edge): (TcpListener, Edge),
    app: &Arc<App>,
    mut engine: EngineHandle,
) -> Result<(), SutError> {
    let mut signals = Signals::listen()?;
    let address = listener.local_addr().map_err(|source| SutError::System {
        what: "listener",
        source,
    })?;
    let stop_accepting = CancellationToken::new();
    let mut server = JoinSet::new();
    let scheme = match &edge.certificate {
        Some(certificate) => {
            server.spawn(follow(Arc::clone(certificate), stop_accepting.clone()));
            "https"
        }
        None => "http",
    };
    server.spawn(listen::serve(listener, edge, stop_accepting.clone()));
    let told = print(&format!("listening on {scheme}://{address}\n"));
    let outcome = tokio::select! {
        biased;
        () = std::future::ready(()), if told.is_err() => told,
        () = signals.next() => drain(config, app, &mut signals, &mut engine).await,
        () = engine.ended() => Err(SutError::EngineFailed),
        // The server task ends by itself only if it panicked.
        _ = server.join_next() => Err(SutError::EngineFailed),
    };
    app.admission.close();
    stop_accepting.cancel();
    // Blocks for the step under way. Ends the engine: whoever still waits is answered now.
    let stopping = tokio::task::spawn_blocking(move || engine.stop());
    let flushed = async {
        let _ = stopping.await;
        while server.join_next().await.is_some() {}
    };
    tokio::select! {
        () = flushed => {}
        () = tokio::time::sleep(FLUSH_TIMEOUT) => {
            tracing::warn!("connections were cut before their answers had left");
        }
        () = signals.next() => end_at_once(),
    }
    outcome
}

/// Refuses new requests and waits for the open ones: until all are answered, the time is over, or
/// a second signal comes, which ends the process at once.
async fn drain(
    config: &Config,
    app: &App,
    signals: &mut Signals,
    engine: &mut EngineHandle,
) -> Result<(), SutError> {
    app.admission.close();
    tracing::info!(open_requests = app.admission.open_requests(), "draining");
    let all_answered = async {
        while app.admission.open_requests() > 0 {
            tokio::time::sleep(DRAIN_LOOK).await;
        }
    };
    tokio::select! {
        () = all_answered => Ok(()),
        () = tokio::time::sleep(config.drain_timeout) => {
            let open_requests = app.admission.open_requests();
            tracing::warn!(open_requests, "drain timeout: the rest gets an error");
            Ok(())
        }
        () = engine.ended() => Err(SutError::EngineFailed),
        () = signals.next() => end_at_once(),
    }
}

/// Ends the process without waiting for anything.
#[allow(
    unsafe_code,
    reason = "see SAFETY; std's exit would run destructors under a live engine"
)]
fn end_at_once() -> ! {
    // SAFETY: _exit takes no pointers and runs no destructors, so it cannot race with the engine
    // thread, which may be inside LibTorch just now.
    unsafe { libc::_exit(1) }
}

/// Threads that still tokenize are not waited for; they hold nothing that could be lost.
fn shut_down(runtime: Runtime) {
    runtime.shutdown_timeout(Duration::from_millis(100));
}
