//! Reloads: what was used stays used, in cells, whatever changes about the limit but its name.

use super::{ALGORITHMS, ask, number, remaining};
use crate::harness::{Gateway, Origin, Table};

/// A limit for every pair of algorithms, for a path that names both; `rate` and the algorithm that a pair has now are given.
fn pairs(rate: &str, algorithm: impl Fn(&'static str, &'static str) -> &'static str) -> String {
    let mut limits = String::from("limits:\n");
    for (from, to) in ALGORITHMS.iter().flat_map(|from| ALGORITHMS.map(|to| (*from, to))) {
        let name = format!("{from}-{to}").replace('_', "-");
        let now = algorithm(from, to);
        limits += &format!("- {{ name: {name}, match: {{ path: /{from}-{to} }}, per: ip, rate: {rate}, algorithm: {now} }}\n");
    }
    limits
}

#[test]
fn another_algorithm_and_another_rate_keep_what_was_used() {
    for (rate, left) in [("10/day", Some(6)), ("5/day", Some(1)), ("10/hour", Some(6)), ("3/day", None), ("2/day", None)] {
        let origin = Origin::ok();
        let gateway = Gateway::before(&origin, &pairs("5/day", |from, _| from));
        let paths = || ALGORITHMS.iter().flat_map(|from| ALGORITHMS.map(|to| format!("/{from}-{to}")));
        for path in paths() {
            assert_eq!(gateway.statuses(3, &path), [200; 3], "{path}");
        }
        gateway.reload(&pairs(rate, |_, to| to));
        let mut table = Table::new("3 of 5 a day, then another limit");
        for path in paths() {
            let response = gateway.get(&path);
            let seen = format!("{} {:?}", response.status, remaining(&response));
            let expected = left.map_or_else(|| "429 Some(0)".to_owned(), |left| format!("200 {:?}", Some(left)));
            table.outcome(&format!("{path}, {rate}"), &expected, &seen);
        }
    }
}

const PLAN: &str = "limits: [{ name: plan, per: ip, rate: 9/day }]";

#[test]
fn whatever_else_changes_of_a_limit_its_counters_stay() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, PLAN);
    assert_eq!(remaining(&gateway.get("/")), Some(8));
    let with = |rest: &str| PLAN.replace("9/day", &format!("9/day, {rest}"));
    let mut left = 8;
    for rest in [
        "mode: shadow",
        "cost: 1",
        "match: { methods: GET }",
        "unless: { path: /free }",
        "count: { status: 2xx }",
        "refund: { status: 5xx }",
        "over: { delay: { max: 10s } }",
        "max_keys: 50",
        "missing: shared",
    ] {
        gateway.reload(&with(rest));
        left -= 1;
        let response = gateway.get("/");
        // A shadow counts and says nothing; the next one says it.
        let expected = if rest == "mode: shadow" { None } else { Some(left) };
        assert_eq!((response.status, remaining(&response)), (200, expected), "{rest}");
        if rest == "cost: 1" {
            assert_eq!(number(&response, "x-ratelimit-limit"), Some(9));
        }
        if left == 0 {
            break;
        }
    }
}

#[test]
fn off_and_on_again_goes_on_where_it_was_and_what_came_meanwhile_is_free() {
    for algorithm in ALGORITHMS {
        let origin = Origin::ok();
        let on = PLAN.replace("9/day", &format!("9/day, algorithm: {algorithm}"));
        let gateway = Gateway::before(&origin, &on);
        assert_eq!(gateway.statuses(4, "/"), [200; 4]);
        gateway.reload(&on.replace("per: ip", "per: ip, mode: off"));
        for _ in 0..3 {
            assert_eq!(remaining(&gateway.get("/")), None, "{algorithm}: it is off");
        }
        gateway.reload(&on);
        assert_eq!(remaining(&gateway.get("/")), Some(4), "{algorithm}");
    }
}

#[test]
fn another_name_starts_afresh_and_so_does_the_first_when_it_comes_back() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, PLAN);
    assert_eq!(remaining(&gateway.get("/")), Some(8));
    gateway.reload(&PLAN.replace("name: plan", "name: other"));
    assert_eq!(remaining(&gateway.get("/")), Some(8));
    assert_eq!(gateway.metric("tollgate_store_keys", &[("limit", "plan")]), 0.0);
    gateway.reload(PLAN);
    assert_eq!(remaining(&gateway.get("/")), Some(8), "what nobody names is forgotten");
}

#[test]
fn a_window_more_or_less_keeps_the_longest() {
    let origin = Origin::ok();
    for algorithm in ALGORITHMS {
        let rate = |rate: &str| PLAN.replace("9/day", &format!("{rate}, algorithm: {algorithm}"));
        let gateway = Gateway::before(&origin, &rate("9/day"));
        assert_eq!(gateway.statuses(4, "/"), [200; 4]);
        gateway.reload(&rate("[100/min, 9/day]"));
        assert_eq!(remaining(&gateway.get("/")), Some(4), "{algorithm}: the day is still the tightest");
        gateway.reload(&rate("9/day"));
        assert_eq!(remaining(&gateway.get("/")), Some(3), "{algorithm}");
    }
}

#[test]
fn per_client_counters_stay_apart_over_reloads() {
    let origin = Origin::ok();
    let limit = |rate: &str| format!("limits: [{{ name: plan, per: {{ header: x-key }}, rate: {rate} }}]");
    let gateway = Gateway::before(&origin, &limit("9/day"));
    for used in 1..=5 {
        for _ in 0..used {
            assert_eq!(ask(&gateway, "/", &format!("x-key: {used}\n")).status, 200);
        }
    }
    gateway.reload(&limit("20/hour, algorithm: sliding_window"));
    for used in 1..=5 {
        assert_eq!(remaining(&ask(&gateway, "/", &format!("x-key: {used}\n"))), Some(19 - used));
    }
}
