//! How the link is, for the admin listener. No secrets.

use std::sync::atomic::Ordering;

use super::node::Node;
use super::settings::Topology;
use super::shared::Shared;
use crate::clock::Nanos;
use crate::telemetry::metrics::{STORE_CONNECTIONS, STORE_IN_FLIGHT, STORE_INSTANCES, STORE_POSTS_LOST, STORE_UP, Sample};

/// How the link is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// `single`, `sentinel` or `cluster`.
    pub topology: &'static str,
    /// The masters, as far as they are known.
    pub nodes: Vec<NodeHealth>,
    /// Gateways that count in the store, as last seen.
    pub instances: u32,
}

/// How a node is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeHealth {
    /// Where it is.
    pub address: String,
    /// Whether it is asked: its breaker is closed.
    pub up: bool,
    /// Since when.
    pub since: Nanos,
    /// What is wrong with it, or was last.
    pub last_error: Option<String>,
    /// Connections to it.
    pub connections: usize,
    /// Decisions under way there.
    pub in_flight: usize,
    /// Slots it has, in a cluster.
    pub slots: u32,
}

pub(super) fn health(shared: &Shared) -> Health {
    let topology = match shared.settings.topology {
        Topology::Single(_) => "single",
        Topology::Sentinel { .. } => "sentinel",
        Topology::Cluster { .. } => "cluster",
    };
    let nodes = shared.map.load().nodes().iter().map(|node| node_health(node)).collect();
    Health { topology, nodes, instances: shared.instances.load(Ordering::Relaxed) }
}

fn node_health(node: &Node) -> NodeHealth {
    NodeHealth {
        address: node.address.to_string(),
        up: node.is_up(),
        since: node.since(),
        last_error: node.trouble().map(|trouble| trouble.to_string()),
        connections: node.wires.load().as_ref().map_or(0, |wires| wires.0.len()),
        in_flight: node.in_flight(),
        slots: node.slots.load(Ordering::Relaxed),
    }
}

pub(super) fn samples(shared: &Shared) -> Vec<Sample> {
    let Health { nodes, instances, .. } = health(shared);
    let of_nodes = |family, value: fn(&NodeHealth) -> u64| {
        nodes.iter().map(move |node| Sample::number(family, &[("node", &node.address)], value(node))).collect::<Vec<_>>()
    };
    let lost = |reason, counter: &std::sync::atomic::AtomicU64| {
        Sample::number(STORE_POSTS_LOST, &[("reason", reason)], counter.load(Ordering::Relaxed))
    };
    let mut samples = of_nodes(STORE_UP, |node| u64::from(node.up));
    samples.extend(of_nodes(STORE_CONNECTIONS, |node| node.connections as u64));
    samples.extend(of_nodes(STORE_IN_FLIGHT, |node| node.in_flight as u64));
    samples.push(Sample::number(STORE_INSTANCES, &[], u64::from(instances)));
    samples.push(lost("queue_full", &shared.lost_in_queue));
    samples.push(lost("fault", &shared.lost_on_way));
    samples.push(lost("unanswered", &shared.unanswered));
    samples
}
