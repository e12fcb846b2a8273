//! A worker thread: its runtime, its sockets, its connections.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::mpsc::error::SendError;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tracing::{error, warn};

use super::backoff::pause_after;
use super::balance::{Loads, Place};
use super::caps::{Caps, Counted, Refusal};
use super::connection::{Arrival, Closing, serve};
use crate::clock::deadline;
use crate::proxy::{Gateway, GatewayParts};
use crate::snapshot::Listener;
use crate::socket::{self, Address, StdListener, StdStream, Stream};
use crate::telemetry::metrics::{self, Counter, Lane, Registry};

/// What a worker is told.
#[derive(Debug)]
pub(super) enum Command {
    /// Accept from this socket.
    Listen { listener: Arc<Listener>, socket: StdListener, caps: Arc<Caps> },
    /// New settings of a listener that stays.
    Update { listener: Arc<Listener>, caps: Arc<Caps> },
    /// Stop accepting, and end the listener's connections.
    Close(Address),
    /// A connection that another worker accepted.
    Serve(Box<Accepted>),
    /// End everything, then the thread.
    Drain,
}

/// A connection on its way to its worker.
#[derive(Debug)]
pub(super) struct Accepted {
    arrival: Arrival<StdStream>,
    place: Place,
    counted: Counted,
}

/// A worker before its thread.
#[derive(Debug)]
pub(super) struct Seat {
    index: usize,
    loads: Loads,
    commands: UnboundedReceiver<Command>,
}

impl Seat {
    pub(super) fn new(index: usize, loads: &Loads) -> (Self, UnboundedSender<Command>) {
        let (sender, commands) = unbounded_channel();
        (Self { index, loads: loads.clone(), commands }, sender)
    }
}

/// The thread's body; says whether it could begin, and returns when it has drained.
pub(super) fn run(seat: Seat, peers: Vec<UnboundedSender<Command>>, parts: GatewayParts, begun: &Sender<io::Result<()>>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build_local(tokio::runtime::LocalOptions::default());
    match runtime {
        Ok(runtime) => {
            // Nobody waits any more once all have begun.
            let _ = begun.send(Ok(()));
            runtime.block_on(work(seat, peers, parts));
        }
        Err(error) => {
            let _ = begun.send(Err(error));
        }
    }
}

/// A running worker.
struct Worker {
    index: usize,
    loads: Loads,
    peers: Vec<UnboundedSender<Command>>,
    gateway: Rc<Gateway>,
    lane: Lane,
    gauge: Counter,
    listeners: RefCell<HashMap<Address, Rc<Listening>>>,
    connections: RefCell<HashMap<u64, (Address, Rc<Closing>)>>,
    next: Cell<u64>,
    idle: Notify,
}

/// A socket being accepted from.
struct Listening {
    listener: RefCell<Arc<Listener>>,
    caps: RefCell<Arc<Caps>>,
    stop: Notify,
}

async fn work(mut seat: Seat, peers: Vec<UnboundedSender<Command>>, parts: GatewayParts) {
    let lane = parts.lane;
    let gauge = connection_gauge(&parts.registry, seat.index);
    let worker = Rc::new(Worker {
        index: seat.index,
        loads: seat.loads.clone(),
        peers,
        gateway: Rc::new(Gateway::new(parts)),
        lane,
        gauge,
        listeners: RefCell::default(),
        connections: RefCell::default(),
        next: Cell::new(0),
        idle: Notify::new(),
    });
    tokio::task::spawn_local(deadline::run());
    let ticking = Rc::clone(&worker.gateway);
    tokio::task::spawn_local(async move {
        loop {
            tokio::time::sleep(TICK).await;
            ticking.tick(TICK);
        }
    });
    while let Some(command) = seat.commands.recv().await {
        match command {
            Command::Listen { listener, socket, caps } => worker.listen(listener, socket, caps),
            Command::Update { listener, caps } => {
                if let Some(listening) = worker.listeners.borrow().get(&listener.address) {
                    *listening.listener.borrow_mut() = listener;
                    *listening.caps.borrow_mut() = caps;
                }
            }
            Command::Close(address) => worker.close(&address),
            Command::Serve(accepted) => worker.serve(*accepted),
            Command::Drain => break,
        }
    }
    worker.drain(&mut seat.commands).await;
}

impl Worker {
    fn listen(self: &Rc<Self>, listener: Arc<Listener>, socket: StdListener, caps: Arc<Caps>) {
        let address = listener.address.clone();
        let socket = match socket::Listener::from_std(socket) {
            Ok(socket) => socket,
            Err(error) => return error!(%error, listener = &*listener.name, "worker cannot listen"),
        };
        let listening = Rc::new(Listening { listener: RefCell::new(listener), caps: RefCell::new(caps), stop: Notify::new() });
        self.listeners.borrow_mut().insert(address, Rc::clone(&listening));
        tokio::task::spawn_local(Rc::clone(self).accept(socket, listening));
    }

