//! Who waits under `over: delay` can leave, and reloads, drains and other streams go on meanwhile.

use super::{BUCKETS, about, retry_after};
use crate::harness::{Client, Gateway, H2, Origin, Table, crlf, happens, until};
use std::time::{Duration, Instant};

/// One a minute, two may wait.
fn minutes(algorithm: &str) -> String {
    let rate = if algorithm == "leaky_bucket" { "1/min" } else { "1/min burst 1" };
    format!(
        "limits: [{{ name: shape, per: global, rate: {rate}, algorithm: {algorithm}, over: {{ delay: {{ max: 10m, queue: 2 }} }} }}]"
    )
}

/// A place every second.
const SECONDS: &str = "limits: [{ name: shape, per: global, rate: 1/s, algorithm: leaky_bucket, over: { delay: { max: 10s } } }]";

fn waiting(gateway: &Gateway) -> u64 {
    gateway.metric("tollgate_waiting_requests", &[]) as u64
}

/// Waits until so many wait.
fn until_waiting(gateway: &Gateway, n: u64, what: &str) {
    until(&format!("{n} wait: {what}"), || waiting(gateway) == n);
}

/// A client whose request waits as the `n`th.
fn waiter(gateway: &Gateway, n: u64, request: &str) -> Client {
    let mut client = gateway.client();
    client.send(crlf(request));
    until_waiting(gateway, n, "one more has come");
    client
}

const GET: &str = "GET /waits HTTP/1.1\nHost: a\n\n";
const POST: &str = "POST /waits HTTP/1.1\nHost: a\nContent-Length: 10\n\n0123456789";

#[test]
fn the_last_in_the_queue_gives_his_place_back_when_he_leaves() {
    for algorithm in BUCKETS {
        let origin = Origin::ok();
        let gateway = Gateway::before(&origin, &minutes(algorithm));
        assert_eq!(gateway.get("/").status, 200);
        let _stays = waiter(&gateway, 1, GET);
        for way in ["FIN", "RST", "FIN", "RST"] {
            let leaves = waiter(&gateway, 2, GET);
            let wait = retry_after(&gateway.get("/")).unwrap();
            assert!(about(wait, 180), "{algorithm}, {way}: a third would wait for {wait} seconds, not 180");
            if way == "RST" {
                leaves.reset()
            } else {
                drop(leaves)
            }
            until_waiting(&gateway, 1, way);
        }
        assert_eq!(origin.seen().len(), 1, "{algorithm}: who left has not come through");
    }
}

#[test]
fn a_place_with_others_behind_it_lapses() {
    for algorithm in BUCKETS {
        let origin = Origin::ok();
        let gateway = Gateway::before(&origin, &minutes(algorithm));
        assert_eq!(gateway.get("/").status, 200);
        let leaves = waiter(&gateway, 1, GET);
        let _stays = waiter(&gateway, 2, GET);
        drop(leaves);
        until_waiting(&gateway, 1, "the first has left");
        let _comes = waiter(&gateway, 2, GET);
        let wait = retry_after(&gateway.get("/")).unwrap();
        assert!(about(wait, 240), "{algorithm}: a fourth would wait for {wait} seconds, not 240");
    }
}

#[test]
fn who_leaves_with_everything_sent_is_noticed_too() {
    let mut table = Table::new("leaving with more sent than a head");
    for (what, request) in [("a whole upload", POST), ("a second request", &GET.repeat(2))] {
        for way in ["FIN", "RST"] {
            let gateway = Gateway::before(&Origin::ok(), &minutes("leaky_bucket"));
            let _first = gateway.get("/");
            let leaves = waiter(&gateway, 1, request);
            if way == "RST" {
                leaves.reset()
            } else {
                drop(leaves)
            }
            let noticed = happens(Duration::from_secs(3), || waiting(&gateway) == 0);
            table.row(&format!("{way} behind {what}"), if noticed { "" } else { "still waits after 3 of its 60 seconds" });
        }
    }
}

#[test]
fn a_reset_http2_stream_leaves_the_queue_and_its_connection_goes_on() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &minutes("leaky_bucket").replace("per: global", "per: global, match: { path: /s }"));
    let fields = |method| [(":method", method), (":scheme", "http"), (":authority", "a"), (":path", "/s")];
    let mut client = H2::connect(gateway.addr());
    assert_eq!(client.get("/s").outcome(), "200");
    for body in [None, Some(b"0123456789".as_slice())] {
        let streams = [(); 2].map(|()| client.request(&fields(if body.is_some() { "POST" } else { "GET" }), body));
        until_waiting(&gateway, 2, "two streams");
        assert_eq!(client.get("/s").header("retry-after"), Some("180"), "two wait");
        for (left, stream) in streams.into_iter().rev().enumerate() {
            client.cancel(stream);
            until_waiting(&gateway, 1 - left as u64, "a stream was reset");
        }
        assert_eq!(client.get("/other").outcome(), "200");
    }
    let stream = client.open(&fields("POST"), false);
    until_waiting(&gateway, 1, "a stream whose body is not there yet");
    client.cancel(stream);
    until_waiting(&gateway, 0, "it was reset");
    drop(client);
    assert_eq!(origin.lines().iter().filter(|line| line.ends_with("/s HTTP/1.1")).count(), 1, "only the first came through");
}

