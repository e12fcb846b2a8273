//! Endpoints come and go under load: no request fails, and nothing of those that went stays.

use super::{servers_at, until_addresses};
use crate::harness::{Dns, Gateway, Origin, Says, exchange, until};
use std::fs;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const RELOADS: usize = 200;
const CHANGES: usize = 150;
const CLIENTS: usize = 3;

/// Open files and threads of the gateway.
fn held(gateway: &Gateway) -> (usize, usize) {
    let count = |what: &str| fs::read_dir(format!("/proc/{}/{what}", gateway.pid())).unwrap().count();
    (count("fd"), count("task"))
}

/// Clients ask without a pause while `changes` happen; every answer is a 200. How many there were.
fn under_load(gateway: &Gateway, changes: impl FnOnce()) -> usize {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let ask = |place: usize| {
            let (mut client, mut answered) = (gateway.client(), 0);
            while !stop.load(Ordering::Relaxed) {
                // Some bring a body, which can't be sent twice.
                let request = match place {
                    0 => "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
                    _ => "GET /x HTTP/1.1\r\nHost: a\r\n\r\n",
                };
                let response = client.ask(request).response();
                assert!(response.status == 200 && !response.cut, "{response:?}");
                answered += 1;
            }
            answered
        };
        let asking: Vec<_> = (0..CLIENTS).map(|place| scope.spawn(move || ask(place))).collect();
        let changed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(changes));
        stop.store(true, Ordering::Relaxed);
        let answered = asking.into_iter().map(|asking| asking.join().unwrap()).sum();
        changed.unwrap();
        answered
    })
}

fn reload(gateway: &Gateway, yaml: &str) {
    gateway.replace(yaml);
    let reply = exchange(gateway.admin(), "POST /reload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n").response();
    assert_eq!(reply.status, 200, "{}", reply.text());
}

#[test]
fn two_hundred_reloads_lose_no_request_and_leave_nothing() {
    let servers: Vec<_> = (0..6).map(|_| Origin::ok()).collect();
    let yaml = |places: &[usize]| {
        let urls: Vec<_> = places.iter().map(|place| format!("'http://{}'", servers[*place].addr())).collect();
        let keys = "health: { type: tcp, interval: 1h }, outlier: {}, min_connections: 1, timeouts: { max_age: 2s }";
        format!("workers: 2\nupstreams: {{ origin: {{ endpoints: [{}], {keys} }} }}", urls.join(", "))
    };
    let gateway = Gateway::start(&yaml(&[0]));
    assert_eq!(gateway.get("/").status, 200);
    reload(&gateway, &yaml(&[0]));
    until("the ready connections are there", || servers[0].open() >= 2);
    let (files, threads) = held(&gateway);
    let answered = under_load(&gateway, || {
        for n in 0..RELOADS {
            let places: Vec<_> = (0..6).filter(|place| (n * 7 + place * 3) % 5 < 2 || *place == n % 6).collect();
            reload(&gateway, &yaml(&places));
        }
        reload(&gateway, &yaml(&[0]));
    });
    assert!(answered > RELOADS, "{answered} requests");
    for server in &servers[1..] {
        until("nothing is connected to servers that are gone", || server.open() == 0);
    }
    until("no request counts as under way", || gateway.metric("tollgate_endpoint_requests", &[]) == 0.0);
    until("no file is left open", || held(&gateway).0 <= files + 4);
    assert_eq!(held(&gateway).1, threads, "threads");
    let metrics = gateway.metrics();
    for server in &servers[1..] {
        assert!(!metrics.contains(&format!("endpoint=\"{}\"", server.addr())), "{metrics}");
    }
}

#[test]
fn many_changes_of_a_name_lose_no_request_and_leave_nothing() {
    let dns = Dns::start();
    let all = ["127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4"];
    let (port, servers) = servers_at(all);
    dns.addresses("api.internal", &["127.0.0.1"]);
    let keys = "health: { type: tcp, interval: 10ms, timeout: 5s }, outlier: {}";
    let gateway = Gateway::start(&format!(
        "workers: 2\n{}\nupstreams: {{ origin: {{ endpoints: ['http://api.internal:{port}'], {keys} }} }}",
        dns.settings()
    ));
    assert_eq!(gateway.get("/").status, 200);
    let (files, threads) = held(&gateway);
    let answered = under_load(&gateway, || {
        for n in 0..CHANGES {
            let addresses: Vec<IpAddr> = all
                .iter()
                .enumerate()
                .filter(|(place, _)| (n * 7 + place * 3) % 5 < 2 || *place == n % 4)
                .map(|(_, a)| a.parse().unwrap())
                .collect();
            let mut expected: Vec<_> = addresses.iter().map(|address| format!("{address}:{port}")).collect();
            expected.sort();
            dns.say("api.internal", Says::Addresses(addresses, 0));
            until_addresses(&gateway, expected);
        }
        dns.addresses("api.internal", &["127.0.0.1"]);
        until_addresses(&gateway, [format!("127.0.0.1:{port}")]);
    });
    assert!(answered > CHANGES, "{answered} requests");
    for server in &servers[1..] {
        until("nothing is connected to servers that are gone", || server.open() == 0);
    }
    until("no request counts as under way", || gateway.metric("tollgate_endpoint_requests", &[]) == 0.0);
    until("no file is left open", || held(&gateway).0 <= files + 8);
    assert_eq!(held(&gateway).1, threads, "threads");
    let metrics = gateway.metrics();
    for gone in &all[1..] {
        assert!(!metrics.contains(&format!("endpoint=\"{gone}:{port}\"")), "{metrics}");
    }
}
