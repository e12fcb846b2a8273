//! A counter whose quota has changed.
//!
//! What is in use goes over to the new quota in cells, when a charge passes. If the new one is slower, a charge that is refused changes nothing: cells
//! stay in use for as long as under the quota they were taken under, so nobody gains by a quota that is lowered for a moment, or that only some
//! gateways have yet. To a faster one the counter goes over at once, and more than its burst counts as all of it: who has used up a day and now
//! may so many a second does not wait for the day to end.

use super::Quota;
use crate::clock::Nanos;

impl Quota {
    /// Whether it lets more pass in the long run. The shared store's scripts compare the same products.
    #[must_use]
    pub fn is_faster_than(&self, other: &Self) -> bool {
        u128::from(self.count()) * u128::from(other.period()) > u128::from(other.count()) * u128::from(self.period())
    }
}

/// How long until something fits that does not fit now, and does for good from some time on. The shared store's scripts search alike.
#[must_use]
pub fn until(fits: impl Fn(Nanos) -> bool) -> Nanos {
    let (mut low, mut high) = (0, 1);
    while high < LONGEST && !fits(high) {
        (low, high) = (high, high * 2);
    }
    while high - low > 1 {
        let middle = low.midpoint(high);
        if fits(middle) { high = middle } else { low = middle }
    }
    high
}

/// More than a century.
const LONGEST: Nanos = 1 << 62;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Algorithm;
    use std::time::Duration;

    #[test]
    fn a_rate_is_cells_by_time() {
        let quota = |count, seconds| Quota::new(count, Duration::from_secs(seconds), None, Algorithm::Gcra).unwrap();
        assert!(quota(20, 1).is_faster_than(&quota(1000, 86_400)));
        assert!(!quota(60, 60).is_faster_than(&quota(3600, 3600)));
        assert!(!quota(2, 3600).is_faster_than(&quota(10, 3600)));
    }

    #[test]
    fn it_is_found_to_the_nanosecond() {
        for at in [1, 2, 3, 1000, (1 << 40) - 1, 1 << 40, (1 << 40) + 1] {
            assert_eq!(until(|wait| wait >= at), at);
        }
        assert_eq!(until(|_| false), LONGEST);
    }
}
