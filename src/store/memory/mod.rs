//! Counters in this process: for every limit a [`Space`] of its own, in shards behind one lock each.
//!
//! A decision over several charges takes the locks of all shards it needs, in one order for everybody, looks at every counter, and
//! writes all or none. So a joint decision is as exact as if requests came one after another: nothing is admitted beyond a
//! quota, and nobody is refused for cells that a loser of a race is about to give back. Locks are held for tens of
//! nanoseconds and never while waiting for anything else.
//!
//! Memory is bounded by each space's budget; see [`shard`] for what happens when it is full.

mod logs;
mod shard;
mod space;
mod table;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use parking_lot::MutexGuard;
use smallvec::SmallVec;

use super::{Charged, Outcomes, Taken};
use crate::clock::Nanos;
use crate::limit::{Boost, Charge, Interned, Outcome, Quotas, SpaceId, Warmup};

pub use shard::DEBT_SHARES;
use shard::{Shard, Spot, Stand};
use space::Space;
pub use space::{Budget, Occupancy};

/// See the module.
#[derive(Debug)]
pub struct MemoryStore {
    /// By [`SpaceId`]; limits that were removed leave an empty place.
    spaces: ArcSwap<Vec<Option<Arc<Space>>>>,
    quotas: Quotas,
    /// Where the sweep goes on.
    swept: AtomicUsize,
}

/// How far a sweep goes in one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sweep {
    /// A slice, so that the next hundred calls or so come round.
    Slice,
    /// Everything at once: for tests and tools.
    Whole,
}

impl MemoryStore {
    /// Without any room yet; see [`MemoryStore::arrange`]. `quotas` must be the table that interned every quota that will be charged here.
    #[must_use]
    pub fn new(quotas: Quotas) -> Self {
        Self { spaces: ArcSwap::default(), quotas, swept: AtomicUsize::new(0) }
    }

    /// Gives every limit its room. Counters of spaces that are not named any more are dropped, the others' stay, and a table that is larger
    /// than its new budget becomes smaller as soon as its counters fit. Memory is taken as counters come.
    pub fn arrange(&self, budgets: &[Budget]) {
        let before = self.spaces.load_full();
        let mut spaces: Vec<Option<Arc<Space>>> = Vec::new();
        for budget in budgets {
            let at = index(budget.space);
            if spaces.len() <= at {
                spaces.resize(at + 1, None);
            }
            let kept = before.get(at).cloned().flatten();
            let space = kept.unwrap_or_else(|| Arc::new(Space::new(budget)));
            space.set_budget(budget);
            if let Some(place) = spaces.get_mut(at) {
                *place = Some(space);
            }
        }
        self.spaces.store(Arc::new(spaces));
    }

    /// How full each space is.
    #[must_use]
    pub fn occupancy(&self) -> Vec<Occupancy> {
        self.spaces.load().iter().flatten().map(|space| space.occupancy()).collect()
    }

