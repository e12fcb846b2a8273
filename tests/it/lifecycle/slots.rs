//! Concurrency slots come back however a request ends, and are held to its last byte.

use crate::harness::{Gateway, H2, Latch, Next, Origin, crlf, exchange, until};

const ONE: &str = "limits: [{ name: slots, per: global, concurrency: 1 }]";

fn post_head(path: &str) -> Vec<u8> {
    crlf(&format!("POST {path} HTTP/1.1\nHost: a\nContent-Length: 10\n\n"))
}

/// A request gets through again: the slot is back.
fn comes_back(gateway: &Gateway, how: &str) {
    until(&format!("the slot is back after {how}"), || gateway.get("/quick").status == 200);
}

fn origin(door: &Latch) -> Origin {
    let door = door.clone();
    Origin::new(move |call| match call.target() {
        "/wait" => {
            door.wait();
            call.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        }
        "/stall" => call.stall(),
        "/reset" => {
            door.wait();
            call.reset()
        }
        "/cut" => {
            call.body();
            call.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
            door.wait();
            Next::Close
        }
        "/drip" => {
            call.body();
            call.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
            door.wait();
            call.send("+other");
            Next::Keep
        }
        _ => {
            let body = if call.method() == "HEAD" { "" } else { "ok" };
            call.answer(format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{body}").as_bytes())
        }
    })
}

#[test]
fn a_second_request_at_the_same_time_is_refused() {
    let door = Latch::default();
    let origin = origin(&door);
    let gateway = Gateway::before(&origin, ONE);
    let mut first = gateway.client();
    first.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
    origin.wait_heads(1);
    let refused = gateway.get("/quick");
    assert_eq!((refused.status, refused.json()["limit"].as_str()), (429, Some("slots")));
    door.open();
    assert_eq!(first.receive().outcome(), "200");
    comes_back(&gateway, "a normal end");
}

#[test]
fn a_slot_is_held_until_the_last_byte_of_the_body() {
    let door = Latch::default();
    let origin = origin(&door);
    let gateway = Gateway::before(&origin, ONE);
    let mut first = gateway.client();
    first.send("GET /drip HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(!first.grow().is_empty(), "the head has arrived");
    assert_eq!(gateway.get("/quick").status, 429);
    door.open();
    assert_eq!(first.receive().response().text(), "half+other");
    comes_back(&gateway, "the last byte");
}

#[test]
fn answers_without_a_body_give_the_slot_back() {
    let door = Latch::default();
    let origin = origin(&door);
    let gateway = Gateway::before(&origin, ONE);
    for _ in 0..5 {
        let mut client = gateway.client();
        client.send("HEAD /quick HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.receive_to("HEAD").outcome(), "200");
        comes_back(&gateway, "HEAD");
    }
}

#[test]
fn a_client_that_resets_mid_upload_gives_the_slot_back() {
    let door = Latch::default();
    let origin = origin(&door);
    let gateway = Gateway::before(&origin, ONE);
    for i in 1..=5 {
        let mut client = gateway.client();
        let before = origin.seen().len();
        client.send(post_head("/upload")).send("half");
        origin.wait_heads(before + 1);
        assert_eq!(gateway.get("/quick").status, 429, "round {i}");
        client.reset();
        comes_back(&gateway, "RST mid-upload");
    }
}

#[test]
fn a_client_that_leaves_while_waiting_or_reading_gives_the_slot_back() {
    for path in ["/stall", "/drip"] {
        let door = Latch::default();
        let origin = origin(&door);
        let gateway = Gateway::before(&origin, ONE);
        for _ in 0..3 {
            let mut client = gateway.client();
            let before = origin.seen().len();
            client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
            origin.wait_heads(before + 1);
            drop(client);
            comes_back(&gateway, path);
            let mut h2 = H2::connect(gateway.addr());
            let before = origin.seen().len();
            let stream = h2.request(&[(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", path)], None);
            origin.wait_heads(before + 1);
            h2.cancel(stream);
            comes_back(&gateway, "RST_STREAM");
        }
        door.open();
    }
}

#[test]
fn an_upstream_that_resets_or_breaks_off_gives_the_slot_back() {
    for path in ["/reset", "/cut"] {
        let door = Latch::default();
        let origin = origin(&door);
        let gateway = Gateway::before(&origin, ONE);
        let mut client = gateway.client();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        origin.wait_heads(1);
        assert_eq!(gateway.get("/quick").status, 429);
        door.open();
        let outcome = client.receive().outcome();
        assert!(["502", "200 cut"].contains(&outcome.as_str()), "{path}: {outcome}");
        comes_back(&gateway, path);
    }
}

#[test]
fn refusals_and_own_errors_take_no_slot() {
    let door = Latch::default();
    let origin = origin(&door);
    let gateway = Gateway::before(
        &origin,
        "limits: [{ name: slots, per: global, concurrency: 1 }, { name: rate, match: { path: /limited }, per: ip, rate: 1/hour }]",
    );
    assert_eq!(gateway.get("/limited").status, 200);
    comes_back(&gateway, "an admitted request");
    for _ in 0..3 {
        assert_eq!(gateway.get("/limited").status, 429);
        assert_eq!(gateway.get("/quick").status, 200);
        assert_eq!(exchange(gateway.addr(), crlf("GET /a%zz HTTP/1.1\nHost: a\n\n")).outcome(), "400");
        assert_eq!(gateway.get("/quick").status, 200);
    }
}

#[test]
fn a_request_refused_for_want_of_a_slot_is_not_charged_elsewhere() {
    let door = Latch::default();
    let origin = origin(&door);
    let gateway = Gateway::before(
        &origin,
        "limits: [{ name: rate, per: global, rate: 3/hour }, { name: slots, per: global, concurrency: 1 }]",
    );
    let mut first = gateway.client();
    first.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
    origin.wait_heads(1);
    assert_eq!(gateway.statuses(5, "/quick"), [429; 5]);
    door.open();
    assert_eq!(first.receive().outcome(), "200");
    comes_back(&gateway, "a normal end");
    assert_eq!(gateway.get("/quick").status, 200);
    assert_eq!(gateway.get("/quick").status, 429);
}

#[test]
fn a_raised_concurrency_applies_at_once_and_slots_survive_a_reload() {
    let door = Latch::default();
    let origin = origin(&door);
    let gateway = Gateway::before(&origin, ONE);
    let mut first = gateway.client();
    first.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
    origin.wait_heads(1);
    assert_eq!(gateway.get("/quick").status, 429);
    gateway.reload(&format!("{ONE}\ntiers: [free]"));
    assert_eq!(gateway.get("/quick").status, 429, "the slot is still taken after a reload");
    gateway.reload(&ONE.replace("concurrency: 1", "concurrency: 2"));
    assert_eq!(gateway.get("/quick").status, 200);
    door.open();
    assert_eq!(first.receive().outcome(), "200");
    gateway.reload(ONE);
    comes_back(&gateway, "a reload");
}
