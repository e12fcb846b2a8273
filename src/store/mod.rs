//! Where counters live. A slice of charges goes in, a decision over all of them comes out: all are charged or none.
//!
//! The seam is data, not a closure, so it batches, serialises and fakes easily. The store knows keys and quotas, and
//! nothing of routes, clients or configuration; its counters outlive every reload. Charges that other gateways count too are decided with
//! [`redis`], all others by [`MemoryStore`] alone and without waiting for anything.

mod memory;
pub mod redis;

use smallvec::SmallVec;

use crate::clock::Nanos;
use crate::limit::{Boost, Charge, Interned, Key, Outcome, SpaceId};
use redis::SharedStore;

pub use memory::{Budget, DEBT_SHARES, MemoryStore, Occupancy, Sweep};

/// The stores in use.
#[derive(Debug)]
pub struct Store {
    /// What this process counts for itself.
    pub memory: MemoryStore,
    /// What it counts with others.
    pub shared: Option<SharedStore>,
}

/// The answers to a slice of charges, in their order.
pub type Outcomes = SmallVec<[Outcome; 6]>;

/// The joint decision.
#[derive(Debug, Clone, PartialEq)]
pub struct Charged {
    /// Whether all charges conform; only then are they taken.
    pub conforms: bool,
    /// One answer per charge.
    pub outcomes: Outcomes,
}

/// Where a charge was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Origin {
    /// In this process.
    #[default]
    Memory,
    /// In this process in the stead of the shared store, against our share of the quota.
    Fallback,
    /// From a lease of this window.
    Lease(u64),
    /// In the shared store.
    Shared,
    /// Nowhere: nobody could be asked, and the limit lets pass then.
    Nowhere,
}

/// A charge that was taken, for as long as it may have to be corrected. Owns what it needs: a reload may come in between.
#[derive(Debug, Clone, Copy)]
pub struct Taken {
    /// The counter.
    pub key: Key,
    /// Where it is kept.
    pub space: SpaceId,
    /// The numbers it was held against.
    pub quota: Interned,
    /// Cells that were taken.
    pub cost: u64,
    /// By which it is found again.
    pub mark: u64,
    /// What the quota was multiplied with.
    pub boost: Boost,
    /// What other limits that count by the same are kept with it.
    pub entity: u64,
    /// Where it was taken.
    pub origin: Origin,
}

impl Store {
    /// One that this process has for itself.
    #[must_use]
    pub fn alone(memory: MemoryStore) -> Self {
        Self { memory, shared: None }
    }

    /// Charges all or none, and says whether. `outcomes` becomes one answer per charge, in their order.
    #[must_use]
    pub fn charge_into(&self, charges: &[Charge<'_>], outcomes: &mut Outcomes, now: Nanos) -> bool {
        self.memory.charge_into(charges, outcomes, now)
    }

    /// What [`Store::charge_into`] would answer; takes nothing.
    #[must_use]
    pub fn peek(&self, charges: &[Charge<'_>], now: Nanos) -> Charged {
        self.memory.peek(charges, now)
    }

    /// Says that nobody waits any more where this charge was made, and what the state was made by those who have passed: places beyond it have
    /// lapsed. In the shared store others may wait, so there they drain.
    pub fn nobody_waits(&self, taken: &Taken, passed: u64) {
        if matches!(taken.origin, Origin::Memory | Origin::Fallback) {
            self.memory.nobody_waits(taken, passed);
        }
    }

    /// Corrects a charge to what it turned out to cost: more is taken whether it fits or not, what was too much comes back. Under a quota with a
    /// delay only the last place comes back: one with others behind it lapses, since their waits were told already.
    pub fn settle(&self, taken: &Taken, cost: u64, now: Nanos) {
        match (taken.origin, &self.shared) {
            (Origin::Memory | Origin::Fallback, _) => self.memory.settle(taken, cost, now),
            (Origin::Lease(_) | Origin::Shared, Some(shared)) => shared.settle(&self.memory, taken, cost, now),
            (Origin::Lease(_) | Origin::Shared, None) | (Origin::Nowhere, _) => {}
        }
    }
}

impl Taken {
    /// The `mark` of what is not found again by one: it comes back into whatever is counted now.
    pub const UNMARKED: u64 = u64::MAX;

    /// What a charge that conformed has taken.
    #[must_use]
    pub fn of(charge: &Charge<'_>, outcome: &Outcome, origin: Origin) -> Self {
        let Charge { key, space, quota, cost, sharing, .. } = *charge;
        let entity = sharing.map_or(0, |sharing| sharing.entity);
        Self { key, space, quota: *quota, cost, mark: outcome.mark, boost: outcome.boost, entity, origin }
    }
}
