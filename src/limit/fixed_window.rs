//! A count that starts again with every window.
//!
//! The state packs the window's number and the count: `w:32 | c:32`. Worst case in any rolling window: `2·L`, all of it
//! in one instant around an edge; that is what the other algorithms are for. `phase` moves each key's edges, so that
//! not everybody's quota comes back in the same instant.

use super::{Outcome, Quota, Step, Verdict};
use crate::clock::Nanos;

/// Decides one charge.
#[must_use]
pub fn decide(quota: &Quota, state: u64, phase: u64, now: Nanos, cost: u64) -> Step {
    let place = Place::at(quota, phase, now);
    let Window { number, count } = current(state, place.number);
    let limit = quota.count();
    let free = limit.saturating_sub(count);
    let outcome = |verdict, count: u64| Outcome {
        verdict,
        limit,
        remaining: limit.saturating_sub(count),
        reset_after: if count == 0 { 0 } else { place.until_end(number) },
    };
    if cost <= free {
        let after = Window { number, count: count + cost };
        let new_state = if cost == 0 { state } else { after.pack() };
        return Step { state: new_state, outcome: outcome(Verdict::Conforms, after.count) };
    }
    let verdict = if cost > limit { Verdict::Never } else { Verdict::Exceeds { retry_after: place.until_end(number) } };
    Step { state, outcome: outcome(verdict, count) }
}

/// Takes back `cost`, unless the window it was charged to is over.
#[must_use]
pub fn refund(quota: &Quota, state: u64, phase: u64, now: Nanos, cost: u64) -> u64 {
    let window = Window::unpack(state);
    if current(state, Place::at(quota, phase, now).number).number != window.number {
        return state;
    }
    Window { count: window.count.saturating_sub(cost), ..window }.pack()
}

/// The current window's count.
#[must_use]
pub fn used(quota: &Quota, state: u64, phase: u64, now: Nanos) -> u64 {
    current(state, Place::at(quota, phase, now).number).count.min(quota.count())
}

/// The state with `used` in the current window.
#[must_use]
pub fn with_used(quota: &Quota, used: u64, phase: u64, now: Nanos) -> u64 {
    if used == 0 {
        return 0;
    }
    Window { number: Place::at(quota, phase, now).number, count: used.min(quota.count()) }.pack()
}

#[derive(Clone, Copy)]
struct Window {
    number: u64,
    count: u64,
}

impl Window {
    fn unpack(state: u64) -> Self {
        Self { number: state >> 32, count: state & MASK }
    }

    fn pack(self) -> u64 {
        (self.number << 32) | (self.count & MASK)
    }
}

/// The stored window if it is still the current one, else an empty current one. A window that is one ahead is kept:
/// the clock went back a little. One that is further ahead is from another life and starts afresh.
fn current(state: u64, number: u64) -> Window {
    let stored = Window::unpack(state);
    if stored.number == number || (stored.number > number && stored.number - number <= 1) {
        return stored;
    }
    Window { number, count: 0 }
}

/// Where `now` lies in the sequence of windows.
struct Place {
    number: u64,
    elapsed: Nanos,
    period: Nanos,
}

impl Place {
    fn at(quota: &Quota, phase: u64, now: Nanos) -> Self {
        let period = quota.period();
        let shifted = now.saturating_add(phase % period);
        // The window before the first gets number 0 = "never seen", so real ones count from 1.
        Self { number: (shifted / period + 1) & MASK, elapsed: shifted % period, period }
    }

    /// Time until window `number` (this one, or the next after a step back) ends. At least 1.
    fn until_end(&self, number: u64) -> Nanos {
        (self.period - self.elapsed).saturating_add(self.period.saturating_mul(number.saturating_sub(self.number)))
    }
}

const MASK: u64 = 0xffff_ffff;

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
        assert_eq!(used(&quota, refund(&quota, two, 0, SECOND, 1), 0, SECOND), 1);
        assert_eq!(refund(&quota, two, 0, 60 * SECOND, 1), two);
    }

    #[test]
    fn a_clock_that_went_back_neither_refills_nor_locks_out() {
        let quota = per_minute(1);
        let state = decide(&quota, 0, 0, 61 * SECOND, 1).state;
        let back = decide(&quota, state, 0, 59 * SECOND, 1);
        assert_eq!(back.outcome.verdict, Verdict::Exceeds { retry_after: 61 * SECOND });
        let far_ahead = decide(&quota, 0, 0, 7200 * SECOND, 1).state;
        assert!(decide(&quota, far_ahead, 0, 0, 1).outcome.verdict.conforms());
    }
}
