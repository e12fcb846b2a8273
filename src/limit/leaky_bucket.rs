//! The leaky bucket, in its two readings.
//!
//! **As a meter** (`over: reject`) what is in the bucket leaks at `L/P`, and a request passes if it still fits into `B`:
//! [`gcra`] seen from the other side, same arithmetic, same worst case of `B + L`.
//!
//! **As a queue** (`over: delay`) it shapes: requests leave one by one, at least `T` apart, each waits for its place, and
//! whoever would wait longer than allowed is refused. The state is the time at which the next place is free. There is no burst: from idle
//! the first request passes at once and the second waits `T`. Worst case of what leaves in any window of length `P`: `1 + L` cells.
//! Source: the virtual-scheduling form of ITU-T I.371 with a tolerance of zero.

use super::{Boost, Outcome, Quota, Step, Verdict, gcra};
use crate::clock::Nanos;

pub use super::gcra::{force, fullness, refund, used, with_used};

/// Decides one charge; `next_free` is the stored state.
#[must_use]
pub fn decide(quota: &Quota, next_free: u64, now: Nanos, cost: u64) -> Step {
    if quota.max_delay() == 0 { gcra::decide(quota, next_free, now, cost) } else { queue(quota, next_free, now, cost) }
}

/// A cost of `n` waits for those before it and then keeps `n` places; more than `L` places are never given at once.
fn queue(quota: &Quota, next_free: u64, now: Nanos, cost: u64) -> Step {
    let wait = gcra::backlog(quota, next_free, now);
    let outcome = |verdict, backlog: Nanos, delay| Outcome {
        verdict,
        limit: quota.burst(),
        remaining: quota.max_delay().checked_sub(backlog).map_or(0, |room| quota.places_in(room).min(quota.burst())),
        reset_after: backlog,
        delay,
        boost: Boost::NONE,
        mark: 0,
    };
    let next_free = next_free.min(now.saturating_add(quota.ceiling()));
    if cost == 0 {
        return Step { state: next_free, outcome: outcome(Verdict::Conforms, wait, 0) };
    }
    let Some(increment) = quota.time_of(cost).filter(|increment| *increment <= quota.capacity()) else {
        return Step { state: next_free, outcome: outcome(Verdict::Never, wait, 0) };
    };
    if wait > quota.max_delay() {
        let exceeds = Verdict::Exceeds { retry_after: wait - quota.max_delay() };
        return Step { state: next_free, outcome: outcome(exceeds, wait, 0) };
    }
    let backlog = wait.saturating_add(increment);
    Step { state: now.saturating_add(backlog), outcome: outcome(Verdict::Conforms, backlog, wait) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SECOND;
    use crate::limit::Algorithm;
    use std::time::Duration;

    #[test]
    fn requests_leave_one_interval_apart_and_the_last_is_refused() {
        let quota = Quota::new(10, Duration::from_secs(1), None, Algorithm::LeakyBucket)
            .unwrap()
            .delaying(Duration::from_millis(250), 100)
            .unwrap();
        assert_eq!(quota.burst(), 3);
        let mut state = 0;
        for (tenths, left) in [(0, 2), (1, 1), (2, 0)] {
            let step = decide(&quota, state, 0, 1);
            assert_eq!(step.outcome.verdict, Verdict::Conforms);
            assert_eq!((step.outcome.delay, step.outcome.remaining), (tenths * SECOND / 10, left));
            state = step.state;
        }
        let refused = decide(&quota, state, 0, 1);
        assert_eq!(refused.outcome.verdict, Verdict::Exceeds { retry_after: SECOND / 20 });
        assert!(!decide(&quota, state, SECOND / 20 - 1, 1).outcome.verdict.conforms());
        assert_eq!(decide(&quota, state, SECOND / 20, 1).outcome.delay, SECOND / 4);
        assert_eq!(decide(&quota, state, SECOND / 5, 1).outcome.delay, SECOND / 10);
    }

    #[test]
    fn a_cost_keeps_that_many_places() {
        let quota = Quota::new(10, Duration::from_secs(1), None, Algorithm::LeakyBucket)
            .unwrap()
            .delaying(Duration::from_secs(1), 100)
            .unwrap();
        let first = decide(&quota, 0, 0, 5);
        assert_eq!(first.outcome.delay, 0);
        assert_eq!(decide(&quota, first.state, 0, 1).outcome.delay, SECOND / 2);
        assert_eq!(decide(&quota, 0, 0, 11).outcome.verdict, Verdict::Never);
        assert_eq!(decide(&quota, 0, 0, u64::MAX).outcome.verdict, Verdict::Never);
    }

    #[test]
    fn without_a_delay_it_is_a_meter() {
        let quota = Quota::new(10, Duration::from_secs(1), Some(3), Algorithm::LeakyBucket).unwrap();
        let mut state = 0;
        for _ in 0..3 {
            let step = decide(&quota, state, 0, 1);
            assert_eq!((step.outcome.verdict, step.outcome.delay), (Verdict::Conforms, 0));
            state = step.state;
        }
        assert_eq!(decide(&quota, state, 0, 1).outcome.verdict, Verdict::Exceeds { retry_after: SECOND / 10 });
    }
}
