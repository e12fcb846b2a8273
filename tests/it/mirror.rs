//! Copies of requests: what they say, how many there are, and that nobody but the mirror notices.

use crate::harness::{Gateway, H2, H2Origin, Latch, Next, Origin, Seen, Unreachable, hashed, until};
use std::net::SocketAddr;

/// A gateway whose requests go to `origin` and are copied to `mirror`.
fn gateway(origin: &Origin, mirror: SocketAddr, mirroring: &str, more: &str) -> Gateway {
    Gateway::before(
        origin,
        &format!(
            "upstreams: {{ origin: {{ endpoints: ['http://ORIGIN'] }}, shadow: {{ endpoints: ['http://{mirror}'] }} }}\n\
             routes: [{{ name: all, upstream: origin, mirror: {{ upstream: shadow, {mirroring} }} }}]\n{more}"
        ),
    )
}

fn outcomes(gateway: &Gateway, outcome: &str) -> f64 {
    gateway.metric("tollgate_mirror_requests_total", &[("route", "all"), ("outcome", outcome)])
}

/// Waits for so many copies of that outcome, and for all to be over.
fn until_outcome(gateway: &Gateway, outcome: &str, n: usize) {
    until(&format!("{n} copies are {outcome}"), || {
        outcomes(gateway, outcome) == n as f64 && gateway.metric("tollgate_mirror_in_flight", &[]) == 0.0
    });
}

/// The request's head without the marker.
fn unmarked(seen: &Seen) -> String {
    String::from_utf8_lossy(&seen.wire).replace("x-tollgate-mirror: 1\r\n", "")
}

#[test]
fn a_copy_says_what_the_request_says_and_that_it_is_a_copy() {
    let (origin, shadow) = (Origin::ok(), Origin::ok());
    let identity =
        "identity: { api_key: { sources: [{ header: x-api-key }, { query: key }], strip: true }, forward: { client: x-client } }";
    let clients = format!("clients: [{{ id: acme, api_keys: ['{}'] }}]", hashed("k"));
    let gateway = gateway(&origin, shadow.addr(), "", &format!("{identity}\n{clients}"));
    let mut client = gateway.client();
    let requests = [
        "GET /a?key=k&b=1 HTTP/1.1\r\nHost: shop.example\r\nX-Tollgate-Mirror: 7\r\nX-Tollgate_Mirror: 8\r\nConnection: x-hop\r\nX-Hop: 1\r\n\r\n",
        "POST /b HTTP/1.1\r\nHost: shop.example\r\nX-Api-Key: k\r\nX-Client: root\r\nContent-Length: 5\r\n\r\nhello",
        "PUT /c HTTP/1.1\r\nHost: shop.example\r\nX-Api-Key: k\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
        "POST /d HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 0\r\n\r\n",
    ];
    for (n, request) in (1..).zip(requests) {
        assert_eq!(client.ask(request).status(), 200);
        let (ours, copy) = (origin.wait(n), shadow.wait(n));
        assert!(copy.complete() && ours.complete());
        assert_eq!(copy.all("x-tollgate-mirror"), ["1"], "{:?}", copy.headers);
        assert!(ours.headers.iter().all(|(name, _)| !name.to_lowercase().contains("mirror")), "{:?}", ours.headers);
        assert_eq!((copy.line.clone(), copy.body.clone()), (ours.line.clone(), ours.body.clone()));
        assert_eq!(copy.header("host"), Some("shop.example"));
        let head = |wire: String| wire.split("\r\n\r\n").next().unwrap_or_default().to_owned();
        assert_eq!(head(unmarked(&copy)), head(unmarked(&ours)));
        assert!(!String::from_utf8_lossy(&copy.wire).contains("key="), "credentials end here");
        until_outcome(&gateway, "answered", n);
    }
    assert_eq!(gateway.metric("tollgate_requests_total", &[("route", "all")]), 4.0, "copies are no requests");
    assert_eq!(gateway.metric("tollgate_mirror_duration_seconds_count", &[]), 4.0);
    assert_eq!(shadow.connections(), 1, "connections are kept");
}

