//! The sliding window counter: this window's count, and the previous one's weighted by how much of it still lies within
//! the last period.
//!
//! Source: the approximation that Cloudflare described in 2017. The state packs `w:24 | current:20 | previous:20`. It
//! assumes that the previous window's requests were spread evenly, so it is no upper bound of `L` in any period: the worst case in any rolling
//! window is just under `2·L`, but never in one instant. Where "never more than `L`" is the contract, use the log.
//!
//! No division and no fraction decide: `previous·(W − e) + (current + n)·W ≤ L·W`, on 128 bits. Only what was admitted counts.

use super::{Boost, Outcome, Quota, Step, Verdict};
use crate::clock::Nanos;

/// Decides one charge.
#[must_use]
pub fn decide(quota: &Quota, state: u64, phase: u64, now: Nanos, cost: u64) -> Step {
    let view = View::of(quota, state, phase, now);
    let counts = view.counts;
    let state = if counts.current == 0 && counts.previous == 0 { 0 } else { view.pack() };
    let room = counts.room();
    if cost <= room {
        let after = Counts { current: counts.current + cost, ..counts };
        let new_state = if cost == 0 { state } else { view.with(after).pack() };
        return Step { state: new_state, outcome: after.outcome(Verdict::Conforms, room - cost) };
    }
    let verdict = if cost > quota.count() { Verdict::Never } else { Verdict::Exceeds { retry_after: counts.retry_after(cost) } };
    Step { state, outcome: counts.outcome(verdict, room) }
}

/// Takes cells whether they fit or not.
#[must_use]
pub fn force(quota: &Quota, state: u64, phase: u64, now: Nanos, cost: u64) -> u64 {
    let view = View::of(quota, state, phase, now);
    let counts = view.counts;
    view.with(Counts { current: counts.current.saturating_add(cost).min(COUNT_MASK), ..counts }).pack()
}

/// Takes back what was charged to the window of `mark`: the current one, or the previous one; else it no longer counts.
#[must_use]
pub fn refund(quota: &Quota, state: u64, phase: u64, mark: Option<u64>, now: Nanos, cost: u64) -> u64 {
    let view = View::of(quota, state, phase, now);
    let charged = mark.map_or(view.number, |mark| mark >> 40);
    let counts = view.counts;
    let refunded = match view.number.wrapping_sub(charged) & WINDOW_MASK {
        0 => Counts { current: counts.current.saturating_sub(cost), ..counts },
        1 => Counts { previous: counts.previous.saturating_sub(cost), ..counts },
        _ => return state,
    };
    view.with(refunded).pack()
}

/// Cells in use, rounded up.
#[must_use]
pub fn used(quota: &Quota, state: u64, phase: u64, now: Nanos) -> u64 {
    let counts = View::of(quota, state, phase, now).counts;
    counts.current + counts.weighted_previous()
}

/// The state of somebody who has just used `used` cells.
#[must_use]
pub fn with_used(quota: &Quota, used: u64, phase: u64, now: Nanos) -> u64 {
    if used == 0 {
        return 0;
    }
    let view = View::of(quota, 0, phase, now);
    let most = if quota.may_owe() { COUNT_MASK } else { quota.count() };
    view.with(Counts { current: used.min(most), ..view.counts }).pack()
}

/// A window's counts as they stand at a time, in any unit of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Cells of this window.
    pub current: u64,
    /// Cells of the one before it, at most `limit`.
    pub previous: u64,
    /// Since the window began; at most `period`.
    pub elapsed: u64,
    /// Until it begins: the clock went back a little.
    pub ahead: u64,
    /// Length of a window.
    pub period: u64,
    /// Cells per period.
    pub limit: u64,
}

impl Counts {
    /// `⌈previous·(W − e)/W⌉`.
    fn weighted_previous(&self) -> u64 {
        if self.previous == 0 {
            return 0;
        }
        let left = self.period - self.elapsed;
        match self.previous.checked_mul(left) {
            Some(product) => product.div_ceil(self.period),
            None => narrow((u128::from(self.previous) * u128::from(left)).div_ceil(u128::from(self.period))),
        }
    }

