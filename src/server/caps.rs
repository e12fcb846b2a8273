//! How many connections a listener takes, in all and from one grouped address.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;

use crate::identity::{IdentityRules, Network};
use crate::snapshot::Listener;
use crate::telemetry::metrics::{self, Counter, Lane, Registry};

/// A listener's count of connections, over all workers.
#[derive(Debug)]
pub(super) struct Caps {
    open: AtomicU32,
    by_network: DashMap<Network, u32>,
    accepted: Counter,
    refused_all: Counter,
    refused_network: Counter,
    refused_peer: Counter,
    refused_header: Counter,
    pub(super) accept_errors: Counter,
}

/// Why a connection is closed at once, other than for the number of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Its peer may not send a PROXY protocol header, and has to.
    UntrustedPeer,
    /// It does not begin with a valid PROXY protocol header.
    ProxyHeader,
}

/// One connection, until dropped.
#[derive(Debug)]
pub(super) struct Counted {
    caps: Arc<Caps>,
    network: Option<Network>,
}

impl Caps {
    pub(super) fn new(registry: &Registry, listener: &str) -> Self {
        let refused = |reason| registry.counter(metrics::CONNECTIONS_REFUSED, &[("listener", listener), ("reason", reason)]);
        Self {
            open: AtomicU32::new(0),
            by_network: DashMap::new(),
            accepted: registry.counter(metrics::CONNECTIONS, &[("listener", listener)]),
            refused_all: refused("max_connections"),
            refused_network: refused("max_connections_per_ip"),
            refused_peer: refused("proxy_untrusted"),
            refused_header: refused("proxy_header"),
            accept_errors: registry.counter(metrics::ACCEPT_ERRORS, &[("listener", listener)]),
        }
    }

    /// Counts a connection in; `None` if that is one too many.
    pub(super) fn admit(self: &Arc<Self>, listener: &Listener, lane: Lane) -> Option<Counted> {
        self.accepted.one(lane);
        if self.open.fetch_add(1, Ordering::Relaxed) >= listener.max_connections {
            self.open.fetch_sub(1, Ordering::Relaxed);
            self.refused_all.one(lane);
            return None;
        }
        Some(Counted { caps: Arc::clone(self), network: None })
    }
}

impl Counted {
    /// Counts the connection under its peer's address; `false` if that is one too many from there. Trusted proxies and the peers of Unix
    /// sockets are not counted: their many connections are many clients'.
    pub(super) fn count_peer(
        &mut self,
        peer: Option<SocketAddr>,
        rules: &IdentityRules,
        listener: &Listener,
        lane: Lane,
    ) -> bool {
        let address = peer.map(|peer| peer.ip().to_canonical());
        let Some(address) = address.filter(|address| !rules.trusted.contains(*address)) else { return true };
        if listener.max_connections_per_ip == 0 {
            return true;
        }
        let network = rules.grouping.network_of(address);
        let mut open = self.caps.by_network.entry(network).or_insert(0);
        if *open >= listener.max_connections_per_ip {
            self.caps.refused_network.one(lane);
            return false;
        }
        *open += 1;
        drop(open);
        self.network = Some(network);
        true
    }

    /// The connection is closed for another reason.
    pub(super) fn refused_for(&self, refusal: Refusal, lane: Lane) {
        match refusal {
            Refusal::UntrustedPeer => self.caps.refused_peer.one(lane),
            Refusal::ProxyHeader => self.caps.refused_header.one(lane),
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.caps.open.fetch_sub(1, Ordering::Relaxed);
        if let Some(network) = self.network
            && let Entry::Occupied(mut open) = self.caps.by_network.entry(network)
        {
            *open.get_mut() -= 1;
            if *open.get() == 0 {
                open.remove();
            }
        }
    }
}
