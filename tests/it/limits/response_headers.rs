//! Costs that a header of the response says. Something is reserved until then.

use super::{answered, ask, remaining, table_origin};
use crate::harness::{Gateway, Origin, Table};

#[rustfmt::skip]
const HEADERS: &[(&str, u64)] = &[
    ("x-cost: 3", 3),
    ("X-Cost:  4 ", 4),
    ("x-cost: 0", 0),
    ("x-cost: 5", 5),
    ("x-cost: 6", 5),
    ("x-cost: 99999999999999999999999", 5),
    ("x-other: 3", 2),
    ("x-cost:", 2),
    ("x-cost: -1", 2),
    ("x-cost: 1.5", 2),
    ("x-cost: much", 2),
    ("x-cost: 3, 3", 2),
];

#[test]
fn a_header_of_the_response_says_the_cost_and_that_very_response_the_rest() {
    let answer = |(field, _): &(&'static str, u64)| {
        (field.trim(), format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{field}\r\n\r\n").into_bytes())
    };
    let origin = table_origin(HEADERS.iter().map(answer).collect());
    let limit = "{ name: plan, per: { header: x-key }, rate: 100/day, cost: { response_header: X-Cost, reserve: 2, max: 5 } }";
    let gateway = Gateway::before(&origin, &format!("limits: [{limit}]"));
    let mut table = Table::new("costs in a response's header");
    for (key, (field, cost)) in HEADERS.iter().enumerate() {
        let response = answered(&gateway, key, "GET", field.trim());
        let said = format!("{} {:?}", response.status, remaining(&response));
        table.outcome(field, &format!("200 {:?}", Some(100 - cost)), &said);
        let next = answered(&gateway, key, "GET", "none");
        table.outcome(&format!("{field}, next"), &format!("{:?}", Some(98 - cost)), &format!("{:?}", remaining(&next)));
    }
    let first = answered(&gateway, 1000, "GET", "x-cost: 3");
    assert_eq!(first.header("x-cost"), Some("3"), "it stays in the response");
    let sum: u64 = HEADERS.iter().map(|(_, cost)| cost + 2).sum::<u64>() + 3;
    assert_eq!(gateway.metric("tollgate_settled_cells_total", &[("limit", "plan")]), sum as f64);
}

#[test]
fn a_header_that_the_response_has_twice_says_nothing() {
    let origin = Origin::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nx-cost: 3\r\nx-cost: 4\r\n\r\n");
    let limit = "{ name: plan, per: ip, rate: 100/day, cost: { response_header: x-cost, reserve: 2, max: 5 } }";
    let gateway = Gateway::before(&origin, &format!("limits: [{limit}]"));
    assert_eq!(remaining(&gateway.get("/")), Some(98), "as with a request's header, what was reserved stays");
}

#[test]
fn the_header_counts_even_if_the_client_does_not_get_to_see_it() {
    let origin = Origin::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nx-cost: 3\r\n\r\n");
    let config = "routes:
- { name: hidden, match: { path: /hidden }, upstream: origin, response_headers: { remove: [x-cost] } }
- { name: changed, match: { path: /changed }, upstream: origin, response_headers: { set: { x-cost: '5' } } }
limits: [{ name: plan, per: route, rate: 100/day, cost: { response_header: x-cost, reserve: 2, max: 5 } }]";
    let gateway = Gateway::before(&origin, config);
    for (path, seen) in [("/hidden", None), ("/changed", Some("5"))] {
        let response = gateway.get(path);
        assert_eq!((remaining(&response), response.header("x-cost")), (Some(97), seen), "{path}");
    }
}

#[test]
fn a_header_of_the_request_says_nothing_about_the_response() {
    let origin = Origin::ok();
    let limit = "{ name: plan, per: ip, rate: 100/day, cost: { response_header: x-cost, reserve: 2, max: 5 } }";
    let gateway = Gateway::before(&origin, &format!("trusted_proxies: loopback\nlimits: [{limit}]"));
    assert_eq!(remaining(&ask(&gateway, "/", "x-cost: 0\n")), Some(98));
}

#[test]
fn a_header_may_take_more_than_is_left() {
    let origin = Origin::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nx-cost: 40\r\n\r\n");
    let limit = "{ name: plan, per: ip, rate: 10/day, cost: { response_header: x-cost, reserve: 2, max: 50 } }";
    let gateway = Gateway::before(&origin, &format!("limits: [{limit}]"));
    let first = gateway.get("/");
    assert_eq!((first.status, remaining(&first)), (200, Some(0)), "what is owed is nothing left");
    assert!(super::about(super::reset(&first), 4 * super::DAY), "four days until all is there again");
    assert_eq!(gateway.get("/").status, 429);
}
