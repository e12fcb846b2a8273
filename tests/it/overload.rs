//! `adaptive_concurrency`: an upstream of known capacity under more than it can bear. Counts and orders only: what takes how long is for
//! `benches/overload`.

use crate::harness::{Client, DEADLINE, Gateway, Latch, Next, Origin, hashed, run, until};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const TIERS: [&str; 3] = ["free", "pro", "top"];

/// Clients `free`, `pro` and `top`, of the tiers of their names, whose key is that name too.
fn tiers() -> String {
    let client = |tier: &&str| format!("{{ id: {tier}, api_keys: ['{}'], tier: {tier} }}", hashed(tier));
    format!("tiers: [{}]\nclients: [{}]", TIERS.join(", "), TIERS.iter().map(client).collect::<Vec<_>>().join(", "))
}

fn upstream(settings: &str) -> String {
    format!("upstreams: {{ origin: {{ endpoints: ['http://ORIGIN'], adaptive_concurrency: {{ {settings} }} }} }}")
}

fn request(tier: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: a\r\nX-Api-Key: {tier}\r\n\r\n")
}

fn load(gateway: &Gateway) -> Value {
    let reply = Client::connect(gateway.admin()).ask("GET /upstreams/origin HTTP/1.1\r\nHost: localhost\r\n\r\n").response();
    reply.json()["adaptive_concurrency"].clone()
}

/// An origin that answers when the door is open.
fn behind(door: &Latch) -> Origin {
    let door = door.clone();
    Origin::new(move |call| {
        door.wait();
        call.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    })
}

/// So many requests of this tier that wait for the origin.
fn occupy(gateway: &Gateway, origin: &Origin, tier: &str, n: usize) -> Vec<Client> {
    (0..n)
        .map(|_| {
            let before = origin.seen().len();
            let mut client = gateway.client();
            client.send(request(tier));
            origin.wait_heads(before + 1);
            client
        })
        .collect()
}

#[test]
fn a_full_upstream_has_room_by_tier() {
    let door = Latch::default();
    let origin = behind(&door);
    // Of ten: four for the lowest, eight for the next, all for the highest.
    let gateway = Gateway::before(&origin, &format!("{}\n{}", tiers(), upstream("min: 10, initial: 10, max: 10")));
    let mut waiting = occupy(&gateway, &origin, "free", 4);
    let refused = gateway.client().ask(request("free")).response();
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    assert_eq!(refused.json()["error"], "load_shed");
    waiting.extend(occupy(&gateway, &origin, "pro", 4));
    assert_eq!(gateway.client().ask(request("pro")).status(), 503);
    waiting.extend(occupy(&gateway, &origin, "top", 2));
    assert_eq!(gateway.client().ask(request("top")).status(), 503);
    assert_eq!(load(&gateway)["in_flight"], 10);
    assert_eq!((load(&gateway)["limit"].clone(), load(&gateway)["mode"].clone()), (10.into(), "enforce".into()));
    for tier in TIERS {
        assert_eq!(gateway.metric("tollgate_upstream_shed_total", &[("upstream", "origin"), ("tier", tier)]), 1.0);
    }
    assert_eq!(gateway.metric("tollgate_refused_total", &[("reason", "load_shed")]), 3.0);
    assert_eq!(gateway.metric("tollgate_upstream_in_flight", &[("upstream", "origin")]), 10.0);
    door.open();
    waiting.iter_mut().for_each(|client| assert_eq!(client.receive().status(), 200));
    until("all places have come back", || load(&gateway)["in_flight"] == 0);
    assert_eq!(gateway.client().ask(request("free")).status(), 200);
}

