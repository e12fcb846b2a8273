//! The store's room: how it is shared out, what it says of itself, and what happens when it is full.

use super::{ALGORITHMS, ask, remaining};
use crate::harness::{Gateway, Origin, Table};

fn of_limit(gateway: &Gateway, name: &str, limit: &str) -> u64 {
    gateway.metric(&format!("tollgate_store_{name}"), &[("limit", limit)]) as u64
}

#[test]
fn every_limit_says_how_many_counters_it_has() {
    let origin = Origin::ok();
    let config = "limits:
- { name: keyed, per: { header: x-key }, rate: 9/day }
- { name: twice, per: { header: x-key }, rate: [9/day, 5/hour] }
- { name: everybody, per: global, rate: 900/day }
- { name: elsewhere, match: { path: /else }, per: ip, rate: 9/day }
- { name: newcomers, per: { header: x-key }, rate: 99/day, warmup: { for: 1h, factor: 2 } }
- { name: logs, per: { header: x-key }, rate: 20/day, algorithm: sliding_log }";
    let gateway = Gateway::before(&origin, config);
    let keys = || {
        let limits = ["keyed", "twice", "everybody", "elsewhere", "newcomers", "newcomers/warmup", "logs"];
        limits.map(|limit| of_limit(&gateway, "keys", limit))
    };
    assert_eq!(keys(), [0; 7]);
    for key in 0..7 {
        for _ in 0..2 {
            assert_eq!(ask(&gateway, "/", &format!("x-key: {key}\n")).status, 200);
        }
    }
    assert_eq!(keys(), [7, 14, 1, 0, 7, 7, 7]);
    gateway.reload(&config.replace("name: keyed", "name: renamed"));
    assert_eq!(of_limit(&gateway, "keys", "keyed"), 0);
    assert_eq!(of_limit(&gateway, "keys", "twice"), 14, "the others stay");
}

#[test]
fn room_is_shared_by_windows_and_max_keys_comes_first() {
    let origin = Origin::ok();
    let config = "store: { memory: { max_keys: 100000 } }
limits:
- { name: one, per: ip, rate: 9/day }
- { name: three, per: ip, rate: [9/day, 8/hour, 7/min] }
- { name: fixed, per: ip, rate: 9/day, max_keys: 20000 }
- { name: everybody, per: global, rate: 9/day }
- { name: slots, per: ip, concurrency: 9 }";
    let gateway = Gateway::before(&origin, config);
    // Whole sets of eight in every part of a limit's room: a little more than was asked for.
    for (limit, share) in [("one", 20_000), ("three", 60_000), ("fixed", 20_000), ("everybody", 1)] {
        let room = of_limit(&gateway, "max_keys", limit);
        assert!((share..=share + share / 20 + 8).contains(&room), "{limit}: {room}, not {share}");
    }
    assert!(!gateway.metrics().contains("tollgate_store_max_keys{limit=\"slots\"}"), "slots are counted elsewhere");
    gateway.reload(&config.replace("max_keys: 20000", "max_keys: 60000"));
    let rooms = ["one", "three", "fixed"].map(|limit| of_limit(&gateway, "max_keys", limit) / 5000);
    assert_eq!(rooms, [2, 6, 12], "a reload shares it out anew");
}

/// Counters at most, as the limit says.
const TINY: &str = "max_keys: 16";

#[test]
fn idle_counters_make_room_for_newcomers() {
    let origin = Origin::ok();
    let limit = format!("limits: [{{ name: plan, per: {{ header: x-key }}, rate: 1000/s burst 1, {TINY} }}]");
    let gateway = Gateway::before(&origin, &limit);
    for key in 0..200 {
        assert_eq!(ask(&gateway, "/", &format!("x-key: {key}\n")).status, 200);
    }
    let evicted = |was| gateway.metric("tollgate_store_evictions_total", &[("limit", "plan"), ("was", was)]);
    assert!(evicted("idle") >= 100.0 && evicted("live") == 0.0, "{} idle and {} live", evicted("idle"), evicted("live"));
    assert!(of_limit(&gateway, "keys", "plan") <= of_limit(&gateway, "max_keys", "plan"));
}

