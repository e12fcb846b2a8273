//! A count that starts again with every window.
//!
//! The state packs the window's number and the count: `w:32 | c:32`. Worst case in any rolling window: `2·L`, all of it
//! in one instant around an edge; that is what the other algorithms are for. `phase` moves each key's edges, so that
//! not everybody's quota comes back in the same instant. A calendar's windows are where they are in its time zone, for all keys.

use super::{Boost, Outcome, Quota, Step, Verdict};
use crate::clock::Nanos;

/// Decides one charge.
#[must_use]
pub fn decide(quota: &Quota, state: u64, phase: u64, now: Nanos, cost: u64) -> Step {
    let place = Place::at(quota, phase, now);
    let Window { number, count } = current(state, place.number);
    let state = if count == 0 { 0 } else { Window { number, count }.pack() };
    let limit = quota.count();
    let free = limit.saturating_sub(count);
    let outcome = |verdict, count: u64| Outcome {
        verdict,
        limit,
        remaining: limit.saturating_sub(count),
        reset_after: if count == 0 { 0 } else { place.until_end(number) },
        delay: 0,
        boost: Boost::NONE,
        mark: 0,
    };
    if cost <= free {
        let after = Window { number, count: count + cost };
        let new_state = if cost == 0 { state } else { after.pack() };
        return Step { state: new_state, outcome: outcome(Verdict::Conforms, after.count) };
    }
    let verdict = if cost > limit { Verdict::Never } else { Verdict::Exceeds { retry_after: place.until_end(number) } };
    Step { state, outcome: outcome(verdict, count) }
}

/// Takes cells whether they fit or not.
#[must_use]
pub fn force(quota: &Quota, state: u64, phase: u64, now: Nanos, cost: u64) -> u64 {
    let Window { number, count } = current(state, Place::at(quota, phase, now).number);
    Window { number, count: count.saturating_add(cost).min(MASK) }.pack()
}

/// Takes back what was charged to the window of `mark`, unless that is over.
#[must_use]
pub fn refund(quota: &Quota, state: u64, phase: u64, mark: Option<u64>, now: Nanos, cost: u64) -> u64 {
    let window = current(state, Place::at(quota, phase, now).number);
    if mark.is_some_and(|mark| mark >> 32 != window.number) {
        return state;
    }
    Window { count: window.count.saturating_sub(cost), ..window }.pack()
}

/// The current window's count.
#[must_use]
pub fn used(quota: &Quota, state: u64, phase: u64, now: Nanos) -> u64 {
    current(state, Place::at(quota, phase, now).number).count
}

/// The state with `used` in the current window.
#[must_use]
pub fn with_used(quota: &Quota, used: u64, phase: u64, now: Nanos) -> u64 {
    if used == 0 {
        return 0;
    }
    let most = if quota.may_owe() { MASK } else { quota.count() };
    Window { number: Place::at(quota, phase, now).number, count: used.min(most) }.pack()
}

#[derive(Clone, Copy)]
struct Window {
    number: u64,
    count: u64,
}

impl Window {
    fn pack(self) -> u64 {
        (self.number << 32) | (self.count & MASK)
    }
}

/// The stored window if it is still the current one, else an empty current one. One that is a window ahead is kept: the clock went back a
/// little. What is further ahead keeps its count in the current window: nobody is locked out for the step, and nothing is refilled.
fn current(state: u64, number: u64) -> Window {
    let (stored, count) = (state >> 32, state & MASK);
    match number.wrapping_sub(stored) & MASK {
        _ if state == 0 => Window { number, count: 0 },
        0 | MASK => Window { number: stored, count },
        1..=HALF => Window { number, count: 0 },
        _ => Window { number, count },
    }
}

/// Where `now` lies in the sequence of windows.
struct Place {
    number: u64,
    until_end: Nanos,
    period: Nanos,
}

impl Place {
    fn at(quota: &Quota, phase: u64, now: Nanos) -> Self {
        let period = quota.period();
        if let Some(calendar) = quota.calendar() {
            let window = calendar.window(now);
            return Self { number: window.number & MASK, until_end: window.end.saturating_sub(now).max(1), period };
        }
        let shifted = now.saturating_add(phase % period);
        Self { number: (shifted / period) & MASK, until_end: period - shifted % period, period }
    }

