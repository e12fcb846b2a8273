//! The shape of `gateway.yaml`: what was typed, no more.
//!
//! Types map 1:1 to the file; `compile` turns them into a snapshot or into diagnostics. Nothing here checks a reference or
//! has behaviour beyond its defaults. [`document`] reads a file into these types and collects every shape error in one go.
//!
//! A key whose capability does not exist yet has the type [`NotYet`], which refuses it by name: never silently ignored.

pub mod diagnostic;
pub mod document;
mod position;
mod words;

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::units::{ByteSize, Share, Span};
pub use words::{
    ApiKeySource, Endpoint, List, NamedField, NotYet, Number, Per, PerPart, PerWord, ProxyRange, RateSpec, Windows, Workers,
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
    /// Proxies whose X-Forwarded-For and identity headers are believed: CIDR ranges, or the names `loopback` and `private`.
    #[serde(default)]
    pub trusted_proxies: List<ProxyRange>,
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
    /// Not available in this version.
    #[serde(default)]
    #[schemars(skip)]
    pub clients_file: NotYet,
    /// Requests that no limit counts.
    #[serde(default)]
    pub exempt: Vec<Exception>,
    /// Requests refused at once with 403.
    #[serde(default)]
    pub blocked: Vec<Exception>,
    /// A request must pass all limits that match; it is charged to all or to none.
    #[serde(default)]
    pub limits: Vec<Limit>,
    /// Not available in this version.
    #[serde(default)]
    #[schemars(skip)]
    pub schedules: NotYet,
    /// Where requests go; the most specific pattern wins.
    pub routes: Vec<Route>,
    /// Sets of interchangeable servers.
    #[serde(default)]
    pub upstreams: BTreeMap<String, Upstream>,
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

/// One listening socket.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Listener {
    /// Names it in logs and metrics.
    pub name: String,
    /// `ip:port` or `[v6]:port`.
    pub address: String,
    /// Protocols in clear text: HTTP/2 by prior knowledge.
    #[serde(default = "default_protocols")]
    pub protocols: List<Protocol>,
    /// The PROXY protocol; only `off` in this version.
    #[serde(default)]
    pub proxy_protocol: ProxyProtocol,
    /// Connections at once.
    #[serde(default = "default_max_connections")]
    pub max_connections: u32,
    /// Connections at once from one grouped address; 0 means no limit.
    #[serde(default = "default_max_connections_per_ip")]
    pub max_connections_per_ip: u32,
    /// Not available in this version.
    #[serde(default)]
    #[schemars(skip)]
    pub tls: NotYet,
    /// Patience with clients.
    #[serde(default)]
    pub timeouts: ListenerTimeouts,
}

/// A protocol a listener speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// HTTP/1.1 and 1.0.
    Http1,
    /// HTTP/2.
    Http2,
}

/// Whether connections start with a PROXY protocol header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProxyProtocol {
    /// They don't.
    #[default]
    Off,
    /// They must.
    Required,
}

/// Patience with clients.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ListenerTimeouts {
    /// Not available in this version.
    #[schemars(skip)]
    pub handshake: NotYet,
    /// From a request's first byte to the end of its head.
    pub header: Span,
    /// Between two bytes of a request body.
    pub body_idle: Span,
    /// Between two requests.
    pub keep_alive: Span,
    /// A response byte that the client doesn't take.
    pub write_idle: Span,
}

impl Default for ListenerTimeouts {
    fn default() -> Self {
        Self { handshake: NotYet, header: seconds(10), body_idle: seconds(30), keep_alive: seconds(75), write_idle: seconds(30) }
    }
}

/// The admin listener.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Admin {
    /// `ip:port`. Anything but loopback requires a token.
    pub address: String,
    /// Bearer token for everything but `/healthz` and `/readyz`; empty means none.
    pub token: String,
}

impl Default for Admin {
    fn default() -> Self {
        Self { address: "127.0.0.1:9900".to_owned(), token: String::new() }
    }
}

/// How paths are compared.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Paths {
    /// Where upper and lower case are the same.
    pub ignore_case: IgnoreCase,
    /// Whether `/a/` and `/a` are the same resource.
    pub trailing_slash: TrailingSlash,
    /// What an encoded slash or backslash in a path means.
    pub encoded_slash: EncodedSlash,
}

/// Where upper and lower case are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum IgnoreCase {
    /// In `limits` and `blocked`, so that `/LOGIN` does not escape a limit on `/login`.
    #[default]
    Limits,
    /// In routes and exemptions as well.
    Always,
    /// Nowhere.
    Never,
}

/// Whether a trailing slash matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TrailingSlash {
    /// It doesn't.
    #[default]
    Same,
    /// It does.
    Distinct,
}

