//! Floods and exhaustion, bounded so that the tests stay quick: the gateway serves others meanwhile and recovers.

use crate::harness::{Client, Gateway, H2, Origin, exchange, kind, until};
use std::time::{Duration, Instant};

const FIELDS: [(&str, &str); 4] = [(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/flood")];

/// A request of somebody else is answered, and soon.
fn others_are_served(gateway: &Gateway) {
    let start = Instant::now();
    assert_eq!(gateway.get("/other").status, 200);
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}

/// HF-1: a stream that is opened and reset at once counts against the limit like any other.
#[test]
fn rapid_resets_are_charged_and_cancelled_upstream() {
    let origin = Origin::new(|call| {
        if call.target() == "/flood" { call.stall() } else { call.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") }
    });
    let gateway = Gateway::before(&origin, "limits: [{ name: fifty, match: { path: /flood }, per: ip, rate: 50/hour }]");
    let mut attacker = H2::connect(gateway.addr());
    for _ in 0..2_000 {
        let stream = attacker.request(&FIELDS, None);
        attacker.cancel(stream);
    }
    others_are_served(&gateway);
    let flooded = origin.lines().iter().filter(|line| line.contains("/flood")).count();
    assert!(flooded <= 50, "{flooded} of 2000 reset streams reached the upstream");
    until("the cancelled calls are given up", || origin.open() <= 1);
}

/// HF-3: a header block without end.
#[test]
fn an_endless_header_block_ends_the_connection_and_costs_no_memory() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "");
    gateway.get("/warm-up");
    let before = gateway.rss();
    let mut attacker = H2::connect(gateway.addr());
    attacker.frame(kind::HEADERS, 0, 1, &[]);
    for _ in 0..5_000 {
        attacker.frame(kind::CONTINUATION, 0, 1, &[0; 4_000]);
    }
    assert!(attacker.is_closed());
    let growth = gateway.rss().saturating_sub(before);
    assert!(growth < 4 << 20, "memory grew by {} KiB", growth >> 10);
    others_are_served(&gateway);
}

/// HF-4: frames that cost the sender nothing.
#[test]
fn control_frames_do_not_starve_others() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "");
    for (name, kind, stream, payload) in [
        ("PING", kind::PING, 0, vec![0; 8]),
        ("SETTINGS", kind::SETTINGS, 0, vec![]),
        ("WINDOW_UPDATE", kind::WINDOW_UPDATE, 0, vec![0, 0, 0, 1]),
        ("PRIORITY", 2, 1, vec![0, 0, 0, 0, 1]),
    ] {
        let before = gateway.rss();
        let mut attacker = H2::connect(gateway.addr());
        for _ in 0..20_000 {
            attacker.frame(kind, 0, stream, &payload);
        }
        others_are_served(&gateway);
        let growth = gateway.rss().saturating_sub(before);
        assert!(growth < 8 << 20, "{name}: memory grew by {} KiB", growth >> 10);
    }
}

#[test]
fn a_flood_of_broken_connections_leaves_nothing_behind() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "listeners: [{ name: public, address: '127.0.0.1:0', max_connections_per_ip: 0 }]");
    gateway.get("/warm-up");
    let before = gateway.rss();
    for i in 0..1_000 {
        let mut client = Client::connect(gateway.addr());
        match i % 4 {
            0 => drop(client.send("GET / HT")),
            1 => drop(client.send("PRI * HTTP/2.0\r\n\r\n")),
            2 => drop(client.send("\u{16}\u{3}\u{1}\u{0}")),
            _ => {}
        }
        client.reset();
    }
    until("every connection is gone", || gateway.metric("tollgate_worker_connections", &[]) == 0.0);
    let growth = gateway.rss().saturating_sub(before);
    assert!(growth < 16 << 20, "memory grew by {} KiB", growth >> 10);
    others_are_served(&gateway);
}

/// OS-1: out of file descriptors.
#[test]
fn running_out_of_files_neither_ends_nor_spins_the_gateway() {
    let origin = Origin::ok();
    let listener = "listeners: [{ name: public, address: '127.0.0.1:0', max_connections_per_ip: 0 }]";
    let gateway = Gateway::before_with_files(&origin, listener, 64);
    assert_eq!(gateway.get("/").status, 200);
    let clients: Vec<Client> = (0..150).map(|_| gateway.client()).collect();
    until("the gateway notices", || cpu(&gateway) > 0 && gateway.log().to_lowercase().contains("accept"));
    let (start, used) = (Instant::now(), cpu(&gateway));
    until("a second passes", || start.elapsed() > Duration::from_secs(1));
    let spent = cpu(&gateway) - used;
    assert!(spent < 50, "{spent} ticks of 10 ms in a second: the accept loop spins");
    drop(clients);
    until("it accepts again", || {
        let mut client = Client::connect(gateway.addr());
        client.wait_at_most(Duration::from_millis(200));
        client.get("/").outcome() == "200"
    });
    assert_eq!(exchange(gateway.admin(), "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").status(), 200);
    assert!(gateway.log().lines().count() < 200, "the log is flooded");
}

/// CPU time so far, in ticks of 10 ms.
fn cpu(gateway: &Gateway) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", gateway.pid())).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}
