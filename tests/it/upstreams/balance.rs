//! Each algorithm's shares.

use super::{hits, servers, servers_behind, until_used, upstream};
use crate::harness::{Client, Gateway, Latch, Table};
use std::net::TcpListener;

fn ask(gateway: &Gateway, n: usize) {
    let mut client = gateway.client();
    for _ in 0..n {
        assert_eq!(client.get("/").response().status, 200);
    }
}

/// Endpoints with these weights.
fn weighted(servers: &[super::Server], weights: &[u32], balance: &str) -> String {
    let endpoints =
        servers.iter().zip(weights).map(|(server, weight)| format!("{{ url: 'http://{}', weight: {weight} }}", server.address()));
    let endpoints: Vec<_> = endpoints.collect();
    format!("upstreams: {{ origin: {{ balance: {balance}, endpoints: [{}] }} }}", endpoints.join(", "))
}

#[test]
fn round_robin_is_exact() {
    let servers = servers(3);
    let gateway = Gateway::start(&upstream(&servers, "balance: round_robin"));
    ask(&gateway, 30);
    assert_eq!(hits(&servers), [10, 10, 10]);
}

#[test]
fn weighted_round_robin_is_exact_and_smooth() {
    let servers = servers(3);
    let gateway = Gateway::start(&weighted(&servers, &[5, 1, 1], "round_robin"));
    let mut client = gateway.client();
    let mut places = Vec::new();
    for _ in 0..70 {
        places.push(super::place(&mut client, "/", ""));
    }
    assert_eq!(hits(&servers), [50, 10, 10]);
    let longest = places.split(|place| *place != 0).map(<[usize]>::len).max().unwrap();
    assert!(longest <= 4, "{longest} requests in a row for the heavy one: {places:?}");
}

#[test]
fn workers_take_turns_of_their_own() {
    let servers = servers(2);
    let gateway = Gateway::start(&format!("workers: 2\n{}", upstream(&servers, "balance: round_robin")));
    // Twenty connections of ten requests each: on whichever worker, each is five and five.
    for _ in 0..20 {
        ask(&gateway, 10);
    }
    assert_eq!(hits(&servers), [100, 100]);
}

#[test]
fn random_follows_the_weights() {
    let servers = servers(2);
    let gateway = Gateway::start(&weighted(&servers, &[1, 3], "random"));
    ask(&gateway, 400);
    // 100 and 300, give or take six standard deviations.
    let light = servers[0].hits();
    assert!((48..=152).contains(&light), "{light} of 400 requests");
    assert_eq!(servers[1].hits(), 400 - light);
}

#[test]
fn least_requests_evens_out_what_is_under_way() {
    let door = Latch::default();
    let servers = servers_behind(2, &door);
    let gateway = Gateway::start(&upstream(&servers, "balance: least_requests"));
    let mut clients: Vec<Client> = Vec::new();
    for n in 1..=10 {
        let mut client = gateway.client();
        client.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
        clients.push(client);
        crate::harness::until("the request is under way", || hits(&servers).iter().sum::<usize>() == n);
    }
    assert_eq!(hits(&servers), [5, 5]);
    door.open();
    for client in &mut clients {
        assert_eq!(client.receive().outcome(), "200");
    }
}

const ALGORITHMS: &[&str] =
    &["round_robin", "random", "least_requests", "{ hash: client }", "{ hash: ip }", "{ hash: 'header:x-k' }"];

#[test]
fn every_algorithm_passes_over_an_endpoint_that_refuses_connections() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut table = Table::new("a dead endpoint");
    for balance in ALGORITHMS {
        let servers = servers(2);
        let upstream = upstream(&servers, &format!("balance: {balance}"))
            .replace("endpoints: [", &format!("endpoints: ['http://{nobody}', "));
        let gateway = Gateway::start(&upstream);
        let statuses = gateway.statuses(20, "/");
        table.row(balance, if statuses == [200; 20] { String::new() } else { format!("{statuses:?}") });
    }
}

#[test]
fn no_algorithm_uses_an_endpoint_that_is_out() {
    let mut table = Table::new("a drained endpoint");
    for balance in ALGORITHMS {
        let servers = servers(3);
        let gateway = Gateway::start(&upstream(&servers, &format!("balance: {balance}")));
        super::admin(&gateway, &format!("POST /upstreams/origin/{}/drain", servers[1].address()));
        until_used(&gateway, &servers[1], false);
        ask(&gateway, 30);
        let hits = hits(&servers);
        table.row(balance, if hits[1] == 0 && hits.iter().sum::<usize>() == 30 { String::new() } else { format!("{hits:?}") });
    }
}