#[test]
fn a_blocked_client_stays_refused_while_many_other_keys_pass_through() {
    let mut table = Table::new("a flood of keys");
    for algorithm in ALGORITHMS {
        let origin = Origin::ok();
        let config = format!(
            "limits:
- {{ name: plan, per: {{ header: x-key }}, rate: 5/day, algorithm: {algorithm}, {TINY} }}
- {{ name: other, match: {{ path: /other }}, per: ip, rate: 9/day }}"
        );
        let gateway = Gateway::before(&origin, &config);
        assert_eq!(remaining(&ask(&gateway, "/other", "x-key: blocked\n")), Some(4));
        for _ in 0..4 {
            assert_eq!(ask(&gateway, "/", "x-key: blocked\n").status, 200);
        }
        let refused = |key: usize| {
            let _answered = ask(&gateway, "/", &format!("x-key: {key}\n"));
            !key.is_multiple_of(10) || ask(&gateway, "/", "x-key: blocked\n").status == 429
        };
        let escaped = (0..400).find(|key| !refused(*key));
        table.row(algorithm, escaped.map_or(String::new(), |key| format!("unblocked after {key} other keys")));
        let evicted = gateway.metric("tollgate_store_evictions_total", &[("limit", "plan"), ("was", "live")]);
        let inherited = gateway.metric("tollgate_store_inherited_debt_ratio_count", &[("limit", "plan")]);
        let holds = evicted > 0.0 && evicted == inherited;
        table.row(algorithm, if holds { String::new() } else { format!("{evicted} evicted, {inherited} inherited") });
        let (keys, most) = (of_limit(&gateway, "keys", "plan"), of_limit(&gateway, "max_keys", "plan"));
        table.row(algorithm, if keys <= most && most <= 24 { String::new() } else { format!("{keys} of {most} keys") });
        let other = ask(&gateway, "/other", "x-key: new\n");
        let of_other = gateway.metric("tollgate_store_evictions_total", &[("limit", "other")]);
        table.row(algorithm, if of_other == 0.0 { "" } else { "another limit's counters were evicted" });
        assert!([200, 429].contains(&other.status), "{other:?}");
    }
}

#[test]
fn a_flood_in_one_limit_leaves_another_alone() {
    let origin = Origin::ok();
    let config = format!(
        "limits:
- {{ name: flooded, match: {{ path: /flood }}, per: {{ header: x-key }}, rate: 5/day, {TINY} }}
- {{ name: quiet, match: {{ path: /quiet }}, per: {{ header: x-key }}, rate: 50/day, {TINY} }}"
    );
    let gateway = Gateway::before(&origin, &config);
    for _ in 0..10 {
        assert_eq!(ask(&gateway, "/quiet", "x-key: me\n").status, 200);
    }
    for key in 0..300 {
        let _answered = ask(&gateway, "/flood", &format!("x-key: {key}\n"));
    }
    assert_eq!(remaining(&ask(&gateway, "/quiet", "x-key: me\n")), Some(39));
    assert_eq!(remaining(&ask(&gateway, "/quiet", "x-key: new\n")), Some(49));
}

#[test]
fn a_limit_of_many_windows_keeps_them_apart_when_its_room_is_full() {
    let mut table = Table::new("windows in a full room");
    for algorithm in ALGORITHMS {
        let origin = Origin::ok();
        let rate = "[4/day, 50/12h, 51/11h, 52/10h, 53/9h, 54/8h]";
        let limit = format!("{{ name: plan, per: {{ header: x-key }}, rate: {rate}, algorithm: {algorithm}, {TINY} }}");
        let gateway = Gateway::before(&origin, &format!("limits: [{limit}]"));
        let blocked: Vec<u16> = (0..5).map(|_| ask(&gateway, "/", "x-key: blocked\n").status).collect();
        assert_eq!(blocked, [200, 200, 200, 200, 429]);
        let refused = |key: usize| {
            let _answered = ask(&gateway, "/", &format!("x-key: {key}\n"));
            !key.is_multiple_of(5) || ask(&gateway, "/", "x-key: blocked\n").status == 429
        };
        let escaped = (0..200).find(|key| !refused(*key));
        table.row(algorithm, escaped.map_or(String::new(), |key| format!("unblocked after {key} other keys")));
    }
}