#[test]
fn a_share_is_copied() {
    let (origin, shadow) = (Origin::ok(), Origin::ok());
    let gateway = gateway(&origin, shadow.addr(), "sample: 25%", "");
    let mut client = gateway.client();
    (0..200).for_each(|_| assert_eq!(client.get("/").status(), 200));
    until("all copies are there", || gateway.metric("tollgate_mirror_in_flight", &[]) == 0.0);
    // A Weyl sequence is off by a few at most.
    assert!((45..=55).contains(&shadow.seen().len()), "{}", shadow.seen().len());
    gateway.reload(&format!(
        "upstreams: {{ origin: {{ endpoints: ['http://ORIGIN'] }}, shadow: {{ endpoints: ['http://{}'] }} }}\n\
         routes: [{{ name: all, upstream: origin, mirror: {{ upstream: shadow, sample: 0 }} }}]",
        shadow.addr()
    ));
    shadow.forget();
    (0..50).for_each(|_| assert_eq!(client.get("/").status(), 200));
    assert!(shadow.seen().is_empty());
}

#[test]
fn a_mirror_that_never_answers_holds_nobody_up() {
    let (origin, door) = (Origin::ok(), Latch::default());
    let behind = door.clone();
    let shadow = Origin::new(move |call| {
        behind.wait();
        call.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    });
    // One slot per client, and one request an hour more than there are: copies take neither.
    let limits = "limits:\n- { name: slots, per: client, concurrency: 1 }\n- { name: rate, per: client, rate: 12/hour }";
    let gateway = gateway(&origin, shadow.addr(), "max_in_flight: 3", limits);
    let mut client = gateway.client();
    for n in 1..=10 {
        let response = client.ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi").response();
        assert_eq!((response.status, response.header("x-ratelimit-remaining")), (200, Some(&*(12 - n).to_string())));
    }
    until("three are under way, and the rest was dropped", || outcomes(&gateway, "dropped") == 7.0);
    assert_eq!(gateway.metric("tollgate_mirror_in_flight", &[("route", "all")]), 3.0);
    door.open();
    until_outcome(&gateway, "answered", 3);
    assert_eq!(client.get("/").status(), 200);
    until_outcome(&gateway, "answered", 4);
}

