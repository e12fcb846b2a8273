//! Random operations, answered by the scripts and by the functions in `limit`, whose nanoseconds here stand for microseconds.
//!
//! `TOLLGATE_SEED` repeats a run of one seed; a failure prints it with what came before.

mod counter;
mod random;

use super::{Store, key, told};
use crate::harness::Random;
use ::redis::Value;
use counter::Counter;
use random::{cost, later};
use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;
use tollgate::limit::Algorithm::{FixedWindow, Gcra, LeakyBucket, SlidingLog, SlidingWindow, TokenBucket};
use tollgate::limit::{Algorithm, Boost, Outcome, Quota};
use tollgate::store::redis::script::{Ask, Correction, Invocation, charge, charged, settle};

#[test]
fn gcra() {
    each(&[
        plain(5, HOUR, Gcra),
        plain(7, SECOND, Gcra),
        burst(3, 7 * SECOND, 10),
        plain(1, DAY, Gcra),
        plain(999_983, SECOND, Gcra),
    ]);
}

#[test]
fn gcra_with_a_delay() {
    each(&[delaying(burst(3, 7 * SECOND, 10), 10 * SECOND), delaying(plain(100, MINUTE, Gcra), SECOND)]);
}

#[test]
fn gcra_that_lets_clients_owe() {
    each(&[owing(burst(100, MINUTE, 10)), owing(plain(1_000_000_007, 30 * DAY, Gcra))]);
}

#[test]
fn token_buckets() {
    each(&[plain(10, MINUTE, TokenBucket), pair(1_000_000, 30 * DAY, Some(3_000_000), TokenBucket)]);
}

#[test]
fn leaky_buckets() {
    each(&[
        plain(10, MINUTE, LeakyBucket),
        delaying(plain(10, SECOND, LeakyBucket), 5 * SECOND),
        delaying(plain(4, HOUR, LeakyBucket), DAY),
    ]);
}

#[test]
fn fixed_windows() {
    each(&[plain(10, HOUR, FixedWindow), plain(4_294_967_295, DAY, FixedWindow), owing(plain(100, 1000 * SECOND, FixedWindow))]);
}

#[test]
fn sliding_windows() {
    each(&[
        plain(10, MINUTE, SlidingWindow),
        plain(1000, HOUR, SlidingWindow),
        plain(1_048_575, 400 * DAY, SlidingWindow),
        owing(plain(100, 7777 * SECOND, SlidingWindow)),
    ]);
}

#[test]
fn sliding_logs() {
    each(&[
        plain(7, SECOND, SlidingLog),
        plain(100, HOUR, SlidingLog),
        plain(300, MINUTE, SlidingLog),
        plain(2000, SECOND, SlidingLog),
        owing(plain(64, MINUTE, SlidingLog)),
    ]);
}

#[test]
fn quotas_that_change() {
    run(
        &[
            plain(5, HOUR, Gcra),
            burst(7, SECOND, 20),
            delaying(burst(3, 7 * SECOND, 10), 10 * SECOND),
            plain(1, DAY, LeakyBucket),
            delaying(plain(10, SECOND, LeakyBucket), 5 * SECOND),
            owing(burst(100, MINUTE, 10)),
            plain(10, HOUR, FixedWindow),
            plain(4_294_967_295, DAY, FixedWindow),
            plain(10, MINUTE, SlidingWindow),
            plain(1000, HOUR, SlidingWindow),
            plain(7, SECOND, SlidingLog),
            plain(100, HOUR, SlidingLog),
            plain(12, MINUTE, TokenBucket),
        ],
        OPERATIONS,
    );
}

/// The same quota twice: as the store is asked, and as the model has it.
#[derive(Debug, Clone, Copy)]
struct Pair {
    asked: Quota,
    model: Quota,
}

fn pair(count: u64, micros: u64, burst: Option<u64>, algorithm: Algorithm) -> Pair {
    Pair {
        asked: Quota::new(count, Duration::from_micros(micros), burst, algorithm).unwrap(),
        model: Quota::new(count, Duration::from_nanos(micros), burst, algorithm).unwrap(),
    }
}

fn plain(count: u64, micros: u64, algorithm: Algorithm) -> Pair {
    pair(count, micros, None, algorithm)
}

fn burst(count: u64, micros: u64, burst: u64) -> Pair {
    pair(count, micros, Some(burst), Gcra)
}

