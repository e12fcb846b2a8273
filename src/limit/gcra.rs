//! The generic cell rate algorithm: one number, the theoretical arrival time (TAT), says it all.
//!
//! Source: ITU-T I.371 (virtual scheduling). It equals a token bucket of size `B` refilled at `L/P`, stored as
//! `TAT = now + (B − tokens)·T`. Worst case in any window of length `P`: `B + L` cells.
//!
//! Three choices matter. The interval of a cost is rounded up once for the whole cost, so `n` cells never cost more than
//! `n` single ones by more than a nanosecond each. A TAT beyond what the quota could explain (the clock went back) is
//! clamped, so nobody stays locked out for the size of the step. And where `over: delay` allows a wait, the TAT may run
//! ahead of a full bucket by that much: the request is admitted, and told how long to wait for its place.

use super::{Boost, Outcome, Quota, Step, Verdict};
use crate::clock::Nanos;

/// Decides one charge; `tat` is the stored state.
#[must_use]
#[inline(always)] // See `Shard::decide_present`.
pub fn decide(quota: &Quota, tat: u64, now: Nanos, cost: u64) -> Step {
    let capacity = quota.capacity();
    let backlog = backlog(quota, tat, now);
    let outcome = |verdict, backlog: Nanos, delay| Outcome {
        verdict,
        limit: quota.burst(),
        remaining: quota.cells_in(capacity.saturating_sub(backlog)).min(quota.burst()),
        reset_after: backlog,
        delay,
        boost: Boost::NONE,
        mark: 0,
    };
    // Not later than could be true now, in case the clock went back.
    let tat = tat.min(now.saturating_add(quota.ceiling()));
    if cost == 0 {
        return Step { state: tat, outcome: outcome(Verdict::Conforms, backlog, 0) };
    }
    let Some(increment) = quota.time_of(cost).filter(|increment| *increment <= capacity) else {
        return Step { state: tat, outcome: outcome(Verdict::Never, backlog, 0) };
    };
    let filled = backlog.saturating_add(increment);
    let over = filled.saturating_sub(capacity);
    if over > quota.max_delay() {
        let exceeds = Verdict::Exceeds { retry_after: over - quota.max_delay() };
        return Step { state: tat, outcome: outcome(exceeds, backlog, 0) };
    }
    Step { state: now.saturating_add(filled), outcome: outcome(Verdict::Conforms, filled, over) }
}

/// Takes cells whether they fit or not: what a response turned out to cost. Only a quota that may be in debt remembers
/// what is beyond its burst.
#[must_use]
pub fn force(quota: &Quota, tat: u64, now: Nanos, cost: u64) -> u64 {
    let filled = backlog(quota, tat, now).saturating_add(quota.time_of(cost).unwrap_or(u64::MAX));
    now.saturating_add(filled.min(quota.ceiling()))
}

/// Takes back `cost` cells, as far as they have not drained: of a charge that left the TAT `mark` behind, what lies before now has.
#[must_use]
pub fn refund(quota: &Quota, tat: u64, mark: Option<u64>, now: Nanos, cost: u64) -> u64 {
    let left = mark.map_or(u64::MAX, |mark| mark.saturating_sub(now));
    let increment = quota.time_of(cost).unwrap_or(u64::MAX).min(left);
    tat.min(now.saturating_add(quota.ceiling())).saturating_sub(increment)
}

/// Cells in use, rounded up; cells that were rounded up when they were charged are not rounded up again.
#[must_use]
pub fn used(quota: &Quota, tat: u64, now: Nanos) -> u64 {
    match backlog(quota, tat, now) {
        0 => 0,
        backlog => quota.cells_in(backlog.saturating_sub(quota.slack()).saturating_sub(1)) + 1,
    }
}

/// The TAT of somebody who has just used `used` cells.
#[must_use]
pub fn with_used(quota: &Quota, used: u64, now: Nanos) -> u64 {
    if used == 0 {
        return 0;
    }
    let most = if quota.may_owe() { quota.ceiling() } else { quota.capacity() };
    now.saturating_add(quota.time_of(used).unwrap_or(u64::MAX).min(most))
}

/// How full the bucket is, where 2^16 is full.
#[must_use]
pub fn fullness(quota: &Quota, tat: u64, now: Nanos) -> u64 {
    super::share(backlog(quota, tat, now), quota.capacity())
}

/// Time until the bucket is empty.
pub(super) fn backlog(quota: &Quota, tat: u64, now: Nanos) -> Nanos {
    tat.saturating_sub(now).min(quota.ceiling())
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
            assert!(force(&daily, 5, 7, cost) > 7);
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

    #[test]
    fn a_wait_is_a_place_in_the_future() {
        let quota = quota(1, 1, 2).delaying(Duration::from_secs(3), 100).unwrap();
        let mut tat = 0;
        for wait in [0, 0, 1, 2, 3] {
            let step = decide(&quota, tat, 0, 1);
            assert_eq!((step.outcome.verdict, step.outcome.delay), (Verdict::Conforms, wait * SECOND));
            tat = step.state;
        }
        let denied = decide(&quota, tat, 0, 1).outcome;
        assert_eq!(denied.verdict, Verdict::Exceeds { retry_after: SECOND });
        assert_eq!(decide(&quota, tat, SECOND, 1).outcome.delay, 3 * SECOND);
    }

    #[test]
    fn a_debt_is_worked_off() {
        let quota = quota(10, 10, 10).owing();
        let tat = force(&quota, 0, 0, 25);
        let step = decide(&quota, tat, 0, 1);
        assert_eq!(step.outcome.verdict, Verdict::Exceeds { retry_after: 16 * SECOND });
        assert!(decide(&quota, tat, 16 * SECOND, 1).outcome.verdict.conforms());
        assert_eq!(used(&quota, tat, 0), 25);
    }

    #[test]
    fn only_what_has_not_drained_comes_back() {
        let quota = quota(10, 10, 10);
        let first = decide(&quota, 0, 0, 10).state;
        let second = decide(&quota, first, 10 * SECOND, 10).state;
        assert_eq!(refund(&quota, second, Some(first), 10 * SECOND, 10), second);
        assert_eq!(refund(&quota, first, Some(first), 4 * SECOND, 10), 4 * SECOND);
        assert_eq!(refund(&quota, first, Some(first), SECOND, 3), 7 * SECOND);
    }

    #[test]
    fn usage_of_awkward_rates_is_whole() {
        let quota = quota(7, 1, 7);
        let mut tat = 0;
        for cells in 1..=7 {
            tat = decide(&quota, tat, 0, 1).state;
            assert_eq!(used(&quota, tat, 0), cells);
        }
    }
}
