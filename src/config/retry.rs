//! `retry` of an upstream: what is tried again, how often, and when.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, IntoDeserializer, Visitor};
use serde::{Deserialize, Deserializer};

use super::{List, StatusPattern, seconds};
use crate::units::{ByteSize, Share, Span};

/// Trying requests again that upstream has not worked on, or may safely work on twice.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Retry {
    /// So many more tries after the first.
    pub attempts: u32,
    /// After which outcomes: `connect`, `reset`, statuses, and for gRPC `grpc-unavailable` and `grpc-resource-exhausted`.
    pub on: List<RetryOn>,
    /// Retries as a share of the requests of the last ten seconds, over all workers.
    pub budget: Share,
    /// So many a second are allowed however few requests there are.
    pub min_per_second: u32,
    /// The pause before the first retry is at least the first and up to twice that; each further one may be twice as long, up to the second.
    pub backoff: Backoff,
    /// How long one try may take, to connect and then to the response's head; what takes longer is tried again.
    pub per_try: Option<Span>,
    /// The longest pause that a response may ask for with `Retry-After`; who asks for more is not tried again.
    pub max_wait: Span,
    /// How much of a request's body is kept to be sent again.
    pub max_body: ByteSize,
    /// And of all requests' bodies together.
    pub max_bodies: ByteSize,
}

impl Default for Retry {
    fn default() -> Self {
        let status = |code| RetryOn::Status(StatusPattern { from: code, to: code });
        Self {
            attempts: 2,
            on: List(vec![RetryOn::Connect, RetryOn::Reset, status(502), status(503), status(504)]),
            budget: Share(0.2),
            min_per_second: 1,
            backoff: Backoff { from: milliseconds(25), to: milliseconds(250) },
            per_try: None,
            max_wait: seconds(1),
            max_body: ByteSize(64 << 10),
            max_bodies: ByteSize(64 << 20),
        }
    }
}

fn milliseconds(count: u64) -> Span {
    Span(std::time::Duration::from_millis(count))
}

/// An outcome after which a request is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryOn {
    /// No endpoint could be connected to.
    Connect,
    /// The connection or the stream broke before a byte of the response.
    Reset,
    /// gRPC's status 14.
    GrpcUnavailable,
    /// gRPC's status 8.
    GrpcResourceExhausted,
    /// A response with this status.
    Status(StatusPattern),
}

impl<'de> Deserialize<'de> for RetryOn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WordOrStatus;
        impl Visitor<'_> for WordOrStatus {
            type Value = RetryOn;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("connect, reset, grpc-unavailable, grpc-resource-exhausted, or a status such as 503 or 5xx")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<RetryOn, E> {
                match text {
                    "connect" => Ok(RetryOn::Connect),
                    "reset" => Ok(RetryOn::Reset),
                    "grpc-unavailable" => Ok(RetryOn::GrpcUnavailable),
                    "grpc-resource-exhausted" => Ok(RetryOn::GrpcResourceExhausted),
                    "timeout" => Err(E::custom("a try that takes too long is tried again if `per_try` says what too long is")),
                    _ if text.starts_with(|first: char| first.is_ascii_digit()) => {
                        StatusPattern::deserialize(text.into_deserializer()).map(RetryOn::Status)
                    }
                    _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
                }
            }
            fn visit_u64<E: de::Error>(self, code: u64) -> Result<RetryOn, E> {
                StatusPattern::deserialize(code.into_deserializer()).map(RetryOn::Status)
            }
        }
        deserializer.deserialize_any(WordOrStatus)
    }
}

impl JsonSchema for RetryOn {
    fn schema_name() -> Cow<'static, str> {
        "RetryOn".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let status = generator.subschema_for::<StatusPattern>();
        json_schema!({ "anyOf": [{ "enum": ["connect", "reset", "grpc-unavailable", "grpc-resource-exhausted"] }, status] })
    }
}

/// Pauses between tries: `25ms..250ms`, or one duration for both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The shortest.
    pub from: Span,
    /// The longest.
    pub to: Span,
}

impl<'de> Deserialize<'de> for Backoff {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Range;
        impl Visitor<'_> for Range {
            type Value = Backoff;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("two durations such as 25ms..250ms")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Backoff, E> {
                let (from, to) = text.split_once("..").unwrap_or((text, text));
                let span = |text: &str| text.trim().parse::<Span>().map_err(E::custom);
                Ok(Backoff { from: span(from)?, to: span(to)? })
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Backoff, E> {
                self.visit_str(&number.to_string())
            }
        }
        deserializer.deserialize_any(Range)
    }
}

impl JsonSchema for Backoff {
    fn schema_name() -> Cow<'static, str> {
        "Backoff".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "integer"], "pattern": "^[0-9_]+(ms|s|m|h|d)?( *\\.\\. *[0-9_]+(ms|s|m|h|d)?)?$", "description": "two durations such as 25ms..250ms" })
    }
}