#[test]
fn an_http2_connection_that_ends_takes_its_waiting_streams_along() {
    let gateway = Gateway::before(&Origin::ok(), &minutes("gcra"));
    let mut client = H2::connect(gateway.addr());
    assert_eq!(client.get("/").status(), 502, "its upstream is gone, which is charged all the same");
    for _ in 0..2 {
        client.request(&[(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/")], None);
    }
    until_waiting(&gateway, 2, "two streams");
    drop(client);
    until_waiting(&gateway, 0, "the connection has ended");
}

#[test]
fn what_a_waiting_request_took_elsewhere_comes_back_when_it_leaves() {
    let origin = Origin::ok();
    let config = "limits:
- { name: shape, match: { path: /s }, per: global, rate: 1/min, algorithm: leaky_bucket, over: { delay: { max: 10m } } }
- { name: day, per: ip, rate: 50/day, algorithm: sliding_window }
- { name: slots, match: { path: /s }, per: ip, concurrency: 3 }
- { name: tokens, match: { path: /s }, per: ip, rate: 50/hour, cost: { response_header: x-cost, reserve: 7 } }";
    let gateway = Gateway::before(&origin, config);
    assert_eq!(gateway.get("/s").status, 200);
    let mut client = gateway.client();
    client.send("GET /s HTTP/1.1\r\nHost: a\r\n\r\n");
    until_waiting(&gateway, 1, "the second");
    assert_eq!(gateway.metric("tollgate_concurrency_slots", &[]), 1.0, "who waits holds his slot");
    drop(client);
    until_waiting(&gateway, 0, "it has left");
    until("its slot is back", || gateway.metric("tollgate_concurrency_slots", &[]) == 0.0);
    let other = gateway.get("/other");
    assert_eq!(super::remaining(&other), Some(48), "one for the first and one for this");
    let metric = |name| gateway.metric(name, &[("limit", "tokens")]);
    assert_eq!(metric("tollgate_settled_cells_total"), 7.0, "only the first came to cost anything");
}

#[test]
fn what_a_waiting_request_took_in_a_shadow_limit_comes_back_too() {
    let origin = Origin::ok();
    let day = "{ name: day, per: ip, rate: 50/day, mode: shadow }";
    let config = minutes("leaky_bucket").replace("limits: [", &format!("limits: [{day}, "));
    let gateway = Gateway::before(&origin, &config);
    assert_eq!(gateway.get("/").status, 200);
    let leaves = waiter(&gateway, 1, GET);
    drop(leaves);
    until_waiting(&gateway, 0, "it has left");
    gateway.reload(&format!("limits: [{}]", day.replace(", mode: shadow", "")));
    assert_eq!(super::remaining(&gateway.get("/")), Some(48), "one for the first and one for this");
}

#[test]
fn who_has_left_did_not_wait_for_as_long_as_he_would_have() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &format!("access_log: {{ format: json }}\n{}", minutes("leaky_bucket")));
    assert_eq!(gateway.get("/").status, 200);
    drop(waiter(&gateway, 1, GET));
    until_waiting(&gateway, 0, "it has left");
    until("its line is written", || gateway.access_log().lines().count() == 2);
    let sum = gateway.metric("tollgate_delay_seconds_sum", &[]);
    assert!(sum < 30.0, "{sum} seconds of waiting are counted, in\n{}", gateway.access_log());
}

#[test]
fn everybody_has_a_queue_of_his_own() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &minutes("gcra").replace("per: global", "per: { header: x-key }"));
    let request = |key: &str| format!("GET / HTTP/1.1\nHost: a\nx-key: {key}\n\n");
    let mut waiters = Vec::new();
    for (n, key) in (0..).zip(["a", "b"]) {
        assert_eq!(gateway.client().ask(crlf(&request(key))).status(), 200, "{key} passes at once");
        waiters.extend([1, 2].map(|more| waiter(&gateway, 2 * n + more, &request(key))));
        let refused = gateway.client().ask(crlf(&request(key))).response();
        assert!(refused.status == 429 && about(retry_after(&refused).unwrap(), 180), "{key}: {refused:?}");
    }
    drop(waiters);
    until_waiting(&gateway, 0, "all have left");
}

