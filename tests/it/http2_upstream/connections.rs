//! How many connections, how many streams on each, and what happens when upstream wants no more of them.

use super::answer;
use crate::harness::{Gateway, H2Origin, Hello, Latch, Next, Origin, exchange, together, until};
use std::net::TcpListener;
use std::time::Duration;

/// Answers when the door is open.
fn behind(door: &Latch, hello: Hello) -> H2Origin {
    let door = door.clone();
    H2Origin::saying(hello, move |call| {
        door.wait();
        answer(call, b"ok");
    })
}

/// `n` requests at once, all of which reach the upstream before any is answered.
fn at_once(gateway: &Gateway, origin: &H2Origin, door: &Latch, n: usize) -> Vec<u16> {
    std::thread::scope(|scope| {
        let clients = scope.spawn(|| together(n, |i| gateway.get(&format!("/{i}")).status));
        origin.wait_heads(n);
        door.open();
        clients.join().unwrap()
    })
}

#[test]
fn many_requests_share_one_connection() {
    let door = Latch::default();
    let origin = behind(&door, Hello::default());
    let gateway = Gateway::before_http2(&origin, "");
    assert_eq!(at_once(&gateway, &origin, &door, 60), [200; 60]);
    assert_eq!((origin.connections(), origin.most_streams()), (1, 60));
}

#[test]
fn one_after_the_other_they_use_the_same_connection() {
    let origin = H2Origin::ok();
    let gateway = Gateway::before_http2(&origin, "");
    assert_eq!(gateway.statuses(30, "/"), [200; 30]);
    assert_eq!((origin.connections(), origin.most_streams()), (1, 1));
}

#[test]
fn no_more_streams_than_upstream_allows_and_no_more_connections_than_they_need() {
    let door = Latch::default();
    let origin = behind(&door, Hello { streams: Some(3), ..Hello::default() });
    let gateway = Gateway::before_http2(&origin, "");
    assert_eq!(at_once(&gateway, &origin, &door, 1), [200]);
    let door = Latch::default();
    let origin = behind(&door, Hello { streams: Some(3), ..Hello::default() });
    let gateway = Gateway::before_http2(&origin, "");
    assert_eq!(at_once(&gateway, &origin, &door, 10), [200; 10]);
    assert!(origin.most_streams() <= 3, "{} streams on a connection", origin.most_streams());
    assert!((4..=10).contains(&origin.connections()), "{} connections", origin.connections());
}

#[test]
fn no_more_streams_than_the_gateway_wants() {
    let door = Latch::default();
    let origin = behind(&door, Hello { streams: Some(100_000), ..Hello::default() });
    let gateway = Gateway::before_http2(&origin, "");
    assert_eq!(at_once(&gateway, &origin, &door, 130), [200; 130]);
    assert_eq!((origin.most_streams(), origin.connections()), (100, 2));
}

#[test]
fn max_connections_counts_connections_and_not_streams() {
    let door = Latch::default();
    let origin = behind(&door, Hello { streams: Some(2), ..Hello::default() });
    let upstreams = "upstreams: { origin: { endpoints: ['http://ORIGIN'], protocol: http2, max_connections: 1 } }";
    let gateway = Gateway::before_http2(&origin, upstreams);
    std::thread::scope(|scope| {
        let two = scope.spawn(|| together(2, |_| gateway.get("/").status));
        origin.wait_heads(2);
        let refused = gateway.get("/");
        assert_eq!((refused.status, refused.json()["error"].as_str()), (503, Some("service_unavailable")));
        door.open();
        assert_eq!(two.join().unwrap(), [200; 2]);
    });
    assert_eq!(gateway.statuses(5, "/"), [200; 5]);
    assert_eq!(origin.connections(), 1);
}

#[test]
fn a_burst_at_the_beginning_waits_for_the_one_connection_that_may_be() {
    let origin = H2Origin::ok();
    let upstreams = "upstreams: { origin: { endpoints: ['http://ORIGIN'], protocol: http2, max_connections: 1 } }";
    let gateway = Gateway::before_http2(&origin, upstreams);
    assert_eq!(together(30, |_| gateway.get("/").status), [200; 30]);
    assert_eq!(origin.connections(), 1);
}

