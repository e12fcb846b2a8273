//! What a response says of its cost, and reloads, where several gateways count.

use super::{ANSWERED, counters, store};
use crate::harness::{Gateway, Origin, RedisServer, until};

/// An upstream that answers with the status in the path, at the cost that stands behind it.
fn origin() -> Origin {
    Origin::new(|call| {
        let target = call.target().trim_start_matches('/').to_owned();
        let (status, cost) = target.split_once('/').unwrap_or((&target, "1"));
        let answer = format!("HTTP/1.1 {status} S\r\nX-Cost: {cost}\r\nContent-Length: 0\r\n\r\n");
        call.answer(answer.as_bytes())
    })
}

fn joined(gateway: &Gateway) {
    until("the store is joined", || gateway.metric("tollgate_store_up", &[]) > 0.5);
}

fn used(redis: &RedisServer) -> Vec<String> {
    counters(redis).into_iter().map(|(_, value)| value.rsplit(':').next().unwrap().to_owned()).collect()
}

#[test]
fn responses_decide_what_is_charged_over_all_gateways() {
    let origin = origin();
    for consistency in ["strict", "lease"] {
        for (settlement, free, dear) in [("count: { status: 401 }", "/200", "/401"), ("refund: { status: 5xx }", "/503", "/200")]
        {
            let redis = RedisServer::start();
            let limits = format!(
                "limits: [{{ name: a, per: ip, rate: 60/30d, algorithm: fixed_window, consistency: {consistency}, {settlement} }}]\n"
            );
            let yaml = format!("{}{limits}", store(&redis, ""));
            let both = [Gateway::before(&origin, &yaml), Gateway::before(&origin, &yaml)];
            both.iter().for_each(joined);
            let all = |n: usize, path: &str| (0..n).filter(|i| both[i % 2].get(path).status == 429).count();
            let what = format!("{consistency}, {settlement}");
            assert_eq!(all(40, free), 0, "{what}: what costs nothing is not refused");
            assert_eq!(all(40, dear), 0, "{what}");
            until(&format!("{what}: the store has those that cost, and no other"), || used(&redis) == ["40"]);
            assert_eq!(all(40, free), 0, "{what}: the others leave their cells for these");
            until(&format!("{what}: they are back"), || used(&redis) == ["40"]);
            // Of the last cells a lease may have some where nobody asks, until it lies idle.
            let passed = std::cell::Cell::new(0);
            until(&format!("{what}: the quota is used"), || {
                let statuses = [both[0].get(dear).status, both[1].get(dear).status];
                passed.set(passed.get() + statuses.iter().filter(|status| **status != 429).count());
                passed.get() >= 20 && statuses == [429, 429]
            });
            assert_eq!(passed.get(), 20, "{what}");
            assert_eq!((used(&redis), both[1].get(free).status), (vec!["60".to_owned()], 429), "{what}");
        }
    }
}

#[test]
fn a_response_that_costs_more_is_charged_more_at_all_gateways() {
    let origin = origin();
    for consistency in ["strict", "lease"] {
        let redis = RedisServer::start();
        let limits = format!(
            "limits: [{{ name: a, per: ip, rate: 100/30d, algorithm: fixed_window, consistency: {consistency}, cost: {{ response_header: x-cost, reserve: 2 }} }}]\n"
        );
        let yaml = format!("{}{limits}", store(&redis, ""));
        let both = [Gateway::before(&origin, &yaml), Gateway::before(&origin, &yaml)];
        both.iter().for_each(joined);
        assert_eq!(both[0].get("/200/70").status, 200);
        until("the store knows the cost", || used(&redis) == ["70"]);
        assert_eq!(both[1].get("/200/0").status, 200);
        until("what cost nothing is back", || used(&redis) == ["70"]);
        assert_eq!(both[1].get("/200/30").status, 200);
        until("the store knows both", || used(&redis) == ["100"]);
        // What the first gateway was told last is not old enough to be wrong about windows.
        assert_eq!((both[1].get("/200/1").status, both[0].get("/200/1").status), (429, 429), "{consistency}");
    }
}

#[test]
fn a_reload_keeps_what_was_used() {
    for consistency in ["strict", "lease"] {
        let redis = RedisServer::start();
        let yaml = |rate: u32| {
            let limit = format!("name: a, per: ip, rate: {rate}/30d, algorithm: fixed_window, consistency: {consistency}");
            format!("{}limits: [{{ {limit} }}]\n{ANSWERED}", store(&redis, ""))
        };
        let both = [Gateway::start(&yaml(40)), Gateway::start(&yaml(40))];
        both.iter().for_each(joined);
        let passed = |n: usize| (0..n).filter(|i| both[i % 2].get("/").status == 200).count();
        assert_eq!(passed(60), 40, "{consistency}");
        both.iter().for_each(|gateway| gateway.reload(&yaml(100)));
        assert_eq!(passed(120), 60, "{consistency}: raised");
        both.iter().for_each(|gateway| gateway.reload(&yaml(50)));
        assert_eq!(passed(10), 0, "{consistency}: lowered");
    }
}

#[test]
fn shadow_limits_count_and_refuse_nobody_and_exempt_requests_are_not_counted() {
    let redis = RedisServer::start();
    let rest = "limits: [{ name: watched, per: ip, rate: 2/30d, algorithm: fixed_window, mode: shadow }]
exempt: [{ path: /free }]
";
    let gateway = Gateway::start(&format!("{}{rest}{ANSWERED}", store(&redis, "")));
    joined(&gateway);
    assert!(gateway.statuses(5, "/free").iter().all(|status| *status == 200));
    assert_eq!(counters(&redis), []);
    assert!(gateway.statuses(5, "/").iter().all(|status| *status == 200));
    assert_eq!(used(&redis), ["2"]);
}

#[test]
fn a_client_that_leaves_while_the_store_is_asked_does_no_harm() {
    let redis = RedisServer::start();
    let limits = "limits:
- { name: a, per: ip, rate: 100/30d, algorithm: fixed_window, consistency: strict }
- { name: b, per: global, concurrency: 50 }
";
    let gateway = Gateway::start(&format!("{}{limits}{ANSWERED}", store(&redis, "")));
    joined(&gateway);
    assert_eq!(gateway.get("/").status, 200);
    redis.stop_process();
    let clients: Vec<_> = (0..20)
        .map(|_| {
            let mut client = gateway.client();
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            client
        })
        .collect();
    until("they wait for the store", || gateway.metric("tollgate_store_in_flight", &[]) >= 20.0);
    clients.into_iter().for_each(crate::harness::Client::reset);
    redis.cont_process();
    until("their slots are back", || gateway.metric("tollgate_concurrency_slots", &[]) < 0.5);
    until("others are served as before", || gateway.get("/").status == 200);
    let used: u64 = used(&redis)[0].parse().unwrap();
    assert!((2..=40).contains(&used), "each was charged once at most: {used}");
}
