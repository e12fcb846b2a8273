//! A million random operations an algorithm, and after each everything that is told compared with the oracle.

use std::time::Duration;

use crate::chance::Random;
use crate::oracle::{Oracle, Receipt};
use crate::random::{Clock, cost, later};
use crate::subject::Counter;
use tollgate::clock::Nanos;
use tollgate::limit::Algorithm::{self, FixedWindow, Gcra, LeakyBucket, SlidingLog, SlidingWindow, TokenBucket};
use tollgate::limit::{Outcome, Quota, Verdict};

/// Rates that divide evenly and rates that don't, as (cells, period, burst).
const RATES: [(u64, Duration, Option<u64>); 9] = [
    (7, SECONDS(1), None),
    (1, SECONDS(86_400), None),
    (3, SECONDS(7), Some(10)),
    (999_983, SECONDS(1), None),
    (999_983, SECONDS(1), Some(1)),
    (5, SECONDS(3600), Some(1)),
    (1_000_000_000, SECONDS(1), Some(2_000_000_000)),
    (700_000_001, SECONDS(1), Some(50)),
    (13, Duration::from_nanos(101), Some(29)),
];

/// Windows have no burst.
const WINDOWS: [(u64, Duration); 5] =
    [(7, SECONDS(1)), (1, SECONDS(86_400)), (10, SECONDS(7)), (999_983, SECONDS(60)), (100, SECONDS(3600))];

#[test]
fn gcra() {
    for (seed, rate) in (1..).zip(RATES) {
        check(seed, quota(rate, Gcra), SHARE);
        check(seed + 50, quota(rate, Gcra).owing(), SHARE / 5);
    }
}

#[test]
fn token_bucket() {
    for (seed, rate) in (100..).zip(RATES) {
        check(seed, quota(rate, TokenBucket), SHARE);
    }
}

#[test]
fn leaky_bucket_as_a_meter() {
    for (seed, rate) in (200..).zip(RATES) {
        check(seed, quota(rate, LeakyBucket), SHARE);
    }
}

#[test]
fn leaky_bucket_as_a_queue() {
    let rates = RATES.map(|(count, period, _)| (count, period, None));
    for (seed, (rate, periods)) in (300..).zip(rates.into_iter().zip([1, 3, 2, 1, 5, 1, 1, 2, 9])) {
        for (offset, delay) in [(0, rate.1 * periods), (50, rate.1 / 3 + Duration::from_nanos(1))] {
            for (operations, queue) in [(SHARE / 3, u32::MAX), (SHARE / 6, 2)] {
                let queue = quota(rate, LeakyBucket).delaying(delay, queue).unwrap();
                check(seed + offset, queue, operations);
            }
        }
    }
}

#[test]
fn gcra_with_a_delay() {
    for (seed, (rate, periods)) in (400..).zip(RATES.into_iter().zip([1, 3, 2, 1, 5, 1, 1, 2, 9])) {
        for (offset, delay) in [(0, rate.1 * periods), (50, rate.1 / 3 + Duration::from_nanos(1))] {
            check(seed + offset, quota(rate, Gcra).delaying(delay, 100).unwrap(), SHARE / 2);
        }
    }
}

#[test]
fn fixed_window() {
    for (seed, (count, period)) in (500..).zip(WINDOWS.into_iter().chain([(u64::from(u32::MAX), SECONDS(3600))])) {
        check(seed, quota((count, period, None), FixedWindow), 2 * SHARE);
    }
}

#[test]
fn sliding_window() {
    let shortest = (5, Duration::from_millis(10));
    for (seed, (count, period)) in (600..).zip(WINDOWS.into_iter().chain([shortest, ((1 << 20) - 1, SECONDS(60))])) {
        check(seed, quota((count, period, None), SlidingWindow), 2 * SHARE);
    }
}

#[test]
fn sliding_log() {
    for (seed, (count, period)) in (700..).zip([(7, SECONDS(1)), (1, SECONDS(86_400)), (10, SECONDS(7)), (100, SECONDS(3600))]) {
        check(seed, quota((count, period, None), SlidingLog), 2 * SHARE + 10_000);
    }
    check(750, quota((4096, SECONDS(60), None), SlidingLog), SHARE / 2);
}

/// Runs operations, with a clock that only goes forward and with one that also steps back.
fn check(seed: u64, quota: Quota, operations: u32) {
    for (seed, clock) in [(seed, Clock::StepsBack), (seed + 1_000_000, Clock::Monotonic)] {
        let mut run = Run::new(seed, clock, quota);
        for _ in 0..operations / 2 {
            run.step();
        }
        let least = u64::from(operations / 10_000);
        assert!(
            run.met.iter().all(|times| *times >= least),
            "not every verdict was met often: {:?}, {}",
            run.met,
            run.whereabouts(0)
        );
    }
}

struct Run {
    random: Random,
    seed: u64,
    clock: Clock,
    number: u32,
    now: Nanos,
    counter: Counter,
    oracle: Oracle,
    /// Charges that may still be corrected, and how much they took.
    taken: Vec<(u64, Receipt, u64)>,
    /// How often a charge conformed, exceeded, was too much.
    met: [u64; 3],
}

impl Run {
    fn new(seed: u64, clock: Clock, quota: Quota) -> Self {
        let mut random = Random::new(seed);
        let phase = if random.one_in(4) { 0 } else { random.next() >> 2 };
        let (counter, oracle) = (Counter::new(quota, phase), Oracle::new(&quota, phase));
        Self { random, seed, clock, number: 0, now: 0, counter, oracle, taken: Vec::new(), met: [0; 3] }
    }