    /// Accepts until told to stop; what waits in the backlog then is still served, since nobody else would.
    async fn accept(self: Rc<Self>, socket: socket::Listener, listening: Rc<Listening>) {
        let mut pause = Duration::ZERO;
        let mut stopping = false;
        loop {
            let accepted = if stopping {
                let waiting = std::future::poll_fn(|cx| std::task::Poll::Ready(socket.poll_accept(cx)));
                let std::task::Poll::Ready(accepted) = waiting.await else { return };
                accepted
            } else {
                tokio::select! {
                    accepted = socket.accept() => accepted,
                    () = listening.stop.notified() => {
                        stopping = true;
                        continue;
                    }
                }
            };
            match accepted {
                Ok((stream, peer)) => {
                    pause = Duration::ZERO;
                    self.assign(stream, peer, &listening);
                }
                Err(error) => {
                    let caps = Arc::clone(&listening.caps.borrow());
                    caps.accept_errors.one(self.lane);
                    let before = pause;
                    pause = pause_after(&error, before);
                    if before.is_zero() && !pause.is_zero() {
                        warn!(%error, listener = &*listening.listener.borrow().name, "cannot accept connections");
                    }
                    if stopping {
                        return;
                    }
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }

    /// Counts a connection in and gives it to the worker with the fewest.
    fn assign(self: &Rc<Self>, stream: Stream, peer: Option<SocketAddr>, listening: &Listening) {
        let listener = Arc::clone(&listening.listener.borrow());
        let Some(mut counted) = listening.caps.borrow().admit(&listener, self.lane) else { return };
        let rules = &self.gateway.snapshot().identity;
        if listener.proxy_protocol {
            // Whoever it speaks for is counted when that is known.
            if peer.is_some_and(|peer| !rules.trusted.contains(peer.ip().to_canonical())) {
                return counted.refused_for(Refusal::UntrustedPeer, self.lane);
            }
        } else if !counted.count_peer(peer, rules, &listener, self.lane) {
            return;
        }
        let place = self.loads.place(self.index);
        if place.worker() == self.index {
            return self.begin(Arrival { stream, peer, listener }, place, counted);
        }
        let peer_worker = self.peers.get(place.worker());
        let Ok(stream) = stream.into_std() else { return };
        let accepted = Box::new(Accepted { arrival: Arrival { stream, peer, listener }, place, counted });
        let sent = peer_worker.map(|commands| commands.send(Command::Serve(accepted)));
        // A worker that is gone serves nobody; better here than not at all.
        if let Some(Err(SendError(Command::Serve(accepted)))) = sent {
            self.serve(*accepted);
        }
    }

    fn serve(self: &Rc<Self>, accepted: Accepted) {
        let Accepted { arrival: Arrival { stream, peer, listener }, place, counted } = accepted;
        if let Ok(stream) = Stream::from_std(stream) {
            self.begin(Arrival { stream, peer, listener }, place, counted);
        }
    }

    fn begin(self: &Rc<Self>, arrival: Arrival<Stream>, place: Place, counted: Counted) {
        let closing = Rc::new(Closing::default());
        let id = self.next.replace(self.next.get() + 1);
        self.connections.borrow_mut().insert(id, (arrival.listener.address.clone(), Rc::clone(&closing)));
        self.gauge.one(self.lane);
        let mut open = Open { worker: Rc::clone(self), id, _place: place, counted };
        let (gateway, lane) = (Rc::clone(&self.gateway), self.lane);
        tokio::task::spawn_local(async move {
            serve(arrival, &mut open.counted, gateway, lane, closing).await;
        });
    }

    fn close(&self, address: &Address) {
        if let Some(listening) = self.listeners.borrow_mut().remove(address) {
            listening.stop.notify_one();
        }
        for (of, closing) in self.connections.borrow().values() {
            if of == address {
                closing.ask();
            }
        }
    }

    /// Ends every connection and waits for the last; connections that were on their way here are taken along.
    async fn drain(self: &Rc<Self>, commands: &mut UnboundedReceiver<Command>) {
        let addresses: Vec<_> = self.listeners.borrow().keys().cloned().collect();
        addresses.iter().for_each(|address| self.close(address));
        loop {
            // Let the accept tasks take what waits in their backlogs before looking.
            tokio::task::yield_now().await;
            while let Ok(command) = commands.try_recv() {
                if let Command::Serve(accepted) = command {
                    self.serve(*accepted);
                }
            }
            self.connections.borrow().values().for_each(|(_, closing)| closing.ask());
            if self.connections.borrow().is_empty() {
                break;
            }
            let _ = tokio::time::timeout(TICK, self.idle.notified()).await;
        }
        self.gateway.tick(TICK);
    }
}

/// A connection that is being served. Dropped when its task ends, panics included.
struct Open {
    worker: Rc<Worker>,
    id: u64,
    _place: Place,
    counted: Counted,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.worker.connections.borrow_mut().remove(&self.id);
        self.worker.gauge.less(self.worker.lane);
        self.worker.idle.notify_one();
    }
}

fn connection_gauge(registry: &Registry, worker: usize) -> Counter {
    registry.counter(metrics::WORKER_CONNECTIONS, &[("worker", &worker.to_string())])
}

/// How often idle upstream connections, waiting log lines and a new configuration are looked at without a request.
const TICK: Duration = Duration::from_millis(250);
