//! The compiled configuration: immutable but for which schedules are active, numbered, swapped whole.
//!
//! `compile` makes it, a request loads it once, and a reload puts another in its place. Counters, connections and
//! metrics are not in here, so they outlive it; handles to metrics are, so that counting needs no look-up by name.

mod adaptive;
mod endpoints;
mod health;
mod retry;

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::StatusCode;
use tokio::sync::Semaphore;

use crate::config::Secret;
use crate::headers::{Family, IdentityHeaders};
use crate::identity::{Grouping, IdentityRules, LoggedAddress, Pseudonyms};
use crate::policy::Policy;
use crate::request::PathRules;
use crate::respond::{BodyForm, GrpcStatus};
use crate::socket::Address;
use crate::store::Budget;
use crate::store::redis::link;
use crate::telemetry::access_log::Format;
use crate::telemetry::metrics::{Counter, Histogram};
use crate::tls::{ClientTls, ServerTls, TlsMetrics};
use crate::websocket::Refusal;

pub use adaptive::Adaptive;
pub use endpoints::{Dns, Endpoint, EndpointSet, Families, List, Origin, Place, Query, Source};
pub use health::{Balance, HashBy, HealthCheck, Outlier, Probe, SuccessRate};
pub use retry::{Retry, RetryOn};

/// One generation.
#[derive(Debug)]
pub struct Snapshot {
    /// Its number, from 1.
    pub generation: u64,
    /// How paths are brought to normal form.
    pub path_rules: PathRules,
    /// Who is calling.
    pub identity: IdentityRules,
    /// Headers with a meaning of their own.
    pub identity_headers: IdentityHeaders,
    /// Routes and limits.
    pub policy: Policy,
    /// By `UpstreamId`.
    pub upstreams: Vec<Upstream>,
    /// How names of endpoints are resolved.
    pub dns: Dns,
    /// What a refused client gets.
    pub rejection: Rejection,
    /// The access log, unless it is off.
    pub access_log: Option<AccessLog>,
    /// How the store's room is shared out.
    pub rooms: Vec<Room>,
    /// By the place of a limit in the policy.
    pub limit_metrics: Vec<LimitMetrics>,
    /// By `RouteId`.
    pub route_metrics: Vec<RouteMetrics>,
    /// Of requests that were answered before they had a route.
    pub unrouted_metrics: RouteMetrics,
    /// Sockets.
    pub listeners: Vec<Arc<Listener>>,
    /// What takes effect only at start.
    pub process: Process,
}

/// A worker's hold on a generation: counted without touching the count that all workers share.
pub type LocalSnapshot = Rc<Arc<Snapshot>>;

/// A room in the store: that of a window of a limit, or of what warm-up remembers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Room {
    /// Which limit's; `/warmup` is behind its name for what warm-up remembers.
    pub limit: Box<str>,
    /// How much.
    pub budget: Budget,
}

/// A set of interchangeable servers.
#[derive(Debug)]
pub struct Upstream {
    /// Its name.
    pub name: Arc<str>,
    /// Its servers.
    pub kind: UpstreamKind,
    /// What is spoken to them.
    pub protocol: UpstreamProtocol,
    /// Until connected.
    pub connect_timeout: Duration,
    /// Until the response's head, and between two bytes of its body.
    pub response_timeout: Duration,
    /// How long an unused connection is kept.
    pub idle_timeout: Duration,
    /// How long a connection takes new requests, at most; `None` is for as long as it lasts.
    pub max_age: Option<Duration>,
    /// Connections that each worker keeps ready to each endpoint.
    pub min_connections: u32,
    /// Whether connections begin with a PROXY protocol header, of which version.
    pub proxy_protocol: Option<ProxyVersion>,
    /// Connections at once, over all workers.
    pub max_connections: u32,
    /// How it is spoken to over TLS; there if an endpoint wants that.
    pub tls: Option<Arc<ClientTls>>,
    /// How an endpoint is chosen.
    pub balance: Balance,
    /// How long an endpoint that returns takes to its full share; zero is at once.
    pub slow_start: Duration,
    /// With less than this share of its endpoints in order, all are used; from 0 to 1, and 0 is never.
    pub panic_below: f64,
    /// Whether endpoints are asked how they are.
    pub health: Option<HealthCheck>,
    /// Whether endpoints are taken out for their answers.
    pub outlier: Option<Outlier>,
    /// Whether its limit of exchanges in flight is found out.
    pub adaptive: Option<Adaptive>,
    /// Requests at once, over all workers, those that wait included.
    pub max_requests: Option<u32>,
    /// Requests that wait for a connection, over all workers.
    pub max_pending: u32,
    /// Whether requests are tried again.
    pub retry: Option<Retry>,
}

