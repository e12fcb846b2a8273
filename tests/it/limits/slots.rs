//! Slots of concurrency limits come back: what `lifecycle::slots` does not look at.

use crate::harness::{Client, Gateway, H2, Latch, Next, Origin, crlf, until};

fn slots(gateway: &Gateway) -> u64 {
    gateway.metric("tollgate_concurrency_slots", &[]) as u64
}

fn until_slots(gateway: &Gateway, n: u64, what: &str) {
    until(&format!("{n} slots are taken: {what}"), || slots(gateway) == n);
}

/// Begins a request and waits until its slot is taken, the `n`th.
fn holder(gateway: &Gateway, n: u64, request: &str) -> Client {
    let mut client = gateway.client();
    client.send(crlf(request));
    until_slots(gateway, n, "one more has come");
    client
}

fn origin(door: &Latch) -> Origin {
    let door = door.clone();
    Origin::new(move |call| match call.target() {
        "/stall" => call.stall(),
        "/reset" => {
            door.wait();
            call.reset()
        }
        "/cut" => {
            call.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
            door.wait();
            Next::Close
        }
        _ => {
            door.wait();
            call.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        }
    })
}

const FIVE: &str = "limits:
- { name: slots, per: ip, concurrency: 5 }
- { name: all, per: global, concurrency: 50 }";

#[test]
fn the_metric_counts_every_slot_and_returns_to_nothing_however_requests_end() {
    let door = Latch::default();
    let origin = origin(&door);
    let gateway = Gateway::before(&origin, FIVE);
    let get = |path: &str| format!("GET {path} HTTP/1.1\nHost: a\n\n");
    let upload = "POST /stall HTTP/1.1\nHost: a\nContent-Length: 10\n\nhalf";
    // Each holds two: its own and one of everybody's.
    let normal = holder(&gateway, 2, &get("/normal"));
    let reset = holder(&gateway, 4, &get("/reset"));
    let cut = holder(&gateway, 6, &get("/cut"));
    let stalls = holder(&gateway, 8, &get("/stall"));
    let uploads = holder(&gateway, 10, upload);
    assert_eq!((gateway.get("/").status, slots(&gateway)), (429, 10), "a refusal takes none");
    uploads.reset();
    until_slots(&gateway, 8, "RST mid-upload");
    drop(stalls);
    until_slots(&gateway, 6, "FIN while waiting");
    let mut h2 = H2::connect(gateway.addr());
    let fields = [(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/stall")];
    let stream = h2.request(&fields, None);
    until_slots(&gateway, 8, "a stream");
    h2.cancel(stream);
    until_slots(&gateway, 6, "RST_STREAM");
    let streams = [(); 2].map(|()| h2.request(&fields, None));
    until_slots(&gateway, 10, "two streams");
    drop(h2);
    until_slots(&gateway, 6, &format!("the connection of {streams:?} has ended"));
    gateway.reload(&format!("{FIVE}\ntiers: [free]"));
    assert_eq!(slots(&gateway), 6, "a reload changes nothing");
    door.open();
    let outcomes = [normal, reset, cut].map(|mut client| client.receive().outcome());
    assert!(outcomes[0] == "200" && outcomes[2] == "200 cut", "{outcomes:?}");
    until_slots(&gateway, 0, "all have ended");
    assert_eq!(gateway.statuses(6, "/"), [200; 6]);
}

#[test]
fn a_reload_that_renames_lowers_or_removes_a_limit_loses_no_slot() {
    let renamed = FIVE.replace("name: slots", "name: others");
    for (name, config) in [("renamed", renamed.as_str()), ("removed", "limits: []"), ("lowered", &FIVE.replace("5 }", "1 }"))] {
        let door = Latch::default();
        let origin = origin(&door);
        let gateway = Gateway::before(&origin, FIVE);
        let mut clients =
            [holder(&gateway, 2, "GET /a HTTP/1.1\nHost: a\n\n"), holder(&gateway, 4, "GET /b HTTP/1.1\nHost: a\n\n")];
        gateway.reload(config);
        assert_eq!(slots(&gateway), 4, "{name}");
        if name == "lowered" {
            assert_eq!(gateway.get("/").status, 429, "two hold the only one");
        }
        door.open();
        for client in &mut clients {
            assert_eq!(client.receive().outcome(), "200", "{name}");
        }
        until_slots(&gateway, 0, name);
        gateway.reload(FIVE);
        assert_eq!(gateway.statuses(6, "/"), [200; 6], "{name}, and back");
        until_slots(&gateway, 0, name);
    }
}

#[test]
fn an_upstream_that_is_late_or_gone_gives_the_slot_back() {
    let door = Latch::default();
    let origin = origin(&door);
    let routes = "routes:
- { name: slow, match: { path: /stall }, upstream: origin, timeouts: { response: 50ms } }
- { name: gone, match: { path: /gone }, upstream: nowhere }
upstreams: { origin: { endpoints: ['http://ORIGIN'] }, nowhere: { endpoints: ['http://127.0.0.1:1'] } }
limits: [{ name: slots, per: ip, concurrency: 1 }]";
    let gateway = Gateway::before(&origin, routes);
    for _ in 0..3 {
        assert_eq!(gateway.get("/stall").status, 504);
        until_slots(&gateway, 0, "504");
        assert!([502, 503].contains(&gateway.get("/gone").status));
        until_slots(&gateway, 0, "502");
    }
}

#[test]
fn a_shadow_limit_of_slots_counts_and_refuses_nobody() {
    let door = Latch::default();
    let origin = origin(&door);
    let gateway = Gateway::before(&origin, "limits: [{ name: slots, per: ip, concurrency: 1, mode: shadow }]");
    let mut first = holder(&gateway, 1, "GET /a HTTP/1.1\nHost: a\n\n");
    let mut second = gateway.client();
    second.send("GET /b HTTP/1.1\r\nHost: a\r\n\r\n");
    origin.wait_heads(2);
    assert_eq!(gateway.metric("tollgate_shadow_limited_total", &[("limit", "slots")]), 1.0);
    door.open();
    assert_eq!([first.receive().outcome(), second.receive().outcome()], ["200", "200"]);
    until_slots(&gateway, 0, "both have ended");
}

#[test]
fn a_refusal_by_a_rate_or_a_full_queue_takes_no_slot() {
    let door = Latch::default();
    door.open();
    let origin = origin(&door);
    let config = "limits:
- { name: slots, per: ip, concurrency: 2 }
- { name: shape, match: { path: /s }, per: ip, rate: 1/min, algorithm: leaky_bucket, over: { delay: { max: 10m, queue: 1 } } }
- { name: rate, match: { path: /r }, per: ip, rate: 1/day }";
    let gateway = Gateway::before(&origin, config);
    assert_eq!((gateway.get("/s").status, gateway.get("/r").status), (200, 200));
    until_slots(&gateway, 0, "both have ended");
    let waits = holder(&gateway, 1, "GET /s HTTP/1.1\nHost: a\n\n");
    for _ in 0..3 {
        assert_eq!((gateway.get("/s").status, gateway.get("/r").status), (429, 429));
        assert_eq!(slots(&gateway), 1);
    }
    drop(waits);
    until_slots(&gateway, 0, "who waited has left");
}
