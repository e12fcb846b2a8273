//! Counters that several gateways share: a Redis or Valkey server, alone, with Sentinel, or a cluster.

pub mod lease;
pub mod link;
pub mod script;

use std::sync::Arc;

use super::{Origin, Outcomes, Store, Taken};
use crate::clock::Nanos;
use crate::limit::Charge;

/// The counters that several gateways share.
#[derive(Debug)]
pub struct SharedStore {}

/// The joint decision over charges of which other gateways count some.
#[derive(Debug)]
pub struct Joint {
    /// What it came to.
    pub verdict: JointVerdict,
    /// One answer per charge.
    pub outcomes: Outcomes,
    /// Where each was taken.
    pub origins: Vec<Origin>,
}

/// What a joint decision came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JointVerdict {
    /// All charges were taken.
    Conforms,
    /// None was: some exceed.
    Exceeds,
    /// None was: a limit that is closed without the store could not ask it.
    NoStore {
        /// Its place among the charges.
        charge: usize,
    },
}

impl SharedStore {
    /// Decides.
    pub async fn charge(&self, _store: &Arc<Store>, _charges: &[Charge<'_>], _generation: u64, _now: Nanos) -> Joint {
        Joint { verdict: JointVerdict::Exceeds, outcomes: Outcomes::new(), origins: Vec::new() }
    }
    /// Corrects.
    pub fn settle(&self, _taken: &Taken, _cost: u64, _now: Nanos) {}
}
