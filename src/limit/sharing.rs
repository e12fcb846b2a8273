//! How a limit's counters are shared with other gateways. Knows no store: only what is wanted of one.

use super::Quota;

/// What is wanted of a shared store for one charge. A charge without this is counted by this process alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sharing {
    /// A digest of what the limit counts by, the same for all limits that count by the same: what has the same is kept together.
    pub entity: u64,
    /// For how many it counts together.
    pub reach: Reach,
    /// Who decides.
    pub consistency: Consistency,
    /// What happens while the store doesn't answer.
    pub on_failure: OnFailure,
    /// Whether what was charged may come back when a response has been seen, at whatever gateway.
    pub comes_back: bool,
}

/// For how many a limit counts together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// For all clients or many of them.
    Broad,
    /// For one of many.
    Narrow,
}

/// Who decides about a charge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consistency {
    /// The store, every time.
    Strict,
    /// This process, out of blocks of cells that it takes from the store.
    Lease,
}

/// What happens to a charge while the store doesn't answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFailure {
    /// This process enforces its share.
    Local,
    /// It conforms.
    Open,
    /// It is refused.
    Closed,
}

impl Quota {
    /// What one of `instances` gateways enforces by itself while it can't ask the others: its part and a fifth more, since callers are never
    /// spread evenly; never more than the whole.
    #[must_use]
    pub fn share_of(&self, instances: u32) -> Self {
        self.scaled(|cells| share_of(cells, instances))
    }
}

/// The same of a plain number, such as that of requests in flight.
#[must_use]
pub fn share_of(whole: u64, instances: u32) -> u64 {
    let share = (u128::from(whole) * 6).div_ceil(5 * u128::from(instances.max(1)));
    u64::try_from(share).unwrap_or(whole).min(whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Algorithm;
    use std::time::Duration;

    #[test]
    fn a_share_is_a_fifth_more_than_a_part_and_never_more_than_the_whole() {
        let quota = Quota::new(100, Duration::from_secs(60), Some(10), Algorithm::Gcra).unwrap();
        for (instances, count, burst) in [(0, 100, 10), (1, 100, 10), (2, 60, 6), (4, 30, 3), (1000, 1, 1)] {
            let share = quota.share_of(instances);
            assert_eq!((share.count(), share.burst()), (count, burst), "{instances}");
        }
    }
}
