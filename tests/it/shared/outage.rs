//! Redis dies, hangs, forgets, or says what no counter says.

use super::{ANSWERED, acquainted, counters, gateways, keys, store};
use crate::harness::{Client, Gateway, RedisServer, happens, until};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const MODES: &str = "limits:
- { name: local, per: global, match: { path: /local }, rate: 20/30d, algorithm: fixed_window, consistency: strict }
- { name: open, per: global, match: { path: /open }, rate: 5/30d, algorithm: fixed_window, consistency: strict, on_failure: open }
- { name: closed, per: global, match: { path: /closed }, rate: 50/30d, algorithm: fixed_window, consistency: strict, on_failure: closed }
- { name: busy, per: global, match: { path: /busy }, rate: 100000/30d, on_failure: closed }
";

fn admitted(gateway: &Gateway, n: usize, path: &str) -> usize {
    let mut client = gateway.client();
    (0..n).filter(|_| client.get(path).status() == 200).count()
}

/// From outside: a limit that is closed without the store answers again.
fn rejoins(gateway: &Gateway) {
    let joined = happens(Duration::from_secs(20), || gateway.get("/busy").status == 200);
    assert!(joined, "the gateway did not join again; its store: {}", super::admin::store_text(gateway));
}

fn is_out(gateway: &Gateway) {
    until("the gateway knows that the store is away", || gateway.get("/busy").status == 503);
}

#[test]
fn every_limit_goes_by_its_mode_and_the_gateway_joins_again() {
    let mut redis = RedisServer::start();
    let both = gateways(2, &format!("{}{MODES}{ANSWERED}", store(&redis, "")));
    // Five of the open one's, all of them; fifteen of the local one's, whose share for each gateway is twelve.
    assert_eq!((admitted(&both[0], 15, "/local"), admitted(&both[0], 9, "/open")), (15, 5));
    redis.kill();
    both.iter().for_each(is_out);
    // What the store has refused lately stays refused for a moment.
    until("open", || admitted(&both[0], 10, "/open") == 10);
    assert_eq!(admitted(&both[1], 10, "/open"), 10, "open");
    let closed = both[0].get("/closed");
    assert_eq!((closed.status, closed.header("retry-after")), (503, Some("1")), "closed");
    assert_eq!(admitted(&both[0], 5, "/local"), 0, "who has had more than the share stays refused");
    assert_eq!(both[0].get("/local").status, 429);
    assert_eq!(admitted(&both[1], 30, "/local"), 12, "a part and a fifth more");
    redis.restart();
    both.iter().for_each(rejoins);
    acquainted(&both);
    assert_eq!(admitted(&both[0], 30, "/local"), 20, "restarted empty, all counters begin again");
    assert_eq!(admitted(&both[1], 5, "/local"), 0);
}

#[test]
fn a_gateway_starts_without_the_store_and_joins_when_it_is_there() {
    let mut redis = RedisServer::start();
    redis.kill();
    let gateway = Gateway::start(&format!("{}{MODES}{ANSWERED}", store(&redis, "")));
    assert_eq!(gateway.get("/closed").status, 503);
    assert_eq!(admitted(&gateway, 30, "/local"), 20, "alone it has the whole share");
    redis.restart();
    rejoins(&gateway);
    assert!(counters(&redis).iter().any(|(_, value)| value.starts_with('g')), "{:?}", counters(&redis));
}

#[test]
fn nobody_waits_long_for_a_store_that_hangs() {
    let redis = RedisServer::start();
    let yaml = format!("store: {{ redis: {{ urls: '{}', timeout: 100ms }} }}\n{MODES}{ANSWERED}", redis.url());
    let gateway = Gateway::start(&yaml);
    rejoins(&gateway);
    redis.stop_process();
    for path in ["/open", "/local", "/closed", "/closed", "/open", "/local", "/open", "/open", "/open"] {
        let begun = Instant::now();
        let status = gateway.get(path).status;
        // The budget is a tenth of a second; the rest is for a busy machine.
        assert!(begun.elapsed() < Duration::from_secs(3), "{path} took {:?}", begun.elapsed());
        assert_eq!(status, if path == "/closed" { 503 } else { 200 }, "{path}");
    }
    redis.cont_process();
    rejoins(&gateway);
}

