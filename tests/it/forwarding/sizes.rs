//! Sizes that are refused: bodies, heads, targets.

use crate::harness::{Gateway, H2, Origin, crlf, exchange};

const SMALL: &str = "routes: [{ name: all, match: { path: '/{*rest}' }, max_body: 10B, upstream: origin }]";

#[test]
fn a_body_that_is_too_long_by_its_length_never_reaches_the_upstream() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, SMALL);
    let post = |length: usize| {
        exchange(
            gateway.addr(),
            [format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n").into_bytes(), vec![b'x'; length]].concat(),
        )
    };
    assert_eq!(post(10).outcome(), "200");
    let refused = post(11).response();
    assert_eq!((refused.status, refused.json()["error"].as_str()), (413, Some("payload_too_large")));
    assert_eq!(origin.seen().len(), 1);
    let fields = [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/"), ("content-length", "11")];
    assert_eq!(H2::connect(gateway.addr()).ask(&fields, Some(b"12345678901")).status(), 413);
    assert_eq!(origin.seen().len(), 1);
}

#[test]
fn a_chunked_body_that_grows_too_long_is_a_413_and_aborts_the_upstream_request() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, SMALL);
    let mut client = gateway.client();
    client.send(crlf("POST / HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n8\n12345678\n"));
    origin.wait_heads(1);
    client.send("8\r\n12345678\r\n0\r\n\r\n");
    let outcome = client.receive().outcome();
    assert_eq!(outcome, "413");
    assert!(!origin.wait(1).complete());
    let mut h2 = H2::connect(gateway.addr());
    let reply =
        h2.ask(&[(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/")], Some(b"12345678901")).outcome();
    assert!(["413", "rst"].contains(&reply.as_str()), "{reply}");
    assert!(origin.seen().iter().all(|seen| !seen.complete()));
}

#[test]
fn a_chunked_body_of_exactly_the_limit_passes() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, SMALL);
    let reply =
        exchange(gateway.addr(), crlf("POST / HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n5\n12345\n5\n12345\n0\n\n"));
    assert_eq!(reply.outcome(), "200");
    assert_eq!(origin.wait(1).body, b"1234512345");
}

#[test]
fn large_heads_are_431_and_long_targets_414() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "");
    let rows = [
        ("one long field", format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(600_000)), "431"),
        ("a long cookie", format!("GET / HTTP/1.1\r\nHost: a\r\nCookie: {}\r\n\r\n", "x".repeat(600_000)), "431"),
        ("many fields", format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: 1\r\n".repeat(500)), "431"),
        ("a long target", format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(70_000)), "414"),
        ("an ordinary long field", format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(8_000)), "200"),
    ];
    for (name, request, expected) in rows {
        assert_eq!(exchange(gateway.addr(), request).outcome(), expected, "{name}");
    }
    assert_eq!(origin.seen().len(), 1);
}

#[test]
fn large_http2_heads_are_refused_and_the_next_connection_works() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "");
    let long = "x".repeat(100_000);
    let outcome = H2::connect(gateway.addr())
        .ask(&[(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/"), ("x", &long)], None)
        .outcome();
    assert!(["431", "rst", "goaway", "closed"].contains(&outcome.as_str()), "{outcome}");
    assert!(origin.seen().is_empty());
    assert_eq!(H2::connect(gateway.addr()).get("/").status(), 200);
}
