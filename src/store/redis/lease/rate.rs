//! How many cells are asked for here: an exponentially weighted moving average over slots of [`HORIZON`], by the time that decisions are told anyway.

use crate::clock::{Nanos, SECOND};

/// Cells per [`HORIZON`]. A new one knows nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Rate {
    /// The slot that is being counted.
    slot: u32,
    /// Cells asked for in it.
    count: u32,
    /// The average over the slots before it, in 2^-4ths.
    average: u32,
}

impl Rate {
    /// Notes that `cells` were asked for, whether they were there or not.
    pub(super) fn note(&mut self, cells: u64, now: Nanos) {
        self.roll(now);
        self.count = self.count.saturating_add(u32::try_from(cells).unwrap_or(u32::MAX));
    }

    /// Cells to expect in the next [`HORIZON`], in 2^-4ths. The slot that is being counted counts as it is: so a key that becomes
    /// busy is seen at once, and one that has just begun a slot has not become idle.
    pub(super) fn sixteenths(&mut self, now: Nanos) -> u64 {
        self.roll(now);
        u64::from(self.average.max(self.count.saturating_mul(ONE)))
    }

    /// Whether nothing was asked for lately.
    pub(super) fn is_idle(&mut self, now: Nanos) -> bool {
        self.sixteenths(now) == 0
    }

    fn roll(&mut self, now: Nanos) {
        let slot = u32::try_from(now / HORIZON).unwrap_or(u32::MAX);
        // Threads read the clock at slightly different times: an earlier one counts in the slot that is there.
        let passed = slot.saturating_sub(self.slot);
        if passed == 0 {
            return;
        }
        let average = (self.average / 2).saturating_add(self.count.saturating_mul(ONE) / 2);
        *self = Self { slot, count: 0, average: average.checked_shr(passed - 1).unwrap_or(0) };
    }
}

/// `h`: for how long a block should last.
pub(super) const HORIZON: Nanos = SECOND / 10;
const ONE: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_follows_what_is_asked_and_forgets() {
        let mut rate = Rate::default();
        for millisecond in 0..1000 {
            rate.note(1, millisecond * SECOND / 1000);
        }
        assert!((90 * 16..=100 * 16).contains(&rate.sixteenths(SECOND)), "{}", rate.sixteenths(SECOND));
        assert!(rate.sixteenths(SECOND + 2 * HORIZON) <= 25 * 16);
        assert!(!rate.is_idle(SECOND + 2 * HORIZON));
        assert!(rate.is_idle(5 * SECOND));
        assert!(rate.is_idle(u64::MAX));
    }

    #[test]
    fn a_burst_is_seen_at_once_and_time_that_goes_back_changes_nothing() {
        let mut rate = Rate::default();
        rate.note(40, SECOND);
        assert_eq!(rate.sixteenths(SECOND), 40 * 16);
        rate.note(2, SECOND / 2);
        assert_eq!(rate.sixteenths(SECOND), 42 * 16);
        rate.note(u64::MAX, SECOND);
        assert!(rate.sixteenths(SECOND) > 1 << 30);
    }
}
