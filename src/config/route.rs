//! `routes` and `upstreams`: where requests go.

use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;

use super::{
    AdaptiveConcurrency, Balance, Destination, Discover, Endpoint, Health, KeyPair, List, Mirror, NotYet, Outlier,
    ProxyProtocolOut, Retry, seconds,
};
use crate::units::{ByteRate, ByteSize, RateOrUnlimited, Share, Span};

/// Which requests go to a route. All that is given must hold; a list is any-of.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
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
    /// The upstream to forward to, or several by weight.
    pub upstream: Option<Destination>,
    /// Copies of requests for another upstream.
    pub mirror: Option<Mirror>,
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
    /// Protocols that a connection may be upgraded to; `websocket` by default, `[]` for none.
    pub upgrade: Option<List<String>>,
    /// Limits on what a client sends over one WebSocket.
    pub websocket: Option<WebSocket>,
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
    /// The whole exchange; of an upgrade, until it has been answered.
    pub total: Option<Span>,
    /// How long an upgraded connection may be silent in both directions; `1h` by default.
    pub tunnel_idle: Option<Span>,
}

/// Limits on what a client sends over one WebSocket. Each connection is counted by itself.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WebSocket {
    /// Messages.
    pub messages: Option<RateOrUnlimited>,
    /// Bytes of whole frames as they come over the wire.
    pub bytes: Option<ByteRate>,
    /// The largest message, over all of its frames.
    pub max_message: Option<ByteSize>,
}

/// A set of interchangeable servers.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Upstream {
    /// Their addresses: `http://host:port`, `https://host:port`, `unix:/path`, or a service that DNS knows, `http+srv://_http._tcp.example`.
    #[serde(default)]
    pub endpoints: List<Endpoint>,
    /// More of them, in a file of their own.
    pub discover: Option<Discover>,
    /// Instead of endpoints: an upstream inside the gateway.
    pub builtin: Option<Builtin>,
    /// What is spoken to them.
    #[serde(default)]
    pub protocol: UpstreamProtocol,
    /// How one is chosen: `least_requests` (the less busy of two), `round_robin`, `random` or `{hash: client}`.
    #[serde(default)]
    pub balance: Balance,
    /// How long one that returns takes to its full share; `0s`, at once, by default.
    #[serde(default = "no_time")]
    pub slow_start: Span,
    /// Patience with them.
    #[serde(default)]
    pub timeouts: UpstreamTimeouts,
    /// Connections to all of them at once.
    #[serde(default = "default_upstream_connections")]
    pub max_connections: u32,
    /// Connections that each worker keeps ready to each endpoint; none by default.
    #[serde(default)]
    pub min_connections: u32,
    /// Whether connections begin with a header that names the client; then no two clients share one. `off` by default.
    #[serde(default)]
    pub proxy_protocol: ProxyProtocolOut,
    /// Asks endpoints how they are; those that are not well get no requests.
    pub health: Option<Health>,
    /// Takes out endpoints whose answers are bad.
    pub outlier: Option<Outlier>,
    /// Finds out how many requests at once are best, and sheds what is more, unimportant tiers first.
    pub adaptive_concurrency: Option<AdaptiveConcurrency>,
    /// With less than this share of the endpoints in order, all but drained ones are used; `0%`, never, by default.
    #[serde(default = "nothing")]
    pub panic_below: Share,
    /// Requests to all of them at once, those that wait included; no bound by default.
    pub max_requests: Option<u32>,
    /// Requests that wait for one of `max_connections`, for `timeouts.connect` at most; 0, none, by default.
    #[serde(default)]
    pub max_pending: u32,
    /// Tries again what has failed, where that is safe.
    pub retry: Option<Retry>,
    /// TLS towards `https://` endpoints.
    pub tls: Option<UpstreamTls>,
}

/// TLS towards an upstream. All files are read again when they change.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UpstreamTls {
    /// A file with the authorities that vouch for it, in PEM form, instead of the public ones.
    pub ca: Option<String>,
    /// The name in its certificate; the URL's host by default.
    pub server_name: Option<String>,
    /// The certificate we show.
    pub client_cert: Option<KeyPair>,
    /// Whether anybody is believed to be the upstream: for trying things out.
    pub insecure: bool,
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
    /// HTTP/1.1.
    #[default]
    Auto,
    /// HTTP/1.1.
    Http1,
    /// HTTP/2, in clear text by prior knowledge.
    Http2,
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
    /// How long a connection takes new requests, at most; for as long as it lasts by default.
    pub max_age: Option<Span>,
}

impl Default for UpstreamTimeouts {
    fn default() -> Self {
        Self { connect: seconds(2), response: seconds(30), idle: seconds(60), max_age: None }
    }
}

fn default_upstream_connections() -> u32 {
    1000
}

fn no_time() -> Span {
    seconds(0)
}

fn nothing() -> Share {
    Share(0.0)
}

fn default_status() -> u16 {
    200
}

fn default_content_type() -> String {
    "text/plain; charset=utf-8".to_owned()
}
