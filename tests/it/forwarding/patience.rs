//! Every wait has an end, and it is told apart whose fault it was.

use crate::harness::{Client, DEADLINE, Gateway, H2, Next, Origin, Unreachable, crlf, happens};
use std::time::{Duration, Instant};

/// Runs `job`, which must end by a timeout of about `expected` (and not much later).
fn ends_after<T>(expected: Duration, job: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = job();
    let took = start.elapsed();
    assert!(took >= expected.mul_f32(0.8), "ended after {took:?}, before {expected:?}");
    assert!(took < expected + Duration::from_secs(3), "ended after {took:?} instead of {expected:?}");
    result
}

const QUICK: Duration = Duration::from_millis(300);

fn impatient(origin: &Origin) -> Gateway {
    Gateway::before(
        origin,
        "listeners: [{ name: public, address: '127.0.0.1:0', timeouts: { header: 300ms, body_idle: 300ms, keep_alive: 300ms, write_idle: 300ms } }]
upstreams: { origin: { endpoints: ['http://ORIGIN'], timeouts: { connect: 300ms, response: 300ms, idle: 300ms } } }",
    )
}

#[test]
fn an_upstream_that_never_answers_is_a_504() {
    let origin = Origin::new(|call| call.stall());
    let gateway = impatient(&origin);
    let response = ends_after(QUICK, || gateway.get("/"));
    assert_eq!((response.status, response.json()["error"].as_str()), (504, Some("gateway_timeout")));
    assert_eq!(ends_after(QUICK, || H2::connect(gateway.addr()).get("/").status()), 504);
}

#[test]
fn the_routes_patience_overrides_the_upstreams() {
    let origin = Origin::new(|call| call.stall());
    let gateway =
        Gateway::before(&origin, "routes: [{ name: r, match: { path: / }, upstream: origin, timeouts: { response: 300ms } }]");
    assert_eq!(ends_after(QUICK, || gateway.get("/").status), 504);
}

#[test]
fn the_whole_exchange_has_a_limit_too() {
    let origin = Origin::new(|call| {
        call.body();
        call.send("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n");
        while call.send("x") {
            std::thread::sleep(Duration::from_millis(20));
        }
        Next::Close
    });
    let gateway =
        Gateway::before(&origin, "routes: [{ name: r, match: { path: / }, upstream: origin, timeouts: { total: 300ms } }]");
    assert_eq!(ends_after(QUICK, || gateway.client().get("/").outcome()), "200 cut");
}

#[test]
fn an_upstream_that_cannot_be_reached_is_a_504() {
    let nowhere = Unreachable::new();
    let gateway = Gateway::start(&format!(
        "upstreams: {{ origin: {{ endpoints: ['http://{}'], timeouts: {{ connect: 300ms }} }} }}",
        nowhere.addr
    ));
    let status = ends_after(QUICK, || gateway.get("/").status);
    assert!([502, 504].contains(&status), "{status}");
    assert_eq!(status, 504, "a timeout while connecting is a timeout");
}

#[test]
fn a_response_that_stalls_is_cut() {
    let origin = Origin::new(|call| {
        call.body();
        call.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
        call.stall()
    });
    let gateway = impatient(&origin);
    assert_eq!(ends_after(QUICK, || gateway.client().get("/").outcome()), "200 cut");
    assert_eq!(ends_after(QUICK, || H2::connect(gateway.addr()).get("/").outcome()), "200 cut");
}

#[test]
fn a_slow_but_steady_response_is_not_cut() {
    let origin = Origin::new(|call| {
        call.body();
        call.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n");
        for _ in 0..10 {
            std::thread::sleep(Duration::from_millis(60));
            call.send("x");
        }
        Next::Keep
    });
    let gateway = impatient(&origin);
    assert_eq!(gateway.client().get("/").outcome(), "200");
}

