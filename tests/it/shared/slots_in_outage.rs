//! Slots that are taken, given back or orphaned while the store is away.

use super::overtaken::held;
use crate::harness::{Client, FaultProxy, Gateway, Latch, Network, Origin, RedisServer, happens, together, until};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Two gateways before an upstream that holds `/held` until the door opens, and a store that can go away and keeps what it knows.
struct Scene {
    gateways: Vec<Gateway>,
    proxy: FaultProxy,
    redis: RedisServer,
    _origin: Origin,
    door: Latch,
    held: Arc<AtomicU32>,
}

const LIMITS: &str = "limits:
- { name: four, per: global, match: { path: '/{*rest}' }, concurrency: 4 }
";

impl Scene {
    fn new() -> Self {
        let (door, held) = (Latch::default(), Arc::new(AtomicU32::new(0)));
        let (opens, here) = (door.clone(), Arc::clone(&held));
        let origin = Origin::new(move |call| {
            if call.target() == "/held" {
                here.fetch_add(1, Ordering::SeqCst);
                opens.wait();
            }
            call.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        });
        let redis = RedisServer::start();
        let proxy = FaultProxy::before(redis.port());
        let yaml = format!("store: {{ redis: {{ urls: '{}', timeout: 2s }} }}\n{LIMITS}", proxy.url());
        let gateways = together(2, |_| Gateway::before(&origin, &yaml));
        super::acquainted(&gateways);
        Self { gateways, proxy, redis, _origin: origin, door, held }
    }

    fn is_up(&self, up: bool) {
        let all = |up: bool| self.gateways.iter().all(|gateway| (gateway.metric("tollgate_store_up", &[]) > 0.5) == up);
        assert!(happens(Duration::from_secs(20), || all(up)), "not up: {up}");
    }

    fn loses_the_store(&self) {
        self.proxy.set(Network::Gone);
        self.is_up(false);
    }

    fn finds_the_store(&self) {
        self.proxy.set(Network::Sound);
        self.is_up(true);
    }

    /// Requests in flight at a gateway.
    fn holding(&self, gateway: usize, n: u32) -> Vec<Client> {
        let before = self.held.load(Ordering::SeqCst);
        let clients = (0..n)
            .map(|_| {
                let mut client = self.gateways[gateway].client();
                client.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
                client
            })
            .collect();
        until("they are under way", || self.held.load(Ordering::SeqCst) == before + n);
        clients
    }
}

/// Longer than slots last that nobody speaks of.
const LEASE: Duration = Duration::from_secs(30);
/// Shorter than they last, with the outage.
const SOON: Duration = Duration::from_secs(10);

#[test]
fn what_is_taken_without_the_store_is_known_there_when_it_is_back() {
    let scene = Scene::new();
    scene.loses_the_store();
    // The share of each of two.
    let mut first = scene.holding(0, 3);
    assert_eq!(scene.gateways[0].get("/").status, 429, "the share is used up");
    scene.finds_the_store();
    assert!(happens(LEASE, || held(&scene.redis) == 3), "the store does not hear of slots that were taken without it");
    let mut last = scene.holding(1, 1);
    assert!(scene.gateways.iter().all(|gateway| gateway.get("/").status == 429), "four are in flight");
    scene.door.open();
    assert!(first.iter_mut().chain(&mut last).all(|client| client.receive().status() == 200));
    until("all come back", || scene.gateways.iter().all(|gateway| gateway.get("/").status == 200));
}

#[test]
fn what_is_given_back_without_the_store_is_free_when_it_is_back() {
    let scene = Scene::new();
    let mut held = scene.holding(0, 4);
    assert_eq!(scene.gateways[1].get("/").status, 429);
    scene.loses_the_store();
    scene.door.open();
    assert!(held.iter_mut().all(|client| client.receive().status() == 200));
    scene.finds_the_store();
    assert!(happens(SOON, || scene.gateways[1].get("/").status == 200), "the store is not told that they are free");
}

#[test]
fn what_is_given_back_while_the_store_pauses_is_free_when_it_goes_on() {
    let scene = Scene::new();
    let mut held = scene.holding(0, 4);
    assert_eq!(scene.gateways[1].get("/").status, 429);
    scene.redis.command(&["CLIENT", "PAUSE", "4000", "ALL"]);
    scene.door.open();
    assert!(held.iter_mut().all(|client| client.receive().status() == 200));
    assert!(happens(SOON, || scene.gateways[1].get("/").status == 200), "the store is not told that they are free");
}

#[test]
fn slots_of_a_gateway_that_is_killed_in_an_outage_come_back_after_it() {
    let scene = Scene::new();
    let _held = scene.holding(0, 4);
    assert_eq!(scene.gateways[1].get("/").status, 429);
    scene.proxy.set(Network::Gone);
    scene.gateways[0].signal("KILL");
    let up = || scene.gateways[1].metric("tollgate_store_up", &[]) > 0.5;
    until("the store is known to be away", || !up());
    scene.proxy.set(Network::Sound);
    assert!(happens(Duration::from_secs(20), up), "the store is joined again");
    scene.door.open();
    assert!(happens(LEASE, || scene.gateways[1].get("/").status == 200), "its slots are lost");
}
