//! Random operations, answered by the scripts and by the functions in `limit`, whose nanoseconds here stand for microseconds.
//!
//! `TOLLGATE_SEED` repeats a run of one seed; a failure prints it with what came before.

use super::{Store, key, told};
use ::redis::Value;
use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;
use tollgate::limit::Algorithm::{FixedWindow, Gcra, LeakyBucket, SlidingLog, SlidingWindow, TokenBucket};
use tollgate::limit::{Algorithm, Boost, Log, Outcome, Quota, sliding_log};
use tollgate::store::redis::script::{Ask, Correction, Invocation, charge, charged, settle};

#[test]
fn gcra() {
    run(&[
        plain(5, HOUR, Gcra),
        plain(7, SECOND, Gcra),
        burst(3, 7 * SECOND, 10),
        plain(1, DAY, Gcra),
        plain(999_983, SECOND, Gcra),
    ]);
}

#[test]
fn gcra_with_a_delay() {
    run(&[delaying(burst(3, 7 * SECOND, 10), 10 * SECOND), delaying(plain(100, MINUTE, Gcra), SECOND)]);
}

#[test]
fn gcra_that_lets_clients_owe() {
    run(&[owing(burst(100, MINUTE, 10)), owing(plain(1_000_000_007, 30 * DAY, Gcra))]);
}

#[test]
fn token_buckets() {
    run(&[plain(10, MINUTE, TokenBucket), pair(1_000_000, 30 * DAY, Some(3_000_000), TokenBucket)]);
}

#[test]
fn leaky_buckets() {
    run(&[
        plain(10, MINUTE, LeakyBucket),
        delaying(plain(10, SECOND, LeakyBucket), 5 * SECOND),
        delaying(plain(4, HOUR, LeakyBucket), DAY),
    ]);
}

#[test]
fn fixed_windows() {
    run(&[plain(10, HOUR, FixedWindow), plain(4_294_967_295, DAY, FixedWindow), owing(plain(100, 1000 * SECOND, FixedWindow))]);
}

#[test]
fn sliding_windows() {
    run(&[
        plain(10, MINUTE, SlidingWindow),
        plain(1000, HOUR, SlidingWindow),
        plain(1_048_575, 400 * DAY, SlidingWindow),
        owing(plain(100, 7777 * SECOND, SlidingWindow)),
    ]);
}

#[test]
fn sliding_logs() {
    run(&[
        plain(7, SECOND, SlidingLog),
        plain(100, HOUR, SlidingLog),
        plain(300, MINUTE, SlidingLog),
        owing(plain(64, MINUTE, SlidingLog)),
    ]);
}

