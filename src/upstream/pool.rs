//! HTTP/1.1 connections at rest, and what workers share about endpoints.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{HeaderMap, StatusCode};

use super::adaptive::{Limited, Limiters};
use super::announce::Announced;
use super::balance::{Balancer, Candidate, Candidates};
use super::bulkhead::Bounds;
use super::group::Group;
use super::http1::Connection;
use super::http2;
use super::judge::{self, Circumstances, Judge, Verdict};
use super::lifetime::lifetime;
use super::retry::RetryCounters;
use super::standing::{Mode, Standing};
use super::{ErrorCounters, ExchangeError};
use crate::clock::Clock;
use crate::request::ConnInfo;
use crate::snapshot::{Endpoint, ProxyVersion, Retry, Upstream, UpstreamKind, UpstreamProtocol};
use crate::socket::Address;
use crate::telemetry::metrics::{Lane, Registry};
use crate::tls::ClientTls;
use tokio_rustls::rustls::pki_types::ServerName;

/// What all workers share about upstreams. Kept by name and address, so it outlives reloads.
#[derive(Debug)]
pub struct Shared {
    pub(super) registry: Registry,
    pub(super) clock: Clock,
    pub(super) groups: Mutex<HashMap<Arc<str>, Arc<Group>>>,
    pub(super) connections: Mutex<HashMap<Arc<str>, Arc<AtomicU32>>>,
    pub(super) limiters: Mutex<Limiters>,
}

/// An upstream's name and an endpoint's address.
pub(super) type EndpointName = (Arc<str>, Arc<str>);

impl Shared {
    /// Nothing known yet.
    #[must_use]
    pub fn new(registry: Registry, clock: Clock) -> Self {
        Self { registry, clock, groups: Mutex::default(), connections: Mutex::default(), limiters: Mutex::default() }
    }

    pub(super) fn cluster(
        &self,
        upstream: &Upstream,
        made_of: MadeOf,
        endpoints: Vec<(Rc<EndpointPool>, Endpoint)>,
        limited: Option<Rc<Limited>>,
    ) -> Cluster {
        let open = {
            let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(connections.entry(Arc::clone(&upstream.name)).or_default())
        };
        let group = self.group(&upstream.name);
        let bounds = Bounds { max_requests: upstream.max_requests, max_pending: upstream.max_pending };
        let judge = |rules| Judge::new(&upstream.name, &group, rules, &self.clock, &self.registry);
        Cluster {
            made_of,
            balancer: Balancer::new(&upstream.balance, endpoints.len()),
            judge: upstream.outlier.as_ref().map(judge),
            echo: matches!(upstream.kind, UpstreamKind::Echo),
            protocol: upstream.protocol,
            shares: match upstream.protocol {
                _ if upstream.proxy_protocol.is_some() => false,
                UpstreamProtocol::Http1 => false,
                UpstreamProtocol::Http2 => true,
                // In clear text `auto` is HTTP/1.1, over TLS it is known when connected.
                UpstreamProtocol::Auto => endpoints.iter().any(|(_, endpoint)| endpoint.tls.is_some()),
            },
            endpoints: endpoints.into_iter().map(WeightedEndpoint::new).collect(),
            tls: upstream.tls.clone(),
            connect_timeout: upstream
                .retry
                .as_ref()
                .and_then(|retry| retry.per_try)
                .unwrap_or(Duration::MAX)
                .min(upstream.connect_timeout),
            response_timeout: upstream.response_timeout,
            idle_timeout: upstream.idle_timeout,
            max_age: upstream.max_age,
            min_connections: upstream.min_connections,
            proxy_protocol: upstream.proxy_protocol,
            budget: Budget { open, max: upstream.max_connections },
            errors: ErrorCounters::new(&self.registry, &upstream.name),
            retries: RetryCounters::new(&self.registry, &upstream.name),
            retry: upstream.retry.clone(),
            looked_after: upstream.retry.is_some() || bounds.are_set(),
            bounds,
            group,
            limited,
        }
    }
}

