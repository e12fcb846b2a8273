//! Words about addresses: whose word is believed about them, how they are grouped, and who may connect to a socket file.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, MapAccess, Visitor};

/// One entry of `trusted_proxies`: a range, the name of one, or a number of hops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrustedProxy {
    /// A CIDR range, a single address or a name.
    Range(String),
    /// `{hops: N}`: this many proxies in a row, the connection's peer included.
    Hops(u8),
}

impl<'de> Deserialize<'de> for TrustedProxy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Hops {
            hops: u8,
        }
        struct RangeOrHops;
        impl<'de> Visitor<'de> for RangeOrHops {
            type Value = TrustedProxy;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a range such as 10.0.0.0/8, a name such as loopback or private, or {hops: N}")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<TrustedProxy, E> {
                Ok(TrustedProxy::Range(text.to_owned()))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<TrustedProxy, A::Error> {
                Hops::deserialize(MapAccessDeserializer::new(map)).map(|Hops { hops }| TrustedProxy::Hops(hops))
            }
        }
        deserializer.deserialize_any(RangeOrHops)
    }
}

impl JsonSchema for TrustedProxy {
    fn schema_name() -> Cow<'static, str> {
        "TrustedProxy".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [
            { "type": "string", "description": "A CIDR range, an address, or loopback, private, link_local, unique_local, cgnat." },
            { "type": "object", "additionalProperties": false, "required": ["hops"], "properties": {
                "hops": { "type": "integer", "minimum": 1, "maximum": 32 } } },
        ] })
    }
}

/// The header in which trusted proxies name the addresses before them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ForwardedHeader {
    /// A list of addresses.
    #[default]
    XForwardedFor,
    /// RFC 7239.
    Forwarded,
}

/// A limit's own grouping of addresses: `{ip: {ipv6_prefix: 48}}`. What is not given is as in `identity.ip`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct IpPrefixes {
    /// 0 to 32.
    #[schemars(range(max = 32))]
    pub ipv4_prefix: Option<u8>,
    /// 0 to 128.
    #[schemars(range(max = 128))]
    pub ipv6_prefix: Option<u8>,
}

/// Permission bits of a socket file, written in octal: `"0660"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileMode(pub u32);

impl<'de> Deserialize<'de> for FileMode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Octal;
        impl Visitor<'_> for Octal {
            type Value = FileMode;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("permission bits as text in octal, with quotes: \"0660\"")
            }
            // A number is refused: what YAML makes of 0660, 660 and 0o660 is three different things.
            fn visit_str<E: de::Error>(self, text: &str) -> Result<FileMode, E> {
                let octal = (3..=4).contains(&text.len()) && text.bytes().all(|b| (b'0'..=b'7').contains(&b));
                let mode = u32::from_str_radix(text, 8).ok().filter(|mode| octal && *mode <= 0o777);
                mode.map(FileMode).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_any(Octal)
    }
}

impl JsonSchema for FileMode {
    fn schema_name() -> Cow<'static, str> {
        "FileMode".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^0?[0-7]{3}$" })
    }
}
