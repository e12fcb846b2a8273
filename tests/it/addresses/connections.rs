//! Connections at once from one address: whose address that is behind proxies.

use super::{get, v1, v2};
use crate::harness::{Client, Gateway, Origin, until};

/// A connection that has been served and stays open, or how it was refused.
fn held(gateway: &Gateway, header: &[u8]) -> Result<Client, String> {
    let mut client = gateway.client();
    let outcome = client.send([header, &get("")].concat()).receive().outcome();
    if outcome == "200" { Ok(client) } else { Err(outcome) }
}

#[test]
fn behind_a_balancer_the_announced_address_counts() {
    let origin = Origin::ok();
    let config = "listeners: [{ name: public, address: '127.0.0.1:0', proxy_protocol: required, max_connections_per_ip: 2 }]\ntrusted_proxies: [loopback, 10.0.0.0/8]";
    let gateway = Gateway::before(&origin, config);
    let first = held(&gateway, &v1("203.0.113.1")).unwrap();
    let _second = held(&gateway, &v1("::ffff:203.0.113.1")).unwrap();
    assert!(matches!(held(&gateway, &v1("203.0.113.1")), Err(outcome) if outcome == "closed" || outcome == "reset"));
    let _other = held(&gateway, &v1("203.0.113.2")).unwrap();
    // Trusted proxies are not counted, be it the balancer itself or one behind it.
    let _many: Vec<Client> = (0..5).map(|_| held(&gateway, &v2(0x20, 0, &[])).unwrap()).collect();
    let _more: Vec<Client> = (0..5).map(|_| held(&gateway, &v1("10.0.0.1")).unwrap()).collect();
    let refused = gateway.metric("tollgate_connections_refused_total", &[("reason", "max_connections_per_ip")]);
    assert!(refused >= 1.0, "{refused}");
    drop(first);
    until("a place is free again", || held(&gateway, &v1("203.0.113.1")).is_ok());
}

#[test]
fn a_connection_without_its_header_counts_among_all() {
    let origin = Origin::ok();
    let config = "listeners: [{ name: public, address: '127.0.0.1:0', proxy_protocol: required, max_connections: 3, max_connections_per_ip: 1 }]\ntrusted_proxies: loopback";
    let gateway = Gateway::before(&origin, config);
    let silent: Vec<Client> = (0..3).map(|_| gateway.client()).collect();
    until("three are open", || gateway.metric("tollgate_worker_connections", &[]) == 3.0);
    assert!(held(&gateway, &v1("203.0.113.1")).is_err());
    drop(silent);
    until("there is room again", || held(&gateway, &v1("203.0.113.1")).is_ok());
}

#[test]
fn without_a_header_peers_are_counted_as_ever() {
    let origin = Origin::ok();
    let config = |trusted: &str| {
        format!("listeners: [{{ name: public, address: '127.0.0.1:0', max_connections_per_ip: 2 }}]\ntrusted_proxies: {trusted}")
    };
    for (trusted, expected) in [("[]", 2), ("loopback", 5), ("{ hops: 1 }", 5)] {
        let gateway = Gateway::before(&origin, &config(trusted));
        let served: Vec<Client> = (0..5).filter_map(|_| held(&gateway, b"").ok()).collect();
        assert_eq!(served.len(), expected, "trusted_proxies: {trusted}");
    }
}

/// SL-5: who has a prefix has all its addresses, and the places of one.
#[test]
fn the_addresses_of_one_prefix_share_their_places() {
    let origin = Origin::ok();
    let config = "listeners: [{ name: public, address: '127.0.0.1:0', proxy_protocol: required, max_connections_per_ip: 2 }]\ntrusted_proxies: loopback";
    let gateway = Gateway::before(&origin, config);
    let first = held(&gateway, &v1("2001:db8:0:1::1")).unwrap();
    let _second = held(&gateway, &v1("2001:db8:0:1:ffff::2")).unwrap();
    assert!(matches!(held(&gateway, &v1("2001:db8:0:1::3")), Err(outcome) if outcome == "closed" || outcome == "reset"));
    let _neighbour = held(&gateway, &v1("2001:db8:0:2::1")).unwrap();
    drop(first);
    until("a place is free again", || held(&gateway, &v1("2001:db8:0:1::4")).is_ok());
}
