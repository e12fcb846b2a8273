//! The only place that constructs everything, and the life of the process: start, reload, drain.

mod certificates;
mod endpoint_files;
mod endpoints;
mod stores;
mod times;
mod watch;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tracing::{info, warn};

use crate::admin::{self, Control, Reloaded};
use crate::admission::Registries;
use crate::compile::{Ground, compile};
use crate::config::diagnostic::Diagnostic;
use crate::config::{MainFile, Source};
use crate::identity::jwt::KeyRing;
use crate::issuer::Fetcher;
use crate::limit::Calendars;
use crate::proxy::GatewayParts;
use crate::server::{ListenError, Server};
use crate::snapshot::{Current, Process, Snapshot};
use crate::socket::{self, Address, Sharing, SocketFile};
use crate::store::{Store, Sweep};
use crate::telemetry::access_log::{self, Output, Queue};
use crate::telemetry::metrics::{self, Counter, Lane, Registry};

use certificates::{Certificates, newly_expired};
use endpoints::Endpoints;
use times::Times;
use watch::Watch;

/// Why the gateway doesn't start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration is refused.
    #[error("the configuration has {} problem(s)", .0.len())]
    Config(Vec<Diagnostic>),
    /// A listener can't be opened.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The admin listener can't be opened.
    #[error("admin: cannot listen on {0}: {1}")]
    Admin(Address, io::Error),
    /// The access log can't be written.
    #[error("access_log: cannot open {0}: {1}")]
    AccessLog(Box<str>, io::Error),
    /// The system refuses a thread or signal handler.
    #[error("the system refuses a thread or a signal handler")]
    System(#[from] io::Error),
}

/// How the process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// Every request in flight was answered.
    Drained,
    /// The drain's time was up, or a second signal came.
    Forced,
}

/// A listening address, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listening {
    /// The listener's name.
    pub name: String,
    /// Where it is bound.
    pub address: Address,
    /// `http` or `https`.
    pub scheme: &'static str,
}

/// The running gateway.
#[derive(Debug)]
pub struct App {
    path: PathBuf,
    ground: Ground,
    current: Arc<Current>,
    store: Arc<Store>,
    times: Times,
    server: Server,
    control: Arc<Control>,
    reloads: mpsc::Receiver<oneshot::Sender<Reloaded>>,
    counters: ReloadCounters,
    admin: Address,
    /// Removes the admin listener's socket file in the end.
    _admin_file: Option<SocketFile>,
    watch: Watch,
    certificates: Certificates,
    log_writer: JoinHandle<()>,
    fetcher: Fetcher,
    endpoints: Endpoints,
    /// Configurations that workers may still hold. The last hold is here, so that no worker has to take apart a hundred thousand clients.
    retired: Vec<Arc<Snapshot>>,
}

#[derive(Debug)]
struct ReloadCounters {
    lane: Lane,
    succeeded: Counter,
    failed: Counter,
    last_ok: Counter,
}

