//! Where connections come in: worker threads, their sockets, and the life of a connection.
//!
//! Every worker is a thread with a `current_thread` runtime of its own, and has its own listening sockets, connections and
//! upstream connections. Each listener is bound once per worker with SO_REUSEPORT, and the kernel spreads connections
//! over them by hash. That is good enough for many connections and bad for few, so the worker that accepts one hands it on when
//! another has fewer (`balance`): one atomic load per worker and connection, nothing per request. A Unix socket can be bound only
//! once, so the first worker accepts for all.

mod backoff;
mod balance;
mod caps;
mod connection;
mod handshake;
mod http2;
mod io;
mod opening;
mod proxy_protocol;
mod transport;
mod worker;

use std::collections::HashMap;
use std::io as std_io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use tracing::warn;

use crate::proxy::GatewayParts;
use crate::snapshot::Listener;
use crate::socket::{self, Address, Sharing, SocketFile};
use crate::telemetry::metrics::Registry;

use balance::Loads;
use caps::Caps;
use worker::{Command, Seat};

/// All workers and what they listen on.
#[derive(Debug)]
pub struct Server {
    workers: Vec<Worker>,
    open: HashMap<Address, Open>,
    registry: Registry,
}

#[derive(Debug)]
struct Worker {
    commands: UnboundedSender<Command>,
    thread: JoinHandle<()>,
}

/// A listener in force.
#[derive(Debug)]
struct Open {
    bound: Address,
    caps: Arc<Caps>,
    /// Removed from the file system with this.
    file: Option<SocketFile>,
}

/// Why a listener can't be opened.
#[derive(Debug, thiserror::Error)]
#[error("listener {name}: cannot listen on {address}: {cause}")]
pub struct ListenError {
    name: Arc<str>,
    address: Address,
    cause: std_io::Error,
}

impl Server {
    /// Starts a worker thread for each of `parts`.
    ///
    /// # Errors
    /// When a thread or its runtime can't be made.
    pub fn start(parts: Vec<GatewayParts>, registry: Registry) -> std_io::Result<Self> {
        let loads = Loads::new(parts.len());
        let (seats, senders): (Vec<_>, Vec<_>) = (0..parts.len()).map(|index| Seat::new(index, &loads)).unzip();
        let mut workers = Vec::new();
        let (begun, begins) = std::sync::mpsc::channel();
        for ((seat, parts), commands) in seats.into_iter().zip(parts).zip(&senders) {
            let peers = senders.clone();
            let name = format!("worker-{}", workers.len());
            let thread = std::thread::Builder::new().name(name).spawn({
                let begun = begun.clone();
                move || worker::run(seat, peers, parts, &begun)
            })?;
            workers.push(Worker { commands: commands.clone(), thread });
        }
        drop(begun);
        begins.iter().take(workers.len()).collect::<std_io::Result<()>>()?;
        Ok(Self { workers, open: HashMap::new(), registry })
    }

    /// Listens on these and nothing else. What was open and still is stays open, with its connections; new sockets are bound
    /// before anything is closed, so a failure changes nothing.
    ///
    /// # Errors
    /// The first listener that can't be opened.
    pub fn listen(&mut self, listeners: &[Arc<Listener>]) -> Result<(), ListenError> {
        let mut fresh = Vec::new();
        for listener in listeners.iter().filter(|listener| !self.open.contains_key(&listener.address)) {
            let bound = socket::bind(&listener.address, listener.mode, Sharing::Workers(self.workers.len()));
            let fail = |cause| ListenError { name: Arc::clone(&listener.name), address: listener.address.clone(), cause };
            fresh.push((Arc::clone(listener), bound.map_err(fail)?));
        }
        for (listener, bound) in fresh {
            let caps = Arc::new(Caps::new(&self.registry, &listener.name));
            for (worker, socket) in self.workers.iter().zip(bound.sockets) {
                worker.send(Command::Listen { listener: Arc::clone(&listener), socket, caps: Arc::clone(&caps) });
            }
            self.open.insert(listener.address.clone(), Open { bound: bound.address, caps, file: bound.file });
        }
        for listener in listeners {
            if let Some(open) = self.open.get(&listener.address) {
                open.set_mode(listener);
                for worker in &self.workers {
                    worker.send(Command::Update { listener: Arc::clone(listener), caps: Arc::clone(&open.caps) });
                }
            }
        }
        self.open.retain(|address, _| {
            let wanted = listeners.iter().any(|listener| listener.address == *address);
            if !wanted {
                self.workers.iter().for_each(|worker| worker.send(Command::Close(address.clone())));
            }
            wanted
        });
        Ok(())
    }

    /// The address a listener is bound to, which differs from the configured one when that has port 0.
    #[must_use]
    pub fn bound(&self, listener: &Listener) -> Option<Address> {
        self.open.get(&listener.address).map(|open| open.bound.clone())
    }

    /// Stops accepting, closes idle connections, lets requests in flight finish; returns whether all did within `patience`.
    pub async fn drain(&mut self, patience: Duration) -> bool {
        self.open.clear();
        for worker in &self.workers {
            worker.send(Command::Drain);
        }
        let deadline = tokio::time::Instant::now() + patience;
        loop {
            if self.workers.iter().all(|worker| worker.thread.is_finished()) {
                return true;
            }
            if tokio::time::Instant::now() >= deadline {
                return false;
            }
            tokio::time::sleep(DRAIN_POLL).await;
        }
    }
}

impl Open {
    fn set_mode(&self, listener: &Listener) {
        if let Some(Err(error)) = self.file.as_ref().map(|file| file.set_mode(listener.mode)) {
            warn!(%error, listener = &*listener.name, "cannot set the mode of the socket file");
        }
    }
}

impl Worker {
    fn send(&self, command: Command) {
        // A worker that is gone has drained; there is nothing left to command.
        let _ = self.commands.send(command);
    }
}

/// How often a drain is looked at: short beside any drain, long beside the work.
const DRAIN_POLL: Duration = Duration::from_millis(10);