/// An upstream as one worker sees it, for one generation.
#[derive(Debug)]
pub(super) struct Cluster {
    made_of: MadeOf,
    echo: bool,
    shares: bool,
    pub(super) protocol: UpstreamProtocol,
    pub(super) group: Arc<Group>,
    balancer: Balancer,
    judge: Option<Judge>,
    pub(super) endpoints: Vec<WeightedEndpoint>,
    pub(super) tls: Option<Arc<ClientTls>>,
    pub(super) connect_timeout: Duration,
    pub(super) response_timeout: Duration,
    idle_timeout: Duration,
    pub(super) max_age: Option<Duration>,
    pub(super) min_connections: u32,
    proxy_protocol: Option<ProxyVersion>,
    budget: Budget,
    pub(super) errors: ErrorCounters,
    pub(super) limited: Option<Rc<Limited>>,
    pub(super) retries: RetryCounters,
    pub(super) retry: Option<Retry>,
    pub(super) bounds: Bounds,
    looked_after: bool,
}

/// The generation, and the endpoints at the moment: another of the two makes another cluster.
pub(super) type MadeOf = (u64, Arc<Vec<Endpoint>>);

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

    /// For an exchange that is about to begin.
    pub(super) fn lease(&self, cluster: &Rc<Cluster>) -> Lease {
        Lease::new(&self.pool, cluster)
    }
}

impl Cluster {
    pub(super) fn is_echo(&self) -> bool {
        self.echo
    }

    /// Whether its requests are tried again, or bounded.
    pub(super) fn is_looked_after(&self) -> bool {
        self.looked_after
    }

    /// The place of the endpoint that an exchange is with.
    pub(super) fn place_of(&self, lease: &Lease) -> Option<usize> {
        self.endpoints.iter().position(|endpoint| Rc::ptr_eq(&endpoint.pool, &lease.pool))
    }

    /// Whether it would come out the same from these.
    pub(super) fn is_of(&self, (generation, endpoints): &MadeOf) -> bool {
        self.made_of.0 == *generation && Arc::ptr_eq(&self.made_of.1, endpoints)
    }

    /// Whether its connections may carry many exchanges at once.
    pub(super) fn may_share_connections(&self) -> bool {
        self.shares
    }

    /// Whom a connection for this client has to speak for, if for anybody.
    pub(super) fn announced(&self, conn: &ConnInfo) -> Option<Box<Announced>> {
        self.proxy_protocol.map(|version| Box::new(Announced::client(version, conn)))
    }

    /// Whether an endpoint gets requests.
    pub(super) fn is_used(&self, endpoint: &WeightedEndpoint) -> bool {
        endpoint.pool.standing.may_be_used(self.group.mode())
    }

    /// Whether as many connections are open as may be, in use or not.
    pub(super) fn is_full(&self) -> bool {
        self.budget.open.load(Ordering::Relaxed) >= self.budget.max
    }

    /// Our side of TLS and the name that the endpoint's certificate must be for, if it speaks TLS.
    pub(super) fn secured<'c>(&'c self, endpoint: &'c WeightedEndpoint) -> Option<(&'c ClientTls, &'c ServerName<'static>)> {
        self.tls.as_deref().zip(endpoint.tls.as_ref())
    }

    /// Whether as many connections are in use as may be. Looked at without a lock, so workers that decide in the same instant
    /// may each let one more in.
    pub(super) fn is_saturated(&self) -> bool {
        self.endpoints.iter().map(|endpoint| endpoint.pool.standing.connections_in_use()).sum::<u32>() >= self.budget.max
    }

    /// A place in the count for a connection that is about to be made.
    pub(super) fn count_connection(&self) -> Counted {
        self.budget.count()
    }

    /// One of its endpoints has failed, be it before any exchange began.
    pub(super) fn failed(&self, endpoint: &EndpointPool) {
        if let Some(judge) = &self.judge {
            judge.bad(&endpoint.standing);
        }
    }

    /// The place of an endpoint that may be used and has not been tried.
    pub(super) fn pick(&self, tried: &[usize], key: Option<NonZeroU64>) -> Option<usize> {
        self.balancer.pick(&Untried { endpoints: &self.endpoints, tried, mode: self.group.mode() }, key)
    }

    /// Ages idle connections. Those to endpoints that are out of use are closed, HTTP/2 ones behind their last stream: who knows how
    /// they are when it returns.
    pub(super) fn sweep(&self, elapsed: Duration) {
        let mode = self.group.mode();
        for endpoint in &self.endpoints {
            if !endpoint.pool.standing.may_be_used(mode) {
                endpoint.pool.let_go();
            }
            endpoint.pool.sweep(elapsed, self.idle_timeout, &self.budget);
        }
    }

    pub(super) fn count_error(&self, error: &super::ExchangeError, lane: Lane) {
        self.errors.count_exchange(error, lane);
    }
}

/// What a balancer chooses from.
struct Untried<'a> {
    endpoints: &'a [WeightedEndpoint],
    tried: &'a [usize],
    mode: Mode,
}