fn delaying(Pair { asked, model }: Pair, micros: u64) -> Pair {
    Pair {
        asked: asked.delaying(Duration::from_micros(micros), 20).unwrap(),
        model: model.delaying(Duration::from_nanos(micros), 20).unwrap(),
    }
}

fn owing(Pair { asked, model }: Pair) -> Pair {
    Pair { asked: asked.owing(), model: model.owing() }
}

/// Random operations on each quota by itself.
fn each(pairs: &[Pair]) {
    let operations = OPERATIONS / u32::try_from(pairs.len()).unwrap();
    pairs.iter().for_each(|pair| run(std::slice::from_ref(pair), operations));
}

/// As many random operations on one counter, which now and then gets another of the quotas. They go in lots: each is sent to the server at once, and
/// then its answers are looked at.
fn run(pairs: &[Pair], operations: u32) {
    let seeds = match std::env::var("TOLLGATE_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => (1..=4).collect(),
    };
    let lots = (operations / u32::try_from(seeds.len()).unwrap()).div_ceil(LOT);
    let mut store = Store::start();
    for seed in seeds {
        store.command(&["FLUSHALL"]);
        let mut run = Run::new(seed, pairs);
        // So that the server knows both by name.
        for invocation in [run.charge(0, 0).0, settle(&run.correction(None, 0), 0, None)] {
            store.command(&["SCRIPT", "LOAD", invocation.script.text]);
        }
        for _ in 0..lots {
            let lot = run.next(&mut store);
            run.check(lot);
        }
    }
}

const OPERATIONS: u32 = 100_000;
const LOT: u32 = 500;
/// One operation in so many is under another quota.
const CHANGE: u64 = 16;

struct Run<'p> {
    random: Random,
    seed: u64,
    pairs: &'p [Pair],
    in_force: Pair,
    counter: Counter,
    phase: u64,
    now: u64,
    taken: VecDeque<Taken>,
    trace: VecDeque<(Sent<'p>, Value)>,
}

/// A charge that may be corrected.
#[derive(Clone, Copy)]
struct Taken {
    pair: Pair,
    cost: u64,
    /// In the model. The store's own is told only when the lot is answered, and is the same number under the same name.
    mark: u64,
    store_mark: u64,
}

/// What was sent, and what must be answered.
enum Sent<'p> {
    Charge { now: u64, ask: Ask<'p>, expected: Outcome, granted: u64 },
    Settled { now: u64, correction: Correction<'p> },
}

impl fmt::Display for Sent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Charge { now, ask: Ask { cost, more, quota, phase, .. }, .. } => {
                write!(f, "at {now}: {cost} and {more} of {quota:?}, phase {phase}")
            }
            Self::Settled { now, correction: Correction { delta, mark, quota, .. } } => {
                write!(f, "at {now}: corrected by {delta}, mark {mark:?}, of {quota:?}")
            }
        }
    }
}

impl<'p> Run<'p> {
    fn new(seed: u64, pairs: &'p [Pair]) -> Self {
        let mut random = Random::new(seed.wrapping_mul(0x9e37_79b9));
        let phase = if random.one_in(2) { 0 } else { random.next() >> 14 };
        let now = 1_796_000_000_000_000 + random.below(DAY);
        Self {
            seed,
            pairs,
            in_force: pairs[0],
            counter: Counter::new(pairs[0].model, phase),
            phase,
            now,
            taken: VecDeque::new(),
            trace: VecDeque::new(),
            random,
        }
    }