impl App {
    /// Reads the file, opens the sockets, starts the threads. Requests are served when this returns.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left running that would serve.
    pub fn start(path: &Path) -> Result<Self, StartError> {
        let mut watch = Watch::new(path);
        raise_file_limit();
        let source = read(path, &mut watch).map_err(StartError::Config)?;
        let compiled = |ground: &Ground| compile(&source, ground, 1).map_err(StartError::Config);
        // Metrics have a lane per worker, so the number of workers must be known first; compiling twice is the simplest way.
        let process = compiled(&Ground::default())?.process;
        let workers = worker_count(&process);
        let registry = Registry::new(workers);
        let times = Times::start();
        let ground = ground(&registry, &times, &process);
        let snapshot = compiled(&ground)?;
        let (process, listeners) = (snapshot.process.clone(), snapshot.listeners.clone());
        let store = stores::start(&ground, &snapshot, &times.clock)?;
        times.tell(&snapshot);
        let fetcher = start_fetcher(&registry, &snapshot)?;
        let certificates = Certificates::start(&registry, &snapshot, times.unix_now());
        let endpoints = Endpoints::start(&registry, &times.clock, path, &snapshot)?;
        let current = Arc::new(Current::new(snapshot));
        let registries = Registries::default();
        let mut admin = socket::bind(&process.admin_address, process.admin_mode, Sharing::Alone)
            .map_err(|error| StartError::Admin(process.admin_address.clone(), error))?;
        let dropped = registry.counter(metrics::LOG_DROPPED, &[]);
        let (log, log_writer) = start_access_log(&process.access_log_to, dropped.clone(), registry.shared_lane())?;
        let parts = (0..workers).map(|index| {
            let lane = registry.lane(index);
            GatewayParts {
                clock: times.clock.clone(),
                store: Arc::clone(&store),
                registries: registries.clone(),
                current: Arc::clone(&current),
                upstreams: Arc::clone(&endpoints.shared),
                registry: registry.clone(),
                lane,
                log: log.sink(dropped.clone(), lane),
            }
        });
        let mut server = Server::start(parts.collect(), registry.clone())?;
        server.listen(&listeners)?;
        let (reload, reloads) = mpsc::channel(16);
        let control = Arc::new(Control {
            registry: registry.clone(),
            store: Arc::clone(&store),
            registries,
            current: Arc::clone(&current),
            upstreams: Arc::clone(&endpoints.shared),
            names: Arc::clone(endpoints.names()),
            ready: AtomicBool::new(true),
            reload,
            token: process.admin_token,
        });
        admin.sockets.drain(..).try_for_each(|socket| admin::start(socket, Arc::clone(&control)))?;
        registry.counter(metrics::BUILD, &[("version", env!("CARGO_PKG_VERSION"))]).one(registry.shared_lane());
        Ok(Self {
            path: path.to_owned(),
            ground,
            current,
            store,
            times,
            server,
            control,
            reloads,
            counters: ReloadCounters::new(&registry),
            admin: admin.address,
            _admin_file: admin.file,
            watch,
            certificates,
            log_writer,
            fetcher,
            endpoints,
            retired: Vec::new(),
        })
    }

    /// What is listened on, the admin listener last.
    fn listening(&self) -> Vec<Listening> {
        let snapshot = self.current.load();
        let bound = |listener: &Arc<crate::snapshot::Listener>| {
            let address = self.server.bound(listener)?;
            let scheme = if listener.tls.is_some() { "https" } else { "http" };
            Some(Listening { name: listener.name.to_string(), address, scheme })
        };
        let mut listening: Vec<_> = snapshot.listeners.iter().filter_map(bound).collect();
        listening.push(Listening { name: "admin".to_owned(), address: self.admin.clone(), scheme: "http" });
        listening
    }

    /// Serves until a signal ends it: SIGTERM or SIGINT drains, a second one forces, SIGHUP reloads, and so does a change
    /// of the file. `ready` is called once signals are heard: whoever waits for it may send one at once.
    ///
    /// # Errors
    /// When signals can't be handled.
    pub async fn run(mut self, ready: impl FnOnce(&[Listening])) -> io::Result<Stopped> {
        let mut end = End::new()?;
        let mut hangup = signal(SignalKind::hangup())?;
        ready(&self.listening());
        let mut looks = tokio::time::interval(LOOK_EVERY);
        let mut certificate_looks = tokio::time::interval(LOOK_AT_CERTIFICATES_EVERY);
        let mut sweeps = tokio::time::interval(SWEEP_EVERY);
        let names = Arc::clone(self.endpoints.names());
        loop {
            tokio::select! {
                () = end.recv() => break,
                _ = hangup.recv() => { let _ = self.reload("SIGHUP"); }
                Some(reply) = self.reloads.recv() => {
                    // The answer is for whoever asked; if that client has left, the log has it.
                    let _ = reply.send(self.reload("admin"));
                }
                _ = looks.tick() => {
                    self.times.tell(&self.current.load());
                    self.retired.retain(|old| Arc::strong_count(old) > 1);
                    self.endpoints.look(&self.current);
                    if self.watch.changed() {
                        let _ = self.reload("file");
                    }
                }
                () = names.changed() => self.endpoints.renew(&self.current),
                _ = certificate_looks.tick() => self.certificates.look(self.times.unix_now()),
                _ = sweeps.tick() => {
                    self.store.memory.sweep(Sweep::Slice, self.times.clock.now());
                }
            }
        }
        self.stop(end).await
    }