#[test]
fn two_workers_have_a_connection_each_and_starve_nobody() {
    let origin = H2Origin::ok();
    let upstreams = "upstreams: { origin: { endpoints: ['http://ORIGIN'], protocol: http2, max_connections: 1 } }";
    let gateway = Gateway::before_http2(&origin, &format!("workers: 2\n{upstreams}"));
    assert_eq!(gateway.statuses(20, "/"), [200; 20]);
}

#[test]
fn a_goaway_ends_no_request() {
    let door = Latch::default();
    let theirs = door.clone();
    let origin = H2Origin::new(move |call| {
        if call.seen.path() == "/last" {
            call.goaway(call.seen.stream, 0);
        }
        if call.seen.path() != "/after" {
            theirs.wait();
        }
        answer(call, b"ok");
    });
    let gateway = Gateway::before_http2(&origin, "");
    std::thread::scope(|scope| {
        let early = scope.spawn(|| together(4, |i| gateway.get(&format!("/{i}")).status));
        origin.wait_heads(4);
        let last = scope.spawn(|| gateway.get("/last").status);
        origin.wait_heads(5);
        // Whether the GOAWAY has arrived yet or not: these are answered.
        for _ in 0..20 {
            assert_eq!(gateway.get("/after").status, 200);
        }
        let after: Vec<_> = origin.seen().into_iter().filter(|seen| seen.path() == "/after").collect();
        assert_eq!(after.last().unwrap().connection, 1, "no new stream on a connection that says goodbye");
        door.open();
        assert_eq!((early.join().unwrap(), last.join().unwrap()), (vec![200; 4], 200));
    });
    until("the connection that said goodbye is closed", || origin.open() == 1);
}

