//! Follows which server is whose master. One task per link, on its thread: it alone makes maps and ends the keepers of nodes that
//! have left.
//!
//! It looks again every so often, and at once when somebody is in doubt: a breaker has opened, or a node has sent a client elsewhere.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::cluster::{self, Layout};
use super::keeper::keep;
use super::map::Map;
use super::node::{Node, Probe};
use super::sentinel;
use super::settings::{Access, Address, Server, Topology};
use super::shared::{Shared, jittered};
use super::slot::slot;
use crate::clock::{Nanos, saturating_nanos};

/// Follows the topology until the task is ended.
pub(super) async fn follow(shared: Arc<Shared>) {
    let mut nodes = Nodes { shared: Arc::clone(&shared), kept: BTreeMap::new() };
    match shared.settings.topology.clone() {
        Topology::Single(Server { address, access }) => {
            let node = nodes.keep(&address, &access);
            shared.publish(Map::of_one(node));
            std::future::pending::<()>().await;
        }
        Topology::Sentinel { sentinels, master, access } => follow_sentinels(&mut nodes, sentinels, &master, &access).await,
        Topology::Cluster { seeds } => follow_cluster(&mut nodes, &seeds).await,
    }
}

/// The nodes that are kept, and what ends their keepers.
struct Nodes {
    shared: Arc<Shared>,
    kept: BTreeMap<Address, (Arc<Node>, AbortHandle)>,
}

impl Nodes {
    /// The node at this address; a new one if there is none.
    fn keep(&mut self, address: &Address, access: &Access) -> Arc<Node> {
        if let Some((node, _)) = self.kept.get(address) {
            return Arc::clone(node);
        }
        let settings = &self.shared.settings;
        let probe = Probe::Write(probe_key(&settings.key_prefix, 0));
        let node = Arc::new(Node::new(address.clone(), settings.in_flight, probe, self.shared.clock.now()));
        let keeper = tokio::spawn(keep(Arc::clone(&self.shared), Arc::clone(&node), access.clone()));
        self.kept.insert(address.clone(), (Arc::clone(&node), keeper.abort_handle()));
        node
    }

    /// Lets go of all but these. What is under way there has a moment to end.
    fn retain(&mut self, addresses: impl Fn(&Address) -> bool) {
        let gone: Vec<Address> = self.kept.keys().filter(|address| !addresses(address)).cloned().collect();
        for (node, keeper) in gone.iter().filter_map(|address| self.kept.remove(address)) {
            node.retired.store(true, Ordering::Relaxed);
            tokio::spawn(async move {
                sleep(GRACE).await;
                keeper.abort();
            });
        }
    }

    /// Whether all of the map's nodes are up.
    fn are_up(&self) -> bool {
        let map = self.shared.map.load();
        !map.nodes().is_empty() && map.nodes().iter().all(|node| node.is_up())
    }
}

/// Waits until each of these was tried once, but not for long: the others' requests wait for the map.
async fn tried(nodes: impl Iterator<Item = &Arc<Node>>, limit: Duration) {
    let all = async {
        for node in nodes {
            // The sender lives in the node, so there is always an answer.
            let _ = node.tried.subscribe().wait_for(|tried| *tried).await;
        }
    };
    let _ = timeout(limit, all).await;
}

/// Waits for the next look: for doubt, but never less than [`LEAST`], or for the time of a look.
async fn next_look(shared: &Shared, all_up: bool, calm: Duration) {
    sleep(LEAST).await;
    let pause = if all_up { calm } else { TROUBLED };
    let _ = timeout(jittered(pause), shared.doubt.notified()).await;
}

async fn follow_sentinels(nodes: &mut Nodes, sentinels: Vec<Server>, master: &str, access: &Access) {
    let shared = Arc::clone(&nodes.shared);
    let mut sentinels = sentinel::Sentinels::new(sentinels, master.to_owned());
    let mut said = false;
    loop {
        match sentinels.master(&shared.settings).await {
            Ok(address) => {
                adopt_master(nodes, &address, access).await;
                said = false;
            }
            Err(error) => {
                if !said {
                    warn!(master, %error, "no sentinel names the shared store's master");
                }
                said = true;
            }
        }
        next_look(&shared, nodes.are_up(), SENTINELS_EVERY).await;
    }
}

/// Changes over to a master, unless the one in use does its work and the new one does not.
async fn adopt_master(nodes: &mut Nodes, address: &Address, access: &Access) {
    let shared = Arc::clone(&nodes.shared);
    let current = shared.map.load().nodes().first().cloned();
    if current.as_ref().is_some_and(|node| node.address == *address) {
        // Another one may have been named for a moment.
        nodes.retain(|kept| kept == address);
        return;
    }
    let node = nodes.keep(address, access);
    tried(std::iter::once(&node), shared.settings.connect_timeout).await;
    if let Some(current) = current {
        if current.is_up() && !node.is_up() {
            return;
        }
        info!(master = %address, before = %current.address, "the shared store has another master");
        shared.tally.topology_changed();
    }
    shared.publish(Map::of_one(node));
    nodes.retain(|kept| kept == address);
}

