//! `admin`, `rejection`, `access_log` and `shutdown`: how the gateway is run.

use schemars::JsonSchema;
use serde::Deserialize;

use super::words::word_only;
use super::{FileMode, List, Secret, seconds};
use crate::units::{Share, Span};

/// The admin listener.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Admin {
    /// `ip:port` or `unix:/path`. Anything that other machines may reach requires a token.
    pub address: String,
    /// Who may connect to a Unix socket: its file's permission bits, `"0600"` by default.
    pub mode: Option<FileMode>,
    /// Bearer token for everything but `/healthz` and `/readyz`; empty means none.
    pub token: Secret,
}

impl Default for Admin {
    fn default() -> Self {
        Self { address: "127.0.0.1:9900".to_owned(), mode: None, token: Secret::default() }
    }
}

/// What a refused client gets.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Rejection {
    /// 400 to 599.
    pub status: u16,
    /// The body's form.
    #[serde(deserialize_with = "word_only")]
    pub body: RejectionBody,
    /// The families of rate-limit headers, on every counted response.
    pub headers: List<RateLimitHeaders>,
    /// What gRPC calls over a limit get.
    pub grpc_status: GrpcStatus,
}

impl Default for Rejection {
    fn default() -> Self {
        Self {
            status: 429,
            body: RejectionBody::default(),
            headers: List(vec![RateLimitHeaders::XRatelimit, RateLimitHeaders::Ietf]),
            grpc_status: GrpcStatus::default(),
        }
    }
}

/// The gRPC status of a call over a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum GrpcStatus {
    /// 8: clients don't try again by themselves.
    #[default]
    ResourceExhausted,
    /// 14: clients may try again by themselves.
    Unavailable,
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
    /// How much of a client's address is told.
    pub addresses: LogAddresses,
    /// Makes `client_hash` the same in all gateways that have it, and after a restart. Without one it is another with every start.
    pub hash_key: Option<Secret>,
}

impl Default for AccessLog {
    fn default() -> Self {
        Self {
            format: LogFormat::Json,
            to: "stdout".to_owned(),
            sample: Share(1.0),
            addresses: LogAddresses::Hashed,
            hash_key: None,
        }
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

/// How much of a client's address the access log tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogAddresses {
    /// Its network, /24 or /64 at most, and a keyed digest of the rest.
    #[default]
    Hashed,
    /// All of it.
    Full,
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
