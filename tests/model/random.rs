//! Random operations, the same for the same seed: what time and costs are made of.

use crate::chance::Random;
use tollgate::clock::{Nanos, SECOND};
use tollgate::limit::Quota;

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
