//! What is bounded: decisions under way, posts, the end.

use super::link_common::{Linked, SLACK, counting, name, settings, sha, single};
use crate::harness::{DEADLINE, FaultProxy, Network, RedisServer, until};
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use tollgate::store::redis::link::{Fault, Server, Topology};
use tollgate::store::redis::{Args, Invocation, Script};

#[test]
fn beyond_the_cap_one_is_told_at_once() {
    let server = RedisServer::start();
    let proxy = FaultProxy::before(server.port());
    let mut settings = single(&proxy.url());
    (settings.in_flight, settings.timeout) = (4, Duration::from_secs(2));
    let linked = Linked::connected(settings);
    proxy.set(Network::Slow(Duration::from_millis(200)));
    let results = linked.run_all(&counting("a"), 10);
    let overloaded = results.iter().filter(|result| **result == Err(Fault::Overloaded)).count();
    assert_eq!((overloaded, results.iter().filter(|result| result.is_ok()).count()), (6, 4), "{results:?}");
    assert_eq!(server.command(&["GET", "t:a"]), "4");
    assert_eq!(linked.metric("tollgate_store_round_trips_total{outcome=\"overloaded\"}"), 6);
    proxy.set(Network::Sound);
    assert_eq!(linked.run_all(&counting("a"), 4).iter().filter(|result| result.is_ok()).count(), 4, "places came back");
    assert_eq!(linked.link.health().nodes[0].in_flight, 0);
}

#[test]
fn a_client_that_leaves_breaks_nothing() {
    let server = RedisServer::start();
    let proxy = FaultProxy::before(server.port());
    let mut settings = single(&proxy.url());
    (settings.in_flight, settings.timeout) = (8, DEADLINE);
    let linked = Linked::connected(settings);
    // From now on the server has the script: one message is all that a run takes.
    assert_eq!(linked.count("a"), Ok(1));
    proxy.set(Network::Unanswered);
    let invocation = counting("a");
    linked.block_on(async {
        for run in 2..=9 {
            let mut asked = std::pin::pin!(linked.link.run(linked.lane(), &invocation));
            // It leaves when the server has heard of it: what nobody waits for need not be sent.
            while server.command(&["GET", "t:a"]) != run.to_string() {
                assert!(tokio::time::timeout(Duration::from_millis(5), &mut asked).await.is_err());
            }
        }
    });
    assert_eq!(linked.link.health().nodes[0].in_flight, 0, "no place is held for them");
    proxy.set(Network::Sound);
    until("all have run, once each", || server.command(&["GET", "t:a"]) == "9");
    // The answers to those that left are nobody else's.
    assert_eq!(linked.count("b"), Ok(1));
    assert_eq!(linked.count("a"), Ok(10));
}

#[test]
fn a_key_keeps_its_order() {
    static APPEND: Script = Script { text: APPEND_TEXT, sha: LazyLock::new(|| sha(APPEND_TEXT)) };
    const APPEND_TEXT: &str = "redis.call('APPEND', KEYS[1], ARGV[1] .. ',') return 1";
    let server = RedisServer::start();
    let mut settings = single(&server.url());
    settings.connections = 4;
    let linked = Linked::connected(settings);
    let append = |key: &str, number: u64| {
        let mut args = Args::default();
        args.number(number);
        Invocation { script: &APPEND, keys: vec![name(key)], args }
    };
    // What is answered with NOSCRIPT is sent again, behind others; so the server gets the script first.
    assert_eq!(linked.run(&append("first", 0)), Ok(1));
    for number in 0..500 {
        ["a", "{e}b", "{e}c"].iter().for_each(|key| linked.link.post(append(key, number)));
    }
    let expected = (0..500).map(|number| format!("{number},")).collect::<String>();
    for key in ["t:a", "t:{e}b", "t:{e}c"] {
        until(&format!("{key} has all, in order"), || server.command(&["GET", key]) == expected);
    }
    assert_eq!(linked.metric("tollgate_store_posts_lost_total{reason=\"fault\"}"), 0);
}

#[test]
fn posts_that_find_no_room_or_no_server_are_lost_and_counted() {
    let mut server = RedisServer::start();
    let mut settings = single(&server.url());
    settings.posts = 3;
    let linked = Linked::connected(settings);
    linked.link.post(counting("a"));
    until("a post arrives", || server.command(&["GET", "t:a"]) == "1");
    server.kill();
    linked.goes_down("a");
    let lost = || {
        let of = |reason| linked.metric(&format!("tollgate_store_posts_lost_total{{reason=\"{reason}\"}}"));
        of("queue_full") + of("fault")
    };
    // The answer to the first post may have been lost with the server.
    let before = lost();
    for _ in 0..200 {
        linked.link.post(counting("a"));
    }
    until("every one of them is counted", || lost() == before + 200);
}

#[test]
fn the_end_waits_for_the_last_posts_and_takes_the_gateway_from_the_list() {
    let server = RedisServer::start();
    let linked = Linked::connected(single(&server.url()));
    until("it is counted", || server.command(&["ZRANGE", "tollgate:instances", "0", "-1"]) == "one");
    for _ in 0..300 {
        linked.link.post(counting("a"));
    }
    linked.link.stop();
    assert_eq!(server.command(&["GET", "t:a"]), "300");
    assert_eq!(server.command(&["ZCARD", "tollgate:instances"]), "0");
    assert_eq!(linked.count("a"), Err(Fault::Down));
    linked.link.post(counting("a"));
    assert_eq!(linked.metric("tollgate_store_posts_lost_total{reason=\"queue_full\"}"), 1);
    until("its connections are closed", || !server.command(&["CLIENT", "LIST"]).contains("cmd=evalsha"));
}

#[test]
fn the_end_does_not_wait_for_a_server_that_is_silent() {
    let server = RedisServer::start();
    let linked = Linked::connected(single(&server.url()));
    server.stop_process();
    for _ in 0..50 {
        linked.link.post(counting("a"));
    }
    let started = Instant::now();
    linked.link.stop();
    assert!(started.elapsed() < Duration::from_secs(1) + SLACK, "{:?}", started.elapsed());
    server.cont_process();
}

#[test]
fn gateways_count_one_another() {
    let server = RedisServer::start();
    let link = |instance: &str| {
        let mut settings = settings(Topology::Single(Server::parse(&server.url()).unwrap()));
        settings.instance = instance.to_owned();
        Linked::connected(settings)
    };
    let (one, two, three) = (link("one"), link("two"), link("three"));
    until("all see three", || [&one, &two, &three].iter().all(|linked| linked.link.instances() == 3));
    assert_eq!(one.metric("tollgate_store_instances"), 3);
    drop(three);
    until("who leaves is no longer counted", || one.link.instances() == 2 && two.link.instances() == 2);
    // While the store is down, what was last seen counts.
    server.stop_process();
    one.goes_down("a");
    assert_eq!(one.link.instances(), 2);
    server.cont_process();
}