async fn follow_cluster(nodes: &mut Nodes, seeds: &[Server]) {
    let shared = Arc::clone(&nodes.shared);
    let access = seeds.first().map(|seed| seed.access.clone()).unwrap_or_default();
    // Nodes that others have named and that have no slots yet: slots move there.
    let mut named: BTreeMap<Address, Nanos> = BTreeMap::new();
    let mut layout = Layout::default();
    let mut said = false;
    loop {
        let now = shared.clock.now();
        named.retain(|_, until| *until > now);
        for address in shared.take_wanted().into_iter().take(MOST_NAMED.saturating_sub(named.len())) {
            named.insert(address, now.saturating_add(saturating_nanos(NAMED_FOR)));
        }
        match cluster::layout(&shared, seeds, &access).await {
            Ok(fresh) => {
                let changed = !layout.masters.is_empty() && fresh.masters != layout.masters;
                if changed {
                    info!(masters = fresh.masters.len(), "the shared store's slots are elsewhere");
                    shared.tally.topology_changed();
                }
                layout = fresh;
                said = false;
            }
            Err(error) => {
                if !said {
                    warn!(%error, "no node of the shared store's cluster says who has which slot");
                }
                said = true;
            }
        }
        if !layout.masters.is_empty() {
            adopt_layout(nodes, &layout, &named, &access).await;
        }
        next_look(&shared, nodes.are_up(), CLUSTER_EVERY).await;
    }
}

async fn adopt_layout(nodes: &mut Nodes, layout: &Layout, named: &BTreeMap<Address, Nanos>, access: &Access) {
    let shared = Arc::clone(&nodes.shared);
    let addresses: Vec<&Address> =
        layout.masters.keys().chain(named.keys().filter(|a| !layout.masters.contains_key(*a))).collect();
    let is_same = {
        let map = shared.map.load();
        map.nodes().len() == addresses.len() && addresses.iter().all(|address| map.at(address).is_some())
    };
    let members: Vec<Arc<Node>> = addresses.iter().map(|address| nodes.keep(address, access)).collect();
    let mut ranges = Vec::new();
    for (index, ranges_of_one) in layout.masters.values().enumerate() {
        ranges.extend(ranges_of_one.iter().map(|(from, to)| (*from, *to, index)));
    }
    let map = Map::of_many(members.clone(), &ranges, layout.replicas.clone());
    set_probes(&map, &members, &ranges, &shared.settings.key_prefix);
    if !is_same {
        tried(members.iter(), NEW_NODES).await;
    }
    shared.publish(map);
    nodes.retain(|kept| addresses.contains(&kept));
}

/// Each node is probed in a slot of its own.
fn set_probes(map: &Map, members: &[Arc<Node>], ranges: &[(u16, u16, usize)], prefix: &str) {
    for (index, node) in members.iter().enumerate() {
        let own = ranges.iter().filter(|(.., owner)| *owner == index).map(|(from, to, _)| u32::from(*to) + 1 - u32::from(*from));
        node.slots.store(own.sum(), Ordering::Relaxed);
        let mut keys = (0..MOST_PROBE_KEYS).map(|number| probe_key(prefix, number));
        let own_key = keys.find(|key| map.owner(slot(key)).is_some_and(|owner| Arc::ptr_eq(owner, node)));
        *node.probe.lock() = own_key.map_or(Probe::Ping, Probe::Write);
    }
}

fn probe_key(prefix: &str, number: u32) -> Vec<u8> {
    format!("{prefix}:{{probe-{number}}}").into_bytes()
}

/// A node with one slot of 16384 is found among these with a probability of 98 %; one that is not is only asked for an answer.
const MOST_PROBE_KEYS: u32 = 65_536;
/// Between looks, however great the doubt.
const LEAST: Duration = Duration::from_millis(100);
/// Between looks while something is wrong.
const TROUBLED: Duration = Duration::from_millis(500);
const SENTINELS_EVERY: Duration = Duration::from_secs(1);
const CLUSTER_EVERY: Duration = Duration::from_secs(5);
/// Nodes that are kept because they were named; names come from the store, which might be mad.
const MOST_NAMED: usize = 64;
/// How long a named node is kept without slots.
const NAMED_FOR: Duration = Duration::from_secs(60);
/// How long a map waits for the connections of nodes that are new in it.
const NEW_NODES: Duration = Duration::from_millis(300);
const GRACE: Duration = Duration::from_secs(1);