impl Candidates for Untried<'_> {
    fn count(&self) -> usize {
        self.endpoints.len()
    }

    fn at(&self, index: usize) -> Option<Candidate> {
        let WeightedEndpoint { pool, weight, .. } = self.endpoints.get(index)?;
        let standing = &pool.standing;
        let open = standing.may_be_used(self.mode) && !self.tried.contains(&index);
        open.then(|| Candidate { weight: u64::from(*weight) * standing.share(), load: standing.load(), hash: standing.hash })
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

/// A worker's connections to one endpoint: HTTP/1.1 ones that are idle, HTTP/2 ones whether they are or not.
#[derive(Debug)]
pub(super) struct EndpointPool {
    standing: Arc<Standing>,
    address: Address,
    /// Goes on with every sweep.
    time: Cell<Duration>,
    /// Connections that are being made to be ready.
    making: Cell<u32>,
    /// After how long such a connection is tried again, and how long until then.
    rest: Cell<(Duration, Duration)>,
    idle: RefCell<Vec<Idle>>,
    pub(super) http2: http2::Pool,
    retired: Cell<bool>,
}

#[derive(Debug)]
struct Idle {
    connection: Connection,
    since: Duration,
}

impl EndpointPool {
    pub(super) fn new(standing: Arc<Standing>, address: Address) -> Self {
        Self {
            standing,
            address,
            time: Cell::default(),
            making: Cell::default(),
            rest: Cell::default(),
            idle: RefCell::default(),
            http2: http2::Pool::default(),
            retired: Cell::new(false),
        }
    }

    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    /// When a connection that is made now takes no more requests, in this pool's time.
    pub(super) fn end_of_life(&self, max_age: Option<Duration>) -> Duration {
        self.time.get().saturating_add(lifetime(max_age))
    }

    /// Connections at rest, and those that are being made to be.
    pub(super) fn ready(&self) -> u32 {
        u32::try_from(self.idle.borrow().len()).unwrap_or(u32::MAX).saturating_add(self.making.get())
    }

    pub(super) fn making(&self, connections: u32) {
        self.making.set(self.making.get() + connections);
    }

    pub(super) fn made(&self, connections: u32) {
        self.making.set(self.making.get().saturating_sub(connections));
    }

    /// One that was to be ready has not come about; the next is tried later, ever later.
    pub(super) fn failed(&self) {
        let (last, left) = self.rest.get();
        // Several that were tried together are one failure.
        if left.is_zero() {
            let next = (last * 2).clamp(SHORTEST_REST, LONGEST_REST);
            self.rest.set((next, next));
        }
    }

    /// One has.
    pub(super) fn succeeded(&self) {
        self.rest.set(Default::default());
    }

    pub(super) fn rests_from_failure(&self) -> bool {
        !self.rest.get().1.is_zero()
    }

    /// Whether this is the endpoint of that standing: an address that went and came back has another.
    pub(super) fn has(&self, standing: &Arc<Standing>) -> bool {
        Arc::ptr_eq(&self.standing, standing)
    }

    /// An exchange shares a connection with another one.
    pub(super) fn rides(&self) {
        self.standing.rides();
    }

    /// One that did is over.
    pub(super) fn rides_no_more(&self) {
        self.standing.rides_no_more();
    }

    /// The most recently used idle connection that is still good.
    pub(super) fn take(self: &Rc<Self>, cluster: &Rc<Cluster>) -> Option<Leased> {
        loop {
            let Idle { mut connection, since } = self.idle.borrow_mut().pop()?;
            if connection.is_quiet() {
                // One that nobody has used may have rested as well; where ALPN decides, most go on to who waits for them.
                connection.reused |= !since.is_zero();
                return Some(Leased { connection, lease: Lease::new(self, cluster) });
            }
        }
    }

    /// The same of those that speak for this client.
    pub(super) fn take_for(self: &Rc<Self>, cluster: &Rc<Cluster>, announced: &Announced) -> Option<Leased> {
        loop {
            let mut idle = self.idle.borrow_mut();
            let place = idle.iter().rposition(|idle| idle.connection.announced.as_deref() == Some(announced))?;
            let mut connection = idle.remove(place).connection;
            drop(idle);
            if connection.is_quiet() {
                return Some(Leased { connection, lease: Lease::new(self, cluster) });
            }
        }
    }

    /// Takes in a connection that nobody has used yet.
    pub(super) fn rest(&self, connection: Connection) {
        self.idle.borrow_mut().push(Idle { connection, since: Duration::ZERO });
    }

    /// Ages idle connections by `elapsed`; closes those past `limit`, and the longest unused while there are too many.
    fn sweep(&self, elapsed: Duration, limit: Duration, budget: &Budget) {
        let now = self.time.get().saturating_add(elapsed);
        self.time.set(now);
        let (rest, left) = self.rest.get();
        self.rest.set((rest, left.saturating_sub(elapsed)));
        self.idle.borrow_mut().retain_mut(|idle| {
            idle.since += elapsed;
            idle.since < limit && idle.connection.ends > now && !budget.exceeded() && idle.connection.is_quiet()
        });
        self.http2.sweep(elapsed, limit, || budget.exceeded());
    }

    /// Nobody will take from here again, but who has begun to.
    pub(super) fn retire(&self) {
        self.retired.set(true);
        self.let_go();
    }

    /// Gives up its connections: idle ones at once, HTTP/2 ones behind their last stream.
    fn let_go(&self) {
        self.idle.borrow_mut().clear();
        self.http2.retire();
    }

    pub(super) fn is_retired(&self) -> bool {
        self.retired.get()
    }
}

/// A connection with its [`Lease`].
#[derive(Debug)]
pub(super) struct Leased {
    connection: Connection,
    lease: Lease,
}

/// The right to an exchange with an endpoint; counts as load until dropped.
#[derive(Debug)]
pub(super) struct Lease {
    cluster: Rc<Cluster>,
    pool: Rc<EndpointPool>,
    /// Whether the exchange has been counted for or against the endpoint.
    judged: Cell<bool>,
    /// Whether its end is that of a request among those that are bounded.
    has_room: Cell<bool>,
}

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
    fn new(pool: &Rc<EndpointPool>, cluster: &Rc<Cluster>) -> Self {
        pool.standing.begin();
        Self { cluster: Rc::clone(cluster), pool: Rc::clone(pool), judged: Cell::new(false), has_room: Cell::new(false) }
    }

    /// The request is over when this is.
    pub(super) fn has_room(&self) {
        self.has_room.set(true);
    }

    /// The response's head is here, and may already be a failure.
    pub(super) fn answered(&self, status: StatusCode) {
        if self.cluster.judge.as_ref().is_some_and(|judge| judge.blames(status)) {
            self.failed();
        }
    }

    /// Fields are here in which gRPC says how a call has ended, if it has.
    pub(super) fn said(&self, fields: &HeaderMap) {
        if self.cluster.judge.is_some()
            && let Some(status) = judge::of_grpc(fields)
        {
            self.answered(status);
        }
    }

    /// The response is complete.
    pub(super) fn completed(&self) {
        if let Some(judge) = &self.cluster.judge
            && !self.judged.replace(true)
        {
            judge.good(&self.pool.standing);
        }
    }

    /// There is no response, or no end of it.
    pub(super) fn broke(&self, error: &ExchangeError, when: Circumstances) {
        match judge::verdict(error, when) {
            Verdict::Failure => self.failed(),
            Verdict::As(status) => self.answered(status),
            Verdict::Nothing => {}
        }
    }

    /// The endpoint has failed.
    pub(super) fn failed(&self) {
        if !self.judged.replace(true) {
            self.cluster.failed(&self.pool);
        }
    }

    /// The upstream.
    pub(super) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Puts a clean connection back.
    pub(super) fn give_back(self, mut connection: Connection) {
        let Self { cluster, pool, .. } = &self;
        let mut idle = pool.idle.borrow_mut();
        if connection.announced.is_some() && idle.len() >= MAX_IDLE {
            // Its client is here; who knows where the longest unused one's is.
            idle.remove(0);
        }
        let is_young = connection.ends > pool.time.get();
        if is_young && !pool.retired.get() && idle.len() < MAX_IDLE && !cluster.budget.exceeded() {
            connection.reused = true;
            idle.push(Idle { connection, since: Duration::ZERO });
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.pool.standing.end();
        if self.has_room.get() {
            self.cluster.group.traffic.leave();
        }
        if self.cluster.bounds.max_pending > 0 {
            self.cluster.group.traffic.freed();
        }
    }
}

/// Idle connections per worker and endpoint: beyond this a burst's connections are closed rather than kept.
const MAX_IDLE: usize = 256;
/// How long an endpoint is left alone that has not taken a connection which was only to be ready.
const SHORTEST_REST: Duration = Duration::from_secs(1);
const LONGEST_REST: Duration = Duration::from_secs(30);