    /// Cells that fit now. Rounded down, which is exact: costs are whole.
    #[must_use]
    pub fn room(&self) -> u64 {
        self.limit.saturating_sub(self.weighted_previous()).saturating_sub(self.current)
    }

    /// Until `cost`, which does not fit now but does into an empty counter, fits.
    #[must_use]
    pub fn retry_after(&self, cost: u64) -> u64 {
        let left = self.period - self.elapsed;
        if let Some(room) = self.limit.checked_sub(self.current).and_then(|free| free.checked_sub(cost))
            && self.previous > 0
        {
            // Within this window, as the previous one loses weight.
            let at = self.period - self.scaled(room, self.previous);
            if at < self.period {
                return self.ahead + at.saturating_sub(self.elapsed);
            }
        }
        // In the next window, when this one's count has lost enough weight.
        let room = self.limit.saturating_sub(cost);
        let fits_at = if self.current == 0 { 0 } else { self.period - self.scaled(room, self.current.min(self.limit)) };
        self.ahead + left + fits_at
    }

    /// Until nothing of it counts any more.
    #[must_use]
    pub fn reset_after(&self) -> u64 {
        match (self.current, self.previous) {
            (0, 0) => 0,
            (0, _) => self.ahead + self.period - self.elapsed,
            _ => self.ahead + 2 * self.period - self.elapsed,
        }
    }

    /// `⌊cells·W/count⌋`, at most `W`.
    fn scaled(&self, cells: u64, count: u64) -> u64 {
        narrow(u128::from(cells) * u128::from(self.period) / u128::from(count.max(1))).min(self.period)
    }

    fn outcome(&self, verdict: Verdict, remaining: u64) -> Outcome {
        let reset_after = self.reset_after();
        Outcome { verdict, limit: self.limit, remaining, reset_after, delay: 0, boost: Boost::NONE, mark: 0 }
    }
}

/// The stored counts as they stand at a time, and of which window they are.
#[derive(Clone, Copy)]
struct View {
    number: u64,
    counts: Counts,
}

impl View {
    fn of(quota: &Quota, state: u64, phase: u64, now: Nanos) -> Self {
        let (number, elapsed) = place(quota, phase, now);
        let (stored, current, previous) = (state >> 40, (state >> 20) & COUNT_MASK, state & COUNT_MASK);
        let (period, limit) = (quota.period(), quota.count());
        let counts = Counts { current, previous: previous.min(limit), elapsed, ahead: 0, period, limit };
        let view = |counts| Self { number, counts };
        match number.wrapping_sub(stored) & WINDOW_MASK {
            0 => view(counts),
            _ if state == 0 => view(counts),
            1 => view(Counts { current: 0, previous: current.min(limit), ..counts }),
            // One ahead: the clock went back a little. It stays as it is and is looked at from its beginning.
            WINDOW_MASK => Self { number: stored, counts: Counts { elapsed: 0, ahead: period - elapsed, ..counts } },
            // Long past.
            2..=HALF => view(Counts { current: 0, previous: 0, ..counts }),
            // Far ahead: the clock went back by much. What is used stays used, and nobody is locked out for the step.
            _ => view(counts),
        }
    }

    fn with(self, counts: Counts) -> Self {
        Self { counts, ..self }
    }

    fn pack(self) -> u64 {
        (self.number << 40) | (self.counts.current << 20) | self.counts.previous
    }
}

/// The number of the window that `now` is in, and how much of it has passed.
fn place(quota: &Quota, phase: u64, now: Nanos) -> (u64, Nanos) {
    let period = quota.period();
    let shifted = now.saturating_add(phase % period);
    ((shifted / period) & WINDOW_MASK, shifted % period)
}

fn narrow(wide: u128) -> u64 {
    u64::try_from(wide).unwrap_or(u64::MAX)
}

