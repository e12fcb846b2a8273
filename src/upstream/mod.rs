//! Upstreams alive: which endpoint, over which connection, and what to do when it fails.
//!
//! HTTP/1.1 has a codec of our own and an exchange per connection (`http1`), HTTP/2 many of them on each (`http2`). A [`Client`]
//! belongs to one worker thread, with pools of its own, so taking a connection needs no lock. What workers
//! share is in [`Shared`]: each endpoint's load and standing, and the count of connections. Pools and standing are kept by upstream and
//! address, so a reload keeps connections and who is out of use. Forwarding asks for a [`Permit`]: nothing gets here around admission.
//!
//! [`balance`] chooses among the endpoints that may be used; `health` (a thread of its own, [`Watch`]), `judge` (by the outcome of every
//! exchange) and the operator decide which those are, in `group`. What has failed is tried again in `retry`; `bulkhead` bounds how much of
//! the gateway an upstream may take.

mod adaptive;
mod announce;
pub mod balance;
mod bulkhead;
mod chunked;
mod connect;
mod destination;
mod download;
mod echo;
mod event;
#[doc(hidden)]
pub mod fuzzing;
mod group;
mod health;
mod http1;
mod http2;
mod judge;
mod lifetime;
mod outlier;
mod payload;
mod pool;
mod ready;
mod registry;
mod response_body;
mod retry;
mod shared;
mod standing;
mod switched;
mod transport;

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::io;
use std::num::NonZeroU64;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::uri::Scheme;
use http::{HeaderMap, Method, StatusCode};
use tokio_rustls::rustls::pki_types::ServerName;

use crate::admission::Permit;
use crate::body::RequestBodyError;
use crate::clock::deadline::Deadline;
use crate::headers::{EndToEndFields, EndToEndHead, Framing, Offer, ResponseHead, Unsayable};
use crate::request::ConnInfo;
use crate::snapshot::{Endpoint, ProxyVersion, Snapshot};
use crate::telemetry::metrics::{self, Counter, Lane, Registry};
use crate::tls;

pub use adaptive::{AdaptiveState, Limited, Place, Shed};
pub use destination::{Destination, Destinations};
pub use group::EndpointState;
pub use health::Watch;
pub use http1::{ClientBody, ExchangeError};
pub use payload::Payload;
pub use pool::Shared;
pub use registry::UpstreamState;
pub use response_body::ResponseBody;
pub use switched::Switched;

use announce::Announced;
use connect::{Asked, Established, connect};
use download::Download;
use http1::{Connection, Exchange};
use judge::Circumstances;
use pool::{Cluster, EndpointName, EndpointPool, Lease, Leased};
use retry::{Reason, Tried};
use transport::ConnectError;

/// A worker's way to upstreams.
#[derive(Debug)]
pub struct Client {
    shared: Arc<Shared>,
    /// Of the generation that was followed last.
    clusters: RefCell<Destinations>,
    pools: RefCell<HashMap<PoolName, Rc<EndpointPool>>>,
    lane: Lane,
}

/// Connections made with other TLS settings, for another name or without, are in other pools; so are those that begin with a header.
type PoolName = (EndpointName, Option<(tls::Identity, ServerName<'static>)>, Option<ProxyVersion>);

/// A request's cleaned head, in the form of the protocol that is spoken: asked for when that is known. And who hears what upstream says to it
/// before its response.
pub trait Heads {
    /// For HTTP/1.1.
    fn http1(&self) -> EndToEndHead;

    /// For HTTP/2, on a connection of this scheme.
    ///
    /// # Errors
    /// [`Unsayable`] when there is no such form.
    fn http2(&self, scheme: &Scheme) -> Result<EndToEndFields, Unsayable>;

    /// Takes an interim response, cleaned.
    fn interim(&self, head: &ResponseHead);
}

/// What to send, where.
pub struct Request<'a> {
    /// The method, which decides whether a response has a body and what may be tried again.
    pub method: &'a Method,
    /// The cleaned head.
    pub heads: &'a dyn Heads,
    /// How the body is delimited.
    pub framing: Framing,
    /// The body.
    pub body: Option<Payload>,
    /// Until the response's head and between two bytes; the upstream's own otherwise.
    pub response_timeout: Option<Duration>,
    /// The whole exchange.
    pub total_timeout: Option<TotalTimeout>,
    /// The protocol that upstream may switch to, as the head says. Only HTTP/1.1 has a word for that, so that is what is spoken then.
    pub offer: Option<&'a Offer>,
    /// What requests that go to the same endpoint have in common, where the upstream balances by it.
    pub balance_key: Option<NonZeroU64>,
    /// The client's connection.
    pub conn: &'a ConnInfo,
}

/// How long the whole exchange may take, by who says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TotalTimeout {
    /// The configuration.
    Configured(Duration),
    /// The caller, who may be in any hurry: that it was not enough says nothing about an endpoint.
    Callers(Duration),
}

