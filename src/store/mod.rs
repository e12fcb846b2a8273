//! Where counters live. A slice of charges goes in, a decision over all of them comes out: all are charged or none.
//!
//! The seam is data, not a closure, so it batches, serialises and fakes easily. The store knows keys and quotas, and
//! nothing of routes, clients or configuration; its counters outlive every reload.

mod memory;

use smallvec::SmallVec;

use crate::clock::Nanos;
use crate::limit::{Charge, Outcome};

pub use memory::{MemoryStore, Occupancy};

/// The store in use.
#[derive(Debug)]
pub enum Store {
    /// This process counts for itself.
    Memory(MemoryStore),
}

/// The answers to a slice of charges, in their order.
pub type Outcomes = SmallVec<[Outcome; 4]>;

/// The joint decision.
#[derive(Debug, Clone, PartialEq)]
pub struct Charged {
    /// Whether all charges conform; only then are they taken.
    pub conforms: bool,
    /// One answer per charge.
    pub outcomes: Outcomes,
}

impl Store {
    /// Charges all or none.
    #[must_use]
    pub fn charge(&self, charges: &[Charge<'_>], now: Nanos) -> Charged {
        match self {
            Self::Memory(store) => store.charge(charges, now),
        }
    }

    /// What [`Store::charge`] would answer; takes nothing.
    #[must_use]
    pub fn peek(&self, charges: &[Charge<'_>], now: Nanos) -> Charged {
        match self {
            Self::Memory(store) => store.peek(charges, now),
        }
    }
}