/// Counts have 20 bits, so a limit has at most this many cells.
pub(super) const COUNT_MASK: u64 = (1 << 20) - 1;
/// Window numbers have 24 bits. At the shortest period a state is taken for the future after 23 hours, long after a sweep has
/// dropped it.
const WINDOW_MASK: u64 = (1 << 24) - 1;
/// Half of the circle of window numbers: less is the past, more the future.
const HALF: u64 = 1 << 23;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SECOND;
    use crate::limit::Algorithm;
    use std::time::Duration;

    fn per_minute(count: u64) -> Quota {
        Quota::new(count, Duration::from_secs(60), None, Algorithm::SlidingWindow).unwrap()
    }

    #[test]
    fn the_previous_window_fades() {
        let quota = per_minute(100);
        let mut state = 0;
        for left in (0..100).rev() {
            let step = decide(&quota, state, 0, 30 * SECOND, 1);
            assert_eq!((step.outcome.verdict, step.outcome.remaining), (Verdict::Conforms, left));
            state = step.state;
        }
        for (second, free) in [(30, 0), (60, 0), (75, 25), (90, 50), (119, 98), (120, 100)] {
            assert_eq!(decide(&quota, state, 0, second * SECOND, 0).outcome.remaining, free, "at {second} s");
        }
        let refused = decide(&quota, state, 0, 30 * SECOND, 25).outcome;
        assert_eq!(refused.verdict, Verdict::Exceeds { retry_after: 45 * SECOND });
        assert_eq!(refused.reset_after, 90 * SECOND);
    }

    #[test]
    fn it_waits_exactly_as_long_as_it_says() {
        let quota = per_minute(7);
        let state = decide(&quota, decide(&quota, 0, 0, 50 * SECOND, 7).state, 0, 70 * SECOND, 1).state;
        for cost in 1..=7 {
            let now = 71 * SECOND;
            let Verdict::Exceeds { retry_after } = decide(&quota, state, 0, now, cost).outcome.verdict else { continue };
            assert!(!decide(&quota, state, 0, now + retry_after - 1, cost).outcome.verdict.conforms(), "{cost}");
            assert!(decide(&quota, state, 0, now + retry_after, cost).outcome.verdict.conforms(), "{cost}");
        }
    }

    #[test]
    fn hostile_costs_and_a_clock_that_goes_back() {
        let quota = per_minute(5);
        assert_eq!(decide(&quota, 0, 0, 0, 6).outcome.verdict, Verdict::Never);
        assert_eq!(decide(&quota, 0, 0, 0, u64::MAX).outcome.verdict, Verdict::Never);
        let full = decide(&quota, 0, 0, 7205 * SECOND, 5).state;
        // The window begins a second ahead, and a fifth of what it then weighs is a fifth of the next.
        let back = decide(&quota, full, 0, 7199 * SECOND, 1).outcome;
        assert_eq!(back.verdict, Verdict::Exceeds { retry_after: (1 + 60 + 12) * SECOND });
        let far_back = decide(&quota, full, 0, 0, 1);
        assert_eq!(far_back.outcome.verdict, Verdict::Exceeds { retry_after: 72 * SECOND });
        assert!(decide(&quota, far_back.state, 0, 72 * SECOND, 1).outcome.verdict.conforms());
    }

    #[test]
    fn a_refund_finds_its_window() {
        let quota = per_minute(10);
        let state = decide(&quota, 0, 0, 0, 8).state;
        assert_eq!(used(&quota, refund(&quota, state, 0, Some(state), SECOND, 3), 0, SECOND), 5);
        assert_eq!(used(&quota, refund(&quota, state, 0, Some(state), 60 * SECOND, 3), 0, 60 * SECOND), 5);
        assert_eq!(refund(&quota, state, 0, Some(state), 120 * SECOND, 3), state);
        assert_eq!(used(&quota, force(&quota, state, 0, 0, u64::MAX), 0, 0), COUNT_MASK);
    }
}
