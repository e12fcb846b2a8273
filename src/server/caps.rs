//! How many connections a listener takes, in all and from one grouped address.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;

use crate::identity::Network;
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
    pub(super) accept_errors: Counter,
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
            accept_errors: registry.counter(metrics::ACCEPT_ERRORS, &[("listener", listener)]),
        }
    }

    /// Counts a connection in; `None` if that is one too many. `network` is `None` for trusted proxies, whose many
    /// connections are many clients'.
    pub(super) fn admit(self: &Arc<Self>, listener: &Listener, network: Option<Network>, lane: Lane) -> Option<Counted> {
        self.accepted.one(lane);
        let network = network.filter(|_| listener.max_connections_per_ip > 0);
        if self.open.fetch_add(1, Ordering::Relaxed) >= listener.max_connections {
            self.open.fetch_sub(1, Ordering::Relaxed);
            self.refused_all.one(lane);
            return None;
        }
        if let Some(network) = network {
            let mut open = self.by_network.entry(network).or_insert(0);
            if *open >= listener.max_connections_per_ip {
                self.open.fetch_sub(1, Ordering::Relaxed);
                self.refused_network.one(lane);
                return None;
            }
            *open += 1;
        }
        Some(Counted { caps: Arc::clone(self), network })
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
