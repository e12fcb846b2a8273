//! The generic cell rate algorithm: one number, the theoretical arrival time (TAT), says it all.
//!
//! Source: ITU-T I.371 (virtual scheduling). It equals a token bucket of size `B` refilled at `L/P`, stored as
//! `TAT = now + (B − tokens)·T`. Worst case in any window of length `P`: `B + L` cells.
//!
//! Two choices matter. The interval of a cost is rounded up once for the whole cost, so `n` cells never cost more than
//! `n` single ones by more than a nanosecond each. And a TAT beyond what a full bucket could explain (the clock went
//! back) is clamped, so nobody stays locked out for the size of the step.

use super::{Outcome, Quota, Step, Verdict};
use crate::clock::Nanos;

/// Decides one charge; `tat` is the stored state.
#[must_use]
pub fn decide(quota: &Quota, tat: u64, now: Nanos, cost: u64) -> Step {
    let capacity = quota.capacity();
    let base = clamp(quota, tat, now);
    let outcome = |verdict, base: u64| Outcome {
        verdict,
        limit: quota.burst(),
        remaining: quota.cells_in(capacity - (base - now)).min(quota.burst()),
        reset_after: base - now,
    };
    let Some(increment) = quota.time_of(cost).filter(|increment| *increment <= capacity) else {
        return Step { state: tat, outcome: outcome(Verdict::Never, base) };
    };
    // `base − now ≤ capacity` after the clamp and both are below 2^62, so this can't overflow.
    let filled = (base - now) + increment;
    if filled > capacity {
        let exceeds = Verdict::Exceeds { retry_after: filled - capacity };
        return Step { state: tat, outcome: outcome(exceeds, base) };
    }
    let new_tat = now.saturating_add(filled);
    let state = if cost == 0 { tat } else { new_tat };
    Step { state, outcome: outcome(Verdict::Conforms, new_tat) }
}

/// Takes back `cost` cells. Harmless if the key has drained meanwhile: a TAT in the past is as good as none.
#[must_use]
pub fn refund(quota: &Quota, tat: u64, cost: u64) -> u64 {
    quota.time_of(cost).map_or(tat, |increment| tat.saturating_sub(increment))
}

/// Cells in use, rounded up.
#[must_use]
pub fn used(quota: &Quota, tat: u64, now: Nanos) -> u64 {
    quota.cells_covering(clamp(quota, tat, now) - now).min(quota.burst())
}

/// The TAT of somebody who has just used `used` cells.
#[must_use]
pub fn with_used(quota: &Quota, used: u64, now: Nanos) -> u64 {
    if used == 0 {
        return 0;
    }
    let filled = quota.time_of(used).unwrap_or(u64::MAX).min(quota.capacity());
    now.saturating_add(filled)
}

fn clamp(quota: &Quota, tat: u64, now: Nanos) -> u64 {
    tat.clamp(now, now.saturating_add(quota.capacity()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SECOND;
    use crate::limit::Algorithm;
    use std::time::Duration;

    fn quota(count: u64, seconds: u64, burst: u64) -> Quota {
        Quota::new(count, Duration::from_secs(seconds), Some(burst), Algorithm::Gcra).unwrap()
    }

    #[test]
    fn a_burst_then_one_per_interval() {
        let quota = quota(5, 3600, 5);
        let mut tat = 0;
        for left in [4, 3, 2, 1, 0] {
            let step = decide(&quota, tat, 0, 1);
            assert_eq!((step.outcome.verdict, step.outcome.remaining), (Verdict::Conforms, left));
            tat = step.state;
        }
        let denied = decide(&quota, tat, 0, 1);
        assert_eq!(denied.outcome.verdict, Verdict::Exceeds { retry_after: 720 * SECOND });
        assert_eq!(denied.outcome.reset_after, 3600 * SECOND);
        assert_eq!(denied.state, tat, "a refused request costs nothing");
        assert!(!decide(&quota, tat, 720 * SECOND - 1, 1).outcome.verdict.conforms());
        assert!(decide(&quota, tat, 720 * SECOND, 1).outcome.verdict.conforms());
    }

    #[test]
    fn hostile_costs_never_wrap() {
        let daily = quota(1, 86_400, 1);
        for cost in [2, 213_504, u64::MAX / 2, u64::MAX] {
            assert_eq!(decide(&daily, 0, 0, cost).outcome.verdict, Verdict::Never, "{cost}");
        }
        assert_eq!(decide(&daily, 7, 0, 0).state, 7, "cost 0 asks without taking");
    }

    #[test]
    fn a_clock_that_went_back_locks_nobody_out() {
        let quota = quota(10, 10, 10);
        let hour = 3600 * SECOND;
        let tat = with_used(&quota, 10, hour);
        let step = decide(&quota, tat, 0, 1);
        assert_eq!(step.outcome.verdict, Verdict::Exceeds { retry_after: SECOND });
    }

    #[test]
    fn usage_moves_to_another_quota_in_cells() {
        let (five, ten, two) = (quota(5, 3600, 5), quota(10, 3600, 10), quota(2, 3600, 2));
        let exhausted = with_used(&five, 5, 0);
        assert_eq!(used(&five, exhausted, 0), 5);
        let raised = decide(&ten, with_used(&ten, 5, 0), 0, 0);
        assert_eq!(raised.outcome.remaining, 5);
        let lowered = decide(&two, with_used(&two, 5, 0), 0, 0);
        assert_eq!(lowered.outcome.remaining, 0);
    }
}