#[test]
fn half_a_head_is_not_waited_for_for_ever() {
    let origin = Origin::ok();
    let gateway = impatient(&origin);
    for part in ["G", "GET / HTTP/1.1\r\nHo", "GET / HTTP/1.1\r\nHost: a\r\n"] {
        let mut client = gateway.client();
        client.send(part);
        let outcome = ends_after(QUICK, || client.receive().outcome());
        assert!(["408", "closed", "reset"].contains(&outcome.as_str()), "{part:?}: {outcome}");
    }
    // One byte now and then does not extend it.
    let mut client = gateway.client();
    let start = Instant::now();
    for byte in b"GET / HTTP/1.1\r\nHost: a\r\nX-Long: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx" {
        client.send([*byte]);
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(["408", "closed", "reset"].contains(&client.receive().outcome().as_str()));
    assert!(start.elapsed() < DEADLINE);
    assert_eq!(gateway.get("/").status, 200);
}

/// The part of a head that came together with the request before it is a half-sent head like any other.
#[test]
fn half_a_pipelined_head_is_not_given_the_patience_of_an_idle_connection() {
    let origin = Origin::ok();
    let timeouts = "timeouts: { header: 300ms, keep_alive: 60s }";
    let gateway = Gateway::before(&origin, &format!("listeners: [{{ name: public, address: '127.0.0.1:0', {timeouts} }}]"));
    let mut client = gateway.client();
    assert_eq!(client.ask("GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHo").outcome(), "200");
    let outcome = ends_after(QUICK, || client.receive().outcome());
    assert!(["408", "closed", "reset"].contains(&outcome.as_str()), "{outcome}");
}

#[test]
fn a_connection_that_says_nothing_is_closed() {
    let origin = Origin::ok();
    let gateway = impatient(&origin);
    let mut client = gateway.client();
    assert!(client.is_closed());
}

#[test]
fn an_idle_connection_is_closed_after_keep_alive() {
    let origin = Origin::ok();
    let gateway = impatient(&origin);
    let mut client = gateway.client();
    assert_eq!(client.get("/").outcome(), "200");
    assert_eq!(ends_after(QUICK, || client.receive().outcome()), "closed");
    let mut h2 = H2::connect(gateway.addr());
    assert_eq!(h2.get("/").status(), 200);
    assert!(ends_after(QUICK, || h2.is_closed()));
}

#[test]
fn keep_alive_is_longer_than_the_head_when_it_says_so() {
    let origin = Origin::ok();
    let gateway = Gateway::before(
        &origin,
        "listeners: [{ name: public, address: '127.0.0.1:0', timeouts: { header: 200ms, keep_alive: 20s } }]",
    );
    let mut client = gateway.client();
    assert_eq!(client.get("/").outcome(), "200");
    let start = Instant::now();
    happens(DEADLINE, || start.elapsed() > Duration::from_millis(700));
    assert_eq!(client.get("/").outcome(), "200", "the connection was closed although keep_alive is 20s");
}

/// Line breaks before a request line are skipped, and are no sign of life.
#[test]
fn line_breaks_before_a_request_do_not_buy_time() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "listeners: [{ name: public, address: '127.0.0.1:0', timeouts: { header: 600ms } }]");
    let mut client = gateway.client();
    client.wait_at_most(Duration::from_millis(50));
    let outcome = ends_after(QUICK, || {
        let start = Instant::now();
        loop {
            let outcome = client.send("\r\n").receive().outcome();
            if outcome != "silent" || start.elapsed() > DEADLINE {
                return outcome;
            }
        }
    });
    assert!(["408", "closed", "reset"].contains(&outcome.as_str()), "{outcome}");
}

#[test]
fn an_upload_that_stalls_ends_and_aborts_the_upstream_request() {
    let origin = Origin::ok();
    let gateway = impatient(&origin);
    let mut client = gateway.client();
    client.send("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf");
    let outcome = ends_after(QUICK, || client.receive().outcome());
    assert!(["408", "closed", "reset"].contains(&outcome.as_str()), "{outcome}");
    assert!(!origin.wait(1).complete());
    let mut h2 = H2::connect(gateway.addr());
    let stream = h2.open(&[(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/x")], false);
    h2.data(stream, b"half", false);
    let outcome = h2.receive(stream).outcome();
    assert!(["408", "rst", "408 cut"].contains(&outcome.as_str()), "{outcome}");
    assert!(!origin.wait(2).complete());
}

/// The upstream's patience is for the upstream: it starts when it has the whole request.
#[test]
fn a_client_that_pauses_its_upload_is_no_slow_upstream() {
    let origin = Origin::ok();
    let upstream = "upstreams: { origin: { endpoints: ['http://ORIGIN'], timeouts: { response: 300ms } } }";
    let gateway = Gateway::before(&origin, upstream);
    let mut client = gateway.client();
    client.send("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nhalf");
    origin.wait_heads(1);
    let start = Instant::now();
    happens(DEADLINE, || start.elapsed() > Duration::from_millis(900));
    assert_eq!(client.ask("half").outcome(), "200");
    let mut h2 = H2::connect(gateway.addr());
    let stream = h2.open(&[(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/x")], false);
    h2.data(stream, b"half", false);
    origin.wait_heads(2);
    let start = Instant::now();
    happens(DEADLINE, || start.elapsed() > Duration::from_millis(900));
    h2.data(stream, b"half", true);
    assert_eq!(h2.receive(stream).outcome(), "200");
}

#[test]
fn a_client_that_does_not_read_its_response_is_dropped() {
    let origin = Origin::new(|call| {
        call.body();
        call.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 64 << 20));
        let block = vec![b'x'; 64 << 10];
        while call.send(&block) {}
        Next::Close
    });
    let gateway = impatient(&origin);
    let mut client = Client::connect_narrow(gateway.addr());
    client.send(crlf("GET / HTTP/1.1\nHost: a\n\n"));
    origin.wait_heads(1);
    crate::harness::until("the upstream call is given up", || origin.open() == 0);
}

#[test]
fn idle_upstream_connections_are_given_up() {
    let origin = Origin::ok();
    let gateway = impatient(&origin);
    assert_eq!(gateway.get("/").status, 200);
    crate::harness::until("the pooled connection is closed", || origin.open() == 0);
}
