//! `cost: {header: …}`: what a trusted proxy says that a request costs, and nobody else.

use super::{number, remaining};
use crate::harness::{Client, Gateway, Origin, Response, Table, crlf};
use std::net::SocketAddr;

const CONFIG: &str = "trusted_proxies: [127.0.0.1/32]
limits: [{ name: plan, per: { header: x-key }, rate: 100/day, cost: { header: x-cost, default: 2, max: 5 } }]";

/// A request from this address, counted under `key`.
fn from(gateway: &Gateway, address: &str, key: usize, fields: &str) -> Response {
    let from: SocketAddr = format!("{address}:0").parse().unwrap();
    let request = format!("GET / HTTP/1.1\nHost: a\nx-key: {key}\n{fields}\n");
    Client::connect_from(from, gateway.addr()).ask(crlf(&request)).response()
}

/// Fields, and what they cost when they come from the proxy.
#[rustfmt::skip]
const ROWS: &[(&str, u64)] = &[
    ("x-cost: 3\n", 3),
    ("X-COST: 3\n", 3),
    ("x-cost:   4  \n", 4),
    ("x-cost: 007\n", 5),
    ("x-cost: 003\n", 3),
    ("x-cost: 0\n", 0),
    ("x-cost: 5\n", 5),
    ("x-cost: 6\n", 5),
    ("x-cost: 18446744073709551616\n", 5),
    ("x-cost: 99999999999999999999999999999999999999999\n", 5),
    ("", 2),
    ("x-cost:\n", 2),
    ("x-cost: many\n", 2),
    ("x-cost: -1\n", 2),
    ("x-cost: +3\n", 2),
    ("x-cost: 1.5\n", 2),
    ("x-cost: 1e1\n", 2),
    ("x-cost: 0x3\n", 2),
    ("x-cost: 3, 4\n", 2),
    ("x-cost: 3;q=1\n", 2),
    ("x-cost: 3\nx-cost: 4\n", 2),
    ("x-cost: 3\nx-cost: 3\n", 2),
    ("x-cost: 0\nX-Cost: 0\n", 2),
    ("x_cost: 3\n", 2),
];

#[test]
fn a_header_is_believed_from_a_trusted_proxy_only() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, CONFIG);
    let mut table = Table::new("costs in a header");
    for (i, (fields, cost)) in ROWS.iter().enumerate() {
        let trusted = from(&gateway, "127.0.0.1", 2 * i, fields);
        table.outcome(&format!("{fields:?} from the proxy"), &(100 - cost).to_string(), &seen(&trusted));
        let stranger = from(&gateway, "127.0.0.2", 2 * i + 1, fields);
        table.outcome(&format!("{fields:?} from a stranger"), "98", &seen(&stranger));
    }
}

fn seen(response: &Response) -> String {
    remaining(response).map_or_else(|| format!("{response:?}"), |remaining| remaining.to_string())
}

#[test]
fn without_a_maximum_the_burst_is_one_and_a_default_of_nothing_is_free() {
    let origin = Origin::ok();
    let config = CONFIG.replace("default: 2, max: 5", "default: 0").replace("100/day", "100/day burst 7");
    let gateway = Gateway::before(&origin, &config);
    for (key, fields, left) in [(1, "x-cost: 99\n", 0), (2, "x-cost: nonsense\n", 7), (3, "", 7), (4, "x-cost: 2\n", 5)] {
        let response = from(&gateway, "127.0.0.1", key, fields);
        assert_eq!((response.status, remaining(&response)), (200, Some(left)), "{fields:?}");
        assert_eq!(number(&response, "x-ratelimit-limit"), Some(7));
    }
}

#[test]
fn every_limit_has_a_cost_of_its_own_and_the_route_says_the_others() {
    let origin = Origin::ok();
    let config = "trusted_proxies: loopback
routes: [{ name: all, match: { path: '/{*rest}' }, upstream: origin, cost: 4 }]
limits:
- { name: by-route, match: { headers: { x-want: route } }, per: ip, rate: 20/day }
- { name: by-limit, match: { headers: { x-want: limit } }, per: ip, rate: 20/day, cost: 3 }
- { name: by-header, match: { headers: { x-want: header } }, per: ip, rate: 20/day, cost: { header: x-cost } }";
    let gateway = Gateway::before(&origin, config);
    for (want, left) in [("route", 16), ("limit", 17), ("header", 15), ("route", 12), ("limit", 14), ("header", 10)] {
        let response = from(&gateway, "127.0.0.1", 0, &format!("x-want: {want}\nx-cost: 5\n"));
        assert_eq!(remaining(&response), Some(left), "{want}");
    }
    let plain = from(&gateway, "127.0.0.1", 0, "x-want: header\n");
    assert_eq!(remaining(&plain), Some(9), "without the header it is 1, not the route's");
}
