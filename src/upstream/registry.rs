//! Every upstream's [`Group`]: what the application, the admin listener and the health thread see of [`Shared`].

use std::collections::HashSet;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, PoisonError};

use super::adaptive::AdaptiveState;
use super::group::{EndpointState, Group};
use super::health::Change;
use super::pool::{EndpointName, Shared};
use super::standing::Standing;
use crate::clock::Nanos;
use crate::snapshot::{Endpoint, HealthCheck, Snapshot, Upstream, UpstreamKind};
use crate::telemetry::metrics::Family;

/// An upstream as it is.
#[derive(Debug, Clone, PartialEq)]
pub struct UpstreamState {
    /// Its name.
    pub name: Arc<str>,
    /// Whether so few endpoints are in order that all but drained ones are used.
    pub panics: bool,
    /// Its limit of exchanges in flight, if that is found out.
    pub adaptive: Option<AdaptiveState>,
    /// Requests under way, where they are bounded.
    pub requests: u32,
    /// Requests that wait for a connection.
    pub pending: u32,
    /// Its endpoints, in the configuration's order.
    pub endpoints: Vec<EndpointState>,
}

impl Shared {
    /// Follows a configuration, before workers do. Upstreams and endpoints that are not in it any more are forgotten.
    pub fn follow(&self, snapshot: &Snapshot) {
        let now = self.clock.now();
        let names: HashSet<_> = snapshot.upstreams.iter().map(|upstream| &upstream.name).collect();
        self.limiters.lock().unwrap_or_else(PoisonError::into_inner).retain(|name, _| names.contains(name));
        let mut gone = Vec::new();
        self.groups.lock().unwrap_or_else(PoisonError::into_inner).retain(|name, group| {
            let stays = names.contains(name);
            if !stays {
                gone.extend(group.addresses().into_iter().map(|address| (Arc::clone(name), address)));
            }
            stays
        });
        self.forget(&gone);
        let unused = |open: &Arc<AtomicU32>| Arc::strong_count(open) == 1;
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.retain(|name, open| names.contains(name) || !unused(open));
        drop(connections);
        for upstream in &snapshot.upstreams {
            self.follow_load(upstream);
            self.follow_endpoints(upstream, &upstream.endpoints(), now);
        }
    }

    /// Follows a change of one upstream's endpoints, before workers do.
    pub fn renew(&self, upstream: &Upstream, endpoints: &[Endpoint]) {
        self.follow_endpoints(upstream, endpoints, self.clock.now());
    }

    fn follow_endpoints(&self, upstream: &Upstream, endpoints: &[Endpoint], now: Nanos) {
        if !matches!(upstream.kind, UpstreamKind::Endpoints(_)) {
            return;
        }
        let group = self.group(&upstream.name);
        let before = group.addresses();
        let event = group.follow(upstream, endpoints, now);
        let stay: HashSet<_> = endpoints.iter().map(|endpoint| &endpoint.authority).collect();
        let gone = before.into_iter().filter(|address| !stay.contains(address));
        self.forget(&gone.map(|address| (Arc::clone(&upstream.name), address)).collect::<Vec<_>>());
        if let Some(event) = event {
            event.say(&upstream.name, &self.registry);
        }
    }

    /// Names come and go, so what was counted of an endpoint goes with it.
    fn forget(&self, gone: &[EndpointName]) {
        for (upstream, address) in gone {
            self.registry.forget(&[("upstream", upstream), ("endpoint", address)]);
        }
    }

    /// Whether the configuration in force has such an endpoint.
    pub(super) fn has(&self, (upstream, address): &EndpointName) -> bool {
        self.known(upstream).is_some_and(|group| group.standing(address).is_some())
    }

    /// Every upstream that has endpoints, by name.
    #[must_use]
    pub fn states(&self) -> Vec<UpstreamState> {
        let (now, wall) = (self.clock.now(), self.clock.wall_now());
        let mut states: Vec<_> = self
            .all()
            .into_iter()
            .filter(|(_, group)| group.has_endpoints())
            .map(|(name, group)| UpstreamState {
                adaptive: self.load_state(&name),
                name,
                panics: group.panics(),
                requests: group.traffic.requests(),
                pending: group.traffic.waiting(),
                endpoints: group.states(now, wall),
            })
            .collect();
        states.sort_by(|a, b| a.name.cmp(&b.name));
        states
    }

    /// Takes an endpoint out of use, or puts it back; requests under way go on. Its state then, if there is such an endpoint.
    pub fn set_drained(&self, upstream: &str, address: &str, drained: bool) -> Option<EndpointState> {
        let group = self.known(upstream)?;
        let now = self.clock.now();
        for event in group.set_drained(address, drained, now)? {
            event.say(upstream, &self.registry);
        }
        group.states(now, self.clock.wall_now()).into_iter().find(|state| &*state.address == address)
    }

    /// Takes note of a health check's answer; what it changes.
    pub(super) fn checked(&self, (upstream, address): &EndpointName, check: &HealthCheck, well: bool) -> Option<Change> {
        let (change, event) = self.known(upstream)?.checked(address, check, well, self.clock.now());
        if let Some(event) = event {
            event.say(upstream, &self.registry);
        }
        change
    }

    /// Lets time pass.
    pub(super) fn tick(&self) {
        let now = self.clock.now();
        for (name, group) in self.all() {
            for event in group.tick(now) {
                event.say(&name, &self.registry);
            }
        }
    }

    /// Counts one, for everybody who is no worker.
    pub(super) fn count(&self, family: Family, labels: &[(&str, &str)]) {
        self.registry.counter(family, labels).one(self.registry.shared_lane());
    }

    fn known(&self, upstream: &str) -> Option<Arc<Group>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner).get(upstream).map(Arc::clone)
    }

    pub(super) fn group(&self, upstream: &Arc<str>) -> Arc<Group> {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(groups.entry(Arc::clone(upstream)).or_default())
    }

    /// An endpoint's standing. A worker may ask for one that a newer configuration does not have: that one stands alone.
    pub(super) fn standing(&self, (upstream, address): &EndpointName) -> Arc<Standing> {
        self.group(upstream).standing(address).unwrap_or_else(|| Arc::new(Standing::new(Arc::clone(address))))
    }

    fn all(&self) -> Vec<(Arc<str>, Arc<Group>)> {
        let groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        groups.iter().map(|(name, group)| (Arc::clone(name), Arc::clone(group))).collect()
    }
}
