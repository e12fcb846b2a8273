//! Chance: when operations happen and what they cost, more often than not where something changes.

use super::{DAY, HOUR, MINUTE, SECOND};
use crate::harness::Random;
use tollgate::limit::Quota;

pub(super) fn later(random: &mut Random, now: u64, quota: &Quota) -> u64 {
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

pub(super) fn cost(random: &mut Random, quota: &Quota) -> u64 {
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
