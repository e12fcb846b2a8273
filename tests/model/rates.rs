//! Counters whose quota changes while they are in use: what is used goes over in cells, from every algorithm to every other.

use std::time::Duration;

use crate::chance::Random;
use crate::oracle::Receipt;
use crate::random::{Clock, cost, later};
use crate::store::{Fixture, Model, SPACES, charge, key, unmarked};
use tollgate::clock::Nanos;
use tollgate::limit::Algorithm::{FixedWindow, Gcra, LeakyBucket, SlidingLog, SlidingWindow, TokenBucket};
use tollgate::limit::{Interned, Key, Quota};
use tollgate::store::{Origin, Taken};

#[test]
fn usage_moves_in_cells_between_all_algorithms() {
    for seed in 1..=SEEDS {
        let mut run = Run::new(seed);
        for _ in 0..OPERATIONS {
            run.step();
        }
        run.fixture.assert_roomy();
    }
}

/// Evenly divided and not, with and without a delay, from one cell to thousands.
fn quotas() -> Vec<Quota> {
    let (second, minute, hour) = (Duration::from_secs(1), Duration::from_secs(60), Duration::from_secs(3600));
    let quota = |count, period, burst, algorithm| Quota::new(count, period, burst, algorithm).unwrap();
    vec![
        quota(5, hour, None, Gcra),
        quota(7, second, Some(20), TokenBucket),
        quota(3, 7 * second, Some(10), Gcra).delaying(10 * second, 100).unwrap(),
        quota(1, 24 * hour, None, LeakyBucket),
        quota(10, second, None, LeakyBucket).delaying(5 * second, 20).unwrap(),
        quota(100, minute, Some(10), Gcra).owing(),
        quota(10, minute, None, FixedWindow),
        quota(u64::from(u32::MAX), hour, None, FixedWindow),
        quota(10, minute, None, SlidingWindow),
        quota(1000, 7 * second, None, SlidingWindow),
        quota(7, second, None, SlidingLog),
        quota(100, hour, None, SlidingLog),
    ]
}

struct Run {
    random: Random,
    seed: u64,
    fixture: Fixture,
    model: Model,
    quotas: Vec<Interned>,
    in_force: Interned,
    key: Key,
    now: Nanos,
    taken: Vec<(Taken, Receipt)>,
}

impl Run {
    fn new(seed: u64) -> Self {
        let fixture = Fixture::new(1000);
        let quotas: Vec<Interned> = quotas().into_iter().map(|quota| fixture.intern(quota)).collect();
        let (in_force, key) = (quotas[0], key(0, seed));
        Self {
            random: Random::new(seed),
            seed,
            fixture,
            model: Model::default(),
            quotas,
            in_force,
            key,
            now: 0,
            taken: Vec::new(),
        }
    }

    fn step(&mut self) {
        let clock = if self.seed.is_multiple_of(2) { Clock::StepsBack } else { Clock::Monotonic };
        self.now = later(&mut self.random, clock, self.now, &self.in_force.quota);
        match self.random.below(32) {
            0 | 1 => self.in_force = *self.random.pick(&self.quotas),
            2..=4 => self.settle(),
            _ => {
                let cost = cost(&mut self.random, &self.in_force.quota);
                self.charge(cost);
            }
        }
    }

    fn charge(&mut self, cost: u64) {
        let charge = charge(SPACES[0], self.key, &self.in_force, cost);
        let answer = self.fixture.store.charge(&[charge], self.now);
        let told = unmarked(answer.clone());
        let expected = self.model.charge(&[charge], self.now);
        assert_eq!(told, expected, "seed {} at {}: {charge:?}, {:?}", self.seed, self.now, self.model);
        if told.conforms && cost > 0 {
            self.taken.push((Taken::of(&charge, &answer.outcomes[0], Origin::Memory), self.model.receipt(&charge, self.now)));
        }
    }

    fn settle(&mut self) {
        let Some((taken, receipt)) = self.taken.pop() else { return };
        if self.random.one_in(8) {
            self.fixture.store.settle(&taken, 0, self.now);
            self.model.settle(&taken, receipt, 0, self.now);
            return;
        }
        let most = if taken.quota.quota.may_owe() { 2 * taken.cost } else { u64::MAX };
        let cost = *self.random.pick(&[0, taken.cost - 1, taken.cost, taken.cost / 2, taken.cost + 1, 2 * taken.cost, most]);
        self.fixture.store.settle(&taken, cost, self.now);
        self.model.settle(&taken, receipt, cost, self.now);
    }
}

const SEEDS: u64 = 40;
const OPERATIONS: u32 = 10_000;
