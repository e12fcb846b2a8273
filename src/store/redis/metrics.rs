//! Which decisions came from where.

use crate::telemetry::metrics::{self, Counter, Registry};

/// Decisions about single charges, by who made them.
#[derive(Debug)]
pub(super) struct Decisions {
    /// The store.
    pub(super) store: Counter,
    /// A lease.
    pub(super) lease: Counter,
    /// What the store said last.
    pub(super) remembered: Counter,
    /// This process in the store's stead.
    pub(super) fallback: Counter,
    /// Nobody: it was let pass.
    pub(super) open: Counter,
    /// Nobody: it was refused.
    pub(super) closed: Counter,
    /// Charges that were given back because another limit refused, or because the response had them cost less.
    pub(super) refunds: Counter,
}

impl Decisions {
    pub(super) fn new(registry: &Registry) -> Self {
        let by = |source| registry.counter(metrics::STORE_DECISIONS, &[("source", source)]);
        Self {
            store: by("store"),
            lease: by("lease"),
            remembered: by("remembered"),
            fallback: by("fallback"),
            open: by("open"),
            closed: by("closed"),
            refunds: registry.counter(metrics::STORE_REFUNDS, &[]),
        }
    }
}