#[test]
fn who_is_shed_has_paid_nothing() {
    let door = Latch::default();
    let origin = behind(&door);
    let limits = "limits:\n- { name: plan, per: client, rate: 10/hour }\n- { name: other, per: client, rate: 10/hour, algorithm: sliding_log }\n\
                  - { name: slots, per: client, concurrency: 2 }";
    let gateway = Gateway::before(&origin, &format!("{limits}\n{}", upstream("min: 1, initial: 1, max: 1")));
    let mut waiting = occupy(&gateway, &origin, "nobody", 0);
    let mut client = gateway.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    origin.wait_heads(1);
    waiting.push(client);
    for _ in 0..30 {
        let refused = gateway.get("/");
        assert_eq!((refused.status, refused.header("x-ratelimit-remaining")), (503, Some("9")));
    }
    door.open();
    assert_eq!(waiting[0].receive().status(), 200);
    for left in (0..9).rev() {
        let response = gateway.get("/");
        assert_eq!((response.status, response.header("x-ratelimit-remaining")), (200, Some(&*left.to_string())));
    }
    assert_eq!(gateway.get("/").status, 429);
}

#[test]
fn who_has_waited_for_a_place_in_the_queue_is_shed_without_paying() {
    let door = Latch::default();
    let origin = behind(&door);
    let limits = "limits:\n- { name: slow, per: client, rate: 5/s burst 1, over: { delay: { max: 5s, queue: 10 } } }\n\
                  - { name: plan, per: client, rate: 3/hour }";
    let gateway = Gateway::before(&origin, &format!("{limits}\n{}", upstream("min: 1, initial: 1, max: 1")));
    let mut first = gateway.client();
    first.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    origin.wait_heads(1);
    for _ in 0..4 {
        assert_eq!(gateway.get("/").status, 503);
    }
    door.open();
    assert_eq!(first.receive().status(), 200);
    assert_eq!(gateway.statuses(3, "/"), [200, 200, 429]);
}

#[test]
fn shadow_counts_and_sheds_nobody() {
    let door = Latch::default();
    let origin = behind(&door);
    let gateway = Gateway::before(&origin, &format!("{}\n{}", tiers(), upstream("min: 10, initial: 10, max: 10, mode: shadow")));
    let mut waiting = occupy(&gateway, &origin, "free", 9);
    assert_eq!(gateway.metric("tollgate_upstream_shadow_shed_total", &[("tier", "free")]), 5.0);
    assert_eq!(gateway.metric("tollgate_upstream_shed_total", &[]), 0.0);
    assert_eq!((load(&gateway)["mode"].clone(), load(&gateway)["in_flight"].clone()), ("shadow".into(), 9.into()));
    door.open();
    waiting.iter_mut().for_each(|client| assert_eq!(client.receive().status(), 200));
    until("all places have come back", || load(&gateway)["in_flight"] == 0);
}

#[test]
fn streams_and_tunnels_hold_no_place() {
    let door = Latch::default();
    let behind = door.clone();
    let origin = Origin::new(move |call| {
        call.body();
        match call.target() {
            "/stream" => {
                call.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n");
                behind.wait();
                call.send("0\r\n\r\n");
                Next::Close
            }
            "/ws" => {
                call.send("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n");
                behind.wait();
                Next::Close
            }
            _ => call.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
        }
    });
    let gateway = Gateway::before(&origin, &upstream("min: 1, initial: 1, max: 1"));
    let mut stream = gateway.client();
    stream.send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    origin.wait_heads(1);
    until("the stream's head is here", || load(&gateway)["in_flight"] == 0);
    let mut tunnel = gateway.client();
    tunnel.send("GET /ws HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n");
    origin.wait_heads(2);
    until("the tunnel stands", || load(&gateway)["in_flight"] == 0);
    assert_eq!(gateway.get("/").status, 200);
    door.open();
    assert_eq!(stream.receive().outcome(), "200");
}

