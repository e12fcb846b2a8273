//! How many requests an upstream may have at once, and how many of them may wait for a connection.

use super::{errors, is_used, upstream};
use crate::harness::{Client, Gateway, H2Origin, Latch, Origin, Reply, together, until};

/// Answers when the door is open.
fn behind(door: &Latch) -> Origin {
    let door = door.clone();
    Origin::new(move |call| {
        door.wait();
        call.answer(super::OK)
    })
}

fn pending(gateway: &Gateway) -> f64 {
    gateway.metric("tollgate_upstream_pending_requests", &[("upstream", "origin")])
}

fn under_way(gateway: &Gateway) -> f64 {
    gateway.metric("tollgate_upstream_requests", &[("upstream", "origin")])
}

fn begin(gateway: &Gateway) -> Client {
    let mut client = gateway.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    client
}

/// So many at once: their statuses in order, when the door is opened as soon as all but `admitted` have been answered.
fn rush(gateway: &Gateway, door: &Latch, n: usize, admitted: usize) -> Vec<u16> {
    let answered = std::sync::atomic::AtomicUsize::new(0);
    let mut statuses = together(n + 1, |i| {
        if i == n {
            until("the others are refused", || answered.load(std::sync::atomic::Ordering::SeqCst) >= n - admitted);
            door.open();
            return 0;
        }
        let reply = begin(gateway).receive();
        answered.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let Reply::Response(response) = reply else { panic!("{reply:?}") };
        assert_eq!(response.status == 503, response.header("retry-after") == Some("1"), "{response:?}");
        response.status
    });
    statuses.pop();
    statuses.sort_unstable();
    statuses
}

fn so_many(served: usize, refused: usize) -> Vec<u16> {
    [vec![200; served], vec![503; refused]].concat()
}

#[test]
fn so_many_requests_and_not_one_more_over_all_workers() {
    let door = Latch::default();
    let origin = behind(&door);
    let keys = "max_requests: 3, outlier: { consecutive_failures: 1, max_ejected: 100%, eject_for: 1h }";
    let gateway = Gateway::start(&format!("workers: 2\n{}", upstream(&[origin.addr()], keys)));
    assert_eq!(rush(&gateway, &door, 12, 3), so_many(3, 9));
    assert_eq!((origin.seen().len(), errors(&gateway, "max_requests")), (3, 9.0));
    assert!(is_used(&gateway, origin.addr()), "what the gateway refuses is nothing that an endpoint does");
    until("all have left", || under_way(&gateway) == 0.0);
    assert_eq!(gateway.statuses(6, "/"), [200; 6]);
}

#[test]
fn a_request_is_under_way_to_the_last_byte_of_its_response() {
    let door = Latch::default();
    let theirs = door.clone();
    let origin = Origin::new(move |call| {
        call.body();
        call.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nha");
        if call.target() == "/slow" {
            theirs.wait();
        }
        call.send("lf");
        crate::harness::Next::Keep
    });
    let gateway = Gateway::start(&upstream(&[origin.addr()], "max_requests: 1"));
    let mut slow = gateway.client();
    slow.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    until("its response has begun", || slow.grow().ends_with(b"ha"));
    assert_eq!((gateway.get("/").status, under_way(&gateway)), (503, 1.0));
    door.open();
    assert_eq!(slow.receive().response().body, b"half");
    until("it has left", || gateway.get("/").status == 200);
    // And to the end of its client, if that is sooner.
    let mut leaving = gateway.client();
    leaving.send("GET /gone HTTP/1.1\r\nHost: a\r\n\r\n");
    leaving.reset();
    until("it has left", || gateway.get("/").status == 200);
}

#[test]
fn http2_streams_are_requests_too() {
    let door = Latch::default();
    let theirs = door.clone();
    let origin = H2Origin::new(move |call| {
        call.body();
        theirs.wait();
        call.headers(&[(":status", "200"), ("content-length", "2")], false);
        call.data(b"ok", true);
    });
    let gateway = Gateway::start(&upstream(&[origin.addr()], "protocol: http2, max_requests: 3"));
    assert_eq!(rush(&gateway, &door, 8, 3), so_many(3, 5));
    until("all have left", || under_way(&gateway) == 0.0);
    assert_eq!((origin.connections(), gateway.get("/").status), (1, 200));
}

#[test]
fn so_many_wait_for_a_connection_and_not_one_more() {
    for workers in [1, 2] {
        let door = Latch::default();
        let origin = behind(&door);
        let keys = "max_connections: 1, max_pending: 3, timeouts: { connect: 1m }";
        let gateway = Gateway::start(&format!("workers: {workers}\n{}", upstream(&[origin.addr()], keys)));
        let mut first = begin(&gateway);
        origin.wait_heads(1);
        assert_eq!(rush(&gateway, &door, 8, 3), so_many(3, 5), "{workers} workers");
        assert_eq!(first.receive().status(), 200);
        assert_eq!((origin.seen().len(), errors(&gateway, "max_pending"), pending(&gateway)), (4, 5.0, 0.0));
    }
}

