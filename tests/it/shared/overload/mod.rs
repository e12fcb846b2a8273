//! Several gateways, one limit, far more requests than it allows.

mod clocks;
mod paced;
mod questions;
mod windows;

use super::{ANSWERED, gateways, load, store};
use crate::harness::{Gateway, RedisServer, redis::text, until};
use paced::{Seen, Source, paced};
use questions::Questions;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use windows::{Windows, most_within};

const GATEWAYS: usize = 4;
/// Of an even load.
const EVEN: [f64; GATEWAYS] = [0.25; GATEWAYS];
/// One gateway has four fifths.
const SKEWED: [f64; GATEWAYS] = [12.0 / 15.0, 1.0 / 15.0, 1.0 / 15.0, 1.0 / 15.0];
/// All windows and periods.
const SECOND: u64 = 1_000_000;
/// Requests for each that is allowed.
const OVERLOAD: u64 = 5;
/// A window with fewer requests than these for each that is allowed was no overload: the machine was too busy for it.
const LEAST_OVERLOAD: u64 = 3;
/// Windows under overload that something is said about.
const WINDOWS: usize = 10;

/// A limit of so many a second, on a path of its own.
#[derive(Debug, Clone, Copy)]
struct Limit {
    algorithm: &'static str,
    /// How values in Redis begin.
    kind: char,
    cells: u64,
    burst: u64,
}

/// What became of one limit.
#[derive(Debug)]
struct Outcome {
    what: String,
    limit: Limit,
    admitted: Vec<Seen>,
    windows: Windows,
    /// In which [`LEAST_OVERLOAD`] was offered.
    overloaded: Vec<u64>,
    questions: u64,
    offered: u64,
    /// What would have been offered if the machine hadn't been too busy at times.
    meant: f64,
}

impl Limit {
    const fn new(algorithm: &'static str, kind: char, cells: u64) -> Self {
        Self { algorithm, kind, cells, burst: cells }
    }

    fn yaml(&self, consistency: &str) -> String {
        let Self { algorithm, kind, cells, .. } = self;
        format!(
            "- {{ name: {kind}, per: global, match: {{ path: /{algorithm} }}, rate: {cells}/s, algorithm: {algorithm}, consistency: {consistency} }}\n"
        )
    }
}

/// Every decision is a question, so that few requests are much of a load.
const STRICT: [Limit; 3] =
    [Limit::new("fixed_window", 'f', 100), Limit::new("sliding_window", 'w', 100), Limit::new("gcra", 'g', 100)];
/// A gateway asks for its blocks ten times a second at least, whatever the number of requests: these are enough for that to be few percent.
const LEASE: [Limit; 3] =
    [Limit::new("fixed_window", 'f', 300), Limit::new("sliding_window", 'w', 450), Limit::new("gcra", 'g', 350)];

fn under(consistency: &str, limits: [Limit; 3], shares: [f64; GATEWAYS]) -> Vec<Outcome> {
    let redis = RedisServer::start();
    let yaml: String = limits.iter().map(|limit| limit.yaml(consistency)).collect();
    let gateways = gateways(GATEWAYS, &format!("{}limits:\n{yaml}{ANSWERED}", store(&redis, "")));
    overload(&redis, &gateways, &limits, &shares, WINDOWS)
}

