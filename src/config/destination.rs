//! `upstream` and `mirror` of a route: whose requests go where, and where copies of them go.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::units::{ByteSize, Share};

/// Where a route's requests go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// To this upstream.
    One(String),
    /// To these by weight, each client always to the same; `0` is nobody.
    Split(BTreeMap<String, u32>),
}

impl Destination {
    /// The names of all upstreams in it.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let (one, split) = match self {
            Self::One(name) => (Some(name.as_str()), None),
            Self::Split(sides) => (None, Some(sides.keys().map(String::as_str))),
        };
        one.into_iter().chain(split.into_iter().flatten())
    }
}

impl<'de> Deserialize<'de> for Destination {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameOrWeights;
        impl<'de> Visitor<'de> for NameOrWeights {
            type Value = Destination;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of an upstream, or a map from names to weights such as {stable: 90, canary: 10}")
            }
            fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Destination, E> {
                Ok(Destination::One(name.to_owned()))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Destination, A::Error> {
                BTreeMap::deserialize(MapAccessDeserializer::new(map)).map(Destination::Split)
            }
        }
        deserializer.deserialize_any(NameOrWeights)
    }
}

impl JsonSchema for Destination {
    fn schema_name() -> Cow<'static, str> {
        "Destination".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let weight = json_schema!({ "type": "integer", "minimum": 0, "maximum": 1_000_000 });
        json_schema!({ "anyOf": [{ "type": "string" }, { "type": "object", "minProperties": 1, "additionalProperties": weight }] })
    }
}

/// Copies of requests for another upstream, whose answers nobody waits for.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mirror {
    /// The upstream that gets them.
    pub upstream: String,
    /// Of how many requests; all by default.
    #[serde(default = "all")]
    pub sample: Share,
    /// Requests with a larger body have no copy; `64KiB` by default.
    #[serde(default = "default_max_body")]
    pub max_body: ByteSize,
    /// Copies under way at once; of what comes on top there is none.
    #[serde(default = "default_max_in_flight")]
    pub max_in_flight: u32,
}

fn all() -> Share {
    Share(1.0)
}

fn default_max_body() -> ByteSize {
    ByteSize(64 << 10)
}

fn default_max_in_flight() -> u32 {
    100
}
