//! When a shard is not worth asking. Counts what happened; time is an argument.
//!
//! It opens after [`MISSES`] failures in a row, or when at least half of at least [`ENOUGH`] attempts of a second have failed. It
//! closes when a probe says so, never by itself: no client's request is spent on trying.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::clock::{Nanos, SECOND};

/// One shard's. Starts open: nobody has answered yet.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    closed: AtomicBool,
    in_a_row: AtomicU32,
    /// Which second, and how many attempts and failures it has seen: 32, 16 and 16 bits.
    second: AtomicU64,
}

impl Breaker {
    /// Whether the shard may be asked.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Notes an answer.
    pub(super) fn answered(&self, now: Nanos) {
        if self.in_a_row.load(Ordering::Relaxed) != 0 {
            self.in_a_row.store(0, Ordering::Relaxed);
        }
        self.count(now, 0);
    }

    /// Notes a failure; true if this one opened it.
    pub(super) fn failed(&self, now: Nanos) -> bool {
        let in_a_row = self.in_a_row.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let (attempts, failures) = self.count(now, 1);
        let too_many = in_a_row >= MISSES || (attempts >= ENOUGH && failures * 2 >= attempts);
        too_many && self.open()
    }

    /// Whether the last attempt did not fail.
    pub(super) fn is_clean(&self) -> bool {
        self.in_a_row.load(Ordering::Relaxed) == 0
    }

    /// Opens it; true if it was closed.
    pub(super) fn open(&self) -> bool {
        self.closed.swap(false, Ordering::AcqRel)
    }

    /// Closes it and forgets what was; true if it was open.
    pub(super) fn close(&self) -> bool {
        self.in_a_row.store(0, Ordering::Relaxed);
        self.second.store(0, Ordering::Relaxed);
        !self.closed.swap(true, Ordering::AcqRel)
    }

    /// How many attempts and failures this second has with this one.
    fn count(&self, now: Nanos, failed: u64) -> (u64, u64) {
        let this = (now / SECOND) & 0xffff_ffff;
        let next = |packed: u64| {
            let same = packed >> 32 == this;
            let (attempts, failures) = if same { ((packed >> 16) & 0xffff, packed & 0xffff) } else { (0, 0) };
            // Beyond 65535 in a second the share no longer moves, and that is as good.
            if attempts == 0xffff { packed } else { this << 32 | (attempts + 1) << 16 | (failures + failed) }
        };
        let before = self.second.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |packed| Some(next(packed)));
        let after = next(before.unwrap_or_else(|packed| packed));
        ((after >> 16) & 0xffff, after & 0xffff)
    }
}

/// Failures in a row that open it.
const MISSES: u32 = 5;
/// Attempts in a second from which on their share counts.
const ENOUGH: u64 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn closed() -> Breaker {
        let breaker = Breaker::default();
        assert!(!breaker.is_closed());
        assert!(breaker.close());
        breaker
    }

    #[test]
    fn five_failures_in_a_row_open_it_once() {
        let breaker = closed();
        assert_eq!([0; 6].map(|_: u8| breaker.failed(SECOND)), [false, false, false, false, true, false]);
        assert!(!breaker.is_closed());
        assert!(breaker.close() && breaker.is_closed());
        assert!(!breaker.failed(SECOND), "what was before it closed is forgotten");
    }

    #[test]
    fn an_answer_between_breaks_the_row() {
        let breaker = closed();
        for second in 0..10 {
            let opened = (0..4).any(|_| breaker.failed(second * SECOND));
            assert!(!opened);
            breaker.answered(second * SECOND);
        }
        assert!(breaker.is_closed());
    }

    #[test]
    fn half_of_twenty_in_a_second_open_it() {
        let breaker = closed();
        for _ in 0..9 {
            breaker.answered(SECOND);
            assert!(!breaker.failed(SECOND));
        }
        breaker.answered(SECOND);
        assert!(breaker.failed(SECOND), "ten of twenty");
    }

    #[test]
    fn seconds_are_counted_apart_and_a_share_below_half_is_borne() {
        let breaker = closed();
        for second in 1..20 {
            for _ in 0..6 {
                breaker.answered(second * SECOND);
                breaker.answered(second * SECOND);
                assert!(!breaker.failed(second * SECOND));
            }
        }
        for _ in 0..70_000 {
            breaker.answered(30 * SECOND);
        }
        assert!(!breaker.failed(30 * SECOND));
        assert!(breaker.is_closed());
    }
}