/// Runs an overload of all limits at once until each had so many windows of it.
fn overload(redis: &RedisServer, gateways: &[Gateway], limits: &[Limit], shares: &[f64], enough: usize) -> Vec<Outcome> {
    // The windows that it begins and ends in don't count.
    let time = Duration::from_secs(enough as u64 + 2);
    let source = |limit: &Limit, (gateway, share): (&Gateway, &f64)| Source {
        gateway: gateway.addr(),
        path: format!("/{}", limit.algorithm),
        per_second: (limit.cells * OVERLOAD) as f64 * share,
    };
    let sources: Vec<_> =
        limits.iter().flat_map(|limit| gateways.iter().zip(shares).map(move |place| source(limit, place))).collect();
    let questions = Questions::count(redis);
    let mut requests = vec![Vec::new(); limits.len()];
    let mut overloaded = vec![Vec::new(); limits.len()];
    let mut boundaries = BTreeMap::new();
    let mut lasted = Duration::ZERO;
    // A machine that is too busy for an overload may be less so later.
    for _ in 0..3 {
        lasted += time;
        let seen = thread::scope(|scope| {
            let loads = scope.spawn(|| paced(&sources, time));
            until("all counters are read", || {
                boundaries = counters(redis);
                boundaries.len() == limits.len()
            });
            loads.join().unwrap()
        });
        for (i, seen) in seen.chunks(gateways.len()).enumerate() {
            let seen = seen.concat();
            overloaded[i].extend(windows(&boundaries, limits[i]).overloaded(&seen, limits[i].cells * LEAST_OVERLOAD));
            requests[i].extend(seen);
        }
        if overloaded.iter().all(|windows| windows.len() >= enough) {
            break;
        }
    }
    answered_all_the_time(gateways);
    let questions = questions.end(redis);
    let outcomes = limits.iter().zip(requests).zip(overloaded).map(|((limit, requests), overloaded)| {
        let what = format!("{}, {shares:?}", limit.algorithm);
        assert!(overloaded.len() >= enough, "{what}: this machine is too busy: an overload in {overloaded:?} only");
        let odd: Vec<_> = requests.iter().filter(|seen| ![200, 429].contains(&seen.status)).collect();
        assert!(odd.is_empty(), "{what}: {odd:?}");
        let offered = u64::try_from(requests.len()).unwrap();
        let meant = (limit.cells * OVERLOAD) as f64 * lasted.as_secs_f64();
        let admitted = requests.into_iter().filter(|seen| seen.status == 200).collect();
        let questions = questions[&boundaries[&limit.kind].key];
        Outcome { what, limit: *limit, admitted, windows: windows(&boundaries, *limit), overloaded, questions, offered, meant }
    });
    outcomes.collect()
}

fn answered_all_the_time(gateways: &[Gateway]) {
    for gateway in gateways {
        let failed = gateway.metric("tollgate_store_decisions_total", &[("source", "fallback")]);
        assert!(failed < 0.5, "the store must have answered all the time for this test to say something");
    }
}

/// A counter, and where one of its windows ends, in µs since 1970.
#[derive(Debug)]
struct Counter {
    key: String,
    ends: u64,
}

/// All counters by kind. They expire a second after what they say ends, which is one window later if that still weighs in the next.
fn counters(redis: &RedisServer) -> BTreeMap<char, Counter> {
    let mut client = redis.client();
    let counters = super::counters(redis).into_iter().filter_map(|(key, value)| {
        let mut expires = || text(&client.ask(&["PEXPIRETIME", &key])).parse::<u64>().ok().map(|at| at * 1000);
        // The same twice in a row, with a value between that was not written in that very moment.
        let (before, after) = (expires()?, expires()?);
        (before == after).then(|| (value.chars().next().unwrap(), Counter { key, ends: after }))
    });
    counters.collect()
}

fn windows(counters: &BTreeMap<char, Counter>, limit: Limit) -> Windows {
    Windows { origin: counters[&limit.kind].ends, length: SECOND }
}

impl Outcome {
    /// Never more than the limit.
    fn admits_no_more(&self) {
        let Self { what, limit: Limit { algorithm, cells, burst, .. }, admitted, windows, .. } = self;
        match *algorithm {
            "gcra" => {
                for periods in [1, 3, 10] {
                    let most = most_within(admitted, periods * SECOND);
                    assert!(most <= burst + cells * periods, "{what}: {most} within {periods} s");
                }
            }
            _ => assert_eq!(windows.exceeded(admitted, *cells), None, "{what}: the window that has too many of {windows:?}"),
        }
        if *algorithm == "sliding_window" {
            assert_eq!(windows.outweighed(admitted, *cells), None, "{what}: a window, when in it, and how many weighed by then");
        }
    }

