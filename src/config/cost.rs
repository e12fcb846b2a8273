//! What a request costs and what happens over a limit: a word or number, or a map that says more.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, de::IgnoredAny};

use super::NOT_AVAILABLE;
use crate::units::Span;

/// The cost of a route: a plain number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Number(pub u32);

/// Cells per request of a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cost {
    /// Always the same.
    Fixed(u32),
    /// What a header says that a trusted proxy set.
    Header(HeaderCost),
    /// What the response's header says.
    ResponseHeader(ResponseHeaderCost),
    /// What a number in the response's JSON says.
    ResponseJson(ResponseJsonCost),
}

/// `{header: N, default: 1, max: 100}`.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HeaderCost {
    /// The request header.
    pub header: String,
    /// Without it, or not from a trusted proxy.
    #[serde(default = "one")]
    pub default: u32,
    /// More is counted as this; the most that the window ever takes at once by default.
    pub max: Option<u32>,
}

/// `{response_header: N, reserve: 1, max: 100}`.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResponseHeaderCost {
    /// The response header. It stays in the response.
    pub response_header: String,
    /// Taken until the response is there, and if it says nothing.
    #[serde(default = "one")]
    pub reserve: u32,
    /// More is counted as this; the most that the window ever takes at once by default.
    pub max: Option<u32>,
}

/// `{response_json: usage.total_tokens, reserve: 500, max: 100000}`.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResponseJsonCost {
    /// The path of a number in the response's JSON, or in the last event of an event stream.
    pub response_json: String,
    /// Taken until the response has ended, and if it says nothing.
    #[serde(default = "one")]
    pub reserve: u32,
    /// More is counted as this; the most that the window ever takes at once by default.
    pub max: Option<u32>,
}

/// What happens over the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Over {
    /// The request is refused.
    #[default]
    Reject,
    /// It waits for its place.
    Delay(Delay),
}

/// `{max: 2s, queue: 100}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Delay {
    /// Who would wait longer is refused.
    pub max: Span,
    /// Who finds this many waiting is refused.
    #[serde(default = "hundred")]
    pub queue: u32,
}

fn one() -> u32 {
    1
}

fn hundred() -> u32 {
    100
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NumberOnly;
        impl<'de> Visitor<'de> for NumberOnly {
            type Value = Number;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(WHOLE)
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Number, E> {
                cells(number).map(Number)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Number, A::Error> {
                IgnoredAny.visit_map(map)?;
                Err(de::Error::custom("a route's cost is a number; a cost from headers or responses belongs to a limit"))
            }
        }
        deserializer.deserialize_any(NumberOnly)
    }
}

impl<'de> Deserialize<'de> for Cost {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NumberOrMap;
        impl<'de> Visitor<'de> for NumberOrMap {
            type Value = Cost;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{WHOLE}, {{header: NAME}}, {{response_header: NAME}} or {{response_json: PATH}}")
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Cost, E> {
                cells(number).map(Cost::Fixed)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Cost, A::Error> {
                Written::deserialize(MapAccessDeserializer::new(map))?.cost()
            }
        }
        deserializer.deserialize_any(NumberOrMap)
    }
}

/// Every key of every form: which one it is can only be said when all are there.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    header: Option<String>,
    response_header: Option<String>,
    response_json: Option<String>,
    graphql: Option<IgnoredAny>,
    default: Option<u32>,
    reserve: Option<u32>,
    max: Option<u32>,
}

impl Written {
    fn cost<E: de::Error>(self) -> Result<Cost, E> {
        let Self { header, response_header, response_json, graphql, default, reserve, max } = self;
        if graphql.is_some() {
            return Err(E::custom(format!("`graphql` is {NOT_AVAILABLE}")));
        }
        match (header, response_header, response_json, default, reserve) {
            (Some(header), None, None, default, None) => {
                Ok(Cost::Header(HeaderCost { header, default: default.unwrap_or_else(one), max }))
            }
            (None, Some(response_header), None, None, reserve) => {
                Ok(Cost::ResponseHeader(ResponseHeaderCost { response_header, reserve: reserve.unwrap_or_else(one), max }))
            }
            (None, None, Some(response_json), None, reserve) => {
                Ok(Cost::ResponseJson(ResponseJsonCost { response_json, reserve: reserve.unwrap_or_else(one), max }))
            }
            (None, None, None, ..) => Err(E::custom("a cost has one of header, response_header and response_json")),
            (Some(_), None, None, _, Some(_)) => {
                Err(E::custom("a cost from a request header reserves nothing; it has a `default`"))
            }
            (None, _, _, Some(_), _) => Err(E::custom("a cost from the response has no `default`; it has a `reserve`")),
            _ => Err(E::custom("a cost has one of header, response_header and response_json")),
        }
    }
}

impl<'de> Deserialize<'de> for Over {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WordOrMap;
        impl<'de> Visitor<'de> for WordOrMap {
            type Value = Over;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("reject, or {delay: {max: 2s, queue: 100}}")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Over, E> {
                match text {
                    "reject" => Ok(Over::Reject),
                    "delay" => Err(E::custom("say how long a request may wait: {delay: {max: 2s, queue: 100}}")),
                    _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
                }
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Over, A::Error> {
                #[derive(Deserialize)]
                #[serde(deny_unknown_fields)]
                struct Delayed {
                    delay: Delay,
                }
                Delayed::deserialize(MapAccessDeserializer::new(map)).map(|Delayed { delay }| Over::Delay(delay))
            }
        }
        deserializer.deserialize_any(WordOrMap)
    }
}

fn cells<E: de::Error>(number: u64) -> Result<u32, E> {
    u32::try_from(number).map_err(|_| E::invalid_value(de::Unexpected::Unsigned(number), &WHOLE))
}

const WHOLE: &str = "a whole number from 0 to 4294967295";

impl JsonSchema for Number {
    fn schema_name() -> Cow<'static, str> {
        "RouteCost".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": 0, "maximum": u32::MAX })
    }
}

impl JsonSchema for Cost {
    fn schema_name() -> Cow<'static, str> {
        "Cost".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let fixed = generator.subschema_for::<Number>();
        let header = generator.subschema_for::<HeaderCost>();
        let response_header = generator.subschema_for::<ResponseHeaderCost>();
        let response_json = generator.subschema_for::<ResponseJsonCost>();
        json_schema!({ "anyOf": [fixed, header, response_header, response_json] })
    }
}

impl JsonSchema for Over {
    fn schema_name() -> Cow<'static, str> {
        "Over".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let delay = generator.subschema_for::<Delay>();
        let delayed = json_schema!({ "type": "object", "additionalProperties": false, "required": ["delay"], "properties": { "delay": delay } });
        json_schema!({ "anyOf": [{ "const": "reject" }, delayed] })
    }
}