#[test]
fn quotas_that_change() {
    run_with(
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
        16,
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

fn run(pairs: &[Pair]) {
    for pair in pairs {
        run_with(&[*pair], u64::MAX);
    }
}

/// Operations in lots: each is sent to the server at once, and then its answers are looked at. `change` is how seldom another quota is taken.
fn run_with(pairs: &[Pair], change: u64) {
    let seeds = match std::env::var("TOLLGATE_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => (1..=4).collect(),
    };
    let each = OPERATIONS
        / u32::try_from(seeds.len()).unwrap()
        / if change == u64::MAX { u32::try_from(pairs.len()).unwrap() } else { 1 };
    let mut store = Store::start();
    for seed in seeds {
        // Loads the scripts.
        store.command(&["FLUSHALL"]);
        let mut run = Run::new(seed, pairs, change);
        let lot = run.next(&mut store, true);
        run.check(lot);
        for _ in 0..each.div_ceil(LOT).max(1) {
            let lot = run.next(&mut store, false);
            run.check(lot);
        }
    }
}

const OPERATIONS: u32 = 100_000;
const LOT: u32 = 500;

struct Run<'p> {
    random: Random,
    seed: u64,
    pairs: &'p [Pair],
    change: u64,
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
    fn new(seed: u64, pairs: &'p [Pair], change: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9));
        let phase = if random.one_in(2) { 0 } else { random.next() >> 14 };
        let now = 1_796_000_000_000_000 + random.below(DAY);
        Self {
            seed,
            pairs,
            change,
            in_force: pairs[0],
            counter: Counter::new(pairs[0].model, phase),
            phase,
            now,
            taken: VecDeque::new(),
            trace: VecDeque::new(),
            random,
        }
    }

    fn next(&mut self, store: &mut Store, first: bool) -> Vec<(Sent<'p>, Value)> {
        let (mut invocations, mut sent): (Vec<Invocation>, Vec<Sent<'p>>) = (Vec::new(), Vec::new());
        for _ in 0..if first { 1 } else { LOT } {
            let (invocation, expected) = self.step(first);
            invocations.push(invocation);
            sent.push(expected);
        }
        let replies = if first {
            // The texts, so that the server knows the names of both.
            let settle = settle(&self.correction(None, 0), 0, Some(self.now));
            store.run(&settle);
            vec![store.run(&invocations[0])]
        } else {
            store.run_lasting(&invocations, "test:model")
        };
        sent.into_iter().zip(replies).collect()
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

    fn step(&mut self, first: bool) -> (Invocation, Sent<'p>) {
        self.now = later(&mut self.random, self.now, &self.in_force.model);
        if self.random.one_in(self.change) {
            self.in_force = *self.random.pick(self.pairs);
        }
        if !first
            && self.random.one_in(8)
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

/// A store for one counter, as small as can be.
#[derive(Debug, Clone)]
struct Counter {
    /// Under which it was written.
    quota: Quota,
    phase: u64,
    state: u64,
    log: Log,
    /// Whether it was ever written.
    present: bool,
}

impl Counter {
    fn new(quota: Quota, phase: u64) -> Self {
        Self { quota, phase, state: 0, log: Log::default(), present: false }
    }

    fn is_log(&self) -> bool {
        self.quota.algorithm() == SlidingLog
    }

    fn mark(&self, now: u64) -> u64 {
        if self.is_log() { now } else { self.state }
    }

    fn is_absent(&self) -> bool {
        self.state == 0 && self.log == Log::default()
    }

    /// As it is under another quota.
    fn under(&self, quota: &Quota, now: u64) -> Self {
        if *quota == self.quota {
            return self.clone();
        }
        let used = match self.is_log() {
            true => sliding_log::used(&self.quota, &self.log, now),
            false => self.quota.used(self.state, self.phase, now),
        };
        let mut moved = Self { present: self.present, ..Self::new(*quota, self.phase) };
        if moved.is_log() {
            moved.log = sliding_log::with_used(quota, used, now);
        } else {
            moved.state = quota.with_used(used, self.phase, now);
        }
        moved
    }

    /// Charges. A refusal is kept only if the clock went back by much, or the quota is another.
    fn charge(&mut self, quota: &Quota, now: u64, cost: u64) -> Outcome {
        let mut moved = self.under(quota, now);
        let is_moved = moved.quota != self.quota && !moved.is_absent();
        if moved.is_log() {
            let healed = sliding_log::heal(quota, &mut moved.log, now);
            let outcome = sliding_log::decide(quota, &moved.log, now, cost);
            if outcome.verdict.conforms() {
                sliding_log::commit(quota, &mut moved.log, now, cost);
            } else if !healed && !is_moved {
                return outcome;
            }
            *self = Self { present: true, ..moved };
            return outcome;
        }
        let step = quota.decide(moved.state, self.phase, now, cost);
        let keeps = step.outcome.verdict.conforms() || is_moved || moved.is_far_ahead(now);
        if keeps && (step.state != 0 || step.outcome.verdict.conforms()) {
            moved.state = step.state;
            *self = Self { present: true, ..moved };
        }
        Outcome { mark: 0, ..step.outcome }
    }

    /// Whether the clock must have gone back by much.
    fn is_far_ahead(&self, now: u64) -> bool {
        let place = (now + self.phase % self.quota.period()) / self.quota.period();
        match self.quota.algorithm() {
            FixedWindow => self.state >> 32 > place + 1,
            SlidingWindow => {
                let ahead = (self.state >> 40).wrapping_sub(place) & 0xff_ffff;
                self.state != 0 && ahead > 1 && ahead < 1 << 23
            }
            _ => self.state > now + self.quota.ceiling(),
        }
    }

    /// The window that a sliding window's state has just been written in: it keeps only 24 bits of the number.
    fn window(&self, quota: &Quota, now: u64) -> u64 {
        let place = (now + self.phase % quota.period()) / quota.period();
        place + ((self.state >> 40).wrapping_sub(place) & 0xff_ffff)
    }

    /// The most of `more` that conforms without a wait.
    fn largest(&self, quota: &Quota, now: u64, more: u64) -> u64 {
        let fits = |cells: u64| {
            let outcome = quota.decide(self.state, self.phase, now, cells).outcome;
            outcome.verdict.conforms() && outcome.delay == 0
        };
        let (mut least, mut most) = (0, more);
        while least < most {
            let middle = most - (most - least) / 2;
            if fits(middle) { least = middle } else { most = middle - 1 }
        }
        least
    }

    fn settle(&mut self, taken: &Taken, mark: Option<u64>, delta: i64, now: u64) {
        let (less, more) = (u64::try_from(-delta).unwrap_or(0), u64::try_from(delta).unwrap_or(0));
        if !self.present {
            if more == 0 {
                return;
            }
            *self = Self { present: true, ..Self::new(taken.pair.model, self.phase) };
        }
        let quota = self.quota;
        if self.is_log() {
            sliding_log::refund(&quota, &mut self.log, mark, now, less);
            if more > 0 {
                sliding_log::commit(&quota, &mut self.log, now, more);
            }
            return;
        }
        let less = if quota.max_delay() > 0 && self.state != taken.mark { 0 } else { less };
        if less > 0 {
            self.state = quota.refund(self.state, self.phase, mark, now, less);
        } else if more > 0 {
            self.state = quota.force(self.state, self.phase, now, more);
        }
    }
}

fn later(random: &mut Random, now: u64, quota: &Quota) -> u64 {
    if random.one_in(64) {
        // Never a whole period: cells of a log that are exactly that far ahead count as made now, and in memory a microsecond later.
        return now - *random.pick(&[1, 1003, SECOND + 7, MINUTE + 7, HOUR + 7, DAY + 7]);
    }
    let period = quota.period();
    let step = match random.below(64) {
        0..=19 => 0,
        20..=22 => 1,
        23..=30 => random.below(1000),
        31..=47 => random.below(3 * (period / quota.count()).max(1)),
        48..=52 => random.below(period),
        53..=54 => period,
        55 => period - 1,
        56 => period * (1 + random.below(3)),
        57..=62 => random.below(3 * period),
        _ => random.below(period.min(HOUR) * 1000),
    };
    // Not beyond what 2^53 microseconds are: far ahead is far enough.
    if now + step > 3_000_000_000_000_000 { 1_796_000_000_000_000 } else { now + step }
}

fn cost(random: &mut Random, quota: &Quota) -> u64 {
    let limit = quota.count();
    match random.below(64) {
        0..=3 => 0,
        4..=27 => 1,
        28..=51 => 1 + random.below((limit / 20).max(3)),
        52..=55 => 1 + random.below(limit),
        56 => limit,
        57 => limit + 1,
        58 => quota.burst(),
        59 => quota.burst() + 1,
        60 => u64::MAX,
        61 => u64::MAX - random.below(1000),
        62 => random.next(),
        _ => u64::MAX / quota.period() + random.below(3),
    }
}

/// splitmix64 (Steele, Lea and Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    fn pick<'t, T>(&mut self, of: &'t [T]) -> &'t T {
        &of[usize::try_from(self.below(of.len() as u64)).unwrap()]
    }
}

const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
