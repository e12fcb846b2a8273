//! Since when a client is known: what `warmup` goes by. Limits nothing; it shares the form of counters, so that a store keeps both alike.
//!
//! The state packs two times in seconds of the clock: `first:32 | last:32`. Who has not been seen for the quota's period is forgotten, and
//! new when he comes again.

use super::{Boost, Outcome, Quota, Step, Verdict};
use crate::clock::{Nanos, SECOND};

/// Notes a visit. Always conforms.
#[must_use]
pub fn decide(quota: &Quota, state: u64, now: Nanos) -> Step {
    let second = seconds(now);
    let first = if is_forgotten(quota, state, now) { second } else { state >> 32 };
    let outcome = Outcome {
        verdict: Verdict::Conforms,
        limit: quota.burst(),
        remaining: quota.burst(),
        reset_after: 0,
        delay: 0,
        boost: Boost::NONE,
        mark: 0,
    };
    Step { state: (first << 32) | second, outcome }
}

/// How long this client has been known.
#[must_use]
pub fn age(quota: &Quota, state: u64, now: Nanos) -> Nanos {
    if is_forgotten(quota, state, now) { 0 } else { seconds(now).saturating_sub(state >> 32) * SECOND }
}

/// Whether nothing is known of the client.
#[must_use]
pub fn is_forgotten(quota: &Quota, state: u64, now: Nanos) -> bool {
    state == 0 || (state & MASK).saturating_mul(SECOND).saturating_add(quota.period()) < now
}

/// How recent the last visit was, where 2^16 is now: the oldest is the one to lose.
#[must_use]
pub fn fullness(quota: &Quota, state: u64, now: Nanos) -> u64 {
    let since = now.saturating_sub((state & MASK) * SECOND);
    super::share(quota.period().saturating_sub(since), quota.period())
}

/// From 1, so that no state is 0.
fn seconds(now: Nanos) -> u64 {
    (now / SECOND + 1).min(MASK)
}

const MASK: u64 = 0xffff_ffff;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Algorithm;
    use std::time::Duration;

    #[test]
    fn a_client_ages_and_is_forgotten_after_its_last_visit() {
        let quota = Quota::new(1, Duration::from_secs(100), None, Algorithm::FirstSeen).unwrap();
        let state = decide(&quota, 0, 10 * SECOND).state;
        assert_eq!(age(&quota, state, 10 * SECOND), 0);
        assert_eq!(age(&quota, state, 70 * SECOND), 60 * SECOND);
        let again = decide(&quota, state, 70 * SECOND).state;
        assert_eq!(age(&quota, again, 165 * SECOND), 155 * SECOND);
        assert_eq!(age(&quota, again, 180 * SECOND), 0);
        assert!(is_forgotten(&quota, again, 180 * SECOND));
    }
}
