//! One gateway's memory beside the store's.

use super::{ANSWERED, counters, store};
use crate::harness::{Gateway, RedisServer, until};

/// Nothing is asked of the store for limits that are kept here, nor written there.
#[test]
fn requests_without_a_shared_limit_never_touch_the_store() {
    let redis = RedisServer::start();
    let limits = "limits:
- { name: here, per: ip, rate: 5/30d, consistency: local }
- { name: there, per: ip, match: { path: /there }, rate: 5/30d, on_failure: closed }
";
    let gateway = Gateway::start(&format!("{}{limits}{ANSWERED}", store(&redis, "")));
    until("the store is joined", || gateway.metric("tollgate_store_up", &[]) > 0.5);
    assert_eq!(gateway.statuses(7, "/"), [200, 200, 200, 200, 200, 429, 429]);
    assert_eq!(counters(&redis), []);
    assert_eq!(gateway.metric("tollgate_store_round_trips_total", &[]) as u64, 0);
    // Refused here, so it isn't asked there.
    assert_eq!(gateway.get("/there").status, 429);
    assert_eq!(counters(&redis), []);
}

#[test]
fn the_numbers_in_headers_are_of_all_gateways() {
    let redis = RedisServer::start();
    let limits = "limits: [{ name: a, per: ip, rate: 10/30d, algorithm: fixed_window }]\n";
    let yaml = format!("{}{limits}{ANSWERED}", store(&redis, ""));
    let both = [Gateway::start(&yaml), Gateway::start(&yaml)];
    for gateway in &both {
        until("the store is joined", || gateway.metric("tollgate_store_up", &[]) > 0.5);
    }
    for left in (0..10).rev() {
        let response = both[left % 2].get("/");
        assert_eq!((response.status, response.header("x-ratelimit-remaining")), (200, Some(left.to_string().as_str())));
    }
    let refused = both[0].get("/");
    assert_eq!((refused.status, refused.header("x-ratelimit-remaining")), (429, Some("0")));
    assert!(refused.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
}

/// What is leased is this gateway's to spend, and counted once.
#[test]
fn no_more_is_said_to_remain_than_does_while_cells_are_leased() {
    let redis = RedisServer::start();
    let limits = "limits: [{ name: a, per: global, rate: 400/30d, algorithm: fixed_window }]\n";
    let gateway = Gateway::start(&format!("{}{limits}{ANSWERED}", store(&redis, "")));
    until("the store is joined", || gateway.metric("tollgate_store_up", &[]) > 0.5);
    let mut client = gateway.client();
    for left in (0..400).rev() {
        let response = client.get("/").response();
        let said: u64 = response.header("x-ratelimit-remaining").unwrap().parse().unwrap();
        // Cells that are on their way here are neither the store's nor ours.
        assert!(response.status == 200 && said <= left, "{left} remain: {response:?}");
    }
    assert_eq!(client.get("/").status(), 429);
    assert!(gateway.metric("tollgate_store_decisions_total", &[("source", "lease")]) > 100.0, "{}", gateway.metrics());
}
