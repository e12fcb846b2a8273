//! A request that one limit refuses is charged to none, wherever they are kept.

use super::{ANSWERED, calls, counters, store};
use crate::harness::{Gateway, RedisServer, until};

#[test]
fn refused_by_one_limit_the_counters_of_others_are_as_before() {
    for consistency in ["strict", "lease"] {
        let redis = RedisServer::start();
        let limits = "limits:
- { name: few, per: ip, rate: 3/30d, algorithm: fixed_window }
- { name: all, per: global, rate: 1000/30d, algorithm: fixed_window }
- { name: agent, per: { header: x-agent }, rate: 500/30d, algorithm: fixed_window, missing: shared }
- { name: here, per: global, rate: 100/30d, algorithm: fixed_window, consistency: local }
";
        let gateway = Gateway::start(&format!("{}{limits}{ANSWERED}", store(&redis, &format!(", consistency: {consistency}"))));
        until("the store is joined", || gateway.metric("tollgate_store_up", &[]) > 0.5);
        assert_eq!(gateway.statuses(3, "/"), [200, 200, 200]);
        let used = |value: &str| value.rsplit(':').next().unwrap().parse::<u64>().unwrap();
        let charged = || counters(&redis).iter().all(|(_, value)| used(value) == 3);
        until("leases have gone back", charged);
        let before = counters(&redis);
        assert_eq!(before.len(), 3, "{before:?}");
        assert!(gateway.statuses(20, "/").iter().all(|status| *status == 429));
        until("what was taken has come back", || counters(&redis) == before);
        // The first refusal is the store's, the others are remembered.
        assert_eq!(gateway.metric("tollgate_store_decisions_total", &[("source", "fallback")]) as u64, 0);
    }
}

#[test]
fn a_refusal_within_one_entity_writes_nothing() {
    let redis = RedisServer::start();
    let limits = "limits:
- { name: few, per: ip, rate: 3/30d, algorithm: fixed_window, consistency: strict }
- { name: many, per: ip, rate: 1000/30d, algorithm: fixed_window, consistency: strict }
";
    let one = format!("{}{limits}{ANSWERED}", store(&redis, ""));
    let (first, second) = (Gateway::start(&one), Gateway::start(&one));
    until("the store is joined", || [&first, &second].iter().all(|gateway| gateway.metric("tollgate_store_up", &[]) > 0.5));
    assert_eq!(first.statuses(3, "/"), [200, 200, 200]);
    let (before, written) = (counters(&redis), calls(&redis, "set"));
    assert_eq!(before.len(), 2, "{before:?}");
    let (slot, of) =
        (|key: &str| key[key.find('{').unwrap()..key.find('}').unwrap()].to_owned(), |i: usize| before[i].0.as_str());
    assert_eq!(slot(of(0)), slot(of(1)), "limits that count by the same are kept in the same slot");
    // The second gateway has nothing to remember, so its first refusal is the store's.
    assert!(second.statuses(5, "/").iter().all(|status| *status == 429));
    assert_eq!((counters(&redis), calls(&redis, "set")), (before, written));
}