impl TotalTimeout {
    fn length(self) -> Duration {
        let (Self::Configured(length) | Self::Callers(length)) = self;
        length
    }
}

/// What came back.
#[derive(Debug)]
pub struct Response {
    /// The status.
    pub status: StatusCode,
    /// End-to-end fields.
    pub headers: HeaderMap,
    /// The body.
    pub body: Received,
}

/// A response's body.
#[derive(Debug)]
pub enum Received {
    /// It was short and is here.
    Whole(Bytes),
    /// It is coming.
    Stream(ResponseBody),
    /// There is none: with this 101, upstream has taken the offer.
    Switched(Box<Switched>),
}

impl Received {
    /// What the exchange holds at its endpoint, as long as there is more to come.
    fn lease(&self) -> Option<&Lease> {
        match self {
            Self::Whole(_) => None,
            Self::Stream(body) => body.lease(),
            Self::Switched(switched) => Some(switched.lease()),
        }
    }
}

/// Why nothing came back.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// None of the endpoints may be used.
    #[error("no endpoint is in use")]
    NoEndpoint,
    /// No endpoint accepts a connection.
    #[error("connect: {0}")]
    Connect(io::Error),
    /// The TLS handshake failed: no valid certificate, or nothing in common.
    #[error("TLS: {0}")]
    Tls(io::Error),
    /// None did in time.
    #[error("connect timed out")]
    ConnectTimeout,
    /// The upstream has as many exchanges under way as it may have connections.
    #[error("upstream has no free connection")]
    Saturated,
    /// As many requests as may wait for one do so already.
    #[error("upstream has no free connection, and as many requests as may wait for one")]
    PendingFull,
    /// The upstream has as many requests under way as it may have.
    #[error("upstream has as many requests under way as it may have")]
    RequestsFull,
    /// The exchange failed.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
}

impl From<ConnectError> for UpstreamError {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Tcp(error) => Self::Connect(error),
            ConnectError::Tls(error) => Self::Tls(error),
        }
    }
}

impl Client {
    /// For a worker.
    #[must_use]
    pub fn new(shared: Arc<Shared>, lane: Lane) -> Self {
        Self { shared, clusters: RefCell::default(), pools: RefCell::default(), lane }
    }

    /// Follows a reload, or other endpoints: those that stay keep their connections, the others' are closed once they are idle.
    pub fn follow(&self, snapshot: &Snapshot) {
        let mut pools = self.pools.borrow_mut();
        let before = self.clusters.take();
        let clusters: Rc<[_]> = snapshot
            .upstreams
            .iter()
            .enumerate()
            .map(|(place, upstream)| {
                let made_of = (snapshot.generation, upstream.endpoints());
                if let Some(known) = before.0.get(place).filter(|known| known.is_of(&made_of)) {
                    return Rc::clone(known);
                }
                let identity = upstream.tls.as_ref().map(|tls| tls.identity());
                let mut pool_of = |endpoint: &Endpoint| {
                    let name = (Arc::clone(&upstream.name), Arc::clone(&endpoint.authority));
                    let standing = self.shared.standing(&name);
                    let key = (name, identity.zip(endpoint.tls.clone()), upstream.proxy_protocol);
                    if let Some(known) = pools.get(&key).filter(|pool| pool.has(&standing)) {
                        return Rc::clone(known);
                    }
                    let pool = Rc::new(EndpointPool::new(standing, endpoint.address.clone()));
                    if let Some(before) = pools.insert(key, Rc::clone(&pool)) {
                        before.retire();
                    }
                    pool
                };
                let endpoints = made_of.1.iter().map(|endpoint| (pool_of(endpoint), endpoint.clone())).collect();
                let limited = self.shared.limited(upstream, &snapshot.identity.tiers, self.lane);
                Rc::new(self.shared.cluster(upstream, made_of, endpoints, limited))
            })
            .collect();
        let in_use: HashSet<_> =
            clusters.iter().flat_map(|cluster| &cluster.endpoints).map(|endpoint| Rc::as_ptr(&endpoint.pool)).collect();
        pools.retain(|_, pool| {
            let keep = in_use.contains(&Rc::as_ptr(pool));
            if !keep {
                pool.retire();
            }
            keep
        });
        *self.clusters.borrow_mut() = Destinations(clusters);
    }

    /// Closes connections that have been idle too long. Called by the worker's tick.
    pub fn sweep(&self, elapsed: Duration) {
        for cluster in self.clusters.borrow().0.iter() {
            cluster.sweep(elapsed);
            ready::keep_ready(cluster);
        }
    }