/// What is spoken to an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpstreamProtocol {
    /// What ALPN comes to; HTTP/1.1 in clear text.
    Auto,
    /// HTTP/1.1.
    Http1,
    /// HTTP/2; by prior knowledge in clear text.
    Http2,
}

/// A version of the PROXY protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProxyVersion {
    /// A line of text.
    V1,
    /// Binary.
    V2,
}

/// What an upstream is.
#[derive(Debug)]
pub enum UpstreamKind {
    /// Servers.
    Endpoints(EndpointSet),
    /// Inside the gateway: answers with what it received.
    Echo,
}

impl Upstream {
    /// Its endpoints at the moment.
    #[must_use]
    pub fn endpoints(&self) -> Arc<Vec<Endpoint>> {
        match &self.kind {
            UpstreamKind::Endpoints(set) => set.current(),
            UpstreamKind::Echo => Arc::default(),
        }
    }
}

/// What a refused client gets.
#[derive(Debug)]
pub struct Rejection {
    /// Usually 429.
    pub status: StatusCode,
    /// What gRPC calls get instead.
    pub grpc_status: GrpcStatus,
    /// The form of every body the gateway makes.
    pub form: BodyForm,
    /// Rate-limit fields.
    pub families: Vec<Family>,
}

/// The access log.
#[derive(Debug)]
pub struct AccessLog {
    /// The form of a line.
    pub format: Format,
    /// Of 2^32 requests, how many are logged; refusals and errors always are.
    pub sample: u64,
    /// How much of an address is told.
    pub addresses: Addresses,
}

/// How much of a client's address the access log tells.
#[derive(Debug)]
pub enum Addresses {
    /// All of it.
    Full,
    /// Its network, and a pseudonym for the rest.
    Hashed(Pseudonyms),
}

impl Addresses {
    /// What is told of an address that limits group in this way.
    #[must_use]
    pub fn logged(&self, address: IpAddr, grouping: Grouping) -> LoggedAddress {
        match self {
            Self::Full => LoggedAddress { network: WHOLE.network_of(address), pseudonym: None },
            Self::Hashed(pseudonyms) => pseudonyms.logged(address, grouping),
        }
    }
}

const WHOLE: Grouping = Grouping { ipv4_prefix: 32, ipv6_prefix: 128 };

/// Counters of a limit.
#[derive(Debug)]
pub struct LimitMetrics {
    /// Refused, by tier.
    pub limited: Vec<Counter>,
    /// Would have been refused, by tier.
    pub shadow: Vec<Counter>,
    /// Cells taken from requests whose response had the last word.
    pub reserved: Counter,
    /// Cells those came to cost.
    pub settled: Counter,
    /// How long requests waited for their place.
    pub delay: Histogram,
}

/// Counters of a route.
#[derive(Debug)]
pub struct RouteMetrics {
    /// By class of status, 1xx first.
    pub by_class: Vec<Counter>,
    /// Durations.
    pub duration: Histogram,
    /// Of its upgraded connections, if it has any.
    pub upgrades: Option<Box<UpgradeMetrics>>,
    /// Of each side, by its place in the split, if there is one.
    pub sides: Vec<SideMetrics>,
    /// Of its copies, if it has any.
    pub mirror: Option<Arc<MirrorMetrics>>,
}

/// Counters of one of the upstreams that share a route.
#[derive(Debug)]
pub struct SideMetrics {
    /// The upstream's name.
    pub upstream: Box<str>,
    /// By class of status, 1xx first.
    pub by_class: Vec<Counter>,
    /// Durations.
    pub duration: Histogram,
}

/// Counters of a route's copies.
#[derive(Debug)]
pub struct MirrorMetrics {
    /// Answered with anything below 500.
    pub answered: Counter,
    /// Answered with 5xx.
    pub server_error: Counter,
    /// Not answered.
    pub failed: Counter,
    /// Not sent, because the request's body did not come to its end.
    pub abandoned: Counter,
    /// Not sent, because the body was too large.
    pub too_large: Counter,
    /// Not made, because there were too many already.
    pub dropped: Counter,
    /// How many there are.
    pub in_flight: Counter,
    /// From sending a copy to the end of its answer.
    pub duration: Histogram,
}

