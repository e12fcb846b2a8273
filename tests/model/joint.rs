//! Several windows of several limits decided together: all are charged or none, and the longest wait is enough.

use std::time::Duration;

use crate::chance::Random;
use crate::oracle::Receipt;
use crate::random::{Clock, cost, later};
use crate::store::{Fixture, Model, SPACES, charge, key, unmarked, wait};
use tollgate::clock::Nanos;
use tollgate::limit::Algorithm::{FixedWindow, Gcra, LeakyBucket, SlidingLog, SlidingWindow, TokenBucket};
use tollgate::limit::{Charge, Interned, Quota};
use tollgate::store::{Origin, Sweep, Taken};

#[test]
fn all_or_none_and_the_longest_wait_is_enough() {
    run(1..=6, Clock::Monotonic);
}

#[test]
fn all_or_none_when_the_clock_steps_back() {
    run(101..=106, Clock::StepsBack);
}

fn run(seeds: impl IntoIterator<Item = u64>, clock: Clock) {
    for seed in seeds {
        let fixture = Fixture::new(10_000);
        let limits = limits(&fixture);
        let mut run = Run {
            random: Random::new(seed),
            seed,
            clock,
            fixture: &fixture,
            limits: &limits,
            model: Model::default(),
            now: 0,
            taken: Vec::new(),
            admitted: 0,
            refused: 0,
        };
        for _ in 0..OPERATIONS {
            run.step();
        }
        let Run { admitted, refused, .. } = run;
        assert!(admitted > OPERATIONS / 10 && refused > OPERATIONS / 10, "{admitted} admitted, {refused} refused");
        fixture.assert_roomy();
    }
}

/// A limit's windows, longest period first.
fn limits(fixture: &Fixture) -> Vec<Vec<Interned>> {
    let (second, minute, hour) = (Duration::from_secs(1), Duration::from_secs(60), Duration::from_secs(3600));
    let quota = |count, period, burst, algorithm| fixture.intern(Quota::new(count, period, burst, algorithm).unwrap());
    let queue = Quota::new(20, second, None, LeakyBucket).unwrap().delaying(second, 100).unwrap();
    vec![
        vec![quota(1000, hour, None, FixedWindow), quota(7, second, Some(20), Gcra)],
        vec![quota(300, minute, None, SlidingWindow), quota(50, 7 * second, None, SlidingLog)],
        vec![quota(3, 7 * second, Some(10), TokenBucket)],
        vec![quota(500, minute, None, FixedWindow), quota(100, minute, None, SlidingLog), quota(9, second, None, SlidingWindow)],
        vec![fixture.intern(queue)],
        vec![quota(999_983, second, Some(40), LeakyBucket)],
    ]
}

struct Run<'f> {
    random: Random,
    seed: u64,
    clock: Clock,
    fixture: &'f Fixture,
    limits: &'f [Vec<Interned>],
    model: Model,
    now: Nanos,
    taken: Vec<(Taken, Receipt)>,
    admitted: u32,
    refused: u32,
}

impl<'f> Run<'f> {
    fn step(&mut self) {
        // Slowly, so that limits are reached.
        if self.random.one_in(8) {
            let pace = *self.random.pick(&self.limits[5]);
            self.now = later(&mut self.random, self.clock, self.now, &pace.quota);
        }
        match self.random.below(32) {
            0..=3 => self.settle(),
            4 if self.clock == Clock::Monotonic => self.fixture.store.sweep(Sweep::Slice, self.now),
            _ => {
                let charges = self.charges();
                self.charge(&charges);
            }
        }
    }

    /// All windows of some limits, each for one of a few clients.
    fn charges(&mut self) -> Vec<Charge<'f>> {
        let mut charges = Vec::new();
        let several = self.random.below(4) > 0;
        let only = self.random.below(self.limits.len() as u64);
        let cost = if self.random.one_in(16) { cost(&mut self.random, &self.limits[2][0].quota) } else { self.random.below(7) };
        for (limit, windows) in (0..).zip(self.limits) {
            if limit != only && !(several && self.random.one_in(2)) {
                continue;
            }
            let key = key(limit, self.random.below(CLIENTS));
            for (ordinal, quota) in (0..).zip(windows) {
                charges.push(charge(SPACES[usize::try_from(limit).unwrap() % SPACES.len()], key.window(ordinal), quota, cost));
            }
        }
        // Some ask for nothing of some.
        for charge in &mut charges {
            charge.cost = if self.random.one_in(16) { 0 } else { charge.cost };
        }
        charges
    }

    fn charge(&mut self, charges: &[Charge<'_>]) {
        let answer = self.fixture.store.charge(charges, self.now);
        let told = unmarked(answer.clone());
        let expected = self.model.charge(charges, self.now);
        assert_eq!(told, expected, "seed {} at {}: {charges:?}", self.seed, self.now);
        if told.conforms {
            self.admitted += 1;
            for (charge, outcome) in charges.iter().zip(&answer.outcomes).filter(|(charge, _)| charge.cost > 0) {
                self.taken.push((Taken::of(charge, outcome, Origin::Memory), self.model.receipt(charge, self.now)));
            }
            return;
        }
        self.refused += 1;
        if let Some(longest) = wait(&told)
            && self.clock == Clock::Monotonic
            && self.random.one_in(4)
        {
            self.wait(charges, longest);
        }
    }

    /// Refused a nanosecond before, admitted then.
    fn wait(&mut self, charges: &[Charge<'_>], longest: Nanos) {
        for (moment, conforms) in [(self.now + longest - 1, false), (self.now + longest, true)] {
            self.now = moment;
            assert_eq!(
                self.fixture.store.peek(charges, moment).conforms,
                conforms,
                "seed {} at {moment}: {charges:?}",
                self.seed
            );
            let told = unmarked(self.fixture.store.charge(charges, moment));
            let expected = self.model.charge(charges, moment);
            assert_eq!(told, expected, "seed {} at {moment}: {charges:?}", self.seed);
        }
    }

    fn settle(&mut self) {
        if self.taken.is_empty() {
            return;
        }
        let at = self.random.below(self.taken.len() as u64);
        let (taken, receipt) = self.taken.swap_remove(usize::try_from(at).unwrap());
        if self.random.one_in(4) {
            self.fixture.store.settle(&taken, 0, self.now);
            self.model.settle(&taken, receipt, 0, self.now);
            return;
        }
        let cost = *self.random.pick(&[0, taken.cost - 1, taken.cost, taken.cost + 1, 2 * taken.cost, u64::MAX]);
        self.fixture.store.settle(&taken, cost, self.now);
        self.model.settle(&taken, receipt, cost, self.now);
        if self.taken.len() > 100 {
            self.taken.clear();
        }
    }
}

const CLIENTS: u64 = 4;
const OPERATIONS: u32 = 30_000;
