//! What a gateway says of a limit without asking the store: only what the store has refused, and as the store would say it.

use super::{ANSWERED, calls, store};
use crate::harness::{Client, Gateway, Latch, Origin, RedisServer, Response, happens, until};
use std::time::Duration;

/// An upstream that answers with the status in the path, and costs what stands behind it.
fn origin() -> Origin {
    Origin::new(|call| {
        let target = call.target().trim_start_matches('/').to_owned();
        let (status, cost) = target.split_once('/').unwrap_or(("200", "1"));
        let body = format!("{{\"usage\":{{\"total_tokens\":{cost}}}}}");
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status} S\r\nX-Cost: {cost}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        );
        call.answer(format!("{head}{body}").as_bytes())
    })
}

/// A gateway with one limit of 15 an hour or another `rate`, which counts by `consistency`.
fn gateway(origin: &Origin, redis: &RedisServer, consistency: &str, limit: &str) -> Gateway {
    let limits = format!("trusted_proxies: [127.0.0.1]\nlimits: [{{ name: a, per: ip, consistency: {consistency}, {limit} }}]\n");
    let gateway = Gateway::before(origin, &format!("{}{limits}", store(redis, "")));
    until("the store is joined", || gateway.metric("tollgate_store_up", &[]) > 0.5);
    gateway
}

fn costing(gateway: &Gateway, path: &str, cost: u64) -> Response {
    Client::connect(gateway.addr()).ask(format!("GET {path} HTTP/1.1\r\nHost: a\r\nx-c: {cost}\r\n\r\n")).response()
}

fn number(response: &Response, field: &str) -> Option<u64> {
    response.header(field).map(|value| value.parse().unwrap())
}

const CONSISTENCIES: [&str; 3] = ["local", "strict", "lease"];

#[test]
fn what_a_response_gave_back_refuses_nobody() {
    let (origin, redis) = (origin(), RedisServer::start());
    for settlement in [
        "rate: 1500/hour, cost: { response_json: usage.total_tokens, reserve: 1000, max: 200000 }",
        "rate: 1500/hour, cost: { response_header: x-cost, reserve: 1000 }",
    ] {
        for consistency in CONSISTENCIES {
            let gateway = gateway(&origin, &redis, consistency, settlement);
            redis.command(&["FLUSHALL"]);
            for _ in 0..6 {
                // What goes back is on its way for a moment, and a refusal that was remembered would last for five seconds.
                let passes = happens(Duration::from_secs(2), || gateway.get("/200/10").status == 200);
                assert!(passes, "{consistency}, {settlement}: refused with next to nothing used");
            }
        }
    }
}

#[test]
fn a_refusal_is_told_as_the_store_tells_it() {
    let (origin, redis) = (origin(), RedisServer::start());
    #[rustfmt::skip]
    let cases = [
        ("gcra", 720, Some(720 + 240)), ("token_bucket", 720, Some(720 + 240)), ("leaky_bucket", 720, Some(720 + 240)), ("sliding_log", 3600, Some(3600)),
    ];
    for (algorithm, wait, more) in cases {
        for consistency in CONSISTENCIES {
            let limit = format!("rate: 15/hour, algorithm: {algorithm}, cost: {{ header: x-c, default: 1, max: 30 }}");
            let gateway = gateway(&origin, &redis, consistency, &limit);
            redis.command(&["FLUSHALL"]);
            let what = format!("{algorithm}, {consistency}");
            assert_eq!(costing(&gateway, "/", 9).status, 200, "{what}");
            let near = |told: Option<u64>, wait: Option<u64>| match (told, wait) {
                (Some(told), Some(wait)) => told <= wait && told + 20 >= wait,
                (told, wait) => told == wait,
            };
            for (cost, wait) in [(9, Some(wait)), (9, Some(wait)), (10, more), (9, Some(wait)), (16, None), (9, Some(wait))] {
                let refused = costing(&gateway, "/", cost);
                let told = number(&refused, "retry-after");
                assert!(
                    refused.status == 429 && near(told, wait),
                    "{what}: {cost} cells are told to wait {told:?} and not {wait:?}"
                );
                assert_eq!(number(&refused, "x-ratelimit-remaining"), Some(6), "{what}");
            }
        }
    }
}

