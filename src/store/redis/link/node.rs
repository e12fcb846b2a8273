//! One node: its connections, its breaker and what is under way there. Asked from any thread; kept alive by its
//! `keeper`.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisResult, Value};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use super::breaker::Breaker;
use super::fault::{Fault, Reply, Standing};
use super::settings::Address;
use crate::clock::Nanos;

/// One node.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) address: Address,
    pub(super) wires: ArcSwapOption<Wires>,
    pub(super) breaker: Breaker,
    /// Wakes the keeper: the breaker has opened, or a connection only times out.
    pub(super) attention: Notify,
    /// Whether its first connection was tried, successfully or not.
    pub(super) tried: watch::Sender<bool>,
    /// How it is tried whether it can decide.
    pub(super) probe: Mutex<Probe>,
    /// Slots of a cluster that are its own.
    pub(super) slots: AtomicU32,
    /// It has left the topology; what happens to it is no news.
    pub(super) retired: AtomicBool,
    trouble: Mutex<Option<Trouble>>,
    since: AtomicU64,
    in_flight: AtomicUsize,
    cap: usize,
}

/// A node's connections.
#[derive(Debug)]
pub(super) struct Wires(pub(super) Vec<Wire>);

/// One connection.
#[derive(Debug)]
pub(super) struct Wire {
    connection: MultiplexedConnection,
    /// Timeouts in a row on this connection.
    misses: AtomicU32,
}

/// How a node is tried.
#[derive(Debug, Clone)]
pub(super) enum Probe {
    /// It must be able to write this key.
    Write(Vec<u8>),
    /// It has no slot to write to; it must answer.
    Ping,
}

/// What is wrong with a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    /// It fails, in this way.
    Fault(Fault),
    /// There is no connection.
    Unreachable(String),
}

impl Node {
    pub(super) fn new(address: Address, cap: usize, probe: Probe, now: Nanos) -> Self {
        Self {
            address,
            wires: ArcSwapOption::empty(),
            breaker: Breaker::default(),
            attention: Notify::new(),
            tried: watch::Sender::new(false),
            probe: Mutex::new(probe),
            slots: AtomicU32::new(0),
            retired: AtomicBool::new(false),
            trouble: Mutex::new(None),
            since: AtomicU64::new(now),
            in_flight: AtomicUsize::new(0),
            cap,
        }
    }

    pub(super) fn is_up(&self) -> bool {
        self.breaker.is_closed()
    }

    /// A place among what is under way, or none at once.
    pub(super) fn enter(&self) -> Option<Place<'_>> {
        let place = Place(self);
        // The place exists before it is known to be one, so that it comes back either way.
        let before = self.in_flight.fetch_add(1, Ordering::Relaxed);
        (before < self.cap).then_some(place)
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Since when it is as it is.
    pub(super) fn since(&self) -> Nanos {
        self.since.load(Ordering::Relaxed)
    }

    /// What is, or was last, wrong with it.
    pub(super) fn trouble(&self) -> Option<Trouble> {
        self.trouble.lock().clone()
    }

    /// Opens the breaker; true if it was closed.
    pub(super) fn open(&self, trouble: Trouble, now: Nanos) -> bool {
        let opened = self.breaker.open();
        *self.trouble.lock() = Some(trouble);
        if opened {
            self.since.store(now, Ordering::Relaxed);
            self.attention.notify_one();
        }
        opened
    }

    /// Closes the breaker; true if it was open.
    pub(super) fn close(&self, now: Nanos) -> bool {
        let closed = self.breaker.close();
        if closed {
            self.since.store(now, Ordering::Relaxed);
        }
        closed
    }

    /// Notes how an attempt on one of its connections went; true if the breaker has opened for it.
    pub(super) fn note(&self, wire: &Wire, fault: Option<Fault>, now: Nanos) -> bool {
        match fault {
            Some(Fault::Timeout) if wire.misses.fetch_add(1, Ordering::Relaxed) + 1 == WIRE_MISSES => self.attention.notify_one(),
            Some(Fault::Timeout) => {}
            _ => wire.misses.store(0, Ordering::Relaxed),
        }
        let Some(fault) = fault else {
            self.breaker.answered(now);
            return false;
        };
        self.failed(fault, now)
    }

    /// Notes that it failed; true if the breaker has opened for it.
    pub(super) fn failed(&self, fault: Fault, now: Nanos) -> bool {
        match fault.standing() {
            Standing::Sound => {
                self.breaker.answered(now);
                false
            }
            // Opening anew is what tells the keeper and the clock of it, so both ways lead through `open`.
            Standing::Faulty if !self.breaker.failed(now) => false,
            Standing::Faulty => {
                *self.trouble.lock() = Some(Trouble::Fault(fault));
                self.since.store(now, Ordering::Relaxed);
                self.attention.notify_one();
                true
            }
            Standing::Down => self.open(Trouble::Fault(fault), now),
        }
    }

    /// Whether a connection only times out while the others may be fine.
    pub(super) fn has_stuck_wire(&self) -> bool {
        self.wires.load().as_ref().is_some_and(|wires| wires.0.iter().any(Wire::is_stuck))
    }
}

/// A place among what is under way at a node; given back on drop, however the attempt ends.
#[derive(Debug)]
pub(super) struct Place<'n>(&'n Node);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Wires {
    /// The connection of a slot: always the same.
    pub(super) fn of(&self, slot: u16) -> Option<&Wire> {
        self.0.get(usize::from(slot).checked_rem(self.0.len())?)
    }
}

impl Wire {
    pub(super) fn new(connection: MultiplexedConnection) -> Self {
        Self { connection, misses: AtomicU32::new(0) }
    }

    fn is_stuck(&self) -> bool {
        self.misses.load(Ordering::Relaxed) >= WIRE_MISSES
    }

    /// Sends a command and waits for its answer, up to `limit`.
    pub(super) async fn send(&self, command: &Cmd, limit: Duration) -> Result<Reply, Fault> {
        let mut connection = self.connection.clone();
        match timeout(limit, connection.send_packed_command(command)).await {
            Err(_elapsed) => Err(Fault::Timeout),
            Ok(result) => read(result),
        }
    }

    /// Likewise, behind an ASKING that nothing comes between.
    pub(super) async fn send_asking(&self, command: Cmd, limit: Duration) -> Result<Reply, Fault> {
        let mut both = Pipeline::with_capacity(2);
        both.add_command(redis::cmd("ASKING")).add_command(command);
        let mut connection = self.connection.clone();
        match timeout(limit, connection.send_packed_commands(&both, 0, 2)).await {
            Err(_elapsed) => Err(Fault::Timeout),
            Ok(result) => read(result.map(|mut answers| answers.pop().unwrap_or(Value::Nil))),
        }
    }
}

fn read(result: RedisResult<Value>) -> Result<Reply, Fault> {
    match result {
        Ok(value) => Ok(Reply::of(value)),
        Err(error) => Err(Fault::from(error)),
    }
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Fault(fault) => fault.fmt(f),
            Self::Unreachable(why) => f.write_str(why),
        }
    }
}

/// Timeouts in a row on one connection that make the keeper replace them all: enough that a slow moment of the server is not one.
const WIRE_MISSES: u32 = 8;
