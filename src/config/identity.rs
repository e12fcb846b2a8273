//! `identity`, `clients`, `exempt` and `blocked`: who is who.

use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;

use super::{ApiKeySource, List, NotYet, Windows};

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