    /// Puts the file in force, or keeps what is.
    fn reload(&mut self, why: &str) -> Reloaded {
        self.watch.settle();
        let generation = self.current.generation() + 1;
        let read = read(&self.path, &mut self.watch);
        let result = read.and_then(|source| {
            let snapshot = compile(&source, &self.ground, generation)?;
            let expired = newly_expired(&snapshot, &self.current.load(), self.times.unix_now());
            if !expired.is_empty() {
                return Err(expired);
            }
            let name = self.path.display().to_string();
            self.put_in_force(snapshot).map_err(|error| vec![Diagnostic::of_file(&name, error.to_string())])
        });
        self.counters.count(result.is_ok());
        match result {
            Ok(()) => {
                info!(generation, why, "configuration in force");
                Ok(generation)
            }
            Err(diagnostics) => {
                for diagnostic in &diagnostics {
                    warn!(why, in_force = generation - 1, "configuration refused: {diagnostic}");
                }
                Err(diagnostics)
            }
        }
    }

    fn put_in_force(&mut self, snapshot: Snapshot) -> Result<(), ListenError> {
        self.server.listen(&snapshot.listeners)?;
        let before = self.current.load();
        for (name, changed) in snapshot.process.needs_restart(&before.process) {
            if changed {
                warn!(setting = name, "this change takes effect at the next start");
            }
        }
        self.store.memory.arrange(&stores::budgets(&snapshot));
        self.times.tell(&snapshot);
        self.fetcher.follow(fetched_keys(&snapshot));
        self.certificates.follow(&snapshot, self.times.unix_now());
        self.endpoints.follow(&snapshot);
        for listener in &snapshot.listeners {
            if !before.listeners.iter().any(|old| old.address == listener.address) {
                let address = self.server.bound(listener).map(|address| address.to_string());
                info!(listener = &*listener.name, address, "listening");
            }
        }
        let budgets = stores::budgets(&snapshot);
        self.current.replace(snapshot);
        self.store.memory.retire(&budgets);
        self.retired.push(before);
        Ok(())
    }

