//! `warmup`: whoever is seen for the first time has more for a while.

use super::{ALGORITHMS, ask, number, remaining, status_origin};
use crate::harness::{Gateway, Origin, Table, together, until};
use std::thread;
use std::time::Duration;

fn limit(algorithm: &str, rest: &str, warmup: &str) -> String {
    format!(
        "trusted_proxies: loopback
limits: [{{ name: plan, per: {{ header: x-key }}, rate: 10/day, algorithm: {algorithm}, {rest}warmup: {{ {warmup} }} }}]"
    )
}

#[test]
fn a_newcomer_has_the_quota_times_the_factor() {
    for algorithm in ALGORITHMS {
        let origin = Origin::ok();
        let gateway = Gateway::before(&origin, &limit(algorithm, "", "for: 360d, factor: 3, forget_after: 365d"));
        for key in ["a", "b"] {
            let first = ask(&gateway, "/", &format!("x-key: {key}\n"));
            let said = (first.status, number(&first, "x-ratelimit-limit"), remaining(&first));
            assert_eq!(said, (200, Some(30), Some(29)), "{algorithm}");
        }
        let statuses = together(40, |_| ask(&gateway, "/", "x-key: a\n").status);
        let admitted = statuses.iter().filter(|status| **status == 200).count();
        // The factor shrinks with every second, so the last cell may be gone already.
        assert!((28..=29).contains(&admitted), "{algorithm}: {admitted} of 29");
        assert_eq!(ask(&gateway, "/", "x-key: a\n").status, 429, "{algorithm}");
    }
}

#[test]
fn the_policy_never_says_less_than_what_is_left() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &limit("gcra", "", "for: 360d, factor: 3, forget_after: 365d"));
    let first = ask(&gateway, "/", "x-key: a\n");
    let (state, policy) = (first.header("ratelimit").unwrap(), first.header("ratelimit-policy").unwrap());
    let field = |text: &str, name: &str| {
        let value = text.split(';').find_map(|part| part.strip_prefix(name)).unwrap();
        value.parse::<u64>().unwrap()
    };
    assert!(field(state, "r=") <= field(policy, "q="), "{state} of {policy}");
}

#[test]
fn the_extra_glides_away_and_comes_back_to_who_is_forgotten() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &limit("gcra", "cost: { header: x-cost }, ", "for: 2s, factor: 5, forget_after: 2s"));
    let quota = || number(&ask(&gateway, "/", "x-key: a\nx-cost: 0\n"), "x-ratelimit-limit").unwrap();
    let visit = |cost: u64| number(&ask(&gateway, "/", &format!("x-key: a\nx-cost: {cost}\n")), "x-ratelimit-limit").unwrap();
    let mut last = visit(1);
    assert_eq!(last, 50);
    until("nothing is left of the extra", || {
        let now = quota();
        assert!(now <= last, "it only shrinks: {last}, then {now}");
        last = now;
        visit(1);
        now == 10
    });
    // To be forgotten takes the time it takes, and the second that it is told in; more never hurts.
    thread::sleep(Duration::from_secs(4));
    assert_eq!(visit(1), 50, "a client that has not been seen for long is new again");
}

#[test]
fn fractions_of_a_factor_are_rounded_down_and_a_factor_of_one_is_nothing() {
    let origin = Origin::ok();
    for (factor, expected) in [("1", 10), ("1.0", 10), ("1.5", 15), ("2.25", 22), ("1000", 10_000)] {
        let gateway = Gateway::before(&origin, &limit("gcra", "", &format!("for: 360d, factor: {factor}, forget_after: 365d")));
        assert_eq!(number(&ask(&gateway, "/", "x-key: a\n"), "x-ratelimit-limit"), Some(expected), "{factor}");
    }
}

