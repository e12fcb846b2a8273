//! A cluster's slots are found, and found again.

use super::link_common::{BUDGET, Linked, SLACK, settings};
use crate::harness::{Cluster, until};
use std::time::Instant;
use tollgate::store::redis::link::{Fault, Server, Settings, Topology};

fn link_to(cluster: &Cluster) -> Settings {
    let seeds = cluster.urls().iter().map(|url| Server::parse(url).unwrap()).collect();
    settings(Topology::Cluster { seeds })
}

/// Keys of different masters.
const KEYS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

#[test]
fn every_key_goes_to_the_node_that_has_its_slot() {
    let cluster = Cluster::start_with(3, false);
    let linked = Linked::start(link_to(&cluster));
    let mut owners = std::collections::BTreeSet::new();
    for key in KEYS {
        linked.comes_up(key);
        assert_eq!(linked.count(key), Ok(1));
        let full = format!("t:{key}");
        let owner = cluster.owner(&full, None).unwrap();
        assert_eq!(cluster.nodes[owner].command(&["GET", &full]), "1");
        owners.insert(owner);
    }
    assert!(owners.len() > 1, "the keys are of several nodes");
    let health = linked.link.health();
    assert_eq!((health.topology, health.nodes.len()), ("cluster", 3));
    assert_eq!(health.nodes.iter().map(|node| node.slots).sum::<u32>(), 16_384);
    assert!(health.nodes.iter().all(|node| node.up && node.connections == 2), "{health:?}");
}

#[test]
fn a_slot_that_moves_is_followed_at_every_step() {
    let mut cluster = Cluster::start_with(3, false);
    let linked = Linked::start(link_to(&cluster));
    let keys = ["t:{moving}1", "t:{moving}2"];
    let names = ["{moving}1", "{moving}2"];
    linked.comes_up(names[0]);
    assert_eq!(names.map(|key| linked.count(key)), [Ok(1), Ok(1)]);
    // The newcomer has no slots, so that nothing but ASK leads there.
    cluster.grow();
    let (slot, from, to) = (cluster.slot(keys[0], 0), cluster.owner(keys[0], None).unwrap(), cluster.nodes.len() - 1);
    cluster.begin_move(slot, from, to);
    assert_eq!(names.map(|key| linked.count(key)), [Ok(2), Ok(2)], "what is there yet is asked there");
    cluster.move_key(keys[0], from, to);
    let mut expected = 2;
    until("ASK leads to a node nobody knew", || linked.count(names[0]).inspect(|count| expected = *count).is_ok());
    assert_eq!(expected, 3);
    // The script is not known there; it is run by its text, behind an ASKING each time.
    assert_eq!(names.map(|key| linked.count(key)), [Ok(4), Ok(3)]);
    // A key that does not exist yet is the newcomer's, too.
    assert_eq!(linked.count("{moving}3"), Ok(1));
    cluster.move_key(keys[1], from, to);
    cluster.end_move(slot, to);
    assert_eq!(names.map(|key| linked.count(key)), [Ok(5), Ok(4)], "MOVED leads on");
    until("the map has the newcomer", || linked.link.health().nodes.iter().any(|node| node.slots == 1));
    assert_eq!(names.map(|key| linked.count(key)), [Ok(6), Ok(5)]);
    assert_eq!(cluster.nodes[to].command(&["GET", keys[0]]), "6");
    assert_eq!(linked.metric("tollgate_store_posts_lost_total{reason=\"fault\"}"), 0);
}

#[test]
fn a_killed_master_is_followed_by_its_replica() {
    let mut cluster = Cluster::start();
    let linked = Linked::start(link_to(&cluster));
    KEYS.iter().for_each(|key| linked.comes_up(key));
    let owner = cluster.owner("t:a", None).unwrap();
    assert_eq!(linked.count("a"), Ok(1));
    cluster.nodes[owner].kill();
    linked.goes_down("a");
    only_its_own_keys_suffer(&cluster, &linked, owner);
    cluster.fails_over("t:a", owner);
    linked.comes_back("a");
    assert_eq!(linked.count("a"), Ok(1));
    assert!(linked.metric("tollgate_store_topology_changes_total") >= 1);
}

#[test]
fn a_frozen_master_is_followed_by_its_replica() {
    let cluster = Cluster::start();
    let linked = Linked::start(link_to(&cluster));
    KEYS.iter().for_each(|key| linked.comes_up(key));
    let owner = cluster.owner("t:a", None).unwrap();
    assert_eq!(linked.count("a"), Ok(1));
    cluster.nodes[owner].stop_process();
    until("the breaker opens", || {
        let started = Instant::now();
        let fault = linked.count("a").unwrap_err();
        assert!(started.elapsed() < BUDGET + SLACK);
        fault == Fault::Down
    });
    only_its_own_keys_suffer(&cluster, &linked, owner);
    cluster.fails_over("t:a", owner);
    linked.comes_back("a");
    assert_eq!(linked.count("a"), Ok(1));
    cluster.nodes[owner].cont_process();
    until("the old master is a replica", || cluster.nodes[owner].command(&["ROLE"]).starts_with("slave"));
    assert!(linked.count("a").is_ok());
}

fn only_its_own_keys_suffer(cluster: &Cluster, linked: &Linked, owner: usize) {
    let others = KEYS.iter().filter(|key| cluster.owner(&format!("t:{key}"), Some(owner)) != Some(owner));
    let results: Vec<_> = others.map(|key| linked.count(key)).collect();
    assert!(!results.is_empty() && results.iter().all(Result::is_ok), "{results:?}");
}
