//! Streams that are under way when the configuration changes or the gateway ends.

use super::{answer, fields};
use crate::harness::{Gateway, H2, H2Origin, Latch, over_http2, until};

#[test]
fn a_reload_that_removes_the_endpoint_leaves_its_streams_alone() {
    let door = Latch::default();
    let theirs = door.clone();
    let origin = H2Origin::new(move |call| {
        call.headers(&[(":status", "200")], false);
        call.data(b"first", false);
        theirs.wait();
        call.data(b"second", true);
    });
    let other = H2Origin::ok();
    let gateway = Gateway::before_http2(&origin, "");
    let mut client = H2::connect(gateway.addr());
    let stream = client.request(&fields("GET", "/"), None);
    assert_eq!(client.receive_until(stream, |reply| reply.body == b"first").status(), 200);
    gateway.reload(&format!("upstreams: {{ origin: {{ endpoints: ['http://{}'], protocol: http2 }} }}", other.addr()));
    assert_eq!(gateway.get("/").text(), "ok");
    door.open();
    assert_eq!(client.receive(stream).body, b"firstsecond");
    until("the removed endpoint's connection is closed", || origin.open() == 0);
}

#[test]
fn a_reload_that_changes_the_protocol_is_followed_by_the_next_request() {
    let origin = H2Origin::ok();
    let gateway = Gateway::before_http2(&origin, "");
    assert_eq!(gateway.get("/").status, 200);
    gateway.reload("upstreams: { origin: { endpoints: ['http://ORIGIN'], protocol: http1 } }");
    assert_eq!(gateway.get("/").status, 502);
    gateway.reload(&over_http2(""));
    assert_eq!(gateway.get("/").status, 200);
}

#[test]
fn a_drain_waits_for_streams() {
    let door = Latch::default();
    let theirs = door.clone();
    let origin = H2Origin::new(move |call| {
        theirs.wait();
        answer(call, b"ok");
    });
    let mut gateway = Gateway::before_http2(&origin, "");
    let mut client = gateway.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    origin.wait_heads(1);
    gateway.signal("TERM");
    until("the gateway is stopping", || gateway.log().contains("stopping"));
    door.open();
    assert_eq!(client.receive().response().text(), "ok");
    until("the gateway exits", || gateway.exit_code().is_some());
    assert_eq!(gateway.exit_code(), Some(0));
}
