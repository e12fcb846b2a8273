//! `store`: where counters live.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{List, Secret, UpstreamTls};
use crate::units::Span;

/// Where counters live.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Store {
    /// In this process.
    pub memory: MemoryStore,
    /// In Redis or Valkey, shared with other gateways. Without it this process alone counts.
    pub redis: Option<Redis>,
}

/// Counters in this process.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MemoryStore {
    /// Counters kept at most.
    pub max_keys: u32,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self { max_keys: 1_000_000 }
    }
}

/// Counters that several gateways share.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Redis {
    /// What the URLs lead to.
    #[serde(default)]
    pub topology: Topology,
    /// Where: one server, several sentinels, or several nodes of a cluster. `redis://`, `rediss://` for TLS, or `unix:/path`.
    pub urls: List<Secret>,
    /// The name by which sentinels know the master.
    pub sentinel_master: Option<String>,
    /// Who the gateway is to the servers; what stands in a URL otherwise.
    pub username: Option<String>,
    /// Its password.
    pub password: Option<Secret>,
    /// Who the gateway is to sentinels.
    pub sentinel_username: Option<String>,
    /// Its password there.
    pub sentinel_password: Option<Secret>,
    /// What every key begins with. Gateways with the same prefix share their limits.
    #[serde(default = "tollgate")]
    pub key_prefix: String,
    /// Goes into the digests that keys are made of. The same for all gateways that share limits.
    pub key_secret: Option<Secret>,
    /// The whole budget of one decision.
    #[serde(default = "twenty_milliseconds")]
    pub timeout: Span,
    /// How limits are kept that don't say.
    #[serde(default)]
    pub consistency: Consistency,
    /// What limits do that don't say, while the store doesn't answer.
    #[serde(default)]
    pub on_failure: OnFailure,
    /// Connections to each node.
    #[serde(default = "two")]
    pub connections: u8,
    /// Decisions that may wait for the store at once; those beyond go by `on_failure`.
    #[serde(default = "default_in_flight")]
    pub max_in_flight: u32,
    /// TLS towards `rediss://`.
    pub tls: Option<UpstreamTls>,
}

/// What the URLs lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Topology {
    /// One server.
    #[default]
    Single,
    /// Sentinels that know which server is the master.
    Sentinel,
    /// Nodes of a cluster.
    Cluster,
}

/// How a limit is kept when there is a shared store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Consistency {
    /// The store decides about every request.
    Strict,
    /// Blocks of cells are taken from the store and spent here; never more than the limit in all.
    #[default]
    Lease,
    /// This process counts for itself.
    Local,
}

/// What a limit does while the shared store doesn't answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnFailure {
    /// This process enforces its share, going on from what it has let through.
    #[default]
    Local,
    /// Every request conforms.
    Open,
    /// Requests get 503.
    Closed,
}

fn tollgate() -> String {
    "tollgate".to_owned()
}

fn twenty_milliseconds() -> Span {
    Span(std::time::Duration::from_millis(20))
}

fn two() -> u8 {
    2
}

fn default_in_flight() -> u32 {
    1024
}