#[test]
fn places_come_back_however_a_request_ends() {
    let origin = Origin::new(|call| match call.target() {
        "/reset" => call.reset(),
        "/stall" => call.stall(),
        _ => call.answer(b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n"),
    });
    let gateway = Gateway::before(&origin, &upstream("min: 1, initial: 1, max: 1"));
    assert_eq!(gateway.get("/500").status, 500);
    assert_eq!(gateway.get("/reset").status, 502);
    let mut client = gateway.client();
    client.send("GET /stall HTTP/1.1\r\nHost: a\r\n\r\n");
    let has_come = |request: &str| origin.lines().iter().any(|line| line.starts_with(request));
    until("the stalled request has come", || has_come("GET /stall"));
    assert_eq!(gateway.get("/").status, 503);
    drop(client);
    until("the place of who left is free", || load(&gateway)["in_flight"] == 0);
    let mut half = gateway.client();
    half.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf");
    until("half a request has come", || has_come("POST /"));
    drop(half);
    until("the place of who left within his body is free", || load(&gateway)["in_flight"] == 0);
    assert_eq!(gateway.get("/").status, 500);
}

#[test]
fn what_was_found_out_outlives_a_reload() {
    let origin = Origin::ok();
    let yaml = |max: u32| upstream(&format!("min: 1, max: {max}"));
    let gateway = Gateway::before(&origin, &yaml(50));
    let mut client = gateway.client();
    until("there is a baseline", || {
        (0..20).for_each(|_| assert_eq!(client.get("/").status(), 200));
        load(&gateway)["baseline_us"].as_u64() > Some(0)
    });
    assert_eq!(load(&gateway)["limit"], 20, "an upstream with room says nothing about where it ends");
    gateway.reload(&yaml(5));
    assert_eq!(load(&gateway)["limit"], 5);
    assert!(load(&gateway)["baseline_us"].as_u64() > Some(0));
    gateway.reload("upstreams: { origin: { endpoints: ['http://ORIGIN'] } }");
    assert_eq!(load(&gateway), Value::Null);
    gateway.reload(&upstream("mode: off"));
    assert_eq!(load(&gateway), Value::Null);
}

#[test]
fn mistakes_are_named() {
    for (settings, expected) in [
        ("min: 0", "adaptive_concurrency.min: must be at least 1"),
        ("min: 9, max: 8", "adaptive_concurrency.max: must not be less than `min`"),
        ("min: 30, initial: 20", "adaptive_concurrency.initial: must be from `min` to `max`, 30 to 1000"),
        ("tolerance: 1", "adaptive_concurrency.tolerance: must be from 1.1 to 10"),
        ("tolerance: .nan", "adaptive_concurrency.tolerance: must be from 1.1 to 10"),
        ("reserve: 91%", "adaptive_concurrency.reserve: at most 90%"),
        ("mode: sometimes", "adaptive_concurrency.mode"),
        ("maximum: 5", "maximum"),
    ] {
        let problems = complaint(&format!("origin: {{ endpoints: ['http://a:1'], adaptive_concurrency: {{ {settings} }} }}"));
        assert!(problems.contains(expected), "{settings}\n{problems}");
    }
    let builtin = complaint("origin: { builtin: echo, adaptive_concurrency: {} }");
    assert!(builtin.contains("adaptive_concurrency: an upstream that is built in has no load"), "{builtin}");
    assert_eq!(complaint("origin: { endpoints: ['http://a:1'], adaptive_concurrency: {} }"), "");
}

fn complaint(upstream: &str) -> String {
    let dir = tempfile::TempDir::new().unwrap();
    let file = dir.path().join("gateway.yaml");
    let yaml = format!(
        "listeners: [{{ name: a, address: '127.0.0.1:0' }}]\nroutes: [{{ name: r, upstream: origin }}]\nupstreams: {{ {upstream} }}\n"
    );
    std::fs::write(&file, yaml).unwrap();
    let output = run(&["check", file.to_str().unwrap()], b"", DEADLINE).unwrap();
    String::from_utf8(output.stderr).unwrap()
}

/// So many requests at a time, each for a while; the others wait their turn.
struct Capacity {
    free: Mutex<usize>,
    freed: Condvar,
    waiting: AtomicUsize,
    most_waiting: AtomicUsize,
}

impl Capacity {
    fn origin(servers: usize, service: Duration) -> (Origin, Arc<Self>) {
        let capacity =
            Arc::new(Self { free: Mutex::new(servers), freed: Condvar::new(), waiting: 0.into(), most_waiting: 0.into() });
        let theirs = Arc::clone(&capacity);
        let origin = Origin::new(move |call| {
            if !call.body() {
                return Next::Close;
            }
            theirs.serve(service);
            call.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        });
        (origin, capacity)
    }

    fn serve(&self, service: Duration) {
        let waiting = self.waiting.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_waiting.fetch_max(waiting, Ordering::SeqCst);
        let mut free = self.free.lock().unwrap();
        while *free == 0 {
            free = self.freed.wait(free).unwrap();
        }
        *free -= 1;
        drop(free);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        thread::sleep(service);
        *self.free.lock().unwrap() += 1;
        self.freed.notify_one();
    }
}

/// What clients of a tier got.
#[derive(Debug, Default)]
struct Got {
    served: AtomicUsize,
    shed: AtomicUsize,
}

/// Clients that ask again as soon as they are answered, and a little later when they are shed, until so many answers have been given in all.
fn storm(gateway: &Gateway, crowds: [usize; 3], answers: usize) -> [Got; 3] {
    let got: [Got; 3] = std::array::from_fn(|_| Got::default());
    let (stop, end) = (AtomicBool::new(false), Instant::now() + 20 * DEADLINE);
    thread::scope(|scope| {
        for ((tier, crowd), got) in TIERS.iter().zip(crowds).zip(&got) {
            for _ in 0..crowd {
                let stop = &stop;
                scope.spawn(move || {
                    let (mut client, request) = (gateway.client(), request(tier));
                    while !stop.load(Ordering::Relaxed) {
                        match client.ask(&request).status() {
                            200 => got.served.fetch_add(1, Ordering::Relaxed),
                            503 => {
                                // As long as a service takes: an impatient client's third of the second that it is told.
                                thread::sleep(Duration::from_millis(20));
                                got.shed.fetch_add(1, Ordering::Relaxed)
                            }
                            status => panic!("{tier} got {status}"),
                        };
                    }
                });
            }
        }
        while got.iter().map(|got| got.served.load(Ordering::Relaxed)).sum::<usize>() < answers && Instant::now() < end {
            thread::sleep(Duration::from_millis(10));
        }
        stop.store(true, Ordering::Relaxed);
    });
    got
}

fn share(got: &Got) -> f64 {
    let (served, shed) = (got.served.load(Ordering::Relaxed), got.shed.load(Ordering::Relaxed));
    served as f64 / (served + shed).max(1) as f64
}

#[test]
fn under_a_storm_the_queue_stays_short_and_the_important_are_served() {
    // Far more than fits, and nearly all of it unimportant. A fifth of a limit of at least 15 is room for all three of the highest tier.
    let crowds = [45, 12, 3];
    let service = Duration::from_millis(20);
    let (origin, unlimited) = Capacity::origin(8, service);
    let gateway = Gateway::before(&origin, &tiers());
    storm(&gateway, crowds, 1000);
    drop(gateway);
    let (origin, limited) = Capacity::origin(8, service);
    let gateway = Gateway::before(&origin, &format!("{}\n{}", tiers(), upstream("min: 15, max: 40")));
    let got = storm(&gateway, crowds, 3000);
    let shares = [share(&got[0]), share(&got[1]), share(&got[2])];
    let most = |capacity: &Capacity| capacity.most_waiting.load(Ordering::SeqCst);
    assert!(most(&unlimited) >= 45, "without a limit everybody queues: {}", most(&unlimited));
    assert!(most(&limited) < 45, "{} of {} queued", most(&limited), most(&unlimited));
    assert!(got[0].shed.load(Ordering::Relaxed) > 100, "{got:?}");
    assert!(shares[2] >= 0.99, "{shares:?}");
    assert!(shares[0] < shares[1] && shares[1] <= shares[2] + 0.01, "{shares:?}");
}