    /// The upstreams of the generation that was followed last.
    #[must_use]
    pub fn destinations(&self) -> Destinations {
        self.clusters.borrow().clone()
    }

    /// Carries out one exchange, and counts it against the upstream if it fails by the upstream's fault. Another endpoint or
    /// connection is tried only while upstream can't have seen the request, or may safely see it twice.
    ///
    /// # Errors
    /// [`UpstreamError`] when there is no response to pass on.
    pub async fn exchange(
        &self,
        permit: &Permit,
        Destination(cluster): &Destination,
        request: Request<'_>,
    ) -> Result<Response, UpstreamError> {
        let result = if cluster.is_echo() {
            echo::answer(request.method, &request.heads.http1(), request.body).await.map_err(UpstreamError::from)
        } else if cluster.is_looked_after() || (cluster.may_share_connections() && request.offer.is_none()) {
            // Boxed, so that plain HTTP/1.1's future is no larger for it.
            Box::pin(self.attempts(cluster, permit, request)).await
        } else {
            self.attempt(cluster, permit, request).await
        };
        if let Err(error) = &result {
            cluster.errors.count(error, self.lane);
        }
        result
    }

    /// Over HTTP/1.1, where nothing is configured that would have to be looked after.
    async fn attempt(&self, cluster: &Rc<Cluster>, permit: &Permit, mut request: Request<'_>) -> Result<Response, UpstreamError> {
        let patience = request.response_timeout.unwrap_or(cluster.response_timeout);
        let total = request.total_timeout.map(running);
        let shares_time = request.shares_time();
        let announced = cluster.announced(request.conn);
        let mut fresh = false;
        loop {
            let mut tried = Tried::default();
            let lease = self.lease(cluster, request.balance_key, announced.as_deref(), fresh, &mut tried);
            let leased = in_time(total.as_deref(), lease).await?;
            let reused = leased.connection_reused();
            let (connection, lease) = leased.into_parts();
            let body = request.body.take();
            let replayable = body.is_none() && request.method.is_idempotent();
            let head = request.heads.http1();
            let mut exchange = Exchange::new(connection, head, request.framing, body, patience, total.clone());
            match exchange.head(request.method, request.offer, request.heads).await {
                Ok((head, rest)) => return Ok(self.over_http1(head, rest, exchange, lease)?),
                // The keep-alive race: upstream closed an idle connection just when we used it.
                Err(ExchangeError::Closed) if reused && replayable && !fresh => {
                    cluster.retries.one(Reason::Closed, self.lane);
                    permit.again();
                    fresh = true;
                }
                Err(error) => {
                    let out_of_shared_time = shares_time && exchange.is_out_of_total();
                    lease.broke(&error, Circumstances { reused, out_of_shared_time });
                    return Err(error.into());
                }
            }
        }
    }

    fn over_http1(&self, head: ResponseHead, rest: Bytes, exchange: Exchange, lease: Lease) -> Result<Response, ExchangeError> {
        lease.answered(head.status);
        if head.status == StatusCode::SWITCHING_PROTOCOLS {
            lease.completed();
            let switched = Box::new(Switched::new(exchange.connection, rest, lease));
            return Ok(Response { status: head.status, headers: head.headers, body: Received::Switched(switched) });
        }
        let mut download = Download::new(head.framing, rest);
        download.check().inspect_err(|_| lease.failed())?;
        // Small responses are complete already; then the connection goes back at once. While the client is
        // still uploading, streaming goes on so that the upload can.
        let whole = if exchange.is_uploading() { None } else { download.take_whole() };
        let body = match whole {
            Some(whole) => {
                lease.completed();
                if head.keep_alive && download.leaves_clean(&exchange) {
                    lease.give_back(exchange.connection);
                }
                Received::Whole(whole)
            }
            None => Received::Stream(ResponseBody::new(download, exchange, lease, head.keep_alive, self.lane)),
        };
        Ok(Response { status: head.status, headers: head.headers, body })
    }