    async fn stop(mut self, mut end: End) -> io::Result<Stopped> {
        let process = self.current.load().process.clone();
        self.control.ready.store(false, Ordering::Relaxed);
        self.current.stop();
        info!(delay = ?process.shutdown_delay, drain = ?process.shutdown_drain, "stopping");
        let server = &mut self.server;
        let drained = async {
            tokio::time::sleep(process.shutdown_delay).await;
            server.drain(process.shutdown_drain).await
        };
        let stopped = tokio::select! {
            done = drained => if done { Stopped::Drained } else { Stopped::Forced },
            () = end.recv() => Stopped::Forced,
        };
        if let Some(shared) = &self.store.shared {
            shared.stop();
        }
        // The writer ends when the last worker has; a log that doesn't take its last lines is not waited for.
        let patience = tokio::time::Instant::now() + LOG_PATIENCE;
        while !self.log_writer.is_finished() && tokio::time::Instant::now() < patience {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        info!(?stopped, "stopped");
        Ok(stopped)
    }
}

/// Reads the file and the clients' file that it names, which is watched from before it is read.
fn read(path: &Path, watch: &mut Watch) -> Result<Source, Vec<Diagnostic>> {
    let main = MainFile::read(path, &environment)?;
    watch.follow(main.clients_file().map(Path::new));
    Ok(main.with_clients(&environment))
}

/// What configurations are compiled against from now on.
fn ground(registry: &Registry, times: &Times, process: &Process) -> Ground {
    Ground {
        registry: registry.clone(),
        calendars: Calendars::new(times.wall.clone()),
        hasher: stores::hasher(process),
        ..Ground::default()
    }
}

/// Every connection is a file descriptor, and the usual soft limit is 1024; the hard one is the operator's word.
fn raise_file_limit() {
    if let Err(error) = rlimit::increase_nofile_limit(u64::MAX) {
        warn!(%error, "cannot raise the limit of open files");
    }
}

fn start_fetcher(registry: &Registry, snapshot: &Snapshot) -> io::Result<Fetcher> {
    let fetcher = Fetcher::start(registry.clone())?;
    fetcher.follow(fetched_keys(snapshot));
    Ok(fetcher)
}

/// The keys that have to be kept fresh.
fn fetched_keys(snapshot: &Snapshot) -> Option<&Arc<KeyRing>> {
    snapshot.identity.jwt.as_ref().map(|verifier| &verifier.keys).filter(|ring| ring.remote.is_some())
}

impl ReloadCounters {
    fn new(registry: &Registry) -> Self {
        let lane = registry.shared_lane();
        let result = |result| registry.counter(metrics::RELOADS, &[("result", result)]);
        let last_ok = registry.counter(metrics::RELOAD_OK, &[]);
        last_ok.one(lane);
        Self { lane, succeeded: result("success"), failed: result("failure"), last_ok }
    }

    fn count(&self, succeeded: bool) {
        if succeeded { &self.succeeded } else { &self.failed }.one(self.lane);
        match (succeeded, self.last_ok.total()) {
            (true, 0) => self.last_ok.one(self.lane),
            (false, 1) => self.last_ok.less(self.lane),
            _ => {}
        }
    }
}

/// SIGTERM and SIGINT.
struct End {
    terminate: Signal,
    interrupt: Signal,
}

impl End {
    fn new() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn recv(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// What `${NAME}` in a configuration means.
#[must_use]
pub fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn worker_count(process: &Process) -> usize {
    match process.workers {
        Some(count) => usize::from(count),
        None => std::thread::available_parallelism().map_or(1, usize::from),
    }
}

/// Opens the log now, so that a wrong path is an error at start, and writes it on a thread of its own.
fn start_access_log(to: &str, failed: Counter, lane: Lane) -> Result<(Queue, JoinHandle<()>), StartError> {
    let output = Output::open(to, failed, lane).map_err(|error| StartError::AccessLog(to.into(), error))?;
    let (queue, writer) = access_log::queue();
    let writer = std::thread::Builder::new().name("access-log".to_owned()).spawn(move || writer.run(output))?;
    Ok((queue, writer))
}

impl Process {
    /// Settings that only a start puts in force, and whether they differ.
    fn needs_restart(&self, before: &Self) -> HashMap<&'static str, bool> {
        HashMap::from([
            ("workers", self.workers != before.workers),
            (
                "admin",
                self.admin_address != before.admin_address
                    || self.admin_mode != before.admin_mode
                    || self.admin_token != before.admin_token,
            ),
            ("access_log.to", self.access_log_to != before.access_log_to),
            ("store.redis", self.shared_store != before.shared_store),
        ])
    }
}

const LOG_PATIENCE: Duration = Duration::from_secs(1);
/// A change of the file is in force well within a second.
const LOOK_EVERY: Duration = Duration::from_millis(150);
/// There may be a thousand certificates; a new one is in force within two of these.
const LOOK_AT_CERTIFICATES_EVERY: Duration = Duration::from_millis(500);
/// A slice of the store is swept at this pace; all of it takes a hundred of them.
const SWEEP_EVERY: Duration = Duration::from_millis(100);
