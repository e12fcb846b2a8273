//! Upstreams that are not there, break, or vanish at the wrong moment.

use crate::harness::{Gateway, H2, Latch, Next, Origin, crlf, exchange, until};
use std::net::{SocketAddr, TcpListener};

/// An address where nobody listens.
fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn upstream_errors(gateway: &Gateway) -> f64 {
    gateway.metric("tollgate_upstream_errors_total", &[])
}

#[test]
fn no_upstream_is_a_502_at_once() {
    let gateway = Gateway::start(&format!("upstreams: {{ origin: {{ endpoints: ['http://{}'] }} }}", nobody()));
    for _ in 0..5 {
        let response = gateway.get("/");
        assert_eq!((response.status, response.json()["error"].as_str()), (502, Some("bad_gateway")));
    }
    assert_eq!(H2::connect(gateway.addr()).get("/").status(), 502);
    let upload = exchange(gateway.addr(), crlf("POST / HTTP/1.1\nHost: a\nContent-Length: 4\n\nbody"));
    assert_eq!(upload.outcome(), "502");
}

#[test]
fn a_dead_endpoint_is_passed_over_for_every_method() {
    let origin = Origin::ok();
    let gateway =
        Gateway::before(&origin, &format!("upstreams: {{ origin: {{ endpoints: ['http://{}', 'http://ORIGIN'] }} }}", nobody()));
    for _ in 0..20 {
        assert_eq!(gateway.get("/").status, 200);
        assert_eq!(exchange(gateway.addr(), crlf("POST / HTTP/1.1\nHost: a\nContent-Length: 4\n\nbody")).outcome(), "200");
    }
    assert!(origin.seen().iter().filter(|seen| seen.line.starts_with("POST")).all(|seen| seen.body == b"body"));
}

#[test]
fn endpoints_share_the_requests() {
    let (one, two) = (Origin::ok(), Origin::ok());
    let gateway =
        Gateway::before(&one, &format!("upstreams: {{ origin: {{ endpoints: ['http://ORIGIN', 'http://{}'] }} }}", two.addr()));
    for _ in 0..100 {
        gateway.get("/");
    }
    let (first, second) = (one.seen().len(), two.seen().len());
    assert!(first + second == 100 && first >= 15 && second >= 15, "{first} and {second}");
}

#[test]
fn upstream_connections_are_reused() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "");
    for _ in 0..50 {
        assert_eq!(gateway.get("/").status, 200);
    }
    assert!(origin.connections() <= 2, "{} connections", origin.connections());
}

#[test]
fn more_requests_than_upstream_connections_are_a_503_at_once() {
    let door = Latch::default();
    let theirs = door.clone();
    let origin = Origin::new(move |call| {
        theirs.wait();
        call.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    });
    let gateway = Gateway::before(&origin, "upstreams: { origin: { endpoints: ['http://ORIGIN'], max_connections: 1 } }");
    let mut first = gateway.client();
    first.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    origin.wait_heads(1);
    let refused = gateway.get("/");
    assert_eq!((refused.status, refused.json()["error"].as_str()), (503, Some("service_unavailable")));
    assert!(refused.header("retry-after").is_some());
    door.open();
    assert_eq!(first.receive().outcome(), "200");
    assert_eq!(gateway.get("/").status, 200);
}

#[test]
fn a_connection_that_rests_in_one_workers_pool_does_not_starve_the_other_worker() {
    let origin = Origin::ok();
    let gateway =
        Gateway::before(&origin, "workers: 2\nupstreams: { origin: { endpoints: ['http://ORIGIN'], max_connections: 1 } }");
    // One request at a time needs one connection at a time, whichever worker it meets.
    assert_eq!(gateway.statuses(20, "/"), [200; 20]);
}

#[test]
fn a_connection_that_rests_at_one_endpoint_does_not_starve_another() {
    let (one, two) = (Origin::ok(), Origin::ok());
    let upstream = format!("endpoints: ['http://ORIGIN', 'http://{}'], max_connections: 1", two.addr());
    let gateway = Gateway::before(&one, &format!("upstreams: {{ origin: {{ {upstream} }} }}"));
    assert_eq!(gateway.statuses(30, "/"), [200; 30]);
}

#[test]
fn a_connection_the_upstream_has_closed_is_not_used_again() {
    let origin = Origin::new(|call| {
        call.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        Next::Close
    });
    let gateway = Gateway::before(&origin, "");
    for i in 0..20 {
        assert_eq!(gateway.get("/").status, 200);
        until("the upstream has closed", || origin.open() == 0);
        assert_eq!(
            exchange(gateway.addr(), crlf("POST / HTTP/1.1\nHost: a\nContent-Length: 1\n\nz")).outcome(),
            "200",
            "POST {i}"
        );
        until("the upstream has closed", || origin.open() == 0);
    }
}

/// Answers the first request of a connection and closes when a second one arrives on it.
fn racing() -> Origin {
    Origin::new(|call| {
        if call.nth > 1 {
            return Next::Close;
        }
        call.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    })
}

