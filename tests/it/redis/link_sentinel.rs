//! Sentinels say who the master is.

use super::link_common::{Linked, settings};
use crate::harness::{MASTER, RedisServer, Sentinels, happens, until};
use std::time::Duration;
use tollgate::store::redis::link::{Access, Fault, Server, Settings, Topology};

fn link_to(group: &Sentinels) -> Settings {
    let sentinels = group.urls().iter().map(|url| Server::parse(url).unwrap()).collect();
    settings(Topology::Sentinel { sentinels, master: MASTER.to_owned(), access: Access::default() })
}

#[test]
fn a_killed_master_is_followed_by_the_next() {
    let mut group = Sentinels::start_with(Some("sentinels-only"));
    let linked = Linked::connected(link_to(&group));
    assert_eq!(linked.count("a"), Ok(1));
    let old = group.servers[0].port();
    // A sentinel that is gone is no loss.
    group.kill_sentinel(0);
    group.servers[0].kill();
    linked.goes_down("a");
    let next = group.fails_over(old);
    linked.comes_back("a");
    assert!(linked.count("a").is_ok());
    assert_eq!(linked.link.health().nodes[0].address, format!("127.0.0.1:{}", next.port()));
    assert!(linked.metric("tollgate_store_topology_changes_total") >= 1);
    // The old master comes back as a replica: nobody goes there.
    group.servers[0].restart();
    becomes_replica(&group.servers[0]);
    assert!(!happens(Duration::from_millis(1500), || linked.count("a").is_err()));
}

#[test]
fn a_frozen_master_is_followed_by_the_next() {
    let group = Sentinels::start();
    let linked = Linked::connected(link_to(&group));
    assert_eq!(linked.count("a"), Ok(1));
    group.servers[0].stop_process();
    until("the breaker opens", || matches!(linked.count("a"), Err(Fault::Down)));
    let next = group.fails_over(group.servers[0].port());
    linked.comes_back("a");
    assert!(linked.count("a").is_ok());
    assert_eq!(linked.link.health().nodes[0].address, format!("127.0.0.1:{}", next.port()));
    group.servers[0].cont_process();
    becomes_replica(&group.servers[0]);
    assert!(!happens(Duration::from_millis(1500), || linked.count("a").is_err()), "{:?}", linked.link.health());
}

#[test]
fn sentinels_that_do_not_know_the_name_lead_nowhere() {
    let group = Sentinels::start();
    let sentinels = group.urls().iter().map(|url| Server::parse(url).unwrap()).collect();
    let topology = Topology::Sentinel { sentinels, master: "nobody".to_owned(), access: Access::default() };
    let linked = Linked::start(settings(topology));
    assert!(!happens(Duration::from_millis(800), || linked.count("a").is_ok()));
    assert!(linked.link.health().nodes.is_empty());
}

/// Sentinels wait more than eight seconds before they tell a master of old.
fn becomes_replica(server: &RedisServer) {
    let is_replica = || server.try_command(&["ROLE"]).is_some_and(|role| role.starts_with("slave"));
    assert!(happens(Duration::from_secs(30), is_replica), "the old master is none any more");
}