    /// Time until window `number` (this one, or the next after a step back) ends. At least 1.
    fn until_end(&self, number: u64) -> Nanos {
        if number == self.number { self.until_end } else { self.until_end.saturating_add(self.period) }
    }
}

/// Counts and window numbers have 32 bits each. At the shortest period numbers come round after 136 years.
pub(super) const MASK: u64 = 0xffff_ffff;
/// Half of the circle of window numbers: less is the past, more the future.
const HALF: u64 = 1 << 31;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SECOND;
    use crate::limit::Algorithm;
    use std::time::Duration;

    fn per_minute(count: u64) -> Quota {
        Quota::new(count, Duration::from_secs(60), None, Algorithm::FixedWindow).unwrap()
    }

    #[test]
    fn it_counts_to_the_limit_and_starts_again_at_the_edge() {
        let quota = per_minute(3);
        let mut state = 0;
        for left in [2, 1, 0] {
            let step = decide(&quota, state, 0, 10 * SECOND, 1);
            assert_eq!((step.outcome.verdict, step.outcome.remaining), (Verdict::Conforms, left));
            state = step.state;
        }
        let denied = decide(&quota, state, 0, 10 * SECOND, 1);
        assert_eq!(denied.outcome.verdict, Verdict::Exceeds { retry_after: 50 * SECOND });
        assert!(!decide(&quota, state, 0, 60 * SECOND - 1, 1).outcome.verdict.conforms());
        assert_eq!(decide(&quota, state, 0, 60 * SECOND, 1).outcome.remaining, 2);
    }

    #[test]
    fn a_cost_that_never_fits_and_one_that_does_not_fit_now() {
        let quota = per_minute(3);
        assert_eq!(decide(&quota, 0, 0, 0, 4).outcome.verdict, Verdict::Never);
        assert_eq!(decide(&quota, 0, 0, 0, u64::MAX).outcome.verdict, Verdict::Never);
        let two = decide(&quota, 0, 0, 0, 2).state;
        assert_eq!(decide(&quota, two, 0, 0, 2).outcome.verdict, Verdict::Exceeds { retry_after: 60 * SECOND });
        assert_eq!(decide(&quota, two, 0, 0, 1).outcome.remaining, 0);
    }

    #[test]
    fn a_phase_moves_the_edge() {
        let quota = per_minute(1);
        let state = decide(&quota, 0, 45 * SECOND, 10 * SECOND, 1).state;
        assert!(!decide(&quota, state, 45 * SECOND, 14 * SECOND, 1).outcome.verdict.conforms());
        assert!(decide(&quota, state, 45 * SECOND, 15 * SECOND, 1).outcome.verdict.conforms());
    }

    #[test]
    fn a_refund_goes_back_into_the_same_window_only() {
        let quota = per_minute(3);
        let two = decide(&quota, 0, 0, 0, 2).state;
        assert_eq!(used(&quota, refund(&quota, two, 0, Some(two), SECOND, 1), 0, SECOND), 1);
        assert_eq!(refund(&quota, two, 0, Some(two), 60 * SECOND, 1), two);
    }

    #[test]
    fn a_clock_that_went_back_neither_refills_nor_locks_out() {
        let quota = per_minute(1);
        let state = decide(&quota, 0, 0, 61 * SECOND, 1).state;
        let back = decide(&quota, state, 0, 59 * SECOND, 1);
        assert_eq!(back.outcome.verdict, Verdict::Exceeds { retry_after: 61 * SECOND });
        let far_ahead = decide(&quota, 0, 0, 7200 * SECOND, 1).state;
        let far_back = decide(&quota, far_ahead, 0, 0, 1);
        assert_eq!(far_back.outcome.verdict, Verdict::Exceeds { retry_after: 60 * SECOND });
        assert!(decide(&quota, far_back.state, 0, 60 * SECOND, 1).outcome.verdict.conforms());
    }
}