    /// A connection for HTTP/1.1: an idle one, or a new one to the first endpoint that accepts it.
    async fn lease(
        &self,
        cluster: &Rc<Cluster>,
        key: Option<NonZeroU64>,
        announced: Option<&Announced>,
        fresh: bool,
        tried: &mut Tried,
    ) -> Result<Leased, UpstreamError> {
        if cluster.is_saturated() {
            return Err(UpstreamError::Saturated);
        }
        let mut last = UpstreamError::NoEndpoint;
        while let Some(index) = tried.pick(cluster, key) {
            let Some(endpoint) = cluster.endpoints.get(index) else { break };
            if tried.has_unreachable() {
                cluster.retries.one(Reason::Connect, self.lane);
                cluster.errors.count(&last, self.lane);
            }
            let pooled = || match announced {
                None => endpoint.pool.take(cluster),
                Some(announced) => endpoint.pool.take_for(cluster, announced),
            };
            if !fresh && let Some(leased) = pooled() {
                return Ok(leased);
            }
            // Counted before it connects: connects under way are load too.
            let (lease, counted) = (endpoint.lease(cluster), cluster.count_connection());
            let connect = connect(endpoint.pool.address(), announced, cluster.secured(endpoint), Asked::Http1);
            match tokio::time::timeout(cluster.connect_timeout, connect).await {
                Ok(Ok(Established { stream, .. })) => {
                    let mut connection = Connection::new(stream, counted, endpoint.pool.end_of_life(cluster.max_age));
                    connection.announced = announced.copied().map(Box::new);
                    return Ok(Leased::new(connection, lease));
                }
                Ok(Err(error)) => last = error.into(),
                Err(_) => last = UpstreamError::ConnectTimeout,
            }
            lease.failed();
            tried.unreachable(index);
        }
        Err(last)
    }
}

impl Request<'_> {
    /// Whether the client has a part in how long it takes until the response begins.
    fn shares_time(&self) -> bool {
        self.body.is_some() || matches!(self.total_timeout, Some(TotalTimeout::Callers(_)))
    }
}

/// The time of the whole exchange, from now on.
fn running(total: TotalTimeout) -> Rc<Deadline> {
    let deadline = Rc::new(Deadline::new());
    deadline.arm(total.length());
    deadline
}

/// Whether that time is over. Looked at once more, not waited for.
fn is_out_of(total: Option<&Rc<Deadline>>) -> bool {
    let cx = Context::from_waker(Waker::noop());
    total.is_some_and(|total| total.poll_due(&cx).is_ready())
}

/// Connecting counts against the time of the whole exchange.
async fn in_time<L>(total: Option<&Deadline>, lease: impl Future<Output = Result<L, UpstreamError>>) -> Result<L, UpstreamError> {
    let mut lease = pin!(lease);
    std::future::poll_fn(|cx| match (lease.as_mut().poll(cx), total) {
        (Poll::Pending, Some(total)) => total.poll_due(cx).map(|()| Err(UpstreamError::ConnectTimeout)),
        (polled, _) => polled,
    })
    .await
}

/// Failures of an upstream, by kind.
#[derive(Debug)]
struct ErrorCounters {
    no_endpoint: Counter,
    connect: Counter,
    tls: Counter,
    timeout: Counter,
    saturated: Counter,
    pending_full: Counter,
    requests_full: Counter,
    closed: Counter,
    invalid: Counter,
    reset: Counter,
    refused: Counter,
}

impl ErrorCounters {
    fn new(registry: &Registry, upstream: &str) -> Self {
        let counter = |kind| registry.counter(metrics::UPSTREAM_ERRORS, &[("upstream", upstream), ("kind", kind)]);
        Self {
            no_endpoint: counter("no_endpoint"),
            connect: counter("connect"),
            tls: counter("tls"),
            timeout: counter("timeout"),
            saturated: counter("saturated"),
            pending_full: counter("max_pending"),
            requests_full: counter("max_requests"),
            closed: counter("closed"),
            invalid: counter("invalid"),
            reset: counter("reset"),
            refused: counter("refused"),
        }
    }

    fn count(&self, error: &UpstreamError, lane: Lane) {
        match error {
            UpstreamError::NoEndpoint => self.no_endpoint.one(lane),
            UpstreamError::Connect(_) | UpstreamError::ConnectTimeout => self.connect.one(lane),
            UpstreamError::Tls(_) => self.tls.one(lane),
            UpstreamError::Saturated => self.saturated.one(lane),
            UpstreamError::PendingFull => self.pending_full.one(lane),
            UpstreamError::RequestsFull => self.requests_full.one(lane),
            UpstreamError::Exchange(error) => self.count_exchange(error, lane),
        }
    }

    fn count_exchange(&self, error: &ExchangeError, lane: Lane) {
        match error {
            ExchangeError::Closed | ExchangeError::Io(_) => self.closed.one(lane),
            ExchangeError::Timeout => self.timeout.one(lane),
            ExchangeError::Invalid(_) => self.invalid.one(lane),
            ExchangeError::Reset(_) => self.reset.one(lane),
            ExchangeError::Refused => self.refused.one(lane),
            // The client's fault is never upstream's.
            ExchangeError::RequestBody(_) | ExchangeError::Unsayable => {}
        }
    }
}

impl UpstreamError {
    /// The client's part in it, if it was the client's.
    #[must_use]
    pub fn request_body(&self) -> Option<RequestBodyError> {
        match self {
            Self::Exchange(ExchangeError::RequestBody(error)) => Some(*error),
            _ => None,
        }
    }
}
