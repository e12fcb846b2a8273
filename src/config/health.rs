//! `health`, `outlier` and `balance` of an upstream: which of its endpoints are used, and how often.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::{List, StatusPattern, seconds};
use crate::units::{Share, Span};

/// How an endpoint is chosen.
#[derive(Debug, Clone, PartialEq)]
pub enum Balance {
    /// A word.
    Word(BalanceWord),
    /// `{hash: …}`.
    Hash(HashBalance),
}

/// The words of `balance`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BalanceWord {
    /// The less busy of two picked at random.
    LeastRequests,
    /// In turn.
    RoundRobin,
    /// By chance.
    Random,
}

/// Requests with the same key go to the same endpoint.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HashBalance {
    /// `client`, `ip` or `header:NAME`.
    pub hash: String,
    /// How many times its fair share of the load an endpoint takes before requests go to their next choice; more than 1.
    #[serde(default = "default_load_bound")]
    pub load_bound: f64,
}

fn default_load_bound() -> f64 {
    1.25
}

impl Default for Balance {
    fn default() -> Self {
        Self::Word(BalanceWord::LeastRequests)
    }
}

impl<'de> Deserialize<'de> for Balance {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WordOrHash;
        impl<'de> Visitor<'de> for WordOrHash {
            type Value = Balance;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("round_robin, random, least_requests, or {hash: client}")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Balance, E> {
                BalanceWord::deserialize(text.into_deserializer()).map(Balance::Word)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Balance, A::Error> {
                HashBalance::deserialize(MapAccessDeserializer::new(map)).map(Balance::Hash)
            }
        }
        deserializer.deserialize_any(WordOrHash)
    }
}

impl JsonSchema for Balance {
    fn schema_name() -> Cow<'static, str> {
        "Balance".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let word = generator.subschema_for::<BalanceWord>();
        let hash = generator.subschema_for::<HashBalance>();
        json_schema!({ "anyOf": [word, hash] })
    }
}

/// Asking endpoints how they are.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Health {
    /// What is asked.
    #[serde(rename = "type")]
    pub kind: HealthType,
    /// What an `http` check gets; `/` by default.
    pub path: Option<String>,
    /// The `Host` that it names; the endpoint's own address by default.
    pub host: Option<String>,
    /// Which statuses are good; `2xx` by default.
    pub status: Option<List<StatusPattern>>,
    /// What the body's first 64 KiB have to contain, if anything.
    pub body: Option<String>,
    /// Whose health a `grpc` check asks for; the whole server's by default.
    pub service: Option<String>,
    /// From one answer to the next question, give or take a tenth.
    pub interval: Span,
    /// For connection and answer together.
    pub timeout: Span,
    /// So many good answers in a row bring an endpoint back.
    pub healthy_after: u32,
    /// So many bad ones take it out.
    pub unhealthy_after: u32,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            kind: HealthType::Http,
            path: None,
            host: None,
            status: None,
            body: None,
            service: None,
            interval: seconds(5),
            timeout: seconds(1),
            healthy_after: 2,
            unhealthy_after: 3,
        }
    }
}

/// What a health check asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HealthType {
    /// A GET, in what requests speak.
    #[default]
    Http,
    /// Whether it accepts a connection.
    Tcp,
    /// `grpc.health.v1.Health/Check` over HTTP/2.
    Grpc,
}

/// Taking out endpoints whose answers are bad.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Outlier {
    /// So many failures in a row.
    pub consecutive_failures: u32,
    /// Which statuses are failures, besides broken and missing answers; 5xx only.
    pub status: List<StatusPattern>,
    /// The first time for this long, the second time for twice as long, and so on.
    pub eject_for: Span,
    /// But never longer; by default 5 minutes, or `eject_for` if that is more.
    pub max_eject_for: Option<Span>,
    /// No more than this share of the endpoints at once, rounded down.
    pub max_ejected: Share,
    /// Also by the share of good answers.
    pub success_rate: Option<SuccessRate>,
}

impl Default for Outlier {
    fn default() -> Self {
        let status = [502, 503, 504].map(|code| StatusPattern { from: code, to: code });
        Self {
            consecutive_failures: 5,
            status: List(status.to_vec()),
            eject_for: seconds(30),
            max_eject_for: None,
            max_ejected: Share(0.5),
            success_rate: None,
        }
    }
}

/// What share of an endpoint's answers has to be good.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SuccessRate {
    /// With fewer requests in a window nothing is said about an endpoint.
    pub minimum_requests: u32,
    /// A smaller share of good answers takes it out.
    pub below: Share,
    /// How long is counted.
    pub window: Span,
}

impl Default for SuccessRate {
    fn default() -> Self {
        Self { minimum_requests: 100, below: Share(0.8), window: seconds(10) }
    }
}