/// Counters of a route's upgraded connections.
#[derive(Debug, Clone)]
pub struct UpgradeMetrics {
    /// How many there are.
    pub open: Counter,
    /// How long they lasted.
    pub duration: Histogram,
    /// Bytes that came from clients.
    pub received: Counter,
    /// Bytes that went to clients.
    pub sent: Counter,
    /// WebSockets ended because of what the client sent, by [`Refusal`].
    pub refused: Vec<(Refusal, Counter)>,
}

/// A listening socket's settings.
#[derive(Debug)]
pub struct Listener {
    /// Its name.
    pub name: Arc<str>,
    /// Its address.
    pub address: Address,
    /// Who may connect to a Unix socket, as permission bits of its file.
    pub mode: u32,
    /// Every connection begins with a PROXY protocol header.
    pub proxy_protocol: bool,
    /// TLS, if it is spoken.
    pub tls: Option<ListenerTls>,
    /// HTTP/1.1 is spoken.
    pub http1: bool,
    /// HTTP/2 is spoken.
    pub http2: bool,
    /// Connections at once.
    pub max_connections: u32,
    /// Connections at once per grouped address; 0 means no limit.
    pub max_connections_per_ip: u32,
    /// From a connection's beginning to the end of its TLS handshake.
    pub handshake_timeout: Duration,
    /// From a request's first byte to its head's last.
    pub header_timeout: Duration,
    /// Between two bytes of a request body.
    pub body_idle_timeout: Duration,
    /// Bytes of a request body per second, at least.
    pub min_body_rate: Option<NonZeroU32>,
    /// Between two requests.
    pub keep_alive_timeout: Duration,
    /// A response byte that the client doesn't take.
    pub write_idle_timeout: Duration,
}

/// TLS on a listener.
#[derive(Debug)]
pub struct ListenerTls {
    /// Certificates and what goes with them.
    pub server: Arc<ServerTls>,
    /// A permit for each handshake under way; of this generation.
    pub handshakes: Semaphore,
    /// How they end.
    pub metrics: TlsMetrics,
}

/// What takes effect only at start; a reload that changes it says so in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Worker threads; `None` is one per core.
    pub workers: Option<u16>,
    /// The admin listener.
    pub admin_address: Address,
    /// Who may connect to it, if that is a Unix socket.
    pub admin_mode: u32,
    /// Its token.
    pub admin_token: Option<Secret>,
    /// Where the access log goes.
    pub access_log_to: Box<str>,
    /// The store that other gateways count in too.
    pub shared_store: Option<SharedStoreSettings>,
    /// Requests are still accepted for this long after SIGTERM.
    pub shutdown_delay: Duration,
    /// Requests in flight may take this long after that.
    pub shutdown_drain: Duration,
}

/// The store that other gateways count in too.
#[derive(Debug, Clone)]
pub struct SharedStoreSettings {
    /// Where and how.
    pub settings: link::Settings,
    /// Its certificates, if it is spoken to over TLS.
    pub tls: Option<Arc<ClientTls>>,
    /// What counters' digests are keyed with.
    pub key: [u8; 16],
    /// The same for the same settings, and for no others.
    pub digest: [u8; 32],
}

impl PartialEq for SharedStoreSettings {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Eq for SharedStoreSettings {}

/// Holds the generation in force. Workers ask whether anything is new, which costs one load, and fetch it when something is.
#[derive(Debug)]
pub struct Current {
    snapshot: ArcSwap<Snapshot>,
    generation: AtomicU64,
    /// Goes up with every change, of the configuration or of endpoints.
    epoch: AtomicU64,
    stopping: AtomicBool,
}

impl Current {
    /// Starts with this one.
    #[must_use]
    pub fn new(snapshot: Snapshot) -> Self {
        let generation = AtomicU64::new(snapshot.generation);
        let epoch = AtomicU64::new(0);
        Self { snapshot: ArcSwap::from_pointee(snapshot), generation, epoch, stopping: AtomicBool::new(false) }
    }

    /// Says that the process is about to end: from now on responses tell their clients not to come back on this connection.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Whether the process is about to end.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// The number of the generation in force.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The generation in force.
    #[must_use]
    pub fn load(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// Puts another in force.
    pub fn replace(&self, snapshot: Snapshot) {
        let generation = snapshot.generation;
        self.snapshot.store(Arc::new(snapshot));
        // After the snapshot, so that whoever sees the number finds at least that snapshot.
        self.generation.store(generation, Ordering::Release);
        self.touch();
    }

    /// What workers compare with what they have seen: another number means that something is new.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Says that the endpoints of the generation in force have changed.
    pub fn touch(&self) {
        self.epoch.fetch_add(1, Ordering::Release);
    }
}
