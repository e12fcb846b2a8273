//! What the link counts.

use crate::clock::Nanos;
use crate::telemetry::metrics::{
    Counter, Histogram, Lane, Registry, STORE_BREAKER_OPENED, STORE_REBUILDS, STORE_ROUND_TRIP, STORE_ROUND_TRIPS,
    STORE_TOPOLOGY_CHANGES,
};

use super::fault::{Fault, Refusal};

/// Handles, made once.
#[derive(Debug)]
pub(super) struct Tally {
    answered: Counter,
    timeout: Counter,
    lost: Counter,
    garbled: Counter,
    overloaded: Counter,
    down: Counter,
    refused: [Counter; Refusal::ALL.len()],
    round_trip: Histogram,
    opened: Counter,
    rebuilt: Counter,
    not_rebuilt: Counter,
    topology_changes: Counter,
    /// Where the link's own thread counts.
    pub(super) own: Lane,
}

impl Tally {
    pub(super) fn new(registry: &Registry) -> Self {
        let trip = |outcome: &str| registry.counter(STORE_ROUND_TRIPS, &[("outcome", outcome)]);
        let fault = |fault: Fault| trip(fault.label());
        Self {
            answered: trip("answered"),
            timeout: fault(Fault::Timeout),
            lost: fault(Fault::Lost),
            garbled: fault(Fault::Garbled),
            overloaded: fault(Fault::Overloaded),
            down: fault(Fault::Down),
            refused: Refusal::ALL.map(|refusal| trip(refusal.label())),
            round_trip: registry.histogram(STORE_ROUND_TRIP, &[]),
            opened: registry.counter(STORE_BREAKER_OPENED, &[]),
            rebuilt: registry.counter(STORE_REBUILDS, &[("result", "connected")]),
            not_rebuilt: registry.counter(STORE_REBUILDS, &[("result", "failed")]),
            topology_changes: registry.counter(STORE_TOPOLOGY_CHANGES, &[]),
            own: registry.shared_lane(),
        }
    }

    /// How asking went, and how long that took.
    pub(super) fn asked<T>(&self, lane: Lane, result: &Result<T, Fault>, took: Nanos) {
        let counter = match result {
            Ok(_) => &self.answered,
            Err(Fault::Timeout) => &self.timeout,
            Err(Fault::Lost) => &self.lost,
            Err(Fault::Garbled) => &self.garbled,
            Err(Fault::Overloaded) => &self.overloaded,
            Err(Fault::Down) => &self.down,
            Err(Fault::Refused(refusal)) => {
                let index = Refusal::ALL.iter().position(|one| one == refusal).unwrap_or_default();
                self.refused.get(index).unwrap_or(&self.garbled)
            }
        };
        counter.one(lane);
        // What nobody was asked took no time that says anything.
        if !matches!(result, Err(Fault::Overloaded | Fault::Down)) {
            self.round_trip.observe(lane, took);
        }
    }

    pub(super) fn opened(&self, lane: Lane) {
        self.opened.one(lane);
    }

    pub(super) fn rebuilt(&self, connected: bool) {
        let counter = if connected { &self.rebuilt } else { &self.not_rebuilt };
        counter.one(self.own);
    }

    pub(super) fn topology_changed(&self) {
        self.topology_changes.one(self.own);
    }
}
