//! Connections: broken ones, too many of them, and no files left to have any.

use super::{Memory, others_are_served};
use crate::harness::{Client, Gateway, Origin, exchange, until};
use std::time::{Duration, Instant};

#[test]
fn a_flood_of_broken_connections_leaves_nothing_behind() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "listeners: [{ name: public, address: '127.0.0.1:0', max_connections_per_ip: 0 }]");
    let memory = Memory::of(&gateway);
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
    memory.grew_at_most(16, "1000 broken connections");
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

/// They would have been asked to leave after three seconds; a health check does not wait for that, nor for its turn behind them.
#[test]
fn idle_peers_of_the_admin_listener_keep_nobody_out() {
    let gateway = Gateway::start("upstreams: { origin: { endpoints: ['http://127.0.0.1:1'] } }");
    let mut idle: Vec<Client> = (0..400).map(|_| Client::connect(gateway.admin())).collect();
    for client in idle.iter_mut().step_by(2) {
        client.send("GET /healthz HT");
    }
    for path in ["/healthz", "/readyz", "/metrics"] {
        let reply = exchange(gateway.admin(), format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        assert_eq!(reply.status(), 200, "{path}");
    }
    // Nobody's time had run out: the newest are still there, and only the oldest had to go.
    let last = idle.last_mut().unwrap();
    last.wait_at_most(Duration::from_millis(1));
    assert_eq!(last.receive().outcome(), "silent");
    assert!(idle[0].is_closed());
}