/// What an encoded slash means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EncodedSlash {
    /// 400.
    #[default]
    Reject,
    /// An ordinary character of the segment.
    Allow,
}

/// Who is calling.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Identity {
    /// `client` in a limit's `per` is the first of these that is known.
    pub order: Option<Vec<IdentityPart>>,
    /// API keys.
    pub api_key: ApiKey,
    /// Users.
    pub user: User,
    /// How addresses are grouped.
    pub ip: IpGrouping,
}

/// A way to know a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IdentityPart {
    /// By its API key.
    ApiKey,
    /// By its user.
    User,
    /// By its address.
    Ip,
}

/// Where API keys are looked for.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ApiKey {
    /// Places, tried in order; the header `x-api-key` by default.
    pub sources: Option<List<ApiKeySource>>,
    /// What happens to a key nobody has.
    pub unknown: Unknown,
}

/// What happens to somebody who presents something unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Unknown {
    /// 401.
    #[default]
    Reject,
    /// As if nothing had been presented.
    Anonymous,
}

/// Users named by a trusted proxy.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct User {
    /// Not available in this version.
    #[schemars(skip)]
    pub jwt: NotYet,
    /// The header with the user's name; believed only from a trusted proxy.
    pub header: Option<String>,
    /// The header with the user's tier; likewise.
    pub tier_header: Option<String>,
}

/// How many leading bits of an address count as one client.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct IpGrouping {
    /// 0 to 32.
    pub ipv4_prefix: u8,
    /// 0 to 128.
    pub ipv6_prefix: u8,
}

impl Default for IpGrouping {
    fn default() -> Self {
        Self { ipv4_prefix: 32, ipv6_prefix: 64 }
    }
}

/// A known client.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Client {
    /// Unique.
    pub id: String,
    /// `sha256:` digests of its keys; `tollgate hash-key` prints one.
    #[serde(default)]
    pub api_keys: List<String>,
    /// Users that belong to it.
    #[serde(default)]
    pub users: List<String>,
    /// Its tier.
    pub tier: Option<String>,
    /// Its tenant.
    pub tenant: Option<String>,
    /// Rates that REPLACE those of the named limits for this client.
    #[serde(default)]
    pub limits: BTreeMap<String, Windows>,
    /// Whether nothing is counted for it.
    #[serde(default)]
    pub exempt: bool,
}

/// Who or what is exempt or blocked; all that is given must hold.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Exception {
    /// Addresses.
    pub ip: Option<List<String>>,
    /// Path patterns.
    pub path: Option<List<String>>,
    /// Clients.
    pub client: Option<List<String>>,
}

/// A named rule.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// `[a-z0-9-]`, unique: names the counter, the metric label and the header's policy.
    pub name: String,
    /// What gets a counter of its own.
    pub per: Per,
    /// Which requests it counts.
    #[serde(default, rename = "match")]
    pub matches: Match,
    /// Which of those it doesn't.
    #[serde(default)]
    pub unless: Option<Match>,
    /// The rate: one, several, or by tier.
    pub rate: Option<RateSpec>,
    /// Requests in flight, instead of a rate.
    pub concurrency: Option<u32>,
    /// How it counts.
    #[serde(default)]
    pub algorithm: Algorithm,
    /// Cells per request; the route's cost by default.
    pub cost: Option<Number>,
    /// What happens when a part of `per` is missing.
    pub missing: Option<Missing>,
    /// Whether it refuses.
    #[serde(default)]
    pub mode: Mode,
    /// What happens over the limit; only `reject` in this version.
    #[serde(default)]
    pub over: Over,
    /// Not available in this version.
    #[serde(default)]
    #[schemars(skip)]
    pub count: NotYet,
    /// Not available in this version.
    #[serde(default)]
    #[schemars(skip)]
    pub refund: NotYet,
    /// Not available in this version.
    #[serde(default)]
    #[schemars(skip)]
    pub consistency: NotYet,
    /// Not available in this version.
    #[serde(default)]
    #[schemars(skip)]
    pub on_failure: NotYet,
    /// Not available in this version.
    #[serde(default)]
    #[schemars(skip)]
    pub response: NotYet,
    /// Not available in this version.
    #[serde(default)]
    #[schemars(skip)]
    pub align: NotYet,
    /// Not available in this version.
    #[serde(default)]
    #[schemars(skip)]
    pub timezone: NotYet,
    /// Not available in this version.
    #[serde(default)]
    #[schemars(skip)]
    pub warmup: NotYet,
}

/// How a limit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    /// Smooth, with a burst.
    #[default]
    Gcra,
    /// A count that starts again with every window.
    FixedWindow,
    /// Not available in this version.
    #[schemars(skip)]
    TokenBucket,
    /// Not available in this version.
    #[schemars(skip)]
    LeakyBucket,
    /// Not available in this version.
    #[schemars(skip)]
    SlidingWindow,
    /// Not available in this version.
    #[schemars(skip)]
    SlidingLog,
}

