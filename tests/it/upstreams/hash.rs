//! The same endpoint for the same key.

use super::{Server, admin, hits, place, servers, servers_behind, upstream};
use crate::harness::{Client, Gateway, Latch, hashed, until};
use std::collections::BTreeSet;

const BY_HEADER: &str = "balance: { hash: 'header:x-session', load_bound: 1000 }";

/// Where each of so many sessions goes.
fn homes(gateway: &Gateway, sessions: usize) -> Vec<usize> {
    let mut client = gateway.client();
    (0..sessions).map(|n| place(&mut client, "/", &format!("X-Session: s{n}\r\n"))).collect()
}

fn distinct(homes: &[usize]) -> usize {
    homes.iter().collect::<BTreeSet<_>>().len()
}

#[test]
fn a_header_decides_and_two_gateways_agree() {
    let servers = servers(5);
    let yaml = upstream(&servers, BY_HEADER);
    let (one, two) = (Gateway::start(&format!("workers: 2\n{yaml}")), Gateway::start(&yaml));
    let first = homes(&one, 60);
    assert_eq!(distinct(&first), 5, "{first:?}");
    assert_eq!(homes(&one, 60), first);
    assert_eq!(homes(&two, 60), first);
}

#[test]
fn without_its_header_a_request_goes_anywhere() {
    let servers = servers(3);
    let gateway = Gateway::start(&upstream(&servers, BY_HEADER));
    let mut client = gateway.client();
    for fields in ["", "X-Session: \r\n"] {
        let places: BTreeSet<_> = (0..60).map(|_| place(&mut client, "/", fields)).collect();
        assert_eq!(places.len(), 3);
    }
}

#[test]
fn an_address_decides() {
    let servers = servers(4);
    let gateway = Gateway::start(&upstream(&servers, "balance: { hash: ip }"));
    let home = |host: u8| {
        let mut client = Client::connect_from(format!("127.0.0.{host}:0").parse().unwrap(), gateway.addr());
        let first = place(&mut client, "/", "");
        assert!((0..5).all(|_| place(&mut client, "/", "") == first), "127.0.0.{host} moves");
        first
    };
    let homes: Vec<_> = (1..=60).map(home).collect();
    assert_eq!(distinct(&homes), 4, "{homes:?}");
    assert_eq!(home(1), homes[0]);
}

#[test]
fn a_client_is_the_same_under_each_of_its_keys_and_from_each_address() {
    let servers = servers(8);
    let keys = |n: usize| [format!("key-{n}-a"), format!("key-{n}-b")];
    let client = |n: usize| {
        let [a, b] = keys(n).map(|key| hashed(&key));
        format!("{{ id: c{n}, api_keys: ['{a}', '{b}'] }}")
    };
    let clients: Vec<_> = (0..20).map(client).collect();
    let gateway =
        Gateway::start(&format!("clients: [{}]\n{}", clients.join(", "), upstream(&servers, "balance: { hash: client }")));
    let home = |key: &str, host: u8| {
        let mut client = Client::connect_from(format!("127.0.0.{host}:0").parse().unwrap(), gateway.addr());
        place(&mut client, "/", &format!("X-Api-Key: {key}\r\n"))
    };
    let homes: Vec<_> = (0..20)
        .map(|n| {
            let [a, b] = keys(n);
            let first = home(&a, 1);
            assert_eq!((home(&a, 2), home(&b, 1), home(&b, 3)), (first, first, first), "client {n}");
            first
        })
        .collect();
    assert!(distinct(&homes) >= 4, "twenty clients are at {homes:?}");
}

#[test]
fn only_the_keys_of_an_endpoint_that_leaves_move() {
    let servers = servers(10);
    let gateway = Gateway::start(&upstream(&servers, BY_HEADER));
    let before = homes(&gateway, 200);
    let stays = |after: &[usize]| before.iter().zip(after).all(|(before, after)| *before == 4 || before == after);
    let moved = |after: &[usize]| before.iter().zip(after).filter(|(before, after)| before != after).count();

    // By an operator …
    admin(&gateway, &format!("POST /upstreams/origin/{}/drain", servers[4].address()));
    super::until_used(&gateway, &servers[4], false);
    let drained = homes(&gateway, 200);
    assert!(stays(&drained) && !drained.contains(&4) && moved(&drained) > 0);
    admin(&gateway, &format!("DELETE /upstreams/origin/{}/drain", servers[4].address()));
    assert_eq!(homes(&gateway, 200), before, "they come back");

    // … and by a reload, in another order.
    let rest: Vec<&Server> = servers.iter().filter(|server| server.address() != servers[4].address()).rev().collect();
    gateway.reload(&upstream(rest, BY_HEADER));
    assert_eq!(homes(&gateway, 200), drained, "the order in the file means nothing");
    // A tenth of the keys and 5 % on top is what may move at most; six standard deviations of 200 keys more.
    assert!(moved(&drained) <= 20 + 10 + 25, "{} of 200 keys moved", moved(&drained));
}

#[test]
fn a_key_that_everybody_has_does_not_overload_its_endpoint() {
    let door = Latch::default();
    let servers = servers_behind(4, &door);
    let gateway = Gateway::start(&upstream(&servers, "balance: { hash: 'header:x-session', load_bound: 1.25 }"));
    let mut clients = Vec::new();
    for n in 1..=24_usize {
        let mut client = gateway.client();
        client.send("GET /wait HTTP/1.1\r\nHost: a\r\nX-Session: one\r\n\r\n");
        clients.push(client);
        until("the request is under way", || hits(&servers).iter().sum::<usize>() == n);
        let most = (5 * n).div_ceil(16);
        assert!(
            hits(&servers).iter().all(|load| *load <= most),
            "{n} requests are {:?}, of which {most} may be at one",
            hits(&servers)
        );
    }
    door.open();
    for client in &mut clients {
        assert_eq!(client.receive().outcome(), "200");
    }
    let home = place(&mut gateway.client(), "/", "X-Session: one\r\n");
    assert_eq!(servers[home].hits(), 9, "at rest it is the endpoint that had the most: 24 / 4 × 1.25, rounded up, and this one");
}
