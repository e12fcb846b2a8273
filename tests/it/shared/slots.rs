//! Requests in flight over several gateways.

use super::{acquainted, store};
use crate::harness::{Client, Gateway, Latch, Origin, RedisServer, happens, together, until};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const TWO: &str = "limits: [{ name: two, per: global, concurrency: 2 }]\n";

/// An upstream that holds requests until the door opens and knows how many it had at once.
struct Busy {
    origin: Origin,
    door: Latch,
    most: Arc<AtomicU32>,
    now: Arc<AtomicU32>,
}

impl Busy {
    fn new() -> Self {
        let (door, now, most) = (Latch::default(), Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let (opens, here, peak) = (door.clone(), Arc::clone(&now), Arc::clone(&most));
        let origin = Origin::new(move |call| {
            peak.fetch_max(here.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            opens.wait();
            here.fetch_sub(1, Ordering::SeqCst);
            match call.target() {
                "/reset" => call.reset(),
                _ => call.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
            }
        });
        Self { origin, door, most, now }
    }

    fn gateways(&self, redis: &RedisServer) -> Vec<Gateway> {
        let yaml = format!("{}{TWO}", store(redis, ""));
        let gateways = together(3, |_| Gateway::before(&self.origin, &yaml));
        acquainted(&gateways);
        gateways
    }
}

fn holding(gateway: &Gateway, path: &str) -> Client {
    let mut client = gateway.client();
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
    client
}

#[test]
fn there_are_never_more_than_two_over_three_gateways() {
    let (redis, busy) = (RedisServer::start(), Busy::new());
    let gateways = busy.gateways(&redis);
    let mut held = [holding(&gateways[0], "/"), holding(&gateways[1], "/reset")];
    until("two are under way", || busy.now.load(Ordering::SeqCst) == 2);
    let refused = together(12, |i| gateways[i % 3].get("/").status);
    assert!(refused.iter().all(|status| *status == 429), "{refused:?}");
    busy.door.open();
    let ended: Vec<_> = held.iter_mut().map(|client| client.receive().status()).collect();
    assert_eq!(ended, [200, 502], "answered, and reset by the upstream");
    // Slots are back, at any gateway; under pressure two at most get one.
    for gateway in &gateways {
        until("there is a slot again", || gateway.get("/").status == 200);
    }
    for _ in 0..20 {
        let statuses = together(9, |i| gateways[i % 3].get("/").status);
        assert!(statuses.iter().all(|status| [200, 429].contains(status)), "{statuses:?}");
    }
    assert_eq!(busy.most.load(Ordering::SeqCst), 2, "at once");
}

#[test]
fn slots_of_clients_that_leave_come_back_and_reloads_keep_those_in_use() {
    let (redis, busy) = (RedisServer::start(), Busy::new());
    let gateways = busy.gateways(&redis);
    let held = [holding(&gateways[0], "/"), holding(&gateways[0], "/")];
    until("two are under way", || busy.now.load(Ordering::SeqCst) == 2);
    gateways[0].reload(&format!("{}{TWO}rejection: {{ status: 503 }}\n", store(&redis, "")));
    assert_eq!((gateways[0].get("/").status, gateways[2].get("/").status), (503, 429), "both slots are in use still");
    let [first, second] = held;
    first.reset();
    drop(second);
    until("another gateway has a slot that a client left", || {
        let _third = holding(&gateways[2], "/");
        happens(Duration::from_millis(300), || busy.now.load(Ordering::SeqCst) >= 3)
    });
    busy.door.open();
    until("there is a slot again", || gateways[1].get("/").status == 200);
}

#[test]
fn slots_of_a_killed_gateway_come_back() {
    let (redis, busy) = (RedisServer::start(), Busy::new());
    let gateways = busy.gateways(&redis);
    let _held = [holding(&gateways[0], "/"), holding(&gateways[0], "/")];
    until("two are under way", || busy.now.load(Ordering::SeqCst) == 2);
    assert_eq!(gateways[1].get("/").status, 429);
    gateways[0].signal("KILL");
    busy.door.open();
    // Nobody gives them back, so they last for 15 s.
    assert!(happens(Duration::from_secs(30), || gateways[1].get("/").status == 200), "its slots are lost");
}
