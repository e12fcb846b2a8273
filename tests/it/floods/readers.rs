//! HF-6, HF-7, SL-3: clients that ask for much and take little.

use super::{Memory, others_are_served};
use crate::harness::{Client, Gateway, H2, Next, Origin, kind, until};

const LARGE: usize = 10 << 20;

/// 10 MiB under `/large`, as fast as they are taken.
fn origin() -> Origin {
    Origin::new(|call| {
        if call.target() != "/large" {
            return call.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
        call.body();
        call.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {LARGE}\r\n\r\n"));
        let piece = vec![b'x'; 64 << 10];
        for _ in 0..LARGE / piece.len() {
            if !call.send(&piece) {
                return Next::Close;
            }
        }
        Next::Keep
    })
}

const FIELDS: [(&str, &str); 4] = [(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/large")];

/// 100 streams of 10 MiB each, and no window: a gigabyte that must not be here.
#[test]
fn responses_that_nobody_takes_are_not_kept_and_end() {
    let origin = origin();
    let gateway = Gateway::before(&origin, "listeners: [{ name: public, address: '127.0.0.1:0', timeouts: { write_idle: 1s } }]");
    let memory = Memory::of(&gateway);
    let mut attacker = H2::connect_with_window(gateway.addr(), 0);
    let streams: Vec<u32> = (0..100).map(|_| attacker.request(&FIELDS, None)).collect();
    origin.wait_heads(101);
    others_are_served(&gateway);
    memory.grew_at_most(48, "100 responses of 10 MiB");
    let last = attacker.receive(*streams.last().unwrap());
    assert!(last.reset.is_some() || last.closed, "{last:?}");
    until("the upstream connections are free", || origin.open() <= 2);
}

/// SL-3 one octet at a time: the stream makes progress, so it lives; its memory and the upstream's hurry stay bounded.
#[test]
fn a_window_of_one_holds_the_upstream_back_and_costs_no_memory() {
    let origin = origin();
    let gateway = Gateway::before(&origin, "");
    let memory = Memory::of(&gateway);
    let mut slow = H2::connect_with_window(gateway.addr(), 1);
    let streams: Vec<u32> = (0..20).map(|_| slow.request(&FIELDS, None)).collect();
    for round in 1..=50 {
        for stream in &streams {
            let so_far = slow.receive_until(*stream, |reply| reply.body.len() >= round);
            assert_eq!(so_far.body.len(), round, "{so_far:?}");
            slow.frame(kind::WINDOW_UPDATE, 0, *stream, &[0, 0, 0, 1]);
        }
    }
    memory.grew_at_most(24, "20 streams of one octet at a time");
    others_are_served(&gateway);
}

/// The same in HTTP/1.1: receive buffers that are small and never emptied.
#[test]
fn http1_clients_that_do_not_read_are_not_buffered_for_and_end() {
    let origin = origin();
    let gateway = Gateway::before(
        &origin,
        "listeners: [{ name: public, address: '127.0.0.1:0', max_connections_per_ip: 0, timeouts: { write_idle: 1s } }]",
    );
    let memory = Memory::of(&gateway);
    let clients: Vec<Client> = (0..100)
        .map(|_| {
            let mut client = Client::connect_narrow(gateway.addr());
            client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
            client
        })
        .collect();
    origin.wait_heads(101);
    others_are_served(&gateway);
    memory.grew_at_most(48, "100 clients that do not read");
    until("they are given up", || gateway.metric("tollgate_worker_connections", &[]) == 0.0 && origin.open() <= 2);
    drop(clients);
}

/// HF-7: one connection with ten thousand streams, one after the other, is limited stream by stream and starves nobody.
#[test]
fn ten_thousand_streams_of_one_connection_are_each_counted() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "limits: [{ name: some, match: { path: /large }, per: ip, rate: 1000/hour }]");
    let memory = Memory::of(&gateway);
    let mut client = H2::connect(gateway.addr());
    let (mut admitted, mut refused) = (0, 0);
    for _ in 0..100 {
        let streams: Vec<u32> = (0..100).map(|_| client.request(&FIELDS, None)).collect();
        for stream in streams {
            match client.receive(stream).status() {
                200 => admitted += 1,
                429 => refused += 1,
                other => panic!("{other}"),
            }
        }
    }
    others_are_served(&gateway);
    assert!((1_000..1_010).contains(&admitted) && admitted + refused == 10_000, "{admitted} admitted, {refused} refused");
    memory.grew_at_most(8, "10000 streams");
}

/// SL-1, SL-2, SL-9 together: clients that begin something and do not go on, side by side with one that does.
#[test]
fn slow_beginnings_end_and_a_healthy_client_notices_nothing() {
    let origin = Origin::ok();
    let gateway = Gateway::before(
        &origin,
        "listeners: [{ name: public, address: '127.0.0.1:0', max_connections_per_ip: 0, timeouts: { header: 500ms, body_idle: 500ms, keep_alive: 500ms } }]",
    );
    let memory = Memory::of(&gateway);
    let beginnings: [&str; 7] = [
        "",
        "\r\n",
        "GET / HT",
        "GET / HTTP/1.1\r\nHost: a\r\nX-Slow",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nx",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n",
    ];
    let slow: Vec<Client> = (0..700)
        .map(|n| {
            let mut client = gateway.client();
            client.send(beginnings[n % beginnings.len()]);
            client
        })
        .collect();
    until("all slow connections are ended, while others are served", || {
        others_are_served(&gateway);
        gateway.metric("tollgate_worker_connections", &[]) == 0.0
    });
    assert!(
        origin.seen().iter().filter(|seen| seen.complete()).all(|seen| seen.line.starts_with("GET ")),
        "{:?}",
        origin.lines()
    );
    memory.grew_at_most(24, "700 slow connections");
    drop(slow);
}
