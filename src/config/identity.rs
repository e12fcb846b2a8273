//! `identity`, `clients`, `exempt` and `blocked`: who is who.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, MapAccess, Visitor};

use super::{ApiKeySource, Jwt, List, Windows};

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
    /// What upstream is told.
    pub forward: IdentityForward,
}

/// The headers in which upstream is told who a request is from. Clients can't set them.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct IdentityForward {
    /// For the known client's id.
    pub client: Option<String>,
    /// For the tier.
    pub tier: Option<String>,
    /// For the user.
    pub user: Option<String>,
    /// For the tenant.
    pub tenant: Option<String>,
    /// For the first 12 hexadecimal digits of the key's digest.
    pub key_hash: Option<String>,
    /// For the client's certificate as in RFC 9440; usually `client-cert`.
    pub certificate: Option<String>,
    /// For what is in it, as Envoy writes it; usually `x-forwarded-client-cert`.
    pub certificate_details: Option<String>,
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
    /// Whether keys are taken out before a request is forwarded.
    pub strip: bool,
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

/// Users, by token or named by a trusted proxy.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct User {
    /// Users by token.
    pub jwt: Option<Jwt>,
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
    /// Its keys.
    #[serde(default)]
    pub api_keys: List<ClientKey>,
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

/// A key of a client: its `sha256:` digest, which `tollgate hash-key` prints, or a map with that and when it expires.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientKey {
    /// The digest.
    pub key: String,
    /// A date, or a time as in RFC 3339.
    pub expires: Option<String>,
}

impl fmt::Debug for ClientKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientKey").field("expires", &self.expires).finish_non_exhaustive()
    }
}

impl<'de> Deserialize<'de> for ClientKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Full {
            key: String,
            expires: Option<String>,
        }
        struct TextOrMap;
        impl<'de> Visitor<'de> for TextOrMap {
            type Value = ClientKey;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a digest, or {key: …, expires: 2027-01-01}")
            }
            fn visit_str<E: de::Error>(self, key: &str) -> Result<ClientKey, E> {
                Ok(ClientKey { key: key.to_owned(), expires: None })
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ClientKey, A::Error> {
                let Full { key, expires } = Full::deserialize(MapAccessDeserializer::new(map))?;
                Ok(ClientKey { key, expires })
            }
        }
        deserializer.deserialize_any(TextOrMap)
    }
}

impl JsonSchema for ClientKey {
    fn schema_name() -> Cow<'static, str> {
        "ClientKey".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [
            { "type": "string", "pattern": "^sha256:[0-9a-fA-F]{64}$" },
            { "type": "object", "additionalProperties": false, "required": ["key"], "properties": {
                "key": { "type": "string", "pattern": "^sha256:[0-9a-fA-F]{64}$" }, "expires": { "type": "string" } } },
        ] })
    }
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
    /// How the text of the known API key begins.
    pub key_prefix: Option<List<String>>,
    /// Header values; `*` is any value. What is exempt must come from a trusted proxy then.
    pub header: Option<BTreeMap<String, String>>,
}