#[test]
fn whatever_happens_to_redis_under_load_no_request_fails_for_it() {
    let mut redis = RedisServer::start();
    let limits = "limits:
- { name: lease, per: global, rate: 2000/s }
- { name: each, per: { header: x-k }, rate: 500/s, consistency: strict }
- { name: slots, per: global, concurrency: 100 }
";
    let yaml = format!("store: {{ redis: {{ urls: '{}', timeout: 200ms }} }}\n{limits}{ANSWERED}", redis.url());
    let gateways = gateways(2, &yaml);
    let over = AtomicBool::new(false);
    let statuses = thread::scope(|scope| {
        let (over, gateways) = (&over, &gateways);
        let clients = [0, 1, 0, 1].map(|i| {
            scope.spawn(move || {
                let mut client = Client::connect(gateways[i].addr());
                let mut statuses = std::collections::BTreeMap::<u16, u64>::new();
                while !over.load(Ordering::Relaxed) {
                    *statuses.entry(client.ask("GET / HTTP/1.1\r\nHost: a\r\nX-K: 1\r\n\r\n").status()).or_default() += 1;
                }
                statuses
            })
        });
        let settled = || {
            let is_up = |gateway: &Gateway| gateway.metric("tollgate_store_up", &[]) > 0.5;
            assert!(happens(Duration::from_secs(20), || gateways.iter().all(is_up)), "the gateways join again");
        };
        redis.kill();
        thread::sleep(Duration::from_millis(300));
        redis.restart();
        settled();
        redis.stop_process();
        thread::sleep(Duration::from_millis(500));
        redis.cont_process();
        settled();
        redis.command(&["FLUSHALL"]);
        redis.command(&["SCRIPT", "FLUSH"]);
        until("counters are written again", || counters(&redis).len() >= 2);
        // Values that nobody wrote who counts.
        for (command, value) in [("SET", "garbage"), ("LPUSH", "a"), ("SET", ""), ("SADD", "b")] {
            let mut client = redis.client();
            for key in keys(&mut client) {
                client.ask(&["DEL", &key]);
                client.ask(&[command, &key, value]);
            }
            until("they are written over", || {
                let mut client = redis.client();
                let keys = keys(&mut client);
                keys.iter().filter(|key| crate::harness::redis::text(&client.ask(&["PTTL", key])) == "-1").count() == 0
            });
        }
        over.store(true, Ordering::Relaxed);
        clients.map(|client| client.join().unwrap())
    });
    for statuses in statuses {
        assert!(statuses.keys().all(|status| [200, 429].contains(status)), "{statuses:?}");
        assert!(statuses[&200] > 20, "{statuses:?}");
    }
    assert!(gateways.iter().all(|gateway| !gateway.log().contains("panicked")));
}

/// What a gateway has counted stays counted when charges come back that another limit refused.
#[test]
fn refusals_by_another_limit_do_not_wear_down_what_is_kept_warm() {
    let mut redis = RedisServer::start();
    let limits = "limits:
- { name: everybody, per: global, rate: 60/30d, algorithm: fixed_window }
- { name: few, per: ip, match: { path: /few }, rate: 10/30d, algorithm: fixed_window }
- { name: busy, per: global, match: { path: /busy }, rate: 100000/30d, on_failure: closed }
";
    let gateway = Gateway::start(&format!("{}{limits}{ANSWERED}", store(&redis, "")));
    let first = admitted(&gateway, 1000, "/few");
    assert_eq!(first, 10);
    until("leases have gone back", || gateway.metric("tollgate_store_leased_cells", &[]) < 0.5);
    let second = admitted(&gateway, 20, "/");
    assert_eq!(second, 20);
    redis.kill();
    until("the store is known to be away", || {
        gateway.get("/few").status != 200 && gateway.metric("tollgate_store_up", &[]) < 0.5
    });
    let third = admitted(&gateway, 100, "/");
    assert!(first + second + third <= 60, "{first} and {second} before the outage, {third} in it");
    assert!(third >= 10, "{third} in the outage");
}

/// Something else listens where the store should, and says yes to everything.
#[test]
fn a_server_that_answers_everything_alike_is_no_store() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            thread::spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(read @ 1..) = stream.read(&mut bytes) {
                    // A command is an array: one answer for each.
                    let commands = bytes[..read].split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"*")).count();
                    if stream.write_all("+OK\r\n".repeat(commands).as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    let yaml = format!("store: {{ redis: {{ urls: 'redis://127.0.0.1:{port}', timeout: 2s }} }}\n{MODES}{ANSWERED}");
    let gateway = Gateway::start(&yaml);
    assert_eq!(gateway.get("/closed").status, 503);
    assert_eq!(gateway.get("/open").status, 200);
    assert_eq!(gateway.metric("tollgate_store_up", &[]), 0.0, "{}", super::admin::store_text(&gateway));
    assert!(gateway.metric("tollgate_store_round_trips_total", &[("outcome", "down")]) >= 2.0);
}