/// What happens when a part of `per` is missing from a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Missing {
    /// The limit does not apply.
    Skip,
    /// All such requests share one counter.
    Shared,
}

/// Whether a limit refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// It does.
    #[default]
    Enforce,
    /// It counts and logs, and never refuses.
    Shadow,
    /// It isn't there.
    Off,
}

/// What happens over the limit.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Over {
    /// The request is refused.
    #[default]
    Reject,
    /// Not available in this version.
    #[schemars(skip)]
    Delay(IgnoredAny),
}

/// Which requests. All that is given must hold; a list is any-of.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Match {
    /// Path patterns with `{x}` and, last, `{*rest}`.
    pub path: Option<List<String>>,
    /// Methods.
    pub methods: Option<List<String>>,
    /// Hosts; `*.example.com` is any one or more labels below.
    pub hosts: Option<List<String>>,
    /// Header values; `*` is any value.
    pub headers: Option<BTreeMap<String, String>>,
    /// Query parameters; `*` is any value.
    pub query: Option<BTreeMap<String, String>>,
    /// Routes by name.
    pub routes: Option<List<String>>,
    /// Tiers.
    pub tiers: Option<List<String>>,
    /// Clients by id.
    pub clients: Option<List<String>>,
    /// Address ranges.
    pub ips: Option<List<String>>,
    /// Whether the client is known by key or user.
    pub authenticated: Option<bool>,
    /// Not available in this version.
    #[schemars(skip)]
    pub key_prefix: NotYet,
    /// Not available in this version.
    #[schemars(skip)]
    pub schedule: NotYet,
}

/// Which requests go to a route. All that is given must hold; a list is any-of.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RouteMatch {
    /// Hosts; `*.example.com` is any one or more labels below.
    pub hosts: Option<List<String>>,
    /// Path patterns with `{x}` and, last, `{*rest}`.
    pub path: Option<List<String>>,
    /// Methods.
    pub methods: Option<List<String>>,
    /// Header values; `*` is any value.
    pub headers: Option<BTreeMap<String, String>>,
}

/// Where requests go.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// Unique.
    pub name: String,
    /// Which requests.
    #[serde(default, rename = "match")]
    pub matches: RouteMatch,
    /// The upstream to forward to.
    pub upstream: Option<String>,
    /// A fixed answer instead.
    pub respond: Option<FixedResponse>,
    /// Cells per request in every limit that does not set its own.
    pub cost: Option<u32>,
    /// What upstream sees as the path.
    pub rewrite: Option<Rewrite>,
    /// Changes on the way to upstream.
    #[serde(default)]
    pub request_headers: HeaderEdits,
    /// Changes on the way back.
    #[serde(default)]
    pub response_headers: HeaderEdits,
    /// Largest request body.
    pub max_body: Option<ByteSize>,
    /// Patience with upstream.
    #[serde(default)]
    pub timeouts: RouteTimeouts,
    /// Not available in this version.
    #[serde(default)]
    #[schemars(skip)]
    pub cors: NotYet,
}

/// A fixed answer.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FixedResponse {
    /// 200 to 599.
    #[serde(default = "default_status")]
    pub status: u16,
    /// The body.
    #[serde(default)]
    pub body: String,
    /// Its type.
    #[serde(default = "default_content_type")]
    pub content_type: String,
}

/// What upstream sees as the path; one of the two.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Rewrite {
    /// Removes this from the front of the path.
    pub strip_prefix: Option<String>,
    /// The whole path, with `{x}` from the route's pattern.
    pub path: Option<String>,
}

/// Changes to headers: remove, then set, then add.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HeaderEdits {
    /// Replaces or adds.
    pub set: BTreeMap<String, String>,
    /// Adds a line.
    pub add: BTreeMap<String, String>,
    /// Removes.
    pub remove: List<String>,
}

/// Patience with upstream, per route.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RouteTimeouts {
    /// Until the response's head; the upstream's by default.
    pub response: Option<Span>,
    /// The whole exchange.
    pub total: Option<Span>,
}

/// A set of interchangeable servers.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Upstream {
    /// Their addresses.
    #[serde(default)]
    pub endpoints: List<Endpoint>,
    /// Instead of endpoints: an upstream inside the gateway.
    pub builtin: Option<Builtin>,
    /// What is spoken to them; HTTP/1.1 in this version.
    #[serde(default)]
    pub protocol: UpstreamProtocol,
    /// How one is chosen; `least_requests` (power of two choices) in this version.
    #[serde(default)]
    pub balance: Balance,
    /// Patience with them.
    #[serde(default)]
    pub timeouts: UpstreamTimeouts,
    /// Connections to all of them at once.
    #[serde(default = "default_upstream_connections")]
    pub max_connections: u32,
    /// Not available in this version.
    #[serde(default)]
    #[schemars(skip)]
    pub health: NotYet,
    /// Not available in this version.
    #[serde(default)]
    #[schemars(skip)]
    pub outlier: NotYet,
    /// Not available in this version.
    #[serde(default)]
    #[schemars(skip)]
    pub retry: NotYet,
    /// Not available in this version.
    #[serde(default)]
    #[schemars(skip)]
    pub tls: NotYet,
}