#[test]
fn a_get_that_meets_a_closing_connection_is_sent_once_more() {
    let origin = racing();
    let gateway = Gateway::before(&origin, "limits: [{ name: two, per: ip, rate: 2/hour }]");
    assert_eq!(gateway.get("/first").status, 200);
    assert_eq!(gateway.get("/raced").status, 200);
    assert_eq!(origin.lines(), ["GET /first HTTP/1.1", "GET /raced HTTP/1.1", "GET /raced HTTP/1.1"]);
    assert_eq!(gateway.get("/third").status, 429, "the second attempt is not charged, the requests are");
}

#[test]
fn a_post_that_meets_a_closing_connection_is_not_sent_again() {
    let origin = racing();
    let gateway = Gateway::before(&origin, "");
    assert_eq!(gateway.get("/first").status, 200);
    let post = exchange(gateway.addr(), crlf("POST /raced HTTP/1.1\nHost: a\nContent-Length: 1\n\nz"));
    assert_eq!(post.outcome(), "502");
    assert_eq!(origin.lines(), ["GET /first HTTP/1.1", "POST /raced HTTP/1.1"]);
}

#[test]
fn a_get_is_not_retried_for_ever() {
    let origin = Origin::new(|_| Next::Close);
    let gateway = Gateway::before(&origin, "");
    assert_eq!(gateway.get("/").status, 502);
    assert!(origin.seen().len() <= 3, "{} attempts", origin.seen().len());
}

#[test]
fn resets_are_failures_like_closes() {
    let origin = Origin::new(|call| {
        if call.target() == "/mid" {
            call.body();
            call.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
        }
        call.reset()
    });
    let gateway = Gateway::before(&origin, "");
    assert_eq!(gateway.get("/at-once").status, 502);
    let reply = gateway.client().get("/mid").outcome();
    assert!(["200 cut", "502", "closed"].contains(&reply.as_str()), "{reply}");
    let mut h2 = H2::connect(gateway.addr());
    let outcome = h2.get("/mid").outcome();
    assert!(["200 cut", "502", "rst"].contains(&outcome.as_str()), "{outcome}");
}

#[test]
fn a_client_that_leaves_cancels_the_upstream_call_and_is_no_upstream_failure() {
    let origin = Origin::new(|call| match call.target() {
        "/stall" => call.stall(),
        "/half" => {
            call.body();
            call.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
            call.stall()
        }
        _ => call.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    });
    let gateway = Gateway::before(&origin, "");
    assert_eq!(gateway.get("/warm-up").status, 200);
    let before = upstream_errors(&gateway);
    for target in ["/stall", "/half"] {
        let count = origin.seen().len();
        let mut client = gateway.client();
        client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        origin.wait_heads(count + 1);
        client.reset();
        until("the upstream call is cancelled", || origin.open() <= 1);
        let mut h2 = H2::connect(gateway.addr());
        let stream = h2.request(&[(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", target)], None);
        origin.wait_heads(count + 2);
        h2.cancel(stream);
        until("the upstream call of the stream is cancelled", || origin.open() <= 1);
        assert_eq!(h2.get("/warm-up").status(), 200, "the connection lives on");
    }
    assert_eq!(upstream_errors(&gateway), before);
}

#[test]
fn a_client_that_leaves_mid_upload_aborts_the_upstream_request() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "");
    let mut h2 = H2::connect(gateway.addr());
    let stream = h2.open(&[(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/x")], false);
    h2.data(stream, b"half", false);
    origin.wait_heads(1);
    h2.cancel(stream);
    assert!(!origin.wait(1).complete());
    assert_eq!(upstream_errors(&gateway), 0.0);
}

#[test]
fn one_stalled_request_does_not_hold_up_others_on_the_same_connection() {
    let door = Latch::default();
    let theirs = door.clone();
    let origin = Origin::new(move |call| {
        if call.target() == "/slow" {
            theirs.wait();
        }
        call.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    });
    let gateway = Gateway::before(&origin, "");
    let mut h2 = H2::connect(gateway.addr());
    let slow = h2.request(&[(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/slow")], None);
    for _ in 0..10 {
        assert_eq!(h2.get("/fast").status(), 200);
    }
    door.open();
    assert_eq!(h2.receive(slow).status(), 200);
}

/// Many clients take a connection that ends without a byte for a stale one, and ask again.
#[test]
fn a_fault_right_behind_the_head_still_lets_the_client_see_the_head() {
    let origin = Origin::new(|call| {
        let long = ["4;".to_owned(), "x".repeat(4_200), "\r\nfour\r\n0\r\n\r\n".to_owned()].concat();
        match call.target() {
            "/length" => call.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfour"),
            "/chunks" => call.answer(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nfour\r\n"),
            _ => call.answer(&[&b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"[..], long.as_bytes()].concat()),
        };
        Next::Close
    });
    let gateway = Gateway::before(&origin, "access_log: { format: json, to: stdout }");
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..20 {
        for path in ["/length", "/chunks", "/extension"] {
            seen.insert(gateway.client().get(path).outcome());
            let fields = [(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", path)];
            seen.insert(H2::connect(gateway.addr()).ask(&fields, None).outcome());
        }
    }
    let visible = ["200 cut", "502"];
    assert!(seen.iter().all(|outcome| visible.contains(&outcome.as_str())), "{seen:?}");
    let log = gateway.access_log();
    let cut = log.lines().filter(|line| line.contains("\"status\":200"));
    assert!(cut.clone().count() > 0 && cut.clone().all(|line| line.contains("\"broken_off\":true")), "{log}");
}