#[test]
fn streams_above_the_last_of_a_goaway_are_opened_elsewhere() {
    let origin = H2Origin::new(|call| {
        if call.seen.connection == 0 && call.nth == 2 {
            // The first stream is done, this one was never looked at.
            call.goaway(1, 0);
            call.await_reset();
            return;
        }
        answer(call, b"ok");
    });
    let gateway = Gateway::before_http2(&origin, "limits: [{ name: three, per: ip, rate: 3/hour }]");
    assert_eq!(gateway.get("/first").status, 200);
    let post = exchange(gateway.addr(), "POST /second HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(post.outcome(), "200");
    let seen: Vec<_> = origin.seen().iter().map(|seen| (seen.connection, seen.path().to_owned())).collect();
    assert_eq!(seen, [(0, "/first".into()), (0, "/second".into()), (1, "/second".into())]);
    assert_eq!(gateway.statuses(2, "/"), [200, 429], "the second attempt is not charged, the requests are");
}

const REFUSED_STREAM: u32 = 7;

#[test]
fn a_refused_stream_is_opened_once_more_elsewhere_and_charged_once() {
    let origin = H2Origin::new(|call| {
        if call.seen.connection == 0 && call.nth == 2 {
            call.reset(REFUSED_STREAM);
        } else {
            answer(call, b"ok");
        }
    });
    let gateway = Gateway::before_http2(&origin, "limits: [{ name: three, per: ip, rate: 3/hour }]");
    assert_eq!(gateway.get("/first").status, 200);
    let post = exchange(gateway.addr(), "DELETE /refused HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(post.outcome(), "200");
    assert_eq!(origin.seen().iter().map(|seen| seen.connection).collect::<Vec<_>>(), [0, 0, 1]);
    assert_eq!(gateway.statuses(2, "/"), [200, 429]);
    assert_eq!(gateway.metric("tollgate_upstream_retries_total", &[]), 1.0);
    assert_eq!(gateway.metric("tollgate_upstream_errors_total", &[]), 0.0, "nothing has failed");
}

#[test]
fn who_refuses_twice_is_not_asked_a_third_time() {
    let origin = H2Origin::new(|call| {
        call.reset(REFUSED_STREAM);
    });
    let gateway = Gateway::before_http2(&origin, "");
    let refused = gateway.get("/");
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    assert_eq!(origin.seen().len(), 2);
    assert_eq!(gateway.metric("tollgate_upstream_errors_total", &[("kind", "refused")]), 1.0);
}

#[test]
fn a_body_that_was_taken_is_not_sent_twice() {
    let origin = H2Origin::new(|call| {
        call.body();
        call.reset(REFUSED_STREAM);
    });
    let gateway = Gateway::before_http2(&origin, "");
    let post = exchange(gateway.addr(), "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");
    assert_eq!((post.outcome().as_str(), origin.seen().len()), ("503", 1));
}

#[test]
fn a_get_whose_reused_connection_breaks_is_sent_once_more_and_a_post_is_not() {
    let origin = H2Origin::new(|call| {
        if call.nth > 1 {
            call.close();
        } else {
            answer(call, b"ok");
        }
    });
    let gateway = Gateway::before_http2(&origin, "");
    assert_eq!(gateway.get("/first").status, 200);
    assert_eq!(gateway.get("/raced").status, 200);
    let post = exchange(gateway.addr(), "POST /post HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nz");
    assert_eq!(post.outcome(), "502");
    let paths: Vec<_> = origin.seen().iter().map(|seen| seen.path().to_owned()).collect();
    assert_eq!(paths, ["/first", "/raced", "/raced", "/post"]);
}

#[test]
fn endpoints_share_the_requests_and_a_dead_one_is_passed_over() {
    let (one, two) = (H2Origin::ok(), H2Origin::ok());
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let endpoints = format!("['http://ORIGIN', 'http://{}', 'http://{nobody}']", two.addr());
    let gateway = Gateway::before_http2(&one, &format!("upstreams: {{ origin: {{ endpoints: {endpoints}, protocol: http2 }} }}"));
    for _ in 0..100 {
        assert_eq!(exchange(gateway.addr(), "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nz").outcome(), "200");
    }
    let (first, second) = (one.seen().len(), two.seen().len());
    assert!(first + second == 100 && first >= 15 && second >= 15, "{first} and {second}");
}

#[test]
fn idle_connections_are_closed() {
    let origin = H2Origin::ok();
    let upstreams = "upstreams: { origin: { endpoints: ['http://ORIGIN'], protocol: http2, timeouts: { idle: 1s } } }";
    let gateway = Gateway::before_http2(&origin, upstreams);
    assert_eq!(gateway.get("/").status, 200);
    until("the idle connection is closed", || origin.open() == 0);
    assert_eq!(gateway.get("/").status, 200);
}

#[test]
fn who_does_not_speak_http2_fails_as_a_connection() {
    let origin = Origin::new(|call| {
        call.send("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        Next::Close
    });
    let other = H2Origin::ok();
    let endpoints = format!("['http://ORIGIN', 'http://{}']", other.addr());
    let upstreams = "upstreams: { origin: { endpoints: ['http://ORIGIN'], protocol: http2 } }";
    let gateway = Gateway::before(&origin, upstreams);
    let failed = gateway.get("/");
    assert_eq!((failed.status, failed.json()["error"].as_str()), (502, Some("bad_gateway")));
    assert_eq!(gateway.metric("tollgate_upstream_errors_total", &[("kind", "connect")]), 1.0);
    gateway.reload(&upstreams.replace("['http://ORIGIN']", &endpoints));
    for _ in 0..20 {
        assert_eq!(exchange(gateway.addr(), "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nz").outcome(), "200");
    }
}

#[test]
fn an_upstream_that_says_nothing_is_given_up_when_connecting_times_out() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = silent.local_addr().unwrap();
    let upstreams = format!(
        "upstreams: {{ origin: {{ endpoints: ['http://{endpoint}'], protocol: http2, timeouts: {{ connect: 200ms }} }} }}"
    );
    let gateway = Gateway::start(&upstreams);
    assert_eq!(together(5, |_| gateway.get("/").status), [504; 5]);
}

#[test]
fn a_client_that_leaves_while_a_connection_is_made_takes_it_from_nobody() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let (endpoint, other) = (silent.local_addr().unwrap(), H2Origin::ok());
    let upstreams = format!(
        "upstreams: {{ origin: {{ endpoints: ['http://{endpoint}'], protocol: http2, timeouts: {{ connect: 300ms }} }}, \
         other: {{ endpoints: ['http://{}'], protocol: http2 }} }}\n\
         routes: [{{ name: a, match: {{ path: /a }}, upstream: origin }}, {{ name: b, match: {{ path: /b }}, upstream: other }}]",
        other.addr()
    );
    let gateway = Gateway::start(&upstreams);
    let mut leaving = gateway.client();
    leaving.wait_at_most(Duration::from_millis(50));
    leaving.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n").receive();
    leaving.reset();
    assert_eq!((gateway.get("/b").status, gateway.get("/a").status), (200, 504));
}
