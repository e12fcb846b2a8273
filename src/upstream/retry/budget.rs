//! How many retries an upstream's requests may cost it, over all workers.
//!
//! Requests and retries are counted by second, and a retry is granted as long as those of the last [`WINDOW`] seconds stay within their share of
//! the requests. A worker that grants one has counted it before it adds up, so that all together never grant more; several that ask in the
//! same instant may grant one less.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock::{Nanos, SECOND};

/// Counts of the last seconds. One atomic addition per request, and no lock.
#[derive(Debug, Default)]
pub(in crate::upstream) struct RetryBudget {
    /// By second, each with [its number](number), its retries and its requests in one word.
    seconds: [AtomicU64; KEPT],
}

impl RetryBudget {
    /// A client's request.
    pub(in crate::upstream) fn request(&self, now: Nanos) {
        self.add(now, REQUEST);
    }

    /// Whether there may be a retry, which is counted then.
    pub(super) fn grant(&self, now: Nanos, share: f64, min_per_second: u32) -> bool {
        let Some(second) = self.add(now, RETRY) else { return false };
        let (requests, retries) = self.sums(now);
        let granted = retries <= most(requests, share, min_per_second);
        if !granted {
            second.fetch_sub(RETRY, Ordering::Relaxed);
        }
        granted
    }

    fn add(&self, now: Nanos, one: u64) -> Option<&AtomicU64> {
        let number = number(now);
        let second = self.seconds.get(place(number))?;
        let mut before = second.load(Ordering::Relaxed);
        loop {
            if before >> NUMBER_SHIFT == number {
                second.fetch_add(one, Ordering::Relaxed);
                return Some(second);
            }
            // Somebody else may begin the second as well; one of them does.
            match second.compare_exchange_weak(before, number << NUMBER_SHIFT | one, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(second),
                Err(other) => before = other,
            }
        }
    }

    /// Requests and retries of the window that ends now.
    fn sums(&self, now: Nanos) -> (u64, u64) {
        let last = number(now);
        let within = |word: &u64| last.wrapping_sub(word >> NUMBER_SHIFT) & NUMBERS < WINDOW;
        let words = self.seconds.iter().map(|second| second.load(Ordering::Relaxed)).filter(within);
        words.fold((0, 0), |(requests, retries), word| (requests + (word & REQUESTS), retries + (word >> RETRY_SHIFT & RETRIES)))
    }
}

/// Retries that so many requests allow.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a share from 0 to 1 of a number below 2^30"
)]
fn most(requests: u64, share: f64, min_per_second: u32) -> u64 {
    // A share such as 0.2 is not one in binary, and 2 of 10 are meant.
    let shared = (requests as f64 * share + 1e-6) as u64;
    shared.max(u64::from(min_per_second) * WINDOW)
}

/// The second's number, from 1: 0 is a second that never was.
fn number(now: Nanos) -> u64 {
    (now / SECOND + 1) & NUMBERS
}

fn place(number: u64) -> usize {
    usize::try_from(number).unwrap_or(0) % KEPT
}

/// Seconds that are looked at, the one that has begun included.
const WINDOW: u64 = 10;
/// A power of two, more than the window.
const KEPT: usize = 16;
// From the right: 26 bits of requests, 22 of retries, 16 of the second's number, which comes back after 18 hours.
const REQUEST: u64 = 1;
const REQUESTS: u64 = (1 << RETRY_SHIFT) - 1;
const RETRY_SHIFT: u32 = 26;
const RETRY: u64 = 1 << RETRY_SHIFT;
const RETRIES: u64 = (1 << (NUMBER_SHIFT - RETRY_SHIFT)) - 1;
const NUMBER_SHIFT: u32 = 48;
const NUMBERS: u64 = (1 << 16) - 1;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn a_share_of_the_requests_is_granted_and_not_one_more() {
        let budget = RetryBudget::default();
        for requests in 1..=100_u64 {
            budget.request(5 * SECOND);
            let granted = (0..3).filter(|_| budget.grant(5 * SECOND, 0.2, 0)).count();
            assert_eq!(granted, usize::from(requests % 5 == 0), "{requests}");
        }
    }

    #[test]
    fn few_requests_have_the_minimum_of_the_whole_window_and_no_share_on_top() {
        let budget = RetryBudget::default();
        let granted = |share| (0..100).filter(|_| budget.grant(0, share, 2)).count();
        assert_eq!(granted(0.0), 20);
        (0..100).for_each(|_| budget.request(0));
        assert_eq!((granted(0.2), granted(0.25)), (0, 5));
    }

    #[test]
    fn what_is_older_than_the_window_counts_no_more() {
        let budget = RetryBudget::default();
        (0..50).for_each(|_| budget.request(3 * SECOND));
        assert!((0..10).all(|_| budget.grant(4 * SECOND, 0.2, 0)) && !budget.grant(4 * SECOND, 0.2, 0));
        assert!(!budget.grant(12 * SECOND, 0.2, 0), "the requests are still there, and so are the retries");
        (0..5).for_each(|_| budget.request(13 * SECOND));
        assert!(!budget.grant(13 * SECOND, 0.2, 0), "the requests are gone, their retries are not");
        assert!(budget.grant(14 * SECOND, 0.2, 0), "and now they are");
    }

    /// Whatever comes when: in no window are there more retries than their share of its requests, or the minimum.
    #[test]
    fn no_window_is_ever_overdrawn() {
        proptest::proptest!(|(steps in proptest::collection::vec((0_u64..400, proptest::bool::ANY), 1..2000), floor in 0_u32..2)| {
            let budget = RetryBudget::default();
            let (mut now, mut log) = (0, Vec::new());
            for (millis, is_retry) in steps {
                now += millis * SECOND / 1000;
                let counted = if is_retry { budget.grant(now, 0.2, floor) } else { budget.request(now); true };
                if counted {
                    log.push((now / SECOND, is_retry));
                }
                let of = |wanted| log.iter().filter(|(at, is_retry)| now / SECOND - at < WINDOW && *is_retry == wanted).count();
                if is_retry && counted {
                    let most = (of(false) / 5).max(floor as usize * 10);
                    proptest::prop_assert!(of(true) <= most, "{} retries of {} requests", of(true), of(false));
                }
            }
        });
    }

    #[test]
    fn many_threads_grant_no_more_than_one() {
        let (budget, granted) = (RetryBudget::default(), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        budget.request(SECOND);
                        granted.fetch_add(usize::from(budget.grant(SECOND, 0.2, 0)), Ordering::Relaxed);
                    }
                });
            }
        });
        let granted = granted.into_inner();
        assert!((7_000..=8_000).contains(&granted), "{granted} of 8000");
    }
}
