//! The worst case of every algorithm in any window of length `P`: what somebody who tries gets, which is the documented number and never more.
//!
//! A window includes its beginning. It includes its end too for those that admit one cell an interval, since the bound `B + L` counts
//! both ends; for those whose cells end after exactly `P`, a window of length `P` is as long as a cell counts.

use std::time::Duration;

use crate::chance::Random;
use crate::subject::Counter;
use tollgate::clock::{Nanos, SECOND};
use tollgate::limit::Algorithm::{self, FixedWindow, Gcra, LeakyBucket, SlidingLog, SlidingWindow, TokenBucket};
use tollgate::limit::{Quota, Verdict};

/// Whether the moment a period after the first belongs to the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    In,
    Out,
}

/// An algorithm, its rate (cells, seconds, burst), whether it waits, and what somebody who tries gets in the worst window.
type Row = (Algorithm, (u64, u64, Option<u64>), Option<Duration>, End, u64);

/// The table of `limits.md`: `2L`, just under `2L`, `L`, `B + L` and `1 + L`.
const TABLE: [Row; 14] = [
    (FixedWindow, (100, 60, None), None, End::Out, 200),
    (FixedWindow, (7, 1, None), None, End::Out, 14),
    (SlidingWindow, (100, 60, None), None, End::Out, 199),
    (SlidingWindow, (7, 1, None), None, End::Out, 13),
    (SlidingLog, (100, 60, None), None, End::Out, 100),
    (SlidingLog, (7, 1, None), None, End::Out, 7),
    (Gcra, (100, 60, None), None, End::In, 200),
    (Gcra, (100, 60, Some(10)), None, End::In, 110),
    (TokenBucket, (3, 6, Some(10)), None, End::In, 13),
    (LeakyBucket, (100, 60, Some(1)), None, End::In, 101),
    (Gcra, (10, 10, Some(5)), Some(Duration::from_secs(7)), End::In, 15),
    (LeakyBucket, (100, 60, None), Some(Duration::from_secs(10)), End::In, 101),
    (LeakyBucket, (10, 1, None), Some(Duration::from_secs(1)), End::In, 11),
    (Gcra, (7, 1, Some(10)), None, End::In, 17),
];

#[test]
fn whoever_tries_gets_the_documented_number() {
    for row in TABLE {
        let (quota, end, expected) = (quota(&row), row.3, row.4);
        let best = strategies(&quota).into_iter().map(|tries| worst(&departures(quota, &tries), &quota, end)).max();
        assert_eq!(best, Some(expected), "{row:?}");
    }
}

#[test]
fn nobody_gets_more() {
    for (row, seed) in TABLE.iter().zip(1..) {
        let (quota, end) = (quota(row), row.3);
        let bound = bound(&quota);
        let mut random = Random::new(seed);
        for attempt in 0..ATTEMPTS {
            let tries = search(&mut random, &quota);
            let worst = worst(&departures(quota, &tries), &quota, end);
            assert!(worst <= bound, "seed {seed}, attempt {attempt}: {worst} of {bound}, {row:?}");
        }
    }
}

#[test]
fn the_double_of_a_fixed_window_comes_in_an_instant_and_that_of_a_sliding_one_never() {
    let minute = 60 * SECOND;
    for (algorithm, expected) in [(FixedWindow, 200), (SlidingWindow, 100)] {
        let quota = Quota::new(100, Duration::from_secs(60), None, algorithm).unwrap();
        let tries = [(minute - 1, 100), (minute, 100), (minute, 1)];
        let admitted: u64 = departures(quota, &tries).into_iter().map(|(_, cells)| cells).sum();
        assert_eq!(admitted, expected, "{algorithm:?}");
    }
}

/// The most that the documentation allows in a window.
pub(crate) fn bound(quota: &Quota) -> u64 {
    let (limit, burst) = (quota.count(), quota.burst());
    match quota.algorithm() {
        FixedWindow => 2 * limit,
        SlidingWindow => 2 * limit - 1,
        SlidingLog => limit,
        LeakyBucket if quota.max_delay() > 0 => 1 + limit,
        _ => burst + limit,
    }
}

/// When cells leave that were asked for in this order: at once, or after the wait that they were told.
pub(crate) fn departures(quota: Quota, tries: &[(Nanos, u64)]) -> Vec<(Nanos, u64)> {
    let mut counter = Counter::new(quota, 0);
    let mut departures = Vec::new();
    for (now, cost) in tries {
        let told = counter.charge(*now, *cost);
        if told.verdict.conforms() && *cost > 0 {
            departures.push((now + told.delay, *cost));
        }
    }
    departures
}

/// The most cells in any window of a period.
pub(crate) fn worst(departures: &[(Nanos, u64)], quota: &Quota, end: End) -> u64 {
    let mut worst = 0;
    for (at, (first, _)) in departures.iter().enumerate() {
        let is_within = |then: Nanos| then - first < quota.period() || (end == End::In && then - first == quota.period());
        let within = departures[at..].iter().take_while(|(then, _)| is_within(*then));
        worst = worst.max(within.map(|(_, cells)| cells).sum());
    }
    worst
}

/// The greedy, who begin where a window does, in its middle and at its last moment.
fn strategies(quota: &Quota) -> Vec<Vec<(Nanos, u64)>> {
    let period = quota.period();
    let starts = [0, period / 2, period - 1];
    starts.map(|start| greedy(*quota, 10 * period + start)).to_vec()
}

/// Takes all there is, then each cell at the moment that it is promised.
fn greedy(quota: Quota, start: Nanos) -> Vec<(Nanos, u64)> {
    let (mut counter, mut now, mut tries) = (Counter::new(quota, 0), start, Vec::new());
    while now <= start + 3 * quota.period() {
        let told = counter.charge(now, 1);
        tries.push((now, 1));
        if let Verdict::Exceeds { retry_after } = told.verdict {
            now += retry_after;
        }
    }
    tries
}

/// Tries around the moments that matter: edges of windows, intervals, and when it was told to come again.
fn search(random: &mut Random, quota: &Quota) -> Vec<(Nanos, u64)> {
    let (period, interval) = (quota.period(), quota.period() / quota.count());
    // What costs more than one keeps several places of a queue, but leaves in one.
    let is_queue = quota.algorithm() == LeakyBucket && quota.max_delay() > 0;
    let most = if is_queue { 1 } else { quota.burst() };
    let mut now = 10 * period + random.below(period);
    let mut counter = Counter::new(*quota, 0);
    let mut tries = Vec::new();
    for _ in 0..TRIES {
        let cost = if random.one_in(3) { 1 + random.below(most) } else { 1 };
        tries.push((now, cost));
        let told = counter.charge(now, cost);
        now += match (random.below(8), told.verdict) {
            (0..=3, Verdict::Exceeds { retry_after }) => retry_after,
            (0..=3, _) => 0,
            (4, _) => period - now % period,
            (5, _) => (period - now % period) - 1,
            (6, _) => random.below(3 * interval),
            _ => random.below(period),
        };
    }
    tries
}

fn quota(row: &Row) -> Quota {
    let (algorithm, (count, seconds, burst), delay, ..) = *row;
    let quota = Quota::new(count, Duration::from_secs(seconds), burst, algorithm).unwrap();
    delay.map_or(quota, |delay| quota.delaying(delay, u32::MAX).unwrap())
}

const ATTEMPTS: u32 = 200;
const TRIES: u32 = 400;
