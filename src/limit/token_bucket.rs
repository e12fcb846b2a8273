//! The token bucket: `B` tokens, refilled at `L/P`; a request takes its cost in tokens or is refused.
//!
//! Source: the textbook form is (tokens, last refill), `tokens' = min(B, tokens + elapsed·L/P)`. It answers exactly what
//! [`gcra`](super::gcra) answers under `TAT = now + (B − tokens)·T`, so both names share that arithmetic and its one
//! number: two fields could be torn apart by a race, and a refill that is rounded down loses time with every look.
//! Worst case in any window of length `P`: `B + L` cells.

pub use super::gcra::{decide, force, fullness, refund, used, with_used};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SECOND;
    use crate::limit::{Algorithm, Quota};
    use std::time::Duration;

    /// The textbook bucket, in fractions of a token so that no rounding is needed: one token is `period` parts.
    struct Textbook {
        parts: u128,
        last: u64,
    }

    impl Textbook {
        fn take(&mut self, quota: &Quota, now: u64, cost: u64) -> bool {
            let one = u128::from(quota.period());
            let refill = u128::from(now - self.last) * u128::from(quota.count());
            self.parts = (self.parts + refill).min(u128::from(quota.burst()) * one);
            self.last = now;
            let wanted = u128::from(cost) * one;
            let enough = self.parts >= wanted;
            if enough {
                self.parts -= wanted;
            }
            enough
        }
    }

    #[test]
    fn it_answers_as_the_textbook_does() {
        let quota = Quota::new(10, Duration::from_secs(1), Some(25), Algorithm::TokenBucket).unwrap();
        let mut textbook = Textbook { parts: 25 * u128::from(SECOND), last: 0 };
        let (mut tat, mut now) = (0, 0);
        for i in 0..10_000_u64 {
            now += (i * 7_919) % 300 * (SECOND / 1000);
            let cost = (i * 104_729) % 7;
            let step = decide(&quota, tat, now, cost);
            tat = step.state;
            assert_eq!(step.outcome.verdict.conforms(), textbook.take(&quota, now, cost), "request {i}");
        }
    }
}