#[test]
fn a_listeners_timeouts_do_not_end_a_wait() {
    let origin = Origin::ok();
    let timeouts = "timeouts: { header: 300ms, body_idle: 300ms, keep_alive: 300ms, write_idle: 300ms }";
    let listeners = format!("listeners: [{{ name: public, address: '127.0.0.1:0', {timeouts} }}]");
    let gateway = Gateway::before(&origin, &format!("{listeners}\n{SECONDS}"));
    assert_eq!(gateway.get("/").status, 200);
    let mut uploads = waiter(&gateway, 1, POST);
    let mut h2 = H2::connect(gateway.addr());
    let fields = [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/h2")];
    let stream = h2.request(&fields, Some(b"0123456789"));
    until_waiting(&gateway, 2, "both");
    assert_eq!([uploads.receive().outcome(), h2.receive(stream).outcome()], ["200", "200"]);
    assert!(origin.seen().iter().skip(1).all(|seen| seen.body == b"0123456789"));
}

#[test]
fn a_reload_lets_those_who_wait_wait_to_their_end() {
    #[rustfmt::skip]
    let reloads = [
        ("the same", SECONDS.to_owned() + "\ntiers: [free]"),
        ("a faster rate", SECONDS.replace("1/s", "100/s")),
        ("no delay", "limits: [{ name: shape, per: global, rate: 1/s }]".to_owned()),
        ("no limits", "limits: []".to_owned()),
        ("off", SECONDS.replace("name: shape", "name: shape, mode: off")),
    ];
    for (name, config) in reloads {
        let gateway_origin = Origin::ok();
        let gateway = Gateway::before(&gateway_origin, SECONDS);
        let start = Instant::now();
        assert_eq!(gateway.get("/").status, 200);
        let mut clients = [waiter(&gateway, 1, GET), gateway.client()];
        clients[1].send(crlf(GET));
        gateway.reload(&config);
        for (n, client) in (1..).zip(&mut clients) {
            assert_eq!(client.receive().outcome(), "200", "{name}");
            assert!(start.elapsed() >= Duration::from_secs(n), "{name}: the wait was told already");
        }
        until_waiting(&gateway, 0, name);
    }
}

#[test]
fn who_waits_goes_where_he_would_have_gone_whatever_the_file_says_by_then() {
    let (planned, other, copies) = (Origin::ok(), Origin::ok(), Origin::ok());
    let at = |origin: &Origin| format!("{{ endpoints: ['http://{}'] }}", origin.addr());
    let config = |upstreams: &str| {
        let route = "{ name: all, match: { path: '/{*rest}' }, upstream: origin, mirror: { upstream: shadow } }";
        format!("{SECONDS}\nroutes: [{route}]\nupstreams: {{ {upstreams} }}")
    };
    let known = format!("origin: {}, shadow: {}", at(&planned), at(&copies));
    let gateway = Gateway::start(&config(&known));
    assert_eq!(gateway.get("/").status, 200);
    let mut clients = [1, 2, 3].map(|n| waiter(&gateway, n, GET));
    // Every upstream has another place now, and in theirs are some that know nothing of the route.
    let first = ["a", "b"].map(|name| format!("{name}: {}", at(&other))).join(", ");
    gateway.reload(&config(&format!("{first}, {known}")));
    assert!(waiting(&gateway) > 0, "somebody still waits when the new file is in force");
    assert!(clients.iter_mut().all(|client| client.receive().outcome() == "200"));
    assert_eq!((planned.lines().len(), other.lines()), (4, vec![]));
    until("the copies have come", || copies.lines().len() == 4);
}

#[test]
fn those_who_wait_are_served_before_a_drain_is_over() {
    let origin = Origin::ok();
    let mut gateway = Gateway::before(&origin, SECONDS);
    assert_eq!(gateway.get("/").status, 200);
    let mut first = waiter(&gateway, 1, GET);
    let mut h2 = H2::connect(gateway.addr());
    let stream = h2.request(&[(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/h2")], None);
    until_waiting(&gateway, 2, "both");
    gateway.signal("TERM");
    assert_eq!(first.receive().outcome(), "200");
    assert_eq!(h2.receive(stream).outcome(), "200");
    until("it exits", || gateway.exit_code().is_some());
    assert_eq!(gateway.exit_code(), Some(0));
    assert_eq!(origin.seen().len(), 3);
}

#[test]
fn a_drain_does_not_wait_for_longer_than_it_may() {
    let mut gateway = Gateway::before(&Origin::ok(), &format!("shutdown: {{ drain: 500ms }}\n{}", minutes("leaky_bucket")));
    let _first = gateway.get("/");
    let mut waits = waiter(&gateway, 1, GET);
    gateway.signal("TERM");
    until("it exits", || gateway.exit_code().is_some());
    assert!(["closed", "reset"].contains(&waits.receive().outcome().as_str()));
}