/// An upstream inside the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Builtin {
    /// Answers with what it received.
    Echo,
}

/// What is spoken to an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UpstreamProtocol {
    /// HTTP/1.1 in clear text.
    #[default]
    Auto,
    /// HTTP/1.1.
    Http1,
    /// Not available in this version.
    #[schemars(skip)]
    Http2,
}

/// How an endpoint is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Balance {
    /// The less busy of two picked at random.
    #[default]
    LeastRequests,
    /// Not available in this version.
    #[schemars(skip)]
    RoundRobin,
    /// Not available in this version.
    #[schemars(skip)]
    Random,
    /// Not available in this version.
    #[schemars(skip)]
    Hash(IgnoredAny),
}

/// Patience with an upstream.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UpstreamTimeouts {
    /// Until connected.
    pub connect: Span,
    /// Until the response's head, and between two bytes of its body.
    pub response: Span,
    /// How long an unused connection is kept.
    pub idle: Span,
}

impl Default for UpstreamTimeouts {
    fn default() -> Self {
        Self { connect: seconds(2), response: seconds(30), idle: seconds(60) }
    }
}

/// Where counters live.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Store {
    /// In this process.
    pub memory: MemoryStore,
    /// Not available in this version.
    #[schemars(skip)]
    pub redis: NotYet,
}

/// Counters in this process.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MemoryStore {
    /// Counters kept at most.
    pub max_keys: u32,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self { max_keys: 1_000_000 }
    }
}

/// What a refused client gets.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Rejection {
    /// 400 to 599.
    pub status: u16,
    /// The body's form.
    pub body: RejectionBody,
    /// The families of rate-limit headers, on every counted response.
    pub headers: List<RateLimitHeaders>,
    /// Not available in this version.
    #[schemars(skip)]
    pub grpc_status: NotYet,
}

impl Default for Rejection {
    fn default() -> Self {
        Self {
            status: 429,
            body: RejectionBody::default(),
            headers: List(vec![RateLimitHeaders::XRatelimit, RateLimitHeaders::Ietf]),
            grpc_status: NotYet,
        }
    }
}

/// The form of a refusal's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RejectionBody {
    /// `{"error": …, "message": …}`.
    #[default]
    Simple,
    /// RFC 9457 problem details.
    Problem,
    /// Not available in this version.
    #[schemars(skip)]
    Stripe,
}

/// A family of rate-limit headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RateLimitHeaders {
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`, the latter in seconds from now.
    XRatelimit,
    /// `RateLimit` and `RateLimit-Policy` (draft-10).
    Ietf,
    /// `RateLimit-Limit`, `-Remaining` and `-Reset` (draft-03).
    #[serde(rename = "ietf-03")]
    Ietf03,
    /// `X-RateLimit-*` with `-Reset` in seconds since 1970.
    Github,
}

/// One line per request.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AccessLog {
    /// Its form.
    pub format: LogFormat,
    /// `stdout`, `stderr` or a file's path.
    pub to: String,
    /// The share of requests that are logged; refusals and errors always are.
    pub sample: Share,
}

impl Default for AccessLog {
    fn default() -> Self {
        Self { format: LogFormat::Json, to: "stdout".to_owned(), sample: Share(1.0) }
    }
}

/// The form of the access log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// One JSON object per line.
    #[default]
    Json,
    /// One line of text.
    Text,
    /// None.
    Off,
}

/// What happens on SIGTERM.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Shutdown {
    /// How long requests are still accepted while `/readyz` already fails.
    pub delay: Span,
    /// How long requests in flight may take after that.
    pub drain: Span,
}

impl Default for Shutdown {
    fn default() -> Self {
        Self { delay: seconds(0), drain: seconds(30) }
    }
}

fn default_protocols() -> List<Protocol> {
    List(vec![Protocol::Http1, Protocol::Http2])
}

fn default_max_connections() -> u32 {
    20_000
}

fn default_max_connections_per_ip() -> u32 {
    200
}

fn default_upstream_connections() -> u32 {
    1000
}

fn default_status() -> u16 {
    200
}

fn default_content_type() -> String {
    "text/plain; charset=utf-8".to_owned()
}

fn seconds(n: u64) -> Span {
    Span(Duration::from_secs(n))
}
