//! Several gateways, one limit, far more requests than it allows.

use super::{ANSWERED, Load, calls, gateways, load, store};
use crate::harness::{RedisServer, until};
use std::thread;
use std::time::Duration;

const GATEWAYS: usize = 4;
const CELLS: u64 = 80;
const WINDOW: Duration = Duration::from_secs(1);
const WINDOWS: u32 = 7;

/// A limit for each algorithm, on a path of its own: at least 20 cells for each gateway, so that they may be leased.
fn limits(consistency: &str) -> String {
    let limit = |name: &str, algorithm: &str| {
        format!(
            "- {{ name: {name}, per: global, match: {{ path: /{name} }}, rate: {CELLS}/s, algorithm: {algorithm}, consistency: {consistency} }}\n"
        )
    };
    format!("limits:\n{}{}{}", limit("fixed", "fixed_window"), limit("sliding", "sliding_window"), limit("gcra", "gcra"))
}

fn under(consistency: &str, connections: &'static [usize]) -> Vec<(&'static str, Load)> {
    let redis = RedisServer::start();
    let gateways = gateways(GATEWAYS, &format!("{}{}{ANSWERED}", store(&redis, ""), limits(consistency)));
    let loads = thread::scope(|scope| {
        let gateways = &gateways;
        let paths = ["fixed", "sliding", "gcra"];
        let loads =
            paths.map(|name| (name, scope.spawn(move || load(gateways, connections, &format!("/{name}"), WINDOW * WINDOWS))));
        loads.into_iter().map(|(name, load)| (name, load.join().unwrap())).collect()
    });
    let failed: f64 =
        gateways.iter().map(|gateway| gateway.metric("tollgate_store_decisions_total", &[("source", "fallback")])).sum();
    assert!(failed < 0.5, "the store must have answered all the time for this test to say something");
    loads
}

#[track_caller]
fn holds(loads: &[(&str, Load)], slack: u64) {
    for (name, load) in loads {
        let lasted = load.lasted.as_micros();
        let passed = u64::try_from(lasted / WINDOW.as_micros()).unwrap();
        // The window that the load began in, those that passed, and the one it ended in; a bucket has its burst and what came in.
        let most = match *name {
            "gcra" => CELLS + u64::try_from(lasted * u128::from(CELLS) / WINDOW.as_micros()).unwrap() + 1 + slack,
            _ => CELLS * (passed + 2),
        };
        let least = (CELLS * (passed - 1) * 97 / 100).min(load.offered() / 2);
        assert!(load.others.is_empty(), "{name}: {load:?}");
        assert!((least..=most).contains(&load.admitted), "{name}: not {least} to {most}: {load:?}");
        assert!(load.refused > 0, "{name}: no overload: {load:?}");
    }
}

#[test]
fn strict_admits_the_limit_and_no_more() {
    holds(&under("strict", &[1; GATEWAYS]), 0);
}

#[test]
fn strict_admits_the_limit_and_no_more_when_one_gateway_has_most_of_the_load() {
    holds(&under("strict", &[8, 1, 1, 1]), 0);
}

#[test]
fn leases_admit_the_limit_and_no_more() {
    holds(&under("lease", &[1; GATEWAYS]), CELLS / 2);
}

#[test]
fn leases_admit_the_limit_and_no_more_when_one_gateway_has_most_of_the_load() {
    holds(&under("lease", &[8, 1, 1, 1]), CELLS / 2);
}

/// In one window that outlasts the test nothing blurs the number.
#[test]
fn of_a_long_window_all_cells_are_admitted_and_not_one_more() {
    for consistency in ["strict", "lease"] {
        let redis = RedisServer::start();
        let limits = format!(
            "limits: [{{ name: day, per: global, rate: 400/30d, algorithm: fixed_window, consistency: {consistency} }}]\n"
        );
        let gateways = gateways(GATEWAYS, &format!("{}{limits}{ANSWERED}", store(&redis, "")));
        let mut admitted = 0;
        // Leases that lie idle go back, so that in the end all are spent.
        until("all cells are admitted", || {
            let load = load(&gateways, &[2, 1, 1, 1], "/", Duration::from_millis(300));
            assert!(load.others.is_empty(), "{consistency}: {load:?}");
            admitted += load.admitted;
            admitted >= 400
        });
        admitted += load(&gateways, &[1; GATEWAYS], "/", Duration::from_millis(1500)).admitted;
        assert_eq!(admitted, 400, "{consistency}");
    }
}

#[test]
fn leases_ask_the_store_for_a_few_percent_of_the_requests() {
    let asked = |consistency: &str| {
        let redis = RedisServer::start();
        let limits = format!(
            "limits: [{{ name: all, per: global, rate: 1000000/10s, algorithm: fixed_window, consistency: {consistency} }}]\n"
        );
        let gateways = gateways(2, &format!("{}{limits}{ANSWERED}", store(&redis, "")));
        let before = calls(&redis, "evalsha");
        let load = load(&gateways, &[3, 3], "/", Duration::from_secs(3));
        assert!(load.others.is_empty() && load.refused == 0, "{load:?}");
        (load.admitted, calls(&redis, "evalsha") - before, load.lasted)
    };
    let (requests, strict, _) = asked("strict");
    assert!(strict >= requests, "{strict} calls for {requests} requests");
    let (requests, leased, lasted) = asked("lease");
    // A block lasts 100 ms and is refilled when half is gone: 20 questions a second of each gateway, whatever the number of requests; a slow
    // machine makes few of them.
    let bound = (requests / 20).max(u64::try_from(lasted.as_millis()).unwrap() * 2 * 25 / 1000);
    assert!(leased <= bound, "{leased} calls for {requests} requests; {strict} with strict");
}

#[test]
fn a_killed_gateway_strands_one_block_at_most() {
    let redis = RedisServer::start();
    let limits = "limits: [{ name: day, per: global, rate: 400/30d, algorithm: fixed_window }]\n";
    let mut gateways = gateways(2, &format!("{}{limits}{ANSWERED}", store(&redis, "")));
    let before = load(&gateways, &[1, 0], "/", Duration::from_millis(100)).admitted;
    let dead = gateways.remove(0);
    dead.signal("KILL");
    let mut admitted = before;
    until("the other gateway has had the rest", || {
        let load = load(&gateways, &[1], "/", Duration::from_millis(300));
        admitted += load.admitted;
        load.admitted == 0
    });
    // A block is at most a quarter of what is left, for two gateways; two are there while the next one comes.
    assert!((400 - 200..=400).contains(&admitted), "{admitted} admitted, {before} of them by the gateway that was killed");
}
