//! Random operations, the same for the same seed: splitmix64 (Steele, Lea and Flood 2014), and what time and costs are made of.

use tollgate::clock::{Nanos, SECOND};
use tollgate::limit::Quota;

/// A stream of numbers.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Less than `bound`, or 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    pub(crate) fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    pub(crate) fn pick<'t, T>(&mut self, of: &'t [T]) -> &'t T {
        &of[usize::try_from(self.below(of.len() as u64)).unwrap()]
    }
}

/// Whether the clock may step back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clock {
    Monotonic,
    StepsBack,
}

/// The moment of the next operation.
pub(crate) fn later(random: &mut Random, clock: Clock, now: Nanos, quota: &Quota) -> Nanos {
    if clock == Clock::StepsBack && random.one_in(64) {
        return now.saturating_sub(*random.pick(&STEPS_BACK));
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
        _ => random.below(FURTHEST.min(period.saturating_mul(MOST_PERIODS))),
    };
    now + step
}

/// What an operation costs.
pub(crate) fn cost(random: &mut Random, quota: &Quota) -> u64 {
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

const STEPS_BACK: [Nanos; 3] = [SECOND / 1000, 60 * SECOND, 3600 * SECOND];
/// 13 days: a million of them stay within 64 bits only because they are rare.
const FURTHEST: Nanos = 1 << 50;
/// The numbers of windows of `sliding_window` come round; by its documentation long after a sweep has dropped the state.
const MOST_PERIODS: u64 = 1 << 22;