#[test]
fn what_a_newcomer_gets_back_is_what_he_paid() {
    let mut table = Table::new("a refund under warm-up");
    for algorithm in ALGORITHMS {
        let origin = status_origin();
        let gateway =
            Gateway::before(&origin, &limit(algorithm, "refund: { status: 5xx }, ", "for: 360d, factor: 4, forget_after: 365d"));
        let seen: Vec<_> = ["/200", "/200", "/200", "/200", "/503", "/503", "/503", "/503"]
            .iter()
            .map(|path| remaining(&ask(&gateway, path, "x-key: a\n")).unwrap())
            .collect();
        table.outcome(algorithm, "[39, 38, 37, 36, 36, 36, 36, 36]", &format!("{seen:?}"));
    }
}

#[test]
fn what_a_newcomer_owes_is_what_the_response_said() {
    let origin = Origin::answering("HTTP/1.1 200 OK\r\nx-cost: 6\r\nContent-Length: 0\r\n\r\n");
    let mut table = Table::new("a cost of the response under warm-up");
    for algorithm in ALGORITHMS {
        let gateway = Gateway::before(
            &origin,
            &limit(algorithm, "cost: { response_header: x-cost, reserve: 1 }, ", "for: 360d, factor: 4, forget_after: 365d"),
        );
        let seen: Vec<_> = (0..4).map(|_| remaining(&ask(&gateway, "/", "x-key: a\n")).unwrap()).collect();
        table.outcome(algorithm, "[34, 28, 22, 16]", &format!("{seen:?}"));
    }
}

#[test]
fn a_newcomer_keeps_his_usage_when_the_rate_changes() {
    let mut table = Table::new("20 of 40, then 11 a day instead of 10");
    for algorithm in ALGORITHMS {
        let origin = Origin::ok();
        let config = limit(algorithm, "", "for: 360d, factor: 4, forget_after: 365d");
        let gateway = Gateway::before(&origin, &config);
        for _ in 0..20 {
            assert_eq!(ask(&gateway, "/", "x-key: a\n").status, 200);
        }
        gateway.reload(&config.replace("10/day", "11/day"));
        let next = ask(&gateway, "/", "x-key: a\n");
        let said = (number(&next, "x-ratelimit-limit"), remaining(&next));
        table.outcome(algorithm, "(Some(44), Some(23))", &format!("{said:?}"));
    }
}

#[test]
fn a_client_is_known_once_whatever_windows_its_limit_has() {
    let origin = Origin::ok();
    let config = limit("gcra", "cost: { header: x-cost }, ", "for: 2s, factor: 3, forget_after: 365d");
    let several = config.replace("10/day", "[10/day, 9/hour, 8/min]");
    let gateway = Gateway::before(&origin, &several);
    assert_eq!(ask(&gateway, "/", "x-key: a\n").status, 200);
    assert_eq!(gateway.metric("tollgate_store_keys", &[("limit", "plan/warmup")]), 1.0, "one client is one entry");
}

#[test]
fn a_window_more_makes_nobody_new() {
    let origin = Origin::ok();
    let config = limit("gcra", "cost: { header: x-cost }, ", "for: 2s, factor: 3, forget_after: 365d");
    let gateway = Gateway::before(&origin, &config);
    let quota = |cost: u8| number(&ask(&gateway, "/", &format!("x-key: a\nx-cost: {cost}\n")), "x-ratelimit-limit").unwrap();
    assert_eq!(quota(1), 30);
    until("nothing is left of the extra", || quota(0) == 10);
    gateway.reload(&config.replace("10/day", "[1000/day, 5/12h]"));
    assert_eq!(quota(1), 5, "the window is new, the client is not");
}

#[test]
fn a_reload_does_not_make_anybody_new() {
    let origin = Origin::ok();
    let long = limit("gcra", "", "for: 2s, factor: 3, forget_after: 365d");
    let gateway = Gateway::before(&origin, &long);
    let quota = |key: &str| number(&ask(&gateway, "/", &format!("x-key: {key}\n")), "x-ratelimit-limit").unwrap();
    assert_eq!(quota("a"), 30);
    until("the extra is gone", || quota("a") == 10);
    gateway.reload(&format!("{long}\ntiers: [free]"));
    assert_eq!((quota("a"), quota("b")), (10, 30));
}
