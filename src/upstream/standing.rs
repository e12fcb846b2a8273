//! What all workers share about one endpoint, in atomics: a pick reads three of them, and writes none.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use super::balance::{self, FULL};

/// An endpoint's load, and whether and how much it may be used. Kept by upstream and address, so it outlives reloads.
#[derive(Debug)]
pub(super) struct Standing {
    pub(super) authority: Arc<str>,
    pub(super) hash: u64,
    load: AtomicU32,
    /// Those of them that share an HTTP/2 connection with another one.
    riding: AtomicU32,
    out: AtomicU8,
    /// What there is of its weight, up to [`FULL`]: less during a slow start.
    share: AtomicU32,
    /// Failures since the last good answer.
    failed_in_a_row: AtomicU32,
    /// Of the window of `success_rate`.
    answers: AtomicU32,
    failures: AtomicU32,
}

/// Why an endpoint is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Out {
    /// Its health checks fail.
    Unhealthy = 1,
    /// Its answers are bad.
    Ejected = 2,
    /// An operator says so.
    Drained = 4,
    /// Others are preferred to it.
    StandsBy = 8,
}

/// What of an upstream's endpoints is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// What is in order.
    Usual,
    /// So little is in order that all but drained ones are.
    Panic,
}

/// Answers of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Tally {
    pub(super) answers: u32,
    pub(super) failures: u32,
}

impl Standing {
    /// In order, with its full weight.
    pub(super) fn new(authority: Arc<str>) -> Self {
        Self {
            hash: balance::endpoint_hash(&authority),
            authority,
            load: AtomicU32::new(0),
            riding: AtomicU32::new(0),
            out: AtomicU8::new(0),
            share: AtomicU32::new(FULL_SHARE),
            failed_in_a_row: AtomicU32::new(0),
            answers: AtomicU32::new(0),
            failures: AtomicU32::new(0),
        }
    }

    /// Exchanges under way, over all workers.
    pub(super) fn load(&self) -> u32 {
        self.load.load(Ordering::Relaxed)
    }

    pub(super) fn begin(&self) {
        self.load.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn end(&self) {
        self.load.fetch_sub(1, Ordering::Relaxed);
    }

    /// Connections that carry them.
    pub(super) fn connections_in_use(&self) -> u32 {
        self.load().saturating_sub(self.riding.load(Ordering::Relaxed))
    }

    /// An exchange shares a connection with another one.
    pub(super) fn rides(&self) {
        self.riding.fetch_add(1, Ordering::Relaxed);
    }

    /// One that did is over.
    pub(super) fn rides_no_more(&self) {
        self.riding.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn may_be_used(&self, mode: Mode) -> bool {
        let counts = match mode {
            Mode::Usual => u8::MAX,
            Mode::Panic => Out::Drained as u8 | Out::StandsBy as u8,
        };
        self.out.load(Ordering::Relaxed) & counts == 0
    }

    /// Whether it could be used, though others may be preferred to it.
    pub(super) fn is_in_order(&self) -> bool {
        self.out.load(Ordering::Relaxed) & !(Out::StandsBy as u8) == 0
    }

    pub(super) fn is(&self, out: Out) -> bool {
        self.out.load(Ordering::Relaxed) & out as u8 != 0
    }

    /// Whether this is the one reason why it is not used.
    pub(super) fn is_out_only_for(&self, out: Out) -> bool {
        self.out.load(Ordering::Relaxed) == out as u8
    }

    /// Whether it was another way before.
    pub(super) fn set(&self, out: Out, holds: bool) -> bool {
        let bit = out as u8;
        let before = if holds { self.out.fetch_or(bit, Ordering::Relaxed) } else { self.out.fetch_and(!bit, Ordering::Relaxed) };
        (before & bit != 0) != holds
    }

    /// From 1 to [`FULL`].
    pub(super) fn share(&self) -> u64 {
        u64::from(self.share.load(Ordering::Relaxed))
    }

    pub(super) fn set_share(&self, share: u64) {
        self.share.store(u32::try_from(share.clamp(1, FULL)).unwrap_or(FULL_SHARE), Ordering::Relaxed);
    }

    /// Takes note of a good answer.
    pub(super) fn succeeded(&self, counts: Counts) {
        // Mostly zero already, and a line that nobody writes stays in every core's cache.
        if self.failed_in_a_row.load(Ordering::Relaxed) != 0 {
            self.failed_in_a_row.store(0, Ordering::Relaxed);
        }
        if counts == Counts::Rate {
            self.answers.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes note of a failure; how many in a row it makes.
    pub(super) fn failed(&self, counts: Counts) -> u32 {
        if counts == Counts::Rate {
            self.answers.fetch_add(1, Ordering::Relaxed);
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
        self.failed_in_a_row.fetch_add(1, Ordering::Relaxed).saturating_add(1)
    }

    /// What was counted since the last time, which begins anew.
    pub(super) fn take_tally(&self) -> Tally {
        let take = |count: &AtomicU32| count.swap(0, Ordering::Relaxed);
        Tally { failures: take(&self.failures), answers: take(&self.answers) }
    }

    pub(super) fn forget_failures(&self) {
        self.failed_in_a_row.store(0, Ordering::Relaxed);
        self.take_tally();
    }

    /// Begins to count failures in a row again.
    pub(super) fn forget_row(&self) {
        self.failed_in_a_row.store(0, Ordering::Relaxed);
    }
}

/// What is counted of answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Counts {
    /// Failures in a row.
    Row,
    /// And how many of how many.
    Rate,
}

/// [`FULL`] as it is kept.
const FULL_SHARE: u32 = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_uses_everything_but_what_an_operator_took_out() {
        let standing = Standing::new("a:1".into());
        assert!(standing.may_be_used(Mode::Usual));
        assert!(standing.set(Out::Unhealthy, true) && !standing.set(Out::Unhealthy, true));
        assert!(standing.set(Out::Ejected, true));
        assert!(!standing.may_be_used(Mode::Usual) && standing.may_be_used(Mode::Panic));
        assert!(standing.set(Out::Unhealthy, false) && !standing.may_be_used(Mode::Usual));
        assert!(standing.set(Out::Drained, true) && !standing.may_be_used(Mode::Panic));
    }

    #[test]
    fn a_good_answer_ends_a_row() {
        let standing = Standing::new("a:1".into());
        assert_eq!((standing.failed(Counts::Rate), standing.failed(Counts::Rate)), (1, 2));
        standing.succeeded(Counts::Rate);
        assert_eq!(standing.failed(Counts::Rate), 1);
        assert_eq!(standing.take_tally(), Tally { answers: 4, failures: 3 });
        assert_eq!(standing.take_tally(), Tally::default());
    }

    #[test]
    fn full_is_the_same_in_both_places() {
        assert_eq!(u64::from(FULL_SHARE), FULL);
        let standing = Standing::new("a:1".into());
        standing.set_share(0);
        assert_eq!(standing.share(), 1, "never nothing");
        standing.set_share(u64::MAX);
        assert_eq!(standing.share(), FULL);
    }
}
