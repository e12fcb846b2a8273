//! Connections at rest, and what workers share about endpoints.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::ErrorCounters;
use super::http1::Connection;
use crate::snapshot::{Endpoint, Upstream, UpstreamKind};
use crate::telemetry::metrics::{self, Counter, Lane, Registry};
use crate::tls::ClientTls;
use tokio_rustls::rustls::pki_types::ServerName;

/// What all workers share about upstreams. Kept by name and address, so it outlives reloads.
#[derive(Debug)]
pub struct Shared {
    registry: Registry,
    loads: Mutex<HashMap<EndpointName, Load>>,
    connections: Mutex<HashMap<Arc<str>, Arc<AtomicU32>>>,
}

/// An upstream's name and an endpoint's address.
pub(super) type EndpointName = (Arc<str>, Arc<str>);

/// Exchanges under way with an endpoint, over all workers.
pub(super) type Load = Arc<AtomicU32>;

impl Shared {
    /// Nothing known yet.
    #[must_use]
    pub fn new(registry: Registry) -> Self {
        Self { registry, loads: Mutex::default(), connections: Mutex::default() }
    }

    pub(super) fn load_of(&self, endpoint: &EndpointName) -> Load {
        let mut loads = self.loads.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(loads.entry(endpoint.clone()).or_default())
    }

    pub(super) fn cluster(&self, upstream: &Upstream, endpoints: Vec<(Rc<EndpointPool>, Endpoint)>) -> Cluster {
        let open = {
            let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(connections.entry(Arc::clone(&upstream.name)).or_default())
        };
        Cluster {
            echo: matches!(upstream.kind, UpstreamKind::Echo),
            endpoints: endpoints.into_iter().map(WeightedEndpoint::new).collect(),
            tls: upstream.tls.clone(),
            connect_timeout: upstream.connect_timeout,
            response_timeout: upstream.response_timeout,
            idle_timeout: upstream.idle_timeout,
            budget: Budget { open, max: upstream.max_connections },
            errors: ErrorCounters::new(&self.registry, &upstream.name),
            retries: self.registry.counter(metrics::UPSTREAM_RETRIES, &[("upstream", &upstream.name)]),
        }
    }
}

/// An upstream as one worker sees it, for one generation.
#[derive(Debug)]
pub(super) struct Cluster {
    echo: bool,
    pub(super) endpoints: Vec<WeightedEndpoint>,
    pub(super) tls: Option<Arc<ClientTls>>,
    pub(super) connect_timeout: Duration,
    pub(super) response_timeout: Duration,
    idle_timeout: Duration,
    budget: Budget,
    pub(super) errors: ErrorCounters,
    pub(super) retries: Counter,
}

/// An endpoint and its share.
#[derive(Debug)]
pub(super) struct WeightedEndpoint {
    pub(super) pool: Rc<EndpointPool>,
    pub(super) weight: u32,
    /// The name its certificate must be for, if it speaks TLS.
    pub(super) tls: Option<ServerName<'static>>,
}

impl WeightedEndpoint {
    fn new((pool, endpoint): (Rc<EndpointPool>, Endpoint)) -> Self {
        Self { pool, weight: endpoint.weight, tls: endpoint.tls }
    }

    /// For a connection that is about to be made.
    pub(super) fn lease(&self, cluster: &Rc<Cluster>) -> Lease {
        Lease::new(&self.pool, cluster, cluster.budget.count())
    }
}

impl Cluster {
    pub(super) fn is_echo(&self) -> bool {
        self.echo
    }

    pub(super) fn uses(&self, pool: &Rc<EndpointPool>) -> bool {
        self.endpoints.iter().any(|endpoint| Rc::ptr_eq(&endpoint.pool, pool))
    }

    /// Whether as many exchanges are under way as may be. Looked at without a lock, so workers that decide in the same instant
    /// may each let one more in.
    pub(super) fn is_saturated(&self) -> bool {
        self.endpoints.iter().map(|endpoint| endpoint.pool.load()).sum::<u32>() >= self.budget.max
    }

    pub(super) fn sweep(&self, elapsed: Duration) {
        for endpoint in &self.endpoints {
            endpoint.pool.sweep(elapsed, self.idle_timeout, &self.budget);
        }
    }

