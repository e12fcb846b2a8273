//! What one worker thread has at hand for every request.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;

use super::date::Date;
use super::tokens::Tokens;
use crate::admission::Registries;
use crate::clock::{Clock, Nanos, SECOND, unix_seconds};
use crate::respond::Answer;
use crate::snapshot::{Current, LocalSnapshot};
use crate::store::Store;
use crate::telemetry::access_log::Sink;
use crate::telemetry::metrics::{self, Counter, Lane, Registry};
use crate::upstream::{Client, Destinations, Shared};

/// What a [`Gateway`] is made of. All of it is shared with other workers but the log's sink.
#[derive(Debug)]
pub struct Parts {
    /// Time.
    pub clock: Clock,
    /// Counters.
    pub store: Arc<Store>,
    /// Concurrency slots, and places of those that wait.
    pub registries: Registries,
    /// The configuration in force.
    pub current: Arc<Current>,
    /// Endpoints' loads.
    pub upstreams: Arc<Shared>,
    /// Metrics.
    pub registry: Registry,
    /// This worker's lane in them.
    pub lane: Lane,
    /// This worker's end of the access log.
    pub log: Sink,
}

/// A worker's gateway. Belongs to its thread: nothing in it needs a lock.
#[derive(Debug)]
pub struct Gateway {
    pub(super) clock: Clock,
    pub(super) store: Arc<Store>,
    pub(super) registries: Registries,
    pub(super) client: Client,
    pub(super) log: Sink,
    pub(super) lane: Lane,
    pub(super) client_aborts: Counter,
    reset_floods: Counter,
    pub(super) tokens: Tokens,
    current: Arc<Current>,
    cached: RefCell<LocalSnapshot>,
    /// What `cached` and the client have followed.
    epoch: Cell<u64>,
    registry: Registry,
    refusals: RefCell<HashMap<&'static str, Counter>>,
    grpc: RefCell<HashMap<&'static str, Counter>>,
    sample: Cell<u32>,
    mirror_sample: Cell<u32>,
    warned: Cell<Nanos>,
    unsaid: Cell<u64>,
    date: Date,
}

impl Gateway {
    /// For a worker.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let Parts { clock, store, registries, current, upstreams, registry, lane, log } = parts;
        let epoch = current.epoch();
        let snapshot = current.load();
        let client = Client::new(upstreams, lane);
        client.follow(&snapshot);
        Self {
            clock,
            store,
            registries,
            client,
            log,
            lane,
            client_aborts: registry.counter(metrics::CLIENT_ABORTS, &[]),
            reset_floods: registry.counter(metrics::RESET_FLOODS, &[]),
            tokens: Tokens::new(registry.clone()),
            current,
            cached: RefCell::new(Rc::new(snapshot)),
            epoch: Cell::new(epoch),
            registry,
            refusals: RefCell::default(),
            grpc: RefCell::default(),
            sample: Cell::new(0),
            mirror_sample: Cell::new(0),
            warned: Cell::new(0),
            unsaid: Cell::new(0),
            date: Date::default(),
        }
    }

    /// The configuration in force; the caller keeps it for the whole request.
    #[must_use]
    pub fn snapshot(&self) -> LocalSnapshot {
        let mut cached = self.cached.borrow_mut();
        let epoch = self.current.epoch();
        if epoch != self.epoch.replace(epoch) {
            *cached = Rc::new(self.current.load());
            self.client.follow(&cached);
        }
        Rc::clone(&cached)
    }

    /// The configuration in force and its upstreams.
    pub(super) fn in_force(&self) -> (LocalSnapshot, Destinations) {
        // In this order: it is the snapshot's being looked at that makes the client follow.
        let snapshot = self.snapshot();
        (snapshot, self.client.destinations())
    }

    /// Seconds since the Unix epoch, by the clock on the wall.
    #[must_use]
    pub fn unix_now(&self) -> u64 {
        unix_seconds(self.clock.wall_now())
    }

    /// What `Date` says now.
    pub(super) fn date(&self) -> HeaderValue {
        self.date.at(self.unix_now())
    }

    /// Whether the process is about to end.
    pub(super) fn is_stopping(&self) -> bool {
        self.current.is_stopping()
    }

    /// What is due now and then: idle connections, a new configuration, waiting log lines.
    pub fn tick(&self, elapsed: Duration) {
        let _ = self.snapshot();
        self.client.sweep(elapsed);
        self.log.flush();
    }

    /// A connection is ended because its client resets most of what it asks for.
    pub fn count_reset_flood(&self) {
        self.reset_floods.one(self.lane);
    }

    pub(super) fn count_refusal(&self, answer: &Answer) {
        let code = answer.code();
        let mut refusals = self.refusals.borrow_mut();
        let make = || self.registry.counter(metrics::REFUSED, &[("reason", code)]);
        refusals.entry(code).or_insert_with(make).one(self.lane);
    }

    /// Counts a gRPC call by what it came to.
    pub(super) fn count_grpc(&self, status: Option<u16>) {
        let code = match status {
            Some(code) => GRPC_CODES.get(usize::from(code)).copied().unwrap_or("other"),
            None => "none",
        };
        let make = || self.registry.counter(metrics::GRPC, &[("code", code)]);
        self.grpc.borrow_mut().entry(code).or_insert_with(make).one(self.lane);
    }

    /// Whether a request is among the `share` of 2^32 that are logged.
    pub(super) fn sampled(&self, share: u64) -> bool {
        is_among(&self.sample, share)
    }

    /// Whether a request is among the `share` of 2^32 that have a copy.
    pub(super) fn mirrors(&self, share: u64) -> bool {
        is_among(&self.mirror_sample, share)
    }

    /// Whether a warning may be said, and how many were not since the last: an upstream that is down must not fill the disk.
    pub(super) fn may_warn(&self, now: Nanos) -> Option<u64> {
        if self.warned.get() != 0 && now.saturating_sub(self.warned.get()) < SECOND {
            self.unsaid.set(self.unsaid.get() + 1);
            return None;
        }
        self.warned.set(now.max(1));
        Some(self.unsaid.replace(0))
    }
}

/// A Weyl sequence: exact in the long run and cheaper than randomness.
fn is_among(sample: &Cell<u32>, share: u64) -> bool {
    let next = sample.get().wrapping_add(0x9e37_79b9);
    sample.set(next);
    u64::from(next) < share
}

/// The codes that gRPC has, as labels.
const GRPC_CODES: [&str; 17] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16"];