    /// Charges all or none; see the module for how.
    #[must_use]
    pub fn charge(&self, charges: &[Charge<'_>], now: Nanos) -> Charged {
        let spaces = self.spaces.load();
        if let [only] = charges {
            let boost = self.boost(&spaces, only, Some(now), now);
            let Some(mut shard) = lock(&spaces, only) else { return nowhere(charges) };
            let (spot, stand) = shard.look(only, boost, &self.quotas, now);
            if stand.outcome.verdict.conforms() {
                shard.commit(only, spot, &stand, &self.quotas, now);
            }
            return Charged { conforms: stand.outcome.verdict.conforms(), outcomes: Outcomes::from_iter([stand.outcome]) };
        }
        self.charge_several(&spaces, charges, now)
    }

    fn charge_several(&self, spaces: &[Option<Arc<Space>>], charges: &[Charge<'_>], now: Nanos) -> Charged {
        let boosts: Boosts = charges.iter().map(|charge| self.boost(spaces, charge, Some(now), now)).collect();
        let Some(mut locked) = Locked::all(spaces, charges) else { return nowhere(charges) };
        let mut looks: SmallVec<[(Spot, Stand); 4]> = SmallVec::new();
        for ((charge, boost), at) in charges.iter().zip(boosts).zip(&locked.of) {
            let Some(shard) = locked.shards.get_mut(usize::from(*at)) else { return nowhere(charges) };
            looks.push(shard.look(charge, boost, &self.quotas, now));
        }
        let conforms = looks.iter().all(|(_, stand)| stand.outcome.verdict.conforms());
        if conforms {
            for ((charge, (spot, stand)), at) in charges.iter().zip(&looks).zip(&locked.of) {
                if let Some(shard) = locked.shards.get_mut(usize::from(*at)) {
                    shard.commit(charge, *spot, stand, &self.quotas, now);
                }
            }
        }
        Charged { conforms, outcomes: looks.iter().map(|(_, stand)| stand.outcome).collect() }
    }

    /// What [`MemoryStore::charge`] would answer.
    #[must_use]
    pub fn peek(&self, charges: &[Charge<'_>], now: Nanos) -> Charged {
        let spaces = self.spaces.load();
        let look = |charge: &Charge<'_>| {
            let boost = self.boost(&spaces, charge, None, now);
            let (_, stand) = lock(&spaces, charge)?.look(charge, boost, &self.quotas, now);
            Some(stand.outcome)
        };
        let outcomes: Option<Outcomes> = charges.iter().map(look).collect();
        let Some(outcomes) = outcomes else { return nowhere(charges) };
        Charged { conforms: outcomes.iter().all(|outcome| outcome.verdict.conforms()), outcomes }
    }

    /// See [`Store::settle`](super::Store::settle).
    pub fn settle(&self, taken: &Taken, cost: u64, now: Nanos) {
        self.correct(taken, |shard, charge| shard.settle(charge, taken, cost, &self.quotas, now));
    }

    /// See [`Store::give_up`](super::Store::give_up).
    pub fn give_up(&self, taken: &Taken, now: Nanos) {
        self.correct(taken, |shard, charge| {
            if shard.is_tail(charge, taken.mark) {
                shard.settle(charge, taken, 0, &self.quotas, now);
            }
        });
    }

    fn correct(&self, taken: &Taken, correction: impl FnOnce(&mut Shard, &Charge<'_>)) {
        let Taken { key, space, cost, .. } = *taken;
        let charge = Charge { key, space, quota: &taken.quota, cost, limit: 0, queue: 0, warmup: None };
        if let Some(mut shard) = lock(&self.spaces.load(), &charge) {
            correction(&mut shard, &charge);
        }
    }

    /// Drops counters that say no more than absent ones would, and gives memory back that is not needed any more. Holds one
    /// shard's lock at a time.
    pub fn sweep(&self, how_far: Sweep, now: Nanos) {
        let spaces = self.spaces.load();
        let total: usize = spaces.iter().flatten().map(|space| space.shards()).sum();
        let (mut skip, mut left) = match how_far {
            Sweep::Whole => (0, total),
            Sweep::Slice => {
                let slice = total.div_ceil(SLICES);
                (self.swept.fetch_add(slice, Ordering::Relaxed) % total.max(1), slice)
            }
        };
        for space in spaces.iter().flatten() {
            for shard in skip.min(space.shards())..space.shards() {
                if left == 0 {
                    return;
                }
                left -= 1;
                space.sweep(shard, &self.quotas, now);
            }
            skip = skip.saturating_sub(space.shards());
        }
    }

    /// What a limit with `warmup` gives this caller; `visit` notes that he was here. Takes its own lock, before those of the decision.
    fn boost(&self, spaces: &[Option<Arc<Space>>], charge: &Charge<'_>, visit: Option<Nanos>, now: Nanos) -> Boost {
        let Some((warmup, key)) = charge.warmup else { return Boost::NONE };
        let Warmup { memory, space, .. } = warmup;
        let visits = Charge { key, quota: memory, space: *space, cost: 1, warmup: None, ..*charge };
        let Some(mut shard) = lock(spaces, &visits) else { return Boost::NONE };
        let (spot, stand) = shard.look(&visits, Boost::NONE, &self.quotas, now);
        if visit.is_some() {
            shard.commit(&visits, spot, &stand, &self.quotas, now);
        }
        warmup.boost(stand.state, now)
    }
}

type Boosts = SmallVec<[Boost; 8]>;

/// The shards of several charges, all locked. The order is that of the spaces and then of the shards, for everybody, so nobody waits in
/// a circle.
struct Locked<'s> {
    shards: SmallVec<[MutexGuard<'s, Shard>; 8]>,
    /// By charge, the place in `shards`.
    of: SmallVec<[u8; 8]>,
}

impl<'s> Locked<'s> {
    fn all(spaces: &'s [Option<Arc<Space>>], charges: &[Charge<'_>]) -> Option<Self> {
        let place = |charge: &Charge<'_>| {
            let space = spaces.get(index(charge.space))?.as_deref()?;
            Some((charge.space, space.shard_of(charge.key)))
        };
        let places: Option<SmallVec<[(SpaceId, usize); 8]>> = charges.iter().map(place).collect();
        let places = places?;
        let mut order = places.clone();
        order.sort_unstable();
        order.dedup();
        let of = places.iter().map(|place| {
            let at = order.iter().position(|other| other == place);
            at.and_then(|at| u8::try_from(at).ok())
        });
        let of = of.collect::<Option<_>>()?;
        let lock = |(space, shard): &(SpaceId, usize)| spaces.get(index(*space))?.as_deref()?.lock(*shard);
        Some(Self { shards: order.iter().map(lock).collect::<Option<_>>()?, of })
    }
}

fn lock<'s>(spaces: &'s [Option<Arc<Space>>], charge: &Charge<'_>) -> Option<MutexGuard<'s, Shard>> {
    let space = spaces.get(index(charge.space))?.as_deref()?;
    space.lock(space.shard_of(charge.key))
}

/// The answer for a limit that has no room, which is one of a configuration that is no longer in force: as if nothing had been used.
fn nowhere(charges: &[Charge<'_>]) -> Charged {
    let outcome = |charge: &Charge<'_>| -> Outcome {
        let Interned { quota, .. } = charge.quota;
        quota.decide(0, charge.key.phase(), 0, charge.cost).outcome
    };
    let outcomes: Outcomes = charges.iter().map(outcome).collect();
    Charged { conforms: outcomes.iter().all(|outcome| outcome.verdict.conforms()), outcomes }
}

fn index(SpaceId(space): SpaceId) -> usize {
    usize::try_from(space).unwrap_or(usize::MAX)
}

/// Calls of [`Sweep::Slice`] after which every shard has been swept.
const SLICES: usize = 100;

#[cfg(test)]
mod tests;
