//! What a response has to say about charges that were taken before it: `count`, `refund`, and costs that only it knows.
//!
//! Every such charge is settled exactly once: when the response's head decides it, else when the body has ended, else when the
//! request has, however it does. Where nothing was said, what was taken stays.

use std::sync::Arc;

use http::{HeaderMap, StatusCode};

use super::admit::Standing;
use super::gateway::Gateway;
use crate::body::usage::{FieldPath, UsageReader};
use crate::clock::Nanos;
use crate::limit::Charge;
use crate::policy::{ResponseCost, Settlement, number};
use crate::snapshot::Snapshot;
use crate::store::{Origin, Outcomes, Taken};

/// The charges of a request that are not settled yet.
#[derive(Debug, Default)]
pub(super) struct Unsettled {
    open: Vec<Open>,
    /// Who looks for costs in the body as it passes: one for each path, whatever the number of windows.
    readers: Vec<Reader>,
}

#[derive(Debug)]
struct Open {
    taken: Taken,
    limit: u16,
    /// The place of its reader, and the most that counts.
    reads: Option<(usize, Option<u64>)>,
    /// Whether metrics count it: one window of a limit speaks for all.
    counted: bool,
}

#[derive(Debug)]
struct Reader {
    path: Arc<FieldPath>,
    usage: UsageReader,
}

impl Unsettled {
    /// Adds what was taken by charges whose limits have a settlement.
    pub(super) fn add(
        &mut self,
        gateway: &Gateway,
        snapshot: &Snapshot,
        charges: &[Charge<'_>],
        outcomes: &Outcomes,
        origins: &[Origin],
    ) {
        let origins = origins.iter().copied().chain(std::iter::repeat(Origin::Memory));
        for ((charge, outcome), origin) in charges.iter().zip(outcomes).zip(origins) {
            if !outcome.verdict.conforms() || settlement(snapshot, charge.limit).is_none() {
                continue;
            }
            let counted = self.open.last().is_none_or(|last| last.limit != charge.limit);
            if let Some(metrics) = snapshot.limit_metrics.get(usize::from(charge.limit)).filter(|_| counted) {
                metrics.reserved.add(gateway.lane, charge.cost);
            }
            self.open.push(Open { taken: Taken::of(charge, outcome, origin), limit: charge.limit, reads: None, counted });
        }
    }

    /// Whether the body will have to be read.
    pub(super) fn reads_body(&self, snapshot: &Snapshot) -> bool {
        let reads = |open: &Open| {
            let cost = settlement(snapshot, open.limit).and_then(|settlement| settlement.cost.as_ref());
            matches!(cost, Some(ResponseCost::Json { .. }))
        };
        self.open.iter().any(reads)
    }

    /// Settles what the head decides, so that the response says what is left after it.
    pub(super) fn head(
        &mut self,
        gateway: &Gateway,
        snapshot: &Snapshot,
        (status, headers): (StatusCode, &HeaderMap),
        standing: &mut Standing<'_>,
    ) {
        if self.open.is_empty() {
            return;
        }
        let now = gateway.clock.now();
        let before = self.open.len();
        let Self { open, readers } = self;
        open.retain_mut(|open| match open.verdict(snapshot, status, headers) {
            Said::Cost(cost) => {
                open.settle(gateway, snapshot, cost, now);
                standing.settled(&open.taken, cost);
                false
            }
            Said::InBody { path, max } => {
                let known = readers.iter().position(|reader| reader.path == *path);
                let place = known.or_else(|| {
                    let usage = UsageReader::for_response(headers, path)?;
                    readers.push(Reader { path: Arc::clone(path), usage });
                    Some(readers.len() - 1)
                });
                open.reads = place.map(|place| (place, max));
                if place.is_none() {
                    open.settle(gateway, snapshot, open.taken.cost, now);
                }
                place.is_some()
            }
        });
        if self.open.len() < before {
            standing.look_again(gateway, now);
        }
    }

    /// A piece of the body.
    pub(super) fn passed(&mut self, data: &[u8]) {
        for reader in &mut self.readers {
            reader.usage.feed(data);
        }
    }

    /// Settles the rest: by what the body said, or by what was taken.
    pub(super) fn end(&mut self, gateway: &Gateway, snapshot: &Snapshot, now: Nanos) {
        let said: Vec<Option<u64>> = self.readers.iter_mut().map(|reader| reader.usage.finish()).collect();
        for open in self.open.drain(..) {
            let heard = open.reads.and_then(|(place, max)| Some((said.get(place).copied().flatten()?, max)));
            let cost = heard.map_or(open.taken.cost, |(cost, max)| cost.min(open.most(max)));
            open.settle(gateway, snapshot, cost, now);
        }
    }

    /// Nothing was taken after all.
    pub(super) fn forget(&mut self) {
        self.open.clear();
    }
}

/// What a head says of a charge.
enum Said<'s> {
    Cost(u64),
    InBody { path: &'s Arc<FieldPath>, max: Option<u64> },
}

impl Open {
    fn verdict<'s>(&self, snapshot: &'s Snapshot, status: StatusCode, headers: &HeaderMap) -> Said<'s> {
        let taken = Said::Cost(self.taken.cost);
        let Some(settlement) = settlement(snapshot, self.limit) else { return taken };
        if !settlement.charges(status) {
            return Said::Cost(0);
        }
        match &settlement.cost {
            None => taken,
            Some(ResponseCost::Header { name, max }) => {
                let mut values = headers.get_all(name).iter();
                // Said twice is not said.
                let said = values.next().filter(|_| values.next().is_none()).and_then(|value| number(value.as_bytes()));
                said.map_or(taken, |cost| Said::Cost(cost.min(self.most(*max))))
            }
            Some(ResponseCost::Json { path, max }) => Said::InBody { path, max: *max },
        }
    }

    fn most(&self, max: Option<u64>) -> u64 {
        max.unwrap_or_else(|| self.taken.quota.quota.boosted(self.taken.boost).largest_cost())
    }

    fn settle(&self, gateway: &Gateway, snapshot: &Snapshot, cost: u64, now: Nanos) {
        if cost != self.taken.cost {
            gateway.store.settle(&self.taken, cost, now);
        }
        if let Some(metrics) = snapshot.limit_metrics.get(usize::from(self.limit)).filter(|_| self.counted) {
            metrics.settled.add(gateway.lane, cost);
        }
    }
}

fn settlement(snapshot: &Snapshot, limit: u16) -> Option<&Settlement> {
    snapshot.policy.limits.get(usize::from(limit))?.settlement.as_ref()
}
