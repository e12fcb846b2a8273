//! The store's keys: whose, and how many.

use super::{ANSWERED, counters, keys, store};
use crate::harness::{Gateway, RedisServer, until};

fn yaml(redis: &RedisServer, more: &str) -> String {
    let limits = "limits: [{ name: a, per: { header: x-k }, rate: 3/30d, algorithm: fixed_window }]\n";
    format!("{}{limits}{ANSWERED}", store(redis, more))
}

fn status(gateway: &Gateway, key: &str) -> u16 {
    gateway.client().ask(format!("GET / HTTP/1.1\r\nHost: a\r\nX-K: {key}\r\n\r\n")).status()
}

#[test]
fn gateways_with_another_prefix_or_secret_count_apart() {
    let redis = RedisServer::start();
    let all: Vec<_> = ["", ", key_prefix: other", ", key_secret: s"].map(|more| Gateway::start(&yaml(&redis, more))).into();
    for gateway in &all {
        until("the store is joined", || gateway.metric("tollgate_store_up", &[]) > 0.5);
        let statuses: Vec<_> = (0..4).map(|_| status(gateway, "customer-7")).collect();
        assert_eq!(statuses, [200, 200, 200, 429]);
    }
    assert_eq!(counters(&redis).len(), 3);
    let keys = keys(&mut redis.client());
    assert!(keys.iter().all(|key| key.starts_with("tollgate:") || key.starts_with("other:")), "{keys:?}");
    assert!(keys.iter().all(|key| !key.contains("customer")), "{keys:?}");
}

#[test]
fn a_restarted_gateway_goes_on_where_it_was() {
    let redis = RedisServer::start();
    let gateway = Gateway::start(&yaml(&redis, ""));
    until("the store is joined", || gateway.metric("tollgate_store_up", &[]) > 0.5);
    assert_eq!((status(&gateway, "k"), status(&gateway, "k")), (200, 200));
    gateway.stop();
    let gateway = Gateway::start(&yaml(&redis, ""));
    until("the store is joined", || gateway.metric("tollgate_store_up", &[]) > 0.5);
    assert_eq!((status(&gateway, "k"), status(&gateway, "k")), (200, 429));
}

/// What the page about many gateways says a gateway needs is enough.
#[test]
fn a_user_with_the_documented_permissions_is_enough() {
    let page = include_str!("../../../docs/distributed.md");
    let row = page.lines().find(|line| line.starts_with("| ACL |")).unwrap();
    let rules =
        row.split(['`', ' ', ',']).filter(|word| word.starts_with(['+', '~'])).map(|word| word.replace("PREFIX", "tollgate"));
    let redis = RedisServer::start();
    let mut user: Vec<String> = ["ACL", "SETUSER", "gate", "reset", "on", ">hunter2"].map(str::to_owned).into();
    user.extend(rules);
    assert_eq!(crate::harness::redis::text(&redis.client().ask(&user)), "OK", "{user:?}");
    let limit = |name: &str, rest: &str| format!("- {{ name: {name}, per: ip, on_failure: closed, {rest} }}\n");
    let limits = [
        limit("gcra", "rate: 100/30d"),
        limit("fixed", "rate: 100/30d, algorithm: fixed_window, consistency: strict, count: { status: 401 }"),
        limit("month", "rate: 100/month, algorithm: fixed_window, align: calendar, timezone: UTC"),
        limit("sliding", "rate: 100/30d, algorithm: sliding_window"),
        limit("log", "rate: 100/30d, algorithm: sliding_log, refund: { status: 200 }"),
        limit("long", "rate: 100/30d, algorithm: sliding_log"),
        limit("slots", "concurrency: 5"),
    ]
    .concat();
    let entered = store(&redis, ", username: gate, password: hunter2");
    let gateway = Gateway::start(&format!("{entered}limits:\n{limits}{ANSWERED}"));
    until("the store is joined", || gateway.metric("tollgate_store_up", &[]) > 0.5);
    assert!(gateway.statuses(60, "/").iter().all(|status| *status == 200), "{}", gateway.log());
    until("its list has the gateway", || redis.command(&["ZCARD", "tollgate:instances"]) == "1");
    gateway.stop();
    assert_eq!(redis.command(&["ACL", "LOG"]), "", "what was refused");
    assert_eq!(redis.command(&["ZCARD", "tollgate:instances"]), "0");
}
