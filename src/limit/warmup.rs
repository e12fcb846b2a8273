//! More for newcomers: `warmup` multiplies the quota of a client seen for the first time, and glides down to the plain one.

use super::{Interned, Quota, SpaceId, first_seen};
use crate::clock::Nanos;

/// How a limit treats newcomers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warmup {
    /// How long until nothing is left of it.
    pub glide: Nanos,
    /// What the quota is multiplied with at first.
    pub factor: Boost,
    /// Where it is remembered since when a client is known.
    pub space: SpaceId,
    /// For how long after the last visit.
    pub memory: Interned,
}

/// A factor of at least 1, in 1024ths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Boost(pub u32);

impl Boost {
    /// Nothing more than the plain quota.
    pub const NONE: Self = Self(1024);

    /// `cells` times the factor, rounded down.
    #[must_use]
    pub fn of(self, cells: u64) -> u64 {
        u64::try_from(u128::from(cells) * u128::from(self.0) / 1024).unwrap_or(u64::MAX)
    }
}

impl Warmup {
    /// The factor for a client in this state of [`first_seen`]: a straight line from `factor` down to 1.
    #[must_use]
    pub fn boost(&self, state: u64, now: Nanos) -> Boost {
        let age = first_seen::age(&self.memory.quota, state, now);
        let left = u128::from(self.glide.saturating_sub(age));
        let extra = u128::from(self.factor.0.saturating_sub(Boost::NONE.0)) * left / u128::from(self.glide.max(1));
        Boost(Boost::NONE.0 + u32::try_from(extra).unwrap_or(0))
    }
}

impl Quota {
    /// The quota of somebody with this factor: rate and burst are both multiplied, so a full bucket drains in the same time.
    #[must_use]
    pub fn boosted(&self, boost: Boost) -> Self {
        if boost == Boost::NONE { *self } else { self.scaled(|cells| boost.of(cells)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SECOND;
    use crate::limit::{Algorithm, Quotas};
    use std::time::Duration;

    #[test]
    fn it_glides_from_the_factor_to_one() {
        let memory = Quota::new(1, Duration::from_secs(86_400), None, Algorithm::FirstSeen).unwrap();
        let memory = Quotas::default().intern(memory).unwrap();
        let warmup = Warmup { glide: 3600 * SECOND, factor: Boost(2048), space: SpaceId(0), memory };
        let seen = first_seen::decide(&memory.quota, 0, 0).state;
        let quota = Quota::new(10, Duration::from_secs(60), None, Algorithm::Gcra).unwrap();
        for (second, cells) in [(0, 20), (1800, 15), (3600, 10), (9999, 10)] {
            let boosted = quota.boosted(warmup.boost(seen, second * SECOND));
            assert_eq!((boosted.count(), boosted.burst()), (cells, cells), "after {second} s");
            assert_eq!(boosted.largest_cost(), cells);
        }
    }
}