    fn next(&mut self, store: &mut Store) -> Vec<(Sent<'p>, Value)> {
        let (invocations, sent): (Vec<Invocation>, Vec<Sent<'p>>) = (0..LOT).map(|_| self.step()).unzip();
        sent.into_iter().zip(store.run_lasting(&invocations, "test:model")).collect()
    }

    fn check(&mut self, lot: Vec<(Sent<'p>, Value)>) {
        for (sent, reply) in lot {
            self.trace.push_back((sent, reply));
            if self.trace.len() > 16 {
                self.trace.pop_front();
            }
            let (sent, reply) = self.trace.back().unwrap();
            let is_right = match sent {
                Sent::Charge { ask, expected, granted, .. } => charged(std::slice::from_ref(ask), reply)
                    .is_ok_and(|answers| (told(&answers[0].outcome), answers[0].granted) == (*expected, *granted)),
                Sent::Settled { .. } => matches!(reply, Value::Int(0 | 1)),
            };
            assert!(is_right, "{}", self.failure());
        }
    }

    /// What to know of the last operation, whose answer is wrong.
    fn failure(&self) -> String {
        let mut text = format!("repeat with TOLLGATE_SEED={}", self.seed);
        for (sent, reply) in &self.trace {
            text = format!("{text}\n{sent} -> {reply:?}");
        }
        if let Some((Sent::Charge { ask, expected, granted, .. }, reply)) = self.trace.back() {
            let answer = charged(std::slice::from_ref(ask), reply);
            text = format!("{text}\nis read as {answer:?}\nexpected   {expected:?}, granted {granted}");
        }
        text
    }

    fn step(&mut self) -> (Invocation, Sent<'p>) {
        self.now = later(&mut self.random, self.now, &self.in_force.model);
        if self.random.one_in(CHANGE) {
            self.in_force = *self.random.pick(self.pairs);
        }
        if self.random.one_in(8)
            && let Some(taken) = self.taken.pop_front()
        {
            return self.settle(taken);
        }
        let cost = cost(&mut self.random, &self.in_force.model);
        let more = if self.random.one_in(4) { self.random.below(3 * self.in_force.model.count().min(1 << 30)) } else { 0 };
        self.charge(cost, more)
    }

    fn charge(&mut self, cost: u64, more: u64) -> (Invocation, Sent<'p>) {
        let Pair { asked, model } = self.in_force;
        let before = (cost == 0).then(|| self.counter.clone());
        let expected = self.counter.charge(&model, self.now, cost);
        let conforms = expected.verdict.conforms();
        let mut granted = 0;
        let mark = self.counter.mark(self.now);
        if conforms && cost > 0 {
            let store_mark = self.store_mark(&model);
            self.taken.push_back(Taken { pair: self.in_force, cost, mark, store_mark });
            if self.taken.len() > 8 || self.random.one_in(3) {
                self.taken.pop_front();
            }
        }
        let is_queue = model.algorithm() == LeakyBucket && model.max_delay() > 0;
        if conforms && more > 0 && !is_queue && model.algorithm() != SlidingLog {
            granted = self.counter.largest(&model, self.now, more);
            if granted > 0 {
                assert!(self.counter.charge(&model, self.now, granted).verdict.conforms());
            }
        }
        if let Some(before) = before.filter(|_| conforms && granted == 0) {
            // Asking makes no counter.
            self.counter = before;
        }
        let asked: &'p Quota = &self.pairs.iter().find(|pair| pair.asked == asked).unwrap().asked;
        let ask = Ask { key: key("model"), quota: asked, boost: Boost::NONE, phase: self.phase, cost, more };
        (charge(std::slice::from_ref(&ask), 0, Some(self.now)), Sent::Charge { now: self.now, ask, expected, granted })
    }

    /// By which the store finds a charge that was made now.
    fn store_mark(&self, model: &Quota) -> u64 {
        match model.algorithm() {
            FixedWindow => self.counter.state >> 32,
            SlidingWindow => self.counter.window(model, self.now),
            _ => self.counter.mark(self.now),
        }
    }

    fn settle(&mut self, taken: Taken) -> (Invocation, Sent<'p>) {
        // A debt of more than a century is cut, and the model's century is a thousand times as long.
        let most = if self.pairs.iter().any(|pair| pair.model.may_owe()) { 1 << 20 } else { 1 << 41 };
        let more = [0, 1, taken.cost.min(most), most];
        let less = [1, taken.cost, taken.cost / 2 + 1];
        let delta = if self.random.one_in(2) {
            i64::try_from(*self.random.pick(&more)).unwrap()
        } else {
            -i64::try_from((*self.random.pick(&less)).min(1 << 50)).unwrap()
        };
        let unmarked = self.random.one_in(8);
        let mark = (!unmarked).then_some(taken.mark).filter(|_| taken.pair.model == self.counter.quota);
        // Without a mark nobody knows whether others wait behind a place.
        let place = if unmarked { u64::MAX } else { taken.mark };
        self.counter.settle(&Taken { mark: place, ..taken }, mark, delta, self.now);
        let mut correction = self.correction((!unmarked).then_some(taken.store_mark), delta);
        let asked: &'p Quota = &self.pairs.iter().find(|pair| pair.asked == taken.pair.asked).unwrap().asked;
        correction.quota = asked;
        (settle(&correction, 0, Some(self.now)), Sent::Settled { now: self.now, correction })
    }

    fn correction(&self, mark: Option<u64>, delta: i64) -> Correction<'p> {
        Correction { key: key("model"), quota: &self.pairs[0].asked, boost: Boost::NONE, phase: self.phase, mark, delta }
    }
}

const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