    fn step(&mut self) {
        self.number += 1;
        self.now = later(&mut self.random, self.clock, self.now, &self.counter.quota);
        match self.random.below(32) {
            0 => self.force(),
            1 | 2 => self.refund(),
            3 => assert_eq!(self.counter.used(self.now), self.oracle.used(self.now), "used, {}", self.whereabouts(0)),
            _ => self.charge(),
        }
    }

    fn charge(&mut self) {
        let cost = cost(&mut self.random, &self.counter.quota);
        let before = self.oracle.clone();
        let told = self.counter.charge(self.now, cost);
        let expected = self.oracle.charge(self.now, cost);
        assert_eq!(told, expected, "{} before: {before:?}", self.whereabouts(cost));
        let [conformed, exceeded, too_much] = &mut self.met;
        *match told.verdict {
            Verdict::Conforms => conformed,
            Verdict::Exceeds { .. } => exceeded,
            Verdict::Never => too_much,
        } += 1;
        if let Verdict::Exceeds { retry_after } = told.verdict {
            assert!(!self.counter.conforms(self.now + retry_after - 1, cost), "too early, {}", self.whereabouts(cost));
            assert!(self.counter.conforms(self.now + retry_after, cost), "too late, {}", self.whereabouts(cost));
        }
        if told.verdict.conforms() && cost > 0 {
            self.taken.push((self.counter.mark(self.now), self.oracle.receipt(self.now), cost));
        }
        if self.random.one_in(8) {
            self.check_remaining(&told);
        }
    }

    /// What remains passes without a wait, and not a cell more.
    fn check_remaining(&self, told: &Outcome) {
        let is_queue = matches!(self.oracle, Oracle::Queue(_));
        let passes = |cost| {
            let outcome = self.counter.ask(self.now, cost);
            outcome.verdict.conforms() && (is_queue || outcome.delay == 0)
        };
        assert!(told.remaining == 0 || passes(told.remaining.min(self.counter.quota.largest_cost())), "{}", self.whereabouts(0));
        assert!(is_queue || !passes(told.remaining + 1), "{}", self.whereabouts(0));
    }

    fn force(&mut self) {
        let quota = self.counter.quota;
        // A debt of a century is never worked off here.
        let most = if quota.may_owe() { 3 * quota.burst() } else { u64::MAX };
        let cost = cost(&mut self.random, &quota).min(most);
        self.counter.force(self.now, cost);
        self.oracle.force(self.now, cost);
    }

    fn refund(&mut self) {
        let Some((mark, receipt, cost)) = self.taken.pop() else { return };
        let back = self.random.below(cost + 1);
        // As if it had been rewritten.
        let is_found = !self.random.one_in(8);
        self.counter.refund(is_found.then_some(mark), self.now, back);
        self.oracle.refund(is_found.then_some(receipt), self.now, back);
        if self.random.one_in(2) {
            self.taken.clear();
        }
    }

    fn whereabouts(&self, cost: u64) -> String {
        let Self { seed, clock, number, now, counter, oracle, .. } = self;
        format!("seed {seed} {clock:?}, operation {number}: cost {cost} at {now} of {counter:?}, oracle {oracle:?}")
    }
}

fn quota((count, period, burst): (u64, Duration, Option<u64>), algorithm: Algorithm) -> Quota {
    Quota::new(count, period, burst, algorithm).unwrap()
}

/// The exact token bucket in fractions of a token, so that nothing is rounded.
struct Exact {
    /// `1/P` cells: what is in use.
    debt: u128,
    last: Nanos,
}

impl Exact {
    fn take(&mut self, quota: &Quota, now: Nanos, cost: u64) -> u128 {
        let drained = u128::from(now - self.last) * u128::from(quota.count());
        self.debt = self.debt.saturating_sub(drained) + u128::from(cost) * u128::from(quota.period());
        self.last = now;
        self.debt
    }
}

#[test]
fn a_bucket_never_admits_more_than_the_exact_one_and_a_cell_and_always_a_whole_burst() {
    for (seed, rate) in (800..).zip(RATES) {
        let (mut random, quota) = (Random::new(seed), quota(rate, TokenBucket));
        let (mut counter, mut exact, mut now) = (Counter::new(quota, 0), Exact { debt: 0, last: 0 }, 0);
        let most = u128::from(quota.burst() + 1) * u128::from(quota.period());
        for number in 0..50_000 {
            now = later(&mut random, Clock::Monotonic, now, &quota);
            let cost = cost(&mut random, &quota);
            let told = counter.charge(now, cost);
            if told.verdict.conforms() {
                assert!(exact.take(&quota, now, cost) < most, "seed {seed}, operation {number}: {quota:?}");
            }
            now += if number % 1000 == 0 { 2 * counter.ask(now, 0).reset_after } else { 0 };
            if counter.used(now) == 0 {
                assert_eq!(counter.ask(now, 0).remaining, quota.burst(), "seed {seed}, operation {number}: {quota:?}");
                assert!(counter.conforms(now, quota.burst()), "seed {seed}, operation {number}: {quota:?}");
            }
        }
    }
}

#[expect(non_snake_case, reason = "a constant to the eye: the tables are full of it")]
const fn SECONDS(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// For nearly two million an algorithm. Ten times as many would reach the end of 64 bits of nanoseconds.
const SHARE: u32 = 200_000;
