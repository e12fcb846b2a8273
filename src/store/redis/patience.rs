//! How long one request waits for the store in all, however many questions it has.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::{Nanos, saturating_nanos};

/// The time that a request waits for the store, for slots, rates and what only watches together. It begins with the first question, so a
/// request that needs none reads no clock for it, and what the request has waited for before is not counted.
#[derive(Debug, Default)]
pub struct Patience {
    /// By the store's clock; 0 before the first question.
    ends: AtomicU64,
}

impl Patience {
    /// What is left of `whole`; nothing if it is used up, and then nothing is asked any more.
    pub(super) fn left(&self, whole: Duration, now: Nanos) -> Option<Duration> {
        let ends = match self.ends.load(Ordering::Relaxed) {
            0 => {
                let ends = now.saturating_add(saturating_nanos(whole)).max(1);
                self.ends.store(ends, Ordering::Relaxed);
                ends
            }
            ends => ends,
        };
        let left = ends.saturating_sub(now);
        (left > 0).then_some(Duration::from_nanos(left))
    }

    /// When it ends, by the store's clock; never, as long as nothing was asked.
    pub(super) fn ends(&self) -> Nanos {
        match self.ends.load(Ordering::Relaxed) {
            0 => Nanos::MAX,
            ends => ends,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: Duration = Duration::from_nanos(20);

    #[test]
    fn it_begins_with_the_first_question_and_is_one_for_all() {
        let patience = Patience::default();
        assert_eq!(patience.ends(), Nanos::MAX);
        assert_eq!(patience.left(WHOLE, 1000), Some(WHOLE));
        assert_eq!(patience.left(WHOLE, 1019), Some(Duration::from_nanos(1)));
        assert_eq!((patience.left(WHOLE, 1020), patience.left(WHOLE, 5000)), (None, None), "used up");
        assert_eq!(patience.ends(), 1020);
    }

    #[test]
    fn the_first_moment_of_the_clock_is_one_like_others() {
        let patience = Patience::default();
        assert_eq!((patience.left(WHOLE, 0), patience.left(WHOLE, 20)), (Some(WHOLE), None));
    }
}
