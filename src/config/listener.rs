//! `listeners` and `paths`: where requests come in, and how their paths are compared.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{FileMode, List, seconds};
use crate::units::{ByteRateOrOff, Rate, Span};

/// One listening socket.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Listener {
    /// Names it in logs and metrics.
    pub name: String,
    /// `ip:port`, `[v6]:port` or `unix:/path`.
    pub address: String,
    /// Who may connect to a Unix socket: its file's permission bits, `"0660"` by default.
    pub mode: Option<FileMode>,
    /// Protocols: in clear text HTTP/2 by prior knowledge, over TLS by ALPN.
    #[serde(default = "default_protocols")]
    pub protocols: List<Protocol>,
    /// Whether connections begin with a PROXY protocol header, v1 or v2.
    #[serde(default)]
    pub proxy_protocol: ProxyProtocol,
    /// Connections at once.
    #[serde(default = "default_max_connections")]
    pub max_connections: u32,
    /// Connections at once from one grouped address; 0 means no limit.
    #[serde(default = "default_max_connections_per_ip")]
    pub max_connections_per_ip: u32,
    /// TLS instead of clear text.
    pub tls: Option<ListenerTls>,
    /// Patience with clients.
    #[serde(default)]
    pub timeouts: ListenerTimeouts,
}

/// TLS towards clients. All files are read again when they change.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListenerTls {
    /// Certificates, chosen by the name a client asks for; the first is the default.
    pub certificates: List<KeyPair>,
    /// Whether clients are asked for a certificate.
    pub client_certificates: Option<ClientCertificates>,
    /// Handshakes at once; more wait for their turn.
    #[serde(default = "default_max_handshakes")]
    pub max_handshakes: u32,
}

/// A certificate and its key, both in PEM form.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KeyPair {
    /// The certificate's file, with those that vouch for it behind it.
    pub cert: String,
    /// The key's file.
    pub key: String,
}

/// Certificates of clients.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClientCertificates {
    /// A file with the authorities that vouch for them, in PEM form.
    pub ca: String,
    /// Whether there must be one.
    #[serde(default)]
    pub mode: ClientCertificateMode,
}

/// Whether a client must have a certificate. A bad one is refused either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ClientCertificateMode {
    /// It must.
    #[default]
    Required,
    /// It may.
    Optional,
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
    /// The TLS handshake, from a connection's beginning.
    pub handshake: Span,
    /// From a request's first byte to the end of its head.
    pub header: Span,
    /// Between two bytes of a request body.
    pub body_idle: Span,
    /// How fast a request body has to come, on average over any stretch longer than `body_idle`; not those of gRPC calls.
    pub min_body_rate: ByteRateOrOff,
    /// Between two requests.
    pub keep_alive: Span,
    /// A response byte that the client doesn't take.
    pub write_idle: Span,
}

impl Default for ListenerTimeouts {
    fn default() -> Self {
        Self {
            handshake: seconds(10),
            header: seconds(10),
            body_idle: seconds(30),
            min_body_rate: DEFAULT_MIN_BODY_RATE,
            keep_alive: seconds(75),
            write_idle: seconds(30),
        }
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
    /// It separates segments like a plain one.
    Allow,
}

/// Slower than any modem that was ever sold for this, and what Kestrel has asked of its clients by default for years.
const DEFAULT_MIN_BODY_RATE: ByteRateOrOff =
    ByteRateOrOff::Rate(Rate { count: 240, period: Duration::from_secs(1), burst: None });

fn default_protocols() -> List<Protocol> {
    List(vec![Protocol::Http1, Protocol::Http2])
}

fn default_max_connections() -> u32 {
    20_000
}

/// A tenth of the connections.
fn default_max_handshakes() -> u32 {
    2000
}

fn default_max_connections_per_ip() -> u32 {
    200
}
