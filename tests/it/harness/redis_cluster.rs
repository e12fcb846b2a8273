//! A cluster of masters with a replica each, that fails over within a second or two.

use super::redis::{RedisServer, text};
use super::{happens, until};
use std::time::Duration;

/// Masters first, then their replicas in the same order. Killed by id when dropped.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<RedisServer>,
    masters: usize,
}

impl Cluster {
    /// Three masters and three replicas.
    pub(crate) fn start() -> Self {
        Self::start_with(3, true)
    }

    pub(crate) fn start_with(masters: usize, replicated: bool) -> Self {
        let count = if replicated { masters * 2 } else { masters };
        let nodes: Vec<RedisServer> = (0..count).map(|_| start_node()).collect();
        let cluster = Self { nodes, masters };
        for (index, node) in cluster.nodes[..masters].iter().enumerate() {
            let (from, to) = (SLOTS * index / masters, SLOTS * (index + 1) / masters - 1);
            assert_eq!(node.command(&["CLUSTER", "ADDSLOTSRANGE", &from.to_string(), &to.to_string()]), "OK");
            assert_eq!(node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()]), "OK");
        }
        cluster.nodes[1..].iter().for_each(|node| cluster.meet(node));
        until("the nodes know of one another", || cluster.nodes.iter().all(|node| known(node) == count));
        for (master, replica) in cluster.nodes[..masters].iter().zip(&cluster.nodes[masters..]) {
            until("a replica finds its master", || replica.command(&["CLUSTER", "REPLICATE", &id(master)]) == "OK");
        }
        until("the cluster is in order", || cluster.nodes.iter().all(is_sound));
        for replica in &cluster.nodes[masters..] {
            until("a replica is in step", || replica.command(&["INFO", "replication"]).contains("master_link_status:up"));
        }
        cluster
    }

    /// Takes in another master, without slots.
    pub(crate) fn grow(&mut self) {
        let node = start_node();
        self.meet(&node);
        let count = self.nodes.len() + 1;
        self.nodes.push(node);
        until("all know of the newcomer", || self.nodes.iter().all(|node| known(node) == count && is_sound(node)));
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.nodes[..self.masters].iter().map(RedisServer::url).collect()
    }

    /// The index of the node that has a key's slot, by what a node says that is not `but`.
    pub(crate) fn owner(&self, key: &str, but: Option<usize>) -> Option<usize> {
        let asked = (0..self.nodes.len()).find(|index| Some(*index) != but)?;
        let slot: usize = self.slot(key, asked);
        let slots = self.nodes[asked].client().ask(&["CLUSTER", "SLOTS"]);
        let ::redis::Value::Array(ranges) = slots else { return None };
        ranges.iter().find_map(|range| {
            let lines = text(range);
            let mut lines = lines.lines();
            let mut number = || lines.next()?.parse::<usize>().ok();
            let (from, to) = (number()?, number()?);
            let _host = lines.next()?;
            let port: u16 = lines.next()?.parse().ok()?;
            let index = self.nodes.iter().position(|node| node.port() == port)?;
            (from <= slot && slot <= to).then_some(index)
        })
    }

    pub(crate) fn slot(&self, key: &str, asked: usize) -> usize {
        self.nodes[asked].command(&["CLUSTER", "KEYSLOT", key]).parse().unwrap()
    }

    /// Waits until another node than this has the key's slot and can be written.
    pub(crate) fn fails_over(&self, key: &str, from: usize) -> usize {
        let promoted = || {
            let owner = self.owner(key, Some(from)).filter(|owner| *owner != from)?;
            (self.nodes[owner].command(&["SET", key, "0"]) == "OK").then_some(owner)
        };
        assert!(happens(Duration::from_secs(30), || promoted().is_some()), "no failover");
        promoted().unwrap()
    }

    /// Begins to move a slot: from now on the old owner says ASK for keys that it has not.
    pub(crate) fn begin_move(&self, slot: usize, from: usize, to: usize) {
        let slot = slot.to_string();
        assert_eq!(self.nodes[to].command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(&self.nodes[from])]), "OK");
        assert_eq!(self.nodes[from].command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(&self.nodes[to])]), "OK");
    }

    /// Moves one key of a slot that is moving.
    pub(crate) fn move_key(&self, key: &str, from: usize, to: usize) {
        let port = self.nodes[to].port().to_string();
        assert_eq!(self.nodes[from].command(&["MIGRATE", "127.0.0.1", &port, key, "0", "2000"]), "OK");
    }

    /// Ends the move: from now on the old owner says MOVED.
    pub(crate) fn end_move(&self, slot: usize, to: usize) {
        let (slot, id) = (slot.to_string(), id(&self.nodes[to]));
        let masters = (0..self.nodes.len()).filter(|index| self.nodes[*index].command(&["ROLE"]).starts_with("master"));
        let order: Vec<usize> = std::iter::once(to).chain(masters.filter(|index| *index != to)).collect();
        for index in order {
            assert_eq!(self.nodes[index].command(&["CLUSTER", "SETSLOT", &slot, "NODE", &id]), "OK");
        }
    }

    fn meet(&self, node: &RedisServer) {
        let bus = node.command(&["CONFIG", "GET", "cluster-port"]);
        let bus = bus.lines().nth(1).unwrap();
        assert_eq!(self.nodes[0].command(&["CLUSTER", "MEET", "127.0.0.1", &node.port().to_string(), bus]), "OK");
    }
}

fn start_node() -> RedisServer {
    // The bus listens 10000 above the port, which a high port of the system's choosing leaves no room for.
    for _ in 0..20 {
        let bus = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
        let node = RedisServer::try_start_with(&[
            "--cluster-enabled",
            "yes",
            "--cluster-port",
            &bus,
            "--cluster-node-timeout",
            "1000",
            "--cluster-require-full-coverage",
            "no",
            "--repl-diskless-sync-delay",
            "0",
        ]);
        if let Some(node) = node {
            return node;
        }
    }
    panic!("no node of a cluster starts");
}

fn known(node: &RedisServer) -> usize {
    let nodes = node.command(&["CLUSTER", "NODES"]);
    nodes.lines().filter(|line| !line.contains("handshake") && !line.contains("noaddr")).count()
}

fn is_sound(node: &RedisServer) -> bool {
    let info = node.command(&["CLUSTER", "INFO"]);
    info.contains("cluster_state:ok") && info.contains("cluster_slots_ok:16384")
}

fn id(node: &RedisServer) -> String {
    node.command(&["CLUSTER", "MYID"])
}

const SLOTS: usize = 16_384;
