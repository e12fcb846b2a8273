//! `dns` and `discover`: how the endpoints are found that are not listed by address.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Endpoint, List, seconds};
use crate::units::Span;

/// How names of endpoints are resolved.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Dns {
    /// The servers to ask, as `ip` or `ip:port`; those of `/etc/resolv.conf` by default.
    pub servers: List<String>,
    /// No name is asked for again sooner than this, whatever its TTL is.
    pub min_ttl: Span,
    /// And none later than this.
    pub max_ttl: Span,
    /// How long an answer may take, all attempts together.
    pub timeout: Span,
    /// Which addresses of a name are used.
    pub family: Family,
}

impl Default for Dns {
    fn default() -> Self {
        let max_ttl = Span(Duration::from_secs(300));
        Self { servers: List::default(), min_ttl: seconds(1), max_ttl, timeout: seconds(2), family: Family::All }
    }
}

/// Which addresses of a name are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// IPv4 and IPv6.
    All,
    /// IPv4 alone.
    Ipv4,
    /// IPv6 alone.
    Ipv6,
}

/// Where more endpoints of an upstream are.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Discover {
    /// A file with a list like `endpoints`, YAML or JSON, as seen from this one. Followed by itself.
    pub file: String,
}

/// The PROXY protocol towards an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProxyProtocolOut {
    /// Connections begin with the first request.
    #[default]
    Off,
    /// With a line of text that names the client.
    V1,
    /// With a binary header that names the client.
    V2,
}

/// Reads a file of endpoints.
///
/// # Errors
/// What is wrong with it, in a sentence.
pub fn read_endpoints(path: &std::path::Path) -> Result<Vec<Endpoint>, String> {
    let document = super::document::Document::read(path).map_err(|diagnostic| diagnostic.message)?;
    if let Some(line) = document.too_deep() {
        return Err(format!("line {line}: nested too deeply"));
    }
    if document.text.trim().is_empty() {
        return Err("the file is empty; write [] for no endpoints".to_owned());
    }
    let List(endpoints) = serde_yaml::from_str(&document.text).map_err(|error| error.to_string())?;
    if endpoints.len() > MOST_ENDPOINTS {
        return Err(format!("{} endpoints are more than the {MOST_ENDPOINTS} that are read", endpoints.len()));
    }
    Ok(endpoints)
}

/// More than this in one upstream would make every pick slow.
const MOST_ENDPOINTS: usize = 1000;
