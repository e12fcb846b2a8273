//! Requests that are admitted for later: `over: delay`.

use smallvec::SmallVec;

use super::{Denial, Held, Slots};
use crate::clock::Nanos;
use crate::limit::Charge;
use crate::store::{Outcomes, Store, Taken};

/// A request's place among those that wait, and what it took for it.
#[derive(Debug)]
pub struct Waiting {
    /// How long it waits.
    pub(super) delay: Nanos,
    /// Because of which limit.
    pub(super) limit: u16,
    places: SmallVec<[Held; 1]>,
    taken: SmallVec<[Taken; 2]>,
}

impl Waiting {
    /// A place behind those that wait already; nothing if there is nothing to wait for.
    ///
    /// # Errors
    /// When too many wait: then everything is given back. By the time that this request would have waited, those are gone.
    pub(super) fn behind(
        store: &Store,
        registry: &Slots,
        charges: &[Charge<'_>],
        outcomes: &Outcomes,
        now: Nanos,
    ) -> Result<Option<Box<Self>>, Denial> {
        let delays = charges.iter().zip(outcomes).map(|(charge, outcome)| (outcome.delay, charge.limit));
        let Some((delay, limit)) = delays.max().filter(|(delay, _)| *delay > 0) else { return Ok(None) };
        let mut waiting = Self { delay, limit, places: SmallVec::new(), taken: SmallVec::new() };
        waiting.took(charges, outcomes);
        for (at, (charge, outcome)) in charges.iter().zip(outcomes).enumerate() {
            if outcome.delay == 0 {
                continue;
            }
            match registry.take(charge.key, charge.queue) {
                Some(place) => waiting.places.push(place),
                None => {
                    waiting.give_up(store, now);
                    return Err(Denial { limit: charge.limit, charge: Some(at), retry_after: Some(outcome.delay) });
                }
            }
        }
        Ok(Some(Box::new(waiting)))
    }

    pub(super) fn took(&mut self, charges: &[Charge<'_>], outcomes: &Outcomes) {
        let conforming = charges.iter().zip(outcomes).filter(|(_, outcome)| outcome.verdict.conforms());
        self.taken.extend(conforming.map(|(charge, outcome)| Taken::of(charge, outcome)));
    }

    /// Gives back what was taken. A place in a queue that others stand behind lapses instead: their waits were told already.
    pub(super) fn give_up(&self, store: &Store, now: Nanos) {
        for taken in &self.taken {
            if taken.quota.quota.max_delay() == 0 { store.settle(taken, 0, now) } else { store.give_up(taken, now) }
        }
    }
}
