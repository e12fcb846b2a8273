//! Requests that are admitted for later: `over: delay`.

use smallvec::SmallVec;

use super::lines::{Lines, Place};
use super::{Cause, Denial};
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
    place: Place,
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
        lines: &Lines,
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
        let before = outcome.mark.saturating_sub(charge.quota.quota.time_of(charge.cost).unwrap_or(0));
        match lines.join(charge.key, charge.queue, before) {
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

    /// Gives back what was taken.
    pub(super) fn give_up(self, store: &Store, now: Nanos) {
        give_up(store, &self.taken, now);
        let passed = self.place.leave();
        nobody_waits(store, &self.queued, passed);
    }

    /// The wait is over.
    pub(super) fn go_on(self, store: &Store) {
        let passed = self.place.pass(self.queued.mark);
        nobody_waits(store, &self.queued, passed);
    }
}

/// With the last who waits go all places that have lapsed: nobody stands behind them any more, but for who has been charged in this very moment,
/// and may then share his place with the next.
fn nobody_waits(store: &Store, queued: &Taken, passed: Option<u64>) {
    if let Some(passed) = passed {
        store.nobody_waits(queued, passed);
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