    pub(super) fn count_error(&self, error: &super::ExchangeError, lane: Lane) {
        self.errors.count_exchange(error, lane);
    }
}

/// How many connections an upstream may have, over all workers. Those in use are what is bounded strictly; a resting one never
/// keeps a request from being served, but is closed as soon as all together are too many.
#[derive(Debug)]
pub(super) struct Budget {
    open: Arc<AtomicU32>,
    max: u32,
}

/// One open connection's place in the count.
#[derive(Debug)]
pub(super) struct Counted(Arc<AtomicU32>);

impl Budget {
    fn count(&self) -> Counted {
        self.open.fetch_add(1, Ordering::Relaxed);
        Counted(Arc::clone(&self.open))
    }

    fn exceeded(&self) -> bool {
        self.open.load(Ordering::Relaxed) > self.max
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A worker's idle connections to one endpoint.
#[derive(Debug)]
pub(super) struct EndpointPool {
    pub(super) authority: Arc<str>,
    load: Load,
    idle: RefCell<Vec<Idle>>,
    retired: Cell<bool>,
}

#[derive(Debug)]
struct Idle {
    connection: Connection,
    counted: Counted,
    since: Duration,
}

impl EndpointPool {
    pub(super) fn new(authority: Arc<str>, load: Load) -> Self {
        Self { authority, load, idle: RefCell::default(), retired: Cell::new(false) }
    }

    /// Exchanges under way, over all workers.
    pub(super) fn load(&self) -> u32 {
        self.load.load(Ordering::Relaxed)
    }

    /// The most recently used idle connection that is still good.
    pub(super) fn take(self: &Rc<Self>, cluster: &Rc<Cluster>) -> Option<Leased> {
        loop {
            let Idle { mut connection, counted, .. } = self.idle.borrow_mut().pop()?;
            if connection.is_quiet() {
                connection.reused = true;
                return Some(Leased { connection, lease: Lease::new(self, cluster, counted) });
            }
        }
    }

    /// Ages idle connections by `elapsed`; closes those past `limit`, and the longest unused while there are too many.
    fn sweep(&self, elapsed: Duration, limit: Duration, budget: &Budget) {
        self.idle.borrow_mut().retain_mut(|idle| {
            idle.since += elapsed;
            idle.since < limit && !budget.exceeded() && idle.connection.is_quiet()
        });
    }

    /// Nobody will take from here again.
    pub(super) fn retire(&self) {
        self.retired.set(true);
        self.idle.borrow_mut().clear();
    }
}

/// A connection with its [`Lease`].
#[derive(Debug)]
pub(super) struct Leased {
    connection: Connection,
    lease: Lease,
}

/// The right to use a connection of an endpoint; counts as load until dropped.
#[derive(Debug)]
pub(super) struct Lease {
    pool: Rc<EndpointPool>,
    cluster: Rc<Cluster>,
    counted: Counted,
    _in_use: InUse,
}

/// One exchange's place in an endpoint's load.
#[derive(Debug)]
struct InUse(Rc<EndpointPool>);

impl Leased {
    pub(super) fn new(connection: Connection, lease: Lease) -> Self {
        Self { connection, lease }
    }

    pub(super) fn connection_reused(&self) -> bool {
        self.connection.reused
    }

    pub(super) fn into_parts(self) -> (Connection, Lease) {
        (self.connection, self.lease)
    }
}

impl Lease {
    fn new(pool: &Rc<EndpointPool>, cluster: &Rc<Cluster>, counted: Counted) -> Self {
        pool.load.fetch_add(1, Ordering::Relaxed);
        Self { pool: Rc::clone(pool), cluster: Rc::clone(cluster), counted, _in_use: InUse(Rc::clone(pool)) }
    }

    /// The upstream.
    pub(super) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Puts a clean connection back.
    pub(super) fn give_back(self, connection: Connection) {
        let Self { pool, cluster, counted, .. } = self;
        let mut idle = pool.idle.borrow_mut();
        if !pool.retired.get() && idle.len() < MAX_IDLE && !cluster.budget.exceeded() {
            idle.push(Idle { connection, counted, since: Duration::ZERO });
        }
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.load.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Idle connections per worker and endpoint: beyond this a burst's connections are closed rather than kept.
const MAX_IDLE: usize = 256;