#[test]
fn faults_of_a_mirror_are_counted_and_nothing_else() {
    let origin = Origin::ok();
    let shadow = Origin::new(|call| match call.target() {
        "/500" => call.answer(b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n"),
        "/404" => call.answer(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"),
        "/garbage" => call.answer(b"ehlo\r\n\r\n"),
        "/cut" => {
            call.body();
            call.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nha");
            Next::Close
        }
        // Far more than anybody reads.
        "/endless" => {
            call.body();
            call.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
            let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
            while call.send(&chunk) {}
            Next::Close
        }
        _ => call.reset(),
    });
    let gateway = gateway(&origin, shadow.addr(), "", "");
    let mut client = gateway.client();
    for (path, outcome, n) in [
        ("/500", "server_error", 1),
        ("/404", "answered", 1),
        ("/garbage", "failed", 1),
        ("/cut", "failed", 2),
        ("/endless", "answered", 2),
        ("/reset", "failed", 3),
    ] {
        assert_eq!(client.get(path).status(), 200, "{path}");
        until_outcome(&gateway, outcome, n);
    }
    assert_eq!(gateway.metric("tollgate_requests_total", &[("code", "2xx")]), 6.0);
    assert_eq!(gateway.metric("tollgate_upstream_errors_total", &[("upstream", "origin")]), 0.0);
    assert_eq!(gateway.log().matches("upstream failed").count(), 0, "a copy's faults are no news");
}

#[test]
fn a_mirror_that_is_not_there_costs_nothing() {
    let (origin, nobody) = (Origin::ok(), Unreachable::new());
    let gateway = gateway(&origin, nobody.addr, "max_in_flight: 5", "");
    let mut client = gateway.client();
    for _ in 0..20 {
        assert_eq!(client.get("/").status(), 200);
    }
    // On a slow machine some of the first five may have been given up before the last requests came.
    let under_way = gateway.metric("tollgate_mirror_in_flight", &[]);
    assert!(under_way <= 5.0, "{under_way}");
    assert_eq!(outcomes(&gateway, "dropped") + outcomes(&gateway, "failed") + under_way, 20.0);
}

#[test]
fn a_large_upload_is_not_copied_and_not_held_up() {
    let (origin, shadow) = (Origin::ok(), Origin::ok());
    let gateway = gateway(&origin, shadow.addr(), "max_body: 1KiB", "");
    let mut client = gateway.client();
    let known = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1025\r\n\r\n{}", "x".repeat(1025));
    assert_eq!(client.ask(known).status(), 200);
    until_outcome(&gateway, "too_large", 1);
    // Nobody knows how long this gets.
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    for _ in 0..100 {
        client.send(format!("1000\r\n{}\r\n", "x".repeat(0x1000)));
    }
    until_outcome(&gateway, "too_large", 2);
    assert_eq!(client.send("0\r\n\r\n").receive().status(), 200);
    assert_eq!(origin.wait(2).body.len(), 0x1000 * 100);
    let just = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1024\r\n\r\n{}", "x".repeat(1024));
    assert_eq!(client.ask(just).status(), 200);
    until_outcome(&gateway, "answered", 1);
    assert_eq!(shadow.seen().len(), 1);
    assert_eq!(shadow.wait(1).body.len(), 1024);
}

#[test]
fn half_a_request_has_no_copy() {
    let (origin, shadow) = (Origin::ok(), Origin::ok());
    let gateway = gateway(&origin, shadow.addr(), "", "");
    let mut client = gateway.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf");
    origin.wait_heads(1);
    drop(client);
    until_outcome(&gateway, "abandoned", 1);
    assert!(shadow.seen().is_empty());
}

#[test]
fn refused_requests_calls_and_upgrades_have_no_copy() {
    let (origin, shadow) = (Origin::ok(), Origin::ok());
    let gateway = gateway(&origin, shadow.addr(), "", "limits: [{ name: rate, per: client, match: { path: /x }, rate: 1/hour }]");
    let mut client = gateway.client();
    assert_eq!(client.get("/x").status(), 200);
    until_outcome(&gateway, "answered", 1);
    assert_eq!(client.get("/x").status(), 429);
    let upgrade = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    assert_eq!(gateway.client().ask(upgrade).status(), 200);
    origin.wait_heads(2);
    assert_eq!(gateway.client().get("/after").status(), 200);
    until_outcome(&gateway, "answered", 2);
    assert_eq!(shadow.lines(), ["GET /x HTTP/1.1", "GET /after HTTP/1.1"]);
}

#[test]
fn copies_outlive_a_reload() {
    let (origin, shadow, door) = (Origin::ok(), Origin::ok(), Latch::default());
    let behind = door.clone();
    let origin_slow = Origin::new(move |call| {
        behind.wait();
        call.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    });
    let gateway = gateway(&origin_slow, shadow.addr(), "", "");
    let mut client = gateway.client();
    client.send("POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nha");
    origin_slow.wait_heads(1);
    // The mirror goes, and other upstreams come before it.
    gateway.reload(&format!(
        "upstreams: {{ aaa: {{ endpoints: ['http://{0}'] }}, origin: {{ endpoints: ['http://{0}'] }} }}\nroutes: [{{ name: all, upstream: aaa }}]",
        origin.addr()
    ));
    client.send("lf");
    assert_eq!(shadow.wait(1).body, b"half");
    door.open();
    assert_eq!(client.receive().status(), 200);
    assert!(origin.seen().is_empty());
}

#[test]
fn copies_are_made_from_and_to_http2() {
    let (origin, shadow) = (Origin::ok(), H2Origin::ok());
    let gateway = Gateway::before(
        &origin,
        &format!(
            "upstreams: {{ origin: {{ endpoints: ['http://ORIGIN'] }}, shadow: {{ endpoints: ['http://{}'], protocol: http2 }} }}\n\
             routes: [{{ name: all, upstream: origin, mirror: {{ upstream: shadow }} }}]",
            shadow.addr()
        ),
    );
    let mut client = H2::connect(gateway.addr());
    let fields = |path| [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", path)];
    assert_eq!(client.ask(&fields("/x"), Some(b"hello")).status(), 200);
    let copy = shadow.wait(1);
    assert_eq!((copy.path(), copy.body.as_slice(), copy.header("x-tollgate-mirror")), ("/x", &b"hello"[..], Some("1")));
    until_outcome(&gateway, "answered", 1);
    assert_eq!(client.get("/y").status(), 200);
    assert_eq!(shadow.wait(2).path(), "/y");
    let call = [fields("/call").as_slice(), &[("content-type", "application/grpc")]].concat();
    client.ask(&call, Some(b""));
    assert_eq!(client.get("/z").status(), 200);
    assert_eq!(shadow.wait(3).path(), "/z", "a call has no copy");
}
