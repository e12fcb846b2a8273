//! Requests that are admitted for later: `over: delay`.

use smallvec::SmallVec;

use super::{Cause, Denial, Held, Slots};
use crate::clock::Nanos;
use crate::limit::Charge;
use crate::store::{Origin, Outcomes, Store, Taken};

/// A request's place among those that wait for the limit that makes it wait longest, and what it took for it.
#[derive(Debug)]
pub struct Waiting {
    /// How long it waits.
    pub(super) delay: Nanos,
    /// Because of which limit.
    pub(super) limit: u16,
    place: Held,
    /// What was taken where the place is.
    queued: Taken,
    taken: SmallVec<[Taken; 2]>,
}

impl Waiting {
    /// A place behind those that wait already; nothing if there is nothing to wait for.
    ///
    /// # Errors
    /// When too many wait: then everything is given back, but for a place behind which somebody has come to stand meanwhile. By the time that
    /// this request would have waited, those are gone.
    pub(super) fn behind(
        store: &Store,
        registry: &Slots,
        charges: &[Charge<'_>],
        outcomes: &Outcomes,
        origins: &[Origin],
        now: Nanos,
    ) -> Result<Option<Box<Self>>, Denial> {
        let longest = charges.iter().zip(outcomes).enumerate().max_by_key(|(_, (_, outcome))| outcome.delay);
        let Some((at, (charge, outcome))) = longest.filter(|(_, (_, outcome))| outcome.delay > 0) else { return Ok(None) };
        let (delay, limit) = (outcome.delay, charge.limit);
        let origin = origins.get(at).copied().unwrap_or_default();
        let (queued, taken) = (Taken::of(charge, outcome, origin), taken(charges, outcomes, origins).collect());
        match registry.take(charge.key, charge.queue) {
            Some(place) => Ok(Some(Box::new(Self { delay, limit, place, queued, taken }))),
            None => {
                give_up(store, &taken, now);
                Err(Denial { limit, charge: Some(at), retry_after: Some(delay), cause: Cause::Exceeded })
            }
        }
    }

    pub(super) fn took(&mut self, charges: &[Charge<'_>], outcomes: &Outcomes, origins: &[Origin]) {
        self.taken.extend(taken(charges, outcomes, origins));
    }

    /// Gives back what was taken. With the last who waits go all places that have lapsed: nobody stands behind them any more, but for who has
    /// been charged in this very moment, and may then share his place with the next.
    pub(super) fn give_up(self, store: &Store, registry: &Slots, now: Nanos) {
        give_up(store, &self.taken, now);
        drop(self.place);
        if registry.is_free(self.queued.key) {
            store.nobody_waits(&self.queued, now);
        }
    }
}

pub(super) fn taken<'c>(
    charges: &'c [Charge<'_>],
    outcomes: &'c Outcomes,
    origins: &'c [Origin],
) -> impl Iterator<Item = Taken> + 'c {
    let origins = origins.iter().copied().chain(std::iter::repeat(Origin::Memory));
    let conforming = charges.iter().zip(outcomes).zip(origins).filter(|((_, outcome), _)| outcome.verdict.conforms());
    conforming.map(|((charge, outcome), origin)| Taken::of(charge, outcome, origin))
}

fn give_up(store: &Store, taken: &[Taken], now: Nanos) {
    taken.iter().for_each(|taken| store.settle(taken, 0, now));
}
