//! The shape of `gateway.yaml`: what was typed, no more.
//!
//! Types map 1:1 to the file; `compile` turns them into a snapshot or into diagnostics. Nothing here checks a reference or
//! has behaviour beyond its defaults. [`document`] reads a file into these types and collects every shape error in one go.
//!
//! A key whose capability does not exist yet has the type [`NotYet`], which refuses it by name: never silently ignored.

mod adaptive;
mod address;
mod clients_file;
mod cost;
mod destination;
pub mod diagnostic;
mod discovery;
pub mod document;
mod excerpt;
mod health;
mod identity;
mod limit;
mod listener;
mod operation;
mod position;
mod repair;
mod retry;
mod route;
mod schedule;
mod secret;
mod source;
mod store;
mod substitution;
mod token;
mod words;

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::units::Span;
pub use adaptive::AdaptiveConcurrency;
pub use address::{FileMode, ForwardedHeader, IpPrefixes, TrustedProxy};
pub use clients_file::ClientsFile;
pub use cost::{Cost, Delay, HeaderCost, Number, Over, ResponseHeaderCost, ResponseJsonCost};
pub use destination::{Destination, Mirror};
pub use discovery::{Discover, Dns, Family, ProxyProtocolOut, read_endpoints};
pub use health::{Balance, BalanceWord, HashBalance, Health, HealthType, Outlier, SuccessRate};
pub use identity::{ApiKey, Client, ClientKey, Exception, Identity, IdentityForward, IdentityPart, IpGrouping, Unknown, User};
pub use limit::{Algorithm, Align, During, Limit, Match, Missing, Mode, Statuses, Warmup};
pub use listener::{
    ClientCertificateMode, ClientCertificates, EncodedSlash, IgnoreCase, KeyPair, Listener, ListenerTimeouts, ListenerTls, Paths,
    Protocol, ProxyProtocol, TrailingSlash,
};
pub use operation::{
    AccessLog, Admin, GrpcStatus, LogAddresses, LogFormat, RateLimitHeaders, Rejection, RejectionBody, Shutdown,
};
pub use retry::{Backoff, Retry, RetryOn};
pub use route::{
    Builtin, FixedResponse, HeaderEdits, Rewrite, Route, RouteMatch, RouteTimeouts, Upstream, UpstreamProtocol, UpstreamTimeouts,
    UpstreamTls, WebSocket,
};
pub use schedule::Schedule;
pub use source::{MainFile, Place, Source};
pub use store::{Consistency, MemoryStore, OnFailure, Redis, Store, Topology};
pub use token::{Jwt, Secret, TokenAlgorithm, TokenClaims, TokenKeys};
pub(crate) use words::NOT_AVAILABLE;
pub use words::{
    ApiKeySource, Endpoint, List, NamedField, NotYet, Per, PerPart, PerWord, RateSpec, StatusPattern, Windows, Workers,
};

/// The whole file.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where requests come in; at least one.
    pub listeners: Vec<Listener>,
    /// Metrics, health and control.
    #[serde(default)]
    pub admin: Admin,
    /// Worker threads: `auto` is one per core.
    #[serde(default)]
    pub workers: Workers,
    /// Proxies whose forwarding and identity headers are believed: CIDR ranges, names such as `loopback` and `private`, or
    /// `{hops: N}`.
    #[serde(default)]
    pub trusted_proxies: List<TrustedProxy>,
    /// The header in which those name the addresses before them.
    #[serde(default)]
    pub forwarded_header: ForwardedHeader,
    /// How paths are compared.
    #[serde(default)]
    pub paths: Paths,
    /// Who is calling.
    #[serde(default)]
    pub identity: Identity,
    /// Tiers, least important first. The first is the tier of whoever has none.
    #[serde(default)]
    pub tiers: Vec<String>,
    /// Known clients.
    #[serde(default)]
    pub clients: Vec<Client>,
    /// More of them: a file with such a list, YAML or JSON, as seen from the working directory. Followed like this one.
    pub clients_file: Option<String>,
    /// Requests that no limit counts.
    #[serde(default)]
    pub exempt: Vec<Exception>,
    /// Requests refused at once with 403.
    #[serde(default)]
    pub blocked: Vec<Exception>,
    /// A request must pass all limits that match; it is charged to all or to none.
    #[serde(default)]
    pub limits: Vec<Limit>,
    /// Named times, for `match.schedule` and `during`.
    #[serde(default)]
    pub schedules: BTreeMap<String, Schedule>,
    /// Where requests go; the most specific pattern wins.
    pub routes: Vec<Route>,
    /// Sets of interchangeable servers.
    #[serde(default)]
    pub upstreams: BTreeMap<String, Upstream>,
    /// How names of endpoints are resolved.
    #[serde(default)]
    pub dns: Dns,
    /// Where counters live.
    #[serde(default)]
    pub store: Store,
    /// What a refused client gets.
    #[serde(default)]
    pub rejection: Rejection,
    /// One line per request.
    #[serde(default)]
    pub access_log: AccessLog,
    /// Not available in this version.
    #[serde(default)]
    #[schemars(skip)]
    pub telemetry: NotYet,
    /// What happens on SIGTERM.
    #[serde(default)]
    pub shutdown: Shutdown,
}

fn seconds(n: u64) -> Span {
    Span(Duration::from_secs(n))
}
