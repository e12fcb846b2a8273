//! How old connections become, and how many are ready.

use super::answer;
use super::shown;
use crate::harness::{Gateway, H2Origin, Latch, Origin, until};

#[test]
fn connections_take_no_requests_beyond_their_age() {
    let origin = Origin::ok();
    let gateway =
        Gateway::before(&origin, "upstreams: { origin: { endpoints: ['http://ORIGIN'], timeouts: { max_age: 400ms } } }");
    let mut client = gateway.client();
    // Never at rest for long, so that only their age ends them.
    until("the third connection is in use", || {
        assert_eq!(client.get("/").response().status, 200);
        origin.connections() >= 3
    });
    assert!(origin.seen().len() > 10, "each has carried several");
    assert!(origin.open() <= 2);
}

#[test]
fn a_request_under_way_outlives_its_connection() {
    let door = Latch::default();
    let theirs = door.clone();
    let origin = Origin::new(move |call| {
        if call.target() == "/wait" {
            theirs.wait();
        }
        answer(call, "ok")
    });
    let gateway =
        Gateway::before(&origin, "upstreams: { origin: { endpoints: ['http://ORIGIN'], timeouts: { max_age: 250ms } } }");
    let mut client = gateway.client();
    client.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
    origin.wait_heads(1);
    let mut other = gateway.client();
    until("another connection has grown old", || {
        assert_eq!(other.get("/").response().status, 200);
        origin.connections() >= 3
    });
    door.open();
    assert_eq!(client.receive().outcome(), "200");
    until("its connection is not kept", || origin.open() <= 1);
}

#[test]
fn http2_connections_end_behind_their_last_stream() {
    let origin = H2Origin::ok();
    let gateway = Gateway::before_http2(
        &origin,
        "upstreams: { origin: { endpoints: ['http://ORIGIN'], protocol: http2, timeouts: { max_age: 400ms } } }",
    );
    let mut client = gateway.client();
    until("the third connection is in use", || {
        assert_eq!(client.get("/").response().status, 200);
        origin.connections() >= 3
    });
    until("the old ones are closed", || origin.open() <= 1);
}

#[test]
fn as_many_as_are_wanted_are_ready_before_anybody_asks() {
    let origin = Origin::ok();
    let gateway = Gateway::before(
        &origin,
        "workers: 2\nupstreams: { origin: { endpoints: ['http://ORIGIN'], min_connections: 3, timeouts: { idle: 600ms } } }",
    );
    until("three for each worker are there", || origin.open() == 6);
    assert_eq!(gateway.get("/").status, 200);
    assert_eq!(shown(&gateway)["endpoints"][0]["requests"], 0);
    until("they are made anew when they were idle for too long", || origin.connections() >= 12);
    until("and no more than those", || origin.open() == 6);
    gateway.reload("workers: 2\nupstreams: { origin: { endpoints: ['http://ORIGIN'], timeouts: { idle: 300ms } } }");
    until("nobody wants them any more", || origin.open() == 0);
}

#[test]
fn one_http2_connection_is_ready_where_that_is_spoken() {
    let origin = H2Origin::ok();
    let gateway = Gateway::before_http2(
        &origin,
        "upstreams: { origin: { endpoints: ['http://ORIGIN'], protocol: http2, min_connections: 2 } }",
    );
    until("it is there", || origin.open() == 1);
    assert_eq!(gateway.get("/").status, 200);
    assert_eq!(origin.connections(), 1);
}
