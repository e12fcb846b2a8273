//! Where an upstream's endpoints come from, and which they are at the moment.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::socket::Address;

/// The endpoints of an upstream. What the configuration says of them is fixed; which they are changes with what names stand for and with
/// the file, and is swapped whole.
#[derive(Debug)]
pub struct EndpointSet {
    /// As the configuration lists them.
    pub listed: Vec<Origin>,
    /// A file with more of them, as the configuration names it.
    pub file: Option<Arc<Path>>,
    /// What requests without a `Host` are for.
    pub host: Arc<str>,
    current: ArcSwap<Vec<Endpoint>>,
}

/// What stands in a list: one endpoint, or a name that stands for any number of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// Where.
    pub place: Place,
    /// The share of each of its endpoints, or by how much a service's own shares are multiplied.
    pub weight: u32,
    /// The name certificates must be for, if TLS is spoken.
    pub tls: Option<ServerName<'static>>,
    /// What a request that has no other is for: `host:port`.
    pub host: Arc<str>,
}

/// Where an [`Origin`] says its endpoints are.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Place {
    /// Here, and there is one.
    Address(Address),
    /// At this port of all addresses of a host.
    Host(Query, u16),
    /// Where a service is.
    Service(Query),
}

/// A question to the domain name system.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Query {
    /// For the addresses of a host (A and AAAA).
    Host(Arc<str>),
    /// For hosts and ports of a service (SRV), and for their addresses.
    Service(Arc<str>),
}

/// One server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// What it is called, which tells it from all others of its upstream: `ip:port` or `unix:/path`.
    pub authority: Arc<str>,
    /// Where it is.
    pub address: Address,
    /// What a health check asks for: `host:port`.
    pub host: Arc<str>,
    /// Its share.
    pub weight: u32,
    /// The name its certificate must be for, if it speaks TLS.
    pub tls: Option<ServerName<'static>>,
    /// How many ranks are to be preferred to it; it stands by while one of those can be used.
    pub rank: u16,
    /// Why it is one.
    pub source: Source,
}

/// Why something is an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Who says so.
    pub list: List,
    /// The name that stands for it, if one does.
    pub name: Option<Arc<str>>,
}

/// Where endpoints and names are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    /// In `endpoints`.
    Configuration,
    /// In the file.
    File,
}

/// How names are resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dns {
    /// Who is asked; the system's servers if there are none.
    pub servers: Vec<SocketAddr>,
    /// No name is asked for again sooner than this.
    pub min_ttl: Duration,
    /// And none later.
    pub max_ttl: Duration,
    /// How long an answer may take, all attempts together.
    pub timeout: Duration,
    /// Which addresses are wanted.
    pub families: Families,
}

/// Which addresses of a name are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Families {
    /// IPv4 and IPv6.
    All,
    /// IPv4 alone.
    Ipv4,
    /// IPv6 alone.
    Ipv6,
}

impl EndpointSet {
    /// With nothing in use yet.
    #[must_use]
    pub fn new(listed: Vec<Origin>, file: Option<Arc<Path>>) -> Self {
        let host = listed.first().map_or_else(|| "localhost".into(), |origin| Arc::clone(&origin.host));
        Self { listed, file, host, current: ArcSwap::default() }
    }

    /// The endpoints at the moment.
    #[must_use]
    pub fn current(&self) -> Arc<Vec<Endpoint>> {
        self.current.load_full()
    }

    /// Puts others in their place.
    pub fn replace(&self, endpoints: Arc<Vec<Endpoint>>) {
        self.current.store(endpoints);
    }
}

impl Query {
    /// The name that is asked for.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        match self {
            Self::Host(name) | Self::Service(name) => name,
        }
    }
}

impl Place {
    /// What has to be asked for it, if it is not known.
    #[must_use]
    pub fn query(&self) -> Option<&Query> {
        match self {
            Self::Address(_) => None,
            Self::Host(query, _) | Self::Service(query) => Some(query),
        }
    }
}

impl Endpoint {
    /// At an address, with everything else as it usually is.
    #[must_use]
    pub fn at(address: Address) -> Self {
        let authority: Arc<str> = address.to_string().into();
        let source = Source { list: List::Configuration, name: None };
        Self { host: Arc::clone(&authority), authority, address, weight: 1, tls: None, rank: 0, source }
    }
}