    /// Under overload nearly all of it.
    fn admits_nearly_all(&self) {
        let Self { what, limit: Limit { algorithm, cells, .. }, admitted, windows, overloaded, .. } = self;
        let each: Vec<_> = overloaded.iter().map(|window| windows.most_in(admitted, *window)).collect();
        let all = windows.most_in_all(admitted, overloaded);
        let least = cells * overloaded.len() as u64 * 97 / 100;
        assert!(all >= least, "{what}: {all} of at least {least}: {each:?}");
        // What gathers at the end of a sliding window or a period comes to the next one's good; a fixed window has everything at its beginning.
        if *algorithm == "fixed_window" {
            assert!(each.iter().all(|admitted| admitted * 100 >= cells * 97), "{what}: {each:?}");
        }
    }
}

fn hold(outcomes: &[Outcome]) {
    for outcome in outcomes {
        outcome.admits_no_more();
        outcome.admits_nearly_all();
    }
}

/// Of the load on leases half a dozen thousand requests a second: not two of them at once.
static HEAVY: Mutex<()> = Mutex::new(());

fn strict_and_leased(shares: [f64; GATEWAYS], first: &str) {
    let strict = || under("strict", STRICT, shares);
    let leased = || {
        let _alone = HEAVY.lock().unwrap_or_else(PoisonError::into_inner);
        under("lease", LEASE, shares)
    };
    let (strict, leased) = if first == "strict" {
        let strict = strict();
        (strict, leased())
    } else {
        let leased = leased();
        (strict(), leased)
    };
    hold(&strict);
    hold(&leased);
    for (strict, leased) in strict.iter().zip(&leased) {
        // What is leased is asked for by time, so a machine that was too busy for some requests had time for the questions all the same.
        let (of_strict, of_leased) = (strict.questions as f64 / strict.offered as f64, leased.questions as f64 / leased.meant);
        eprintln!("{}: {of_leased:.3} questions per request; {of_strict:.3} if strict", leased.what);
        assert!(of_strict <= 1.0, "{}: {of_strict:.3} questions per request", strict.what);
        // Refusals are remembered with strict as well, and of a fixed window nothing else is asked once it is used up.
        let most = if leased.limit.algorithm == "fixed_window" { of_strict / 4.0 } else { of_strict / 10.0 };
        assert!(of_leased <= most.min(0.05), "{}: {of_leased:.3} questions per request; {of_strict:.3} if strict", leased.what);
    }
}

#[test]
fn an_even_load_is_admitted_the_limit_and_no_more() {
    strict_and_leased(EVEN, "strict");
}

#[test]
fn a_load_on_one_gateway_is_admitted_the_limit_and_no_more() {
    strict_and_leased(SKEWED, "lease");
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

/// What the dead one had leased is gone with the window it was from.
#[test]
fn in_the_windows_after_a_gateway_was_killed_the_others_admit_all() {
    let redis = RedisServer::start();
    let limits = LEASE.map(|limit| Limit::new(limit.algorithm, limit.kind, 100));
    let yaml: String = limits.iter().map(|limit| limit.yaml("lease")).collect();
    let mut gateways = gateways(GATEWAYS, &format!("{}limits:\n{yaml}{ANSWERED}", store(&redis, "")));
    let dead = gateways.remove(0);
    until("it has leased something", || {
        for limit in limits {
            load(std::slice::from_ref(&dead), &[2], &format!("/{}", limit.algorithm), Duration::from_millis(20));
        }
        dead.metric("tollgate_store_leased_cells", &[]) > 0.5
    });
    dead.signal("KILL");
    hold(&overload(&redis, &gateways, &limits, &[1.0 / 3.0; 3], 6));
}