#[test]
fn who_is_refused_again_and_again_is_not_asked_about_each_time() {
    let redis = RedisServer::start();
    for consistency in ["strict", "lease"] {
        let limits = format!("limits: [{{ name: {consistency}, per: ip, rate: 3/hour, consistency: {consistency} }}]\n");
        let gateway = Gateway::start(&format!("{}{ANSWERED}{limits}", store(&redis, "")));
        until("the store is joined", || gateway.metric("tollgate_store_up", &[]) > 0.5);
        assert_eq!(gateway.statuses(4, "/"), [200, 200, 200, 429], "{consistency}");
        let before = gateway.metric("tollgate_store_decisions_total", &[("source", "store")]);
        assert_eq!(gateway.statuses(100, "/"), [429; 100], "{consistency}");
        let asked = gateway.metric("tollgate_store_decisions_total", &[("source", "store")]) - before;
        // Once in five seconds.
        assert!(asked < 10.0, "{consistency}: the store was asked {asked} times");
    }
    assert!(calls(&redis, "evalsha") < 60, "beside what keeps the gateways going");
}

#[test]
fn who_asks_for_more_than_there_ever_is_is_not_asked_about_each_time() {
    let (origin, redis) = (origin(), RedisServer::start());
    for algorithm in ["gcra", "fixed_window", "sliding_window", "sliding_log"] {
        let limit = format!("rate: 15/hour, algorithm: {algorithm}, cost: {{ header: x-c, default: 1, max: 30 }}");
        let gateway = gateway(&origin, &redis, "strict", &limit);
        redis.command(&["FLUSHALL"]);
        assert_eq!(costing(&gateway, "/", 9).status, 200, "{algorithm}");
        let asked = || gateway.metric("tollgate_store_decisions_total", &[("source", "store")]);
        let before = asked();
        for _ in 0..100 {
            let refused = costing(&gateway, "/", 16);
            let left = number(&refused, "x-ratelimit-remaining");
            assert_eq!((refused.status, number(&refused, "retry-after"), left), (429, None, Some(6)), "{algorithm}");
        }
        let asked = asked() - before;
        assert!(asked < 10.0, "{algorithm}: the store was asked {asked} times");
        assert_eq!(costing(&gateway, "/", 6).status, 200, "{algorithm}: what is left is there for others");
    }
}

#[test]
fn cells_that_came_back_are_there_for_who_was_just_refused() {
    let redis = RedisServer::start();
    for algorithm in ["gcra", "fixed_window", "sliding_window", "sliding_log"] {
        let door = Latch::default();
        let opens = door.clone();
        let origin = Origin::new(move |call| {
            opens.wait();
            call.answer(b"HTTP/1.1 503 S\r\nContent-Length: 0\r\n\r\n")
        });
        let limit = format!("rate: 5/hour, algorithm: {algorithm}, refund: {{ status: 5xx }}");
        let gateway = gateway(&origin, &redis, "strict", &limit);
        redis.command(&["FLUSHALL"]);
        let mut clients = [(); 5].map(|()| gateway.client());
        for client in &mut clients {
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        }
        until("all five are under way", || origin.lines().len() == 5);
        assert_eq!(gateway.get("/").status, 429, "{algorithm}");
        door.open();
        assert!(clients.iter_mut().all(|client| client.receive().status() == 503), "{algorithm}");
        // A refusal is believed for five seconds where nothing comes back.
        let is_free = happens(Duration::from_secs(2), || gateway.get("/").status == 503);
        assert!(is_free, "{algorithm}: still refused two seconds after everything came back");
    }
}

#[test]
fn a_response_says_what_is_left_after_it() {
    let (origin, redis) = (origin(), RedisServer::start());
    #[rustfmt::skip]
    let cases = [
        ("rate: 1000/hour, cost: { response_header: x-cost, reserve: 10, max: 500 }", "/200/300", 700),
        ("rate: 1000/hour, algorithm: fixed_window, cost: { response_header: x-cost, reserve: 10, max: 500 }", "/200/300", 700),
        ("rate: 1000/hour, algorithm: sliding_window, cost: { response_header: x-cost, reserve: 400, max: 500 }", "/200/3", 997),
        ("rate: 5/hour, refund: { status: 5xx }", "/500/1", 5),
        ("rate: 5/hour, count: { status: 401 }", "/200/1", 5),
        ("rate: 5/hour, count: { status: 401 }", "/401/1", 4),
    ];
    for (limit, path, left) in cases {
        for consistency in CONSISTENCIES {
            let gateway = gateway(&origin, &redis, consistency, limit);
            redis.command(&["FLUSHALL"]);
            let response = gateway.get(path);
            assert_eq!(number(&response, "x-ratelimit-remaining"), Some(left), "{consistency}: {limit}");
        }
    }
}
