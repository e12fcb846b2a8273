//! Slots and connections that were held for longer than somebody was served.

use crate::harness::{Gateway, H2, Next, Origin, Unreachable, crlf, happens, together};
use std::time::{Duration, Instant};

const ONE: &str = "limits: [{ name: slots, per: global, concurrency: 1 }]";

/// A request gets through again long before the upstream's 30 seconds are over.
fn comes_back_soon(gateway: &Gateway, how: &str) {
    assert!(happens(Duration::from_secs(4), || gateway.get("/quick").status == 200), "the slot is still taken: {how}");
}

#[test]
fn an_http2_client_without_window_does_not_keep_its_slot() {
    for size in [2, 4 << 20] {
        let origin = Origin::new(move |call| {
            let size = if call.target() == "/quick" { 0 } else { size };
            call.body();
            call.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n"));
            if call.send(vec![b'x'; size]) { Next::Keep } else { Next::Close }
        });
        let timeouts = "listeners: [{ name: public, address: '127.0.0.1:0', timeouts: { write_idle: 500ms } }]";
        let gateway = Gateway::before(&origin, &format!("{timeouts}\n{ONE}"));
        let mut client = H2::connect_with_window(gateway.addr(), 0);
        let stream = client.open(&[(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/large")], true);
        origin.wait_heads(1);
        assert_eq!(gateway.get("/quick").status, 429, "{size} bytes");
        comes_back_soon(&gateway, &format!("{size} bytes to a client without window"));
        let reply = client.receive(stream);
        assert!(reply.reset.is_some() && reply.body.is_empty(), "{size} bytes: {reply:?}");
    }
}

#[test]
fn a_client_that_resets_its_upload_after_an_early_answer_frees_its_slot_at_once() {
    let origin = Origin::new(|call| {
        if call.target() == "/quick" {
            return call.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
        call.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
        call.stall()
    });
    let gateway = Gateway::before(&origin, ONE);
    let mut client = gateway.client();
    client.send(crlf("POST /early HTTP/1.1\nHost: a\nContent-Length: 1000\n\n")).send("some");
    assert!(!client.grow().is_empty(), "the early head has arrived");
    assert_eq!(gateway.get("/quick").status, 429);
    client.reset();
    comes_back_soon(&gateway, "RST while an early answer stalls");
}

#[test]
fn connects_to_an_unreachable_upstream_count_against_its_max_connections() {
    let (nowhere, connect) = (Unreachable::new(), Duration::from_secs(3));
    let gateway = Gateway::start(&format!(
        "upstreams: {{ origin: {{ endpoints: ['http://{}'], max_connections: 2, timeouts: {{ connect: 3s }} }} }}",
        nowhere.addr
    ));
    let mut answers = together(6, |_| {
        let start = Instant::now();
        (gateway.get("/").status, start.elapsed() < connect / 2)
    });
    answers.sort_unstable();
    assert_eq!(answers, [[(503, true); 4].as_slice(), [(504, false); 2].as_slice()].concat());
}