#[test]
fn nobody_waits_longer_than_for_connecting() {
    let door = Latch::default();
    let origin = behind(&door);
    let keys = "max_connections: 1, max_pending: 1, timeouts: { connect: 200ms }, outlier: { consecutive_failures: 1, max_ejected: 100% }";
    let gateway = Gateway::start(&upstream(&[origin.addr()], keys));
    let mut first = begin(&gateway);
    origin.wait_heads(1);
    let refused = gateway.get("/");
    assert_eq!((refused.status, refused.header("retry-after"), errors(&gateway, "saturated")), (503, Some("1"), 1.0));
    assert!(is_used(&gateway, origin.addr()));
    door.open();
    assert_eq!(first.receive().status(), 200);
}

#[test]
fn who_leaves_while_he_waits_makes_room_and_is_not_missed() {
    let door = Latch::default();
    let origin = behind(&door);
    let gateway = Gateway::start(&upstream(
        &[origin.addr()],
        "max_connections: 1, max_pending: 1, max_requests: 2, timeouts: { connect: 1m }",
    ));
    let mut first = begin(&gateway);
    origin.wait_heads(1);
    for _ in 0..3 {
        let waiting = begin(&gateway);
        until("it waits", || pending(&gateway) == 1.0);
        waiting.reset();
        until("it has left", || (pending(&gateway), under_way(&gateway)) == (0.0, 1.0));
    }
    let mut last = begin(&gateway);
    until("it waits", || pending(&gateway) == 1.0);
    door.open();
    assert_eq!((first.receive().status(), last.receive().status(), origin.seen().len()), (200, 200, 2));
}

#[test]
fn those_that_wait_have_their_turn_one_after_the_other() {
    let origin = Origin::new(|call| {
        // Long enough that the others wait meanwhile.
        std::thread::sleep(std::time::Duration::from_millis(5));
        call.answer(super::OK)
    });
    let keys = "max_connections: 2, max_pending: 100, timeouts: { connect: 1m }";
    let gateway = Gateway::start(&format!("workers: 2\n{}", upstream(&[origin.addr()], keys)));
    let statuses = together(20, |_| gateway.statuses(5, "/")).concat();
    assert_eq!(statuses, [200; 100]);
    assert_eq!(gateway.metric("tollgate_upstream_errors_total", &[]), 0.0);
}

/// One HTTP/2 connection is all there may be: whoever is not on its worker waits in vain, and the others don't.
#[test]
fn a_connection_with_room_is_used_by_those_that_wait() {
    let door = Latch::default();
    let theirs = door.clone();
    let hello = crate::harness::Hello { streams: Some(1), ..Default::default() };
    let origin = H2Origin::saying(hello, move |call| {
        call.body();
        theirs.wait();
        call.headers(&[(":status", "200"), ("content-length", "2")], false);
        call.data(b"ok", true);
    });
    let keys = "protocol: http2, max_connections: 1, max_pending: 9, timeouts: { connect: 1m }";
    let gateway = Gateway::start(&upstream(&[origin.addr()], keys));
    let mut clients: Vec<_> = (0..5).map(|_| begin(&gateway)).collect();
    until("four wait", || pending(&gateway) == 4.0);
    door.open();
    assert_eq!(clients.iter_mut().map(|client| client.receive().status()).collect::<Vec<_>>(), [200; 5]);
    assert_eq!(origin.connections(), 1);
}

/// Handshakes are tried again like other requests; what comes of one is under way as long as it lasts.
#[test]
fn a_websocket_is_a_request_as_long_as_it_lasts() {
    let accepting = Origin::new(|call| {
        call.body();
        // Of the key of RFC 6455 section 1.3.
        let accept = "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
        call.send(format!("HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n{accept}\r\n\r\n"));
        let (mut wire, _) = call.switch();
        let mut byte = [0; 1];
        while std::io::Read::read(&mut wire, &mut byte).is_ok_and(|n| n > 0) {
            std::io::Write::write_all(&mut wire, &byte).unwrap();
        }
        crate::harness::Next::Close
    });
    let keys = format!("max_requests: 1, balance: round_robin, {}", super::retry("attempts: 1"));
    let busy = Origin::answering(super::BUSY);
    let gateway = Gateway::start(&upstream(&[busy.addr(), accepting.addr()], &keys));
    for _ in 0..2 {
        let mut client = gateway.client();
        let key = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==";
        let reply =
            client.ask(format!("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n{key}\r\n\r\n"));
        assert_eq!(reply.status(), 101);
        client.send("x");
        until("the byte comes back", || client.grow() == b"x");
        assert_eq!((under_way(&gateway), gateway.get("/").status), (1.0, 503));
        drop(client);
        until("it has left", || under_way(&gateway) == 0.0);
    }
    assert!(super::retries(&gateway, "status") >= 1.0);
}
