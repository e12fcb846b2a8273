//! `timeout` is the time that a request waits for the store in all, however many questions it has.
//!
//! Times are asserted here because they are the contract: with a budget of a second, what had a second for each question would take several.

use super::{ANSWERED, counters};
use crate::harness::{FaultProxy, Gateway, Network, RedisServer, until};
use std::time::{Duration, Instant};

const BUDGET: Duration = Duration::from_secs(1);

/// Six questions of each request: slots twice, rates of two entities, and two limits that watch.
const SIX: &str = "limits:
- { name: slots-of-all, per: global, concurrency: 9 }
- { name: slots-of-one, per: ip, concurrency: 9 }
- { name: all, per: global, rate: 20/30d, algorithm: fixed_window, consistency: strict }
- { name: one, per: ip, rate: 20/30d, algorithm: fixed_window, consistency: strict }
- { name: watches-all, per: global, rate: 20/30d, algorithm: fixed_window, consistency: strict, mode: shadow }
- { name: watches-one, per: ip, rate: 20/30d, algorithm: fixed_window, consistency: strict, mode: shadow }
";

fn before(proxy: &FaultProxy, limits: &str) -> Gateway {
    let store = format!("store: {{ redis: {{ urls: '{}', timeout: 1s }} }}\n", proxy.url());
    let gateway = Gateway::start(&format!("{store}{limits}{ANSWERED}"));
    until("the store is joined", || gateway.metric("tollgate_store_up", &[]) > 0.5);
    // From now on the server has the scripts.
    assert_eq!(gateway.get("/").status, 200);
    gateway
}

fn decided(gateway: &Gateway, source: &str) -> f64 {
    gateway.metric("tollgate_store_decisions_total", &[("source", source)])
}

/// How long one request takes, which is admitted.
fn time_of_one(gateway: &Gateway) -> Duration {
    let begun = Instant::now();
    assert_eq!(gateway.get("/").status, 200);
    begun.elapsed()
}

#[test]
fn a_store_that_is_silent_is_waited_for_once() {
    let redis = RedisServer::start();
    let proxy = FaultProxy::before(redis.port());
    let gateway = before(&proxy, SIX);
    let (store, fallback) = (decided(&gateway, "store"), decided(&gateway, "fallback"));
    proxy.set(Network::Frozen);
    let time = time_of_one(&gateway);
    assert!(time < 2 * BUDGET - BUDGET / 20, "{time:?}");
    let more = (decided(&gateway, "store") - store, decided(&gateway, "fallback") - fallback);
    assert!((more.0 - 0.0).abs() < 0.5 && (more.1 - 6.0).abs() < 0.5, "all six go by `on_failure`: {more:?}");
    proxy.set(Network::Sound);
}

/// Each of the questions is answered in time, but not all of them together.
#[test]
fn a_store_that_is_slow_has_one_budget_for_all_questions() {
    let redis = RedisServer::start();
    let proxy = FaultProxy::before(redis.port());
    let gateway = before(&proxy, SIX);
    proxy.set(Network::Slow(BUDGET * 3 / 10));
    let time = time_of_one(&gateway);
    assert!(time < 2 * BUDGET - BUDGET / 20, "{time:?}");
    assert!(decided(&gateway, "fallback") > 3.5, "the second slot's, the rates' and the watching limits' answers come too late");
    proxy.set(Network::Sound);
}

/// A request that was decided here after all is counted here once, whatever the store says later.
#[test]
fn an_answer_that_comes_too_late_counts_nothing_twice() {
    let mut redis = RedisServer::start();
    let proxy = FaultProxy::before(redis.port());
    let limits = "limits:
- { name: slots, per: global, concurrency: 9 }
- { name: rate, per: global, rate: 20/30d, algorithm: fixed_window, consistency: strict }
";
    let gateway = before(&proxy, limits);
    proxy.set(Network::Slow(BUDGET * 3 / 10));
    assert!(time_of_one(&gateway) < 2 * BUDGET - BUDGET / 20);
    assert!((decided(&gateway, "fallback") - 1.0).abs() < 0.5, "the rate was decided here");
    proxy.set(Network::Sound);
    until("the store has counted it", || counters(&redis).iter().any(|(_, value)| value.ends_with(":2")));
    // On the same connection, so its answer is behind the late one.
    assert_eq!(gateway.get("/").status, 200);
    until("and a third", || counters(&redis).iter().any(|(_, value)| value.ends_with(":3")));
    redis.kill();
    let statuses = gateway.statuses(30, "/");
    let admitted = statuses.iter().filter(|status| **status == 200).count();
    assert_eq!(admitted, 17, "{statuses:?}");
}
