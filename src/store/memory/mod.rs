//! Counters in this process: for every limit a [`Space`] of its own, in shards behind one lock each.
//!
//! A decision over several charges takes the locks of all shards it needs, in one order for everybody, looks at every counter, and
//! writes all or none. So a joint decision is as exact as if requests came one after another: nothing is admitted beyond a
//! quota, and nobody is refused for cells that a loser of a race is about to give back. Locks are held for tens of
//! nanoseconds (for a `sliding_log` in the worst case as long as its cells take to be sorted) and never while waiting for anything else.
//!
//! Memory is bounded by each space's budget; see [`shard`] for what happens when it is full.

mod logs;
mod shard;
mod size;
mod space;
mod table;
mod usage;

use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};
use smallvec::{SmallVec, smallvec};

use super::{Charged, Outcomes, Taken};
use crate::clock::Nanos;
use crate::limit::{Boost, Charge, Outcome, Quotas, SpaceId, Warmup};

pub use shard::DEBT_SHARES;
use shard::{Look, Shard};
use space::Space;
pub use space::{Budget, Occupancy};

/// See the module.
#[derive(Debug)]
pub struct MemoryStore {
    /// By [`SpaceId`]. One that was ever there stays, and is empty while its limit is gone.
    spaces: boxcar::Vec<OnceLock<Space>>,
    quotas: Quotas,
    /// Which spaces are in use.
    arranged: Mutex<BTreeSet<SpaceId>>,
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
        Self { spaces: boxcar::Vec::new(), quotas, arranged: Mutex::default(), swept: AtomicUsize::new(0) }
    }

    /// Gives every limit its room; what is not named stays until [`MemoryStore::retire`]. A table that is larger than its new budget takes no
    /// newcomers, and becomes smaller as soon as its counters fit. Memory is taken as counters come.
    pub fn arrange(&self, budgets: &[Budget]) {
        for budget in budgets {
            while self.spaces.count() <= index(budget.space) {
                self.spaces.push(OnceLock::new());
            }
            if let Some(place) = self.spaces.get(index(budget.space)) {
                place.get_or_init(|| Space::new(budget)).set_budget(budget);
            }
        }
        self.arranged.lock().extend(budgets.iter().map(|budget| budget.space));
    }

    /// Drops the counters of all spaces but these: for when no new request uses the others any more.
    pub fn retire(&self, all_but: &[Budget]) {
        let kept: BTreeSet<SpaceId> = all_but.iter().map(|budget| budget.space).collect();
        let mut arranged = self.arranged.lock();
        arranged.difference(&kept).filter_map(|gone| self.space(*gone)).for_each(Space::close);
        *arranged = kept;
    }

    /// How full each space is.
    #[must_use]
    pub fn occupancy(&self) -> Vec<Occupancy> {
        let arranged = self.arranged.lock();
        arranged.iter().filter_map(|space| self.space(*space)).map(Space::occupancy).collect()
    }

    /// Charges all or none; see the module for how.
    #[must_use]
    pub fn charge(&self, charges: &[Charge<'_>], now: Nanos) -> Charged {
        let mut outcomes = Outcomes::new();
        let conforms = self.charge_into(charges, &mut outcomes, now);
        Charged { conforms, outcomes }
    }

    /// See [`Store::charge_into`](super::Store::charge_into).
    #[must_use]
    pub fn charge_into(&self, charges: &[Charge<'_>], outcomes: &mut Outcomes, now: Nanos) -> bool {
        outcomes.clear();
        let conforms = match charges {
            [only] => self.charge_one(only, outcomes, now),
            _ => self.charge_few(charges, outcomes, now),
        };
        conforms.unwrap_or_else(|| self.charge_closely(charges, outcomes, now))
    }

    /// The way of nearly all: the counter is there and nothing about it is unusual. Otherwise nothing is done.
    #[inline]
    fn charge_one(&self, charge: &Charge<'_>, outcomes: &mut Outcomes, now: Nanos) -> Option<bool> {
        let mut shard = self.lock_any(charge)?;
        let (entry, outcome) = shard.decide_present(charge, now)?;
        let conforms = outcome.verdict.conforms();
        if conforms && charge.cost != 0 {
            entry.state = outcome.mark;
        }
        drop(shard);
        outcomes.push(outcome);
        Some(conforms)
    }

    /// The same for several charges in rooms of their own, as a request's are: first all locks, then all looks, then all or nothing written.
    /// Apart, so that one charge does not pay for the larger frame.
    #[inline(never)]
    fn charge_few(&self, charges: &[Charge<'_>], outcomes: &mut Outcomes, now: Nanos) -> Option<bool> {
        let mut shards = [const { None }; INLINE];
        let mut last = None;
        for i in lock_order(charges)?.into_iter().take(charges.len()) {
            let charge = charges.get(usize::from(i))?;
            if last == Some(charge.space) {
                return None;
            }
            last = Some(charge.space);
            *shards.get_mut(usize::from(i))? = Some(self.lock_any(charge)?);
        }
        let mut entries = [const { None }; INLINE];
        let mut conforms = true;
        for ((charge, shard), at) in charges.iter().zip(&mut shards).zip(&mut entries) {
            let (entry, outcome) = shard.as_mut()?.decide_present(charge, now)?;
            *at = Some(entry);
            conforms &= outcome.verdict.conforms();
            outcomes.push(outcome);
        }
        if conforms {
            for ((charge, entry), outcome) in charges.iter().zip(&mut entries).zip(outcomes) {
                if let Some(entry) = entry
                    && charge.cost != 0
                {
                    entry.state = outcome.mark;
                }
            }
        }
        Some(conforms)
    }

    /// Every other way.
    #[cold]
    fn charge_closely(&self, charges: &[Charge<'_>], outcomes: &mut Outcomes, now: Nanos) -> bool {
        let charged = match charges {
            [only] => self.charge_single(only, now),
            _ => self.charge_several(charges, now),
        };
        *outcomes = charged.outcomes;
        charged.conforms
    }

    fn charge_single(&self, only: &Charge<'_>, now: Nanos) -> Charged {
        let boost = self.boost(only, Visit::Noted, now);
        let Some(mut shard) = self.lock(only) else { return self.charge_present(std::slice::from_ref(only), now) };
        let (look, outcome) = shard.look(only, boost, &self.quotas, now);
        let conforms = outcome.verdict.conforms();
        if conforms {
            shard.commit(only, &look, &self.quotas, now);
        }
        drop(shard);
        Charged { conforms, outcomes: smallvec![outcome] }
    }

    fn charge_several(&self, charges: &[Charge<'_>], now: Nanos) -> Charged {
        let boosts = self.boosts(charges, now);
        let Some(mut locked) = Locked::all(self, charges) else { return self.charge_present(charges, now) };
        let mut looks: SmallVec<[Look; INLINE]> = SmallVec::new();
        let (mut conforms, mut outcomes) = (true, Outcomes::new());
        for (i, (charge, at)) in charges.iter().zip(&locked.of).enumerate() {
            let boost = boosts.get(i).copied().unwrap_or(Boost::NONE);
            let Some(shard) = locked.shards.get_mut(usize::from(*at)) else { continue };
            let (look, outcome) = shard.look(charge, boost, &self.quotas, now);
            conforms &= outcome.verdict.conforms();
            looks.push(look);
            outcomes.push(outcome);
        }
        if conforms {
            for ((charge, look), at) in charges.iter().zip(&looks).zip(&locked.of) {
                if let Some(shard) = locked.shards.get_mut(usize::from(*at)) {
                    shard.commit(charge, look, &self.quotas, now);
                }
            }
        }
        drop(locked);
        Charged { conforms, outcomes }
    }

    /// Some charge has no room: it is one of a configuration that has just been replaced. Then it counts as unused, and the others decide.
    fn charge_present(&self, charges: &[Charge<'_>], now: Nanos) -> Charged {
        let present: SmallVec<[Charge<'_>; INLINE]> =
            charges.iter().filter(|charge| self.lock(charge).is_some()).copied().collect();
        if present.len() == charges.len() {
            // It has come back in this moment.
            return self.charge(charges, now);
        }
        let Charged { conforms, outcomes } =
            if present.is_empty() { Charged { conforms: true, outcomes: Outcomes::new() } } else { self.charge(&present, now) };
        let mut known =
            present.iter().map(|charge| charge.key).zip(outcomes).collect::<SmallVec<[_; INLINE]>>().into_iter().peekable();
        let outcome = |charge: &Charge<'_>| match known.next_if(|(key, _)| *key == charge.key) {
            Some((_, outcome)) => outcome,
            None => unused(charge, now),
        };
        Charged { conforms, outcomes: charges.iter().map(outcome).collect() }
    }

    /// What [`MemoryStore::charge`] would answer.
    #[must_use]
    pub fn peek(&self, charges: &[Charge<'_>], now: Nanos) -> Charged {
        let look = |charge: &Charge<'_>| {
            let boost = self.boost(charge, Visit::Unnoted, now);
            match self.lock(charge) {
                Some(mut shard) => shard.look(charge, boost, &self.quotas, now).1,
                None => unused(charge, now),
            }
        };
        let outcomes: Outcomes = charges.iter().map(look).collect();
        Charged { conforms: outcomes.iter().all(|outcome| outcome.verdict.conforms()), outcomes }
    }

    /// See [`Store::nobody_waits`](super::Store::nobody_waits).
    pub fn nobody_waits(&self, taken: &Taken, passed: u64) {
        if let Some(mut shard) = self.lock(&charge_of(taken)) {
            shard.nobody_waits(taken, passed);
        }
    }

    /// See [`Store::settle`](super::Store::settle).
    pub fn settle(&self, taken: &Taken, cost: u64, now: Nanos) {
        let charge = charge_of(taken);
        if let Some(mut shard) = self.lock(&charge) {
            shard.settle(&charge, taken, cost, &self.quotas, now);
        }
    }

    /// Drops counters that say no more than absent ones would, and gives memory back that is not needed any more. Holds one
    /// shard's lock at a time.
    pub fn sweep(&self, how_far: Sweep, now: Nanos) {
        let arranged: Vec<&Space> = self.arranged.lock().iter().filter_map(|space| self.space(*space)).collect();
        let total: usize = arranged.iter().map(|space| space.shards()).sum();
        let (skip, shards) = match how_far {
            Sweep::Whole => (0, total),
            Sweep::Slice => {
                let slice = total.div_ceil(SLICES);
                (self.swept.fetch_add(slice, Ordering::Relaxed) % total.max(1), slice)
            }
        };
        let all = arranged.iter().flat_map(|space| (0..space.shards()).map(move |shard| (space, shard)));
        for (space, shard) in all.clone().chain(all).skip(skip).take(shards) {
            space.sweep(shard, &self.quotas, now);
        }
    }

    /// What each charge's quota is multiplied with; nothing if none of them has a warm-up.
    fn boosts(&self, charges: &[Charge<'_>], now: Nanos) -> SmallVec<[Boost; INLINE]> {
        if charges.iter().all(|charge| charge.warmup.is_none()) {
            return SmallVec::new();
        }
        charges.iter().map(|charge| self.boost(charge, Visit::Noted, now)).collect()
    }

    /// What a limit with `warmup` gives this caller. Takes its own lock, before those of the decision.
    fn boost(&self, charge: &Charge<'_>, visit: Visit, now: Nanos) -> Boost {
        let Some((warmup, key)) = charge.warmup else { return Boost::NONE };
        let Warmup { memory, space, .. } = warmup;
        let visits = Charge { key, quota: memory, space: *space, cost: 1, warmup: None, ..*charge };
        let Some(mut shard) = self.lock(&visits) else { return Boost::NONE };
        let (look, _) = shard.look(&visits, Boost::NONE, &self.quotas, now);
        if visit == Visit::Noted {
            shard.commit(&visits, &look, &self.quotas, now);
        }
        warmup.boost(look.state, now)
    }

    #[inline]
    fn space(&self, space: SpaceId) -> Option<&Space> {
        self.spaces.get(index(space))?.get()
    }

    /// Of a closed space too, which has no counters.
    #[inline]
    fn lock_any(&self, charge: &Charge<'_>) -> Option<MutexGuard<'_, Shard>> {
        let space = self.space(charge.space)?;
        space.lock_any(space.shard_of(charge.key))
    }

    #[inline]
    fn lock(&self, charge: &Charge<'_>) -> Option<MutexGuard<'_, Shard>> {
        let space = self.space(charge.space)?;
        space.lock(space.shard_of(charge.key))
    }
}

/// The places of charges in the order in which their rooms are locked; nothing if they are too many for that.
fn lock_order(charges: &[Charge<'_>]) -> Option<[u8; INLINE]> {
    let mut order = [0, 1, 2, 3, 4, 5, 6, 7];
    // A configuration's rooms are numbered as its limits come, unless a reload has changed their order.
    if !charges.is_sorted_by_key(|charge| charge.space) {
        order.get_mut(..charges.len())?.sort_unstable_by_key(|i| charges.get(usize::from(*i)).map(|charge| charge.space));
    }
    (charges.len() <= INLINE).then_some(order)
}

/// Whether a look at somebody is a visit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Visit {
    Noted,
    Unnoted,
}

/// The shards of several charges, all locked. The order is that of the spaces and then of the shards, for everybody, so nobody waits in
/// a circle.
struct Locked<'s> {
    shards: SmallVec<[MutexGuard<'s, Shard>; INLINE]>,
    /// By charge, the place in `shards`.
    of: SmallVec<[u16; INLINE]>,
}

/// Where a charge's counter is kept, to be brought into the order of locks.
struct Whereabouts<'s> {
    space: &'s Space,
    place: (SpaceId, usize),
    charge: u16,
}

impl<'s> Locked<'s> {
    fn all(store: &'s MemoryStore, charges: &[Charge<'_>]) -> Option<Self> {
        let mut order: SmallVec<[Whereabouts<'s>; INLINE]> = SmallVec::new();
        for (charge, i) in charges.iter().zip(0..) {
            let space = store.space(charge.space)?;
            let place = (charge.space, space.shard_of(charge.key));
            // Few enough for insertion: a request has a handful of charges.
            let at = order.iter().rposition(|other| other.place <= place).map_or(0, |before| before + 1);
            order.insert(at, Whereabouts { space, place, charge: i });
        }
        let mut locked = Self { shards: SmallVec::new(), of: smallvec![0; charges.len()] };
        let mut last = None;
        for Whereabouts { space, place, charge } in order {
            if last != Some(place) {
                locked.shards.push(space.lock(place.1)?);
                last = Some(place);
            }
            if let Some(of) = locked.of.get_mut(usize::from(charge)) {
                *of = u16::try_from(locked.shards.len() - 1).ok()?;
            }
        }
        Some(locked)
    }
}

fn charge_of(taken: &Taken) -> Charge<'_> {
    let Taken { key, space, quota, cost, .. } = taken;
    Charge { key: *key, space: *space, quota, cost: *cost, limit: 0, queue: 0, warmup: None, sharing: None }
}

/// The answer for a charge that has no room: as if nothing had been used.
fn unused(charge: &Charge<'_>, now: Nanos) -> Outcome {
    charge.quota.quota.decide(0, charge.key.phase(), now, charge.cost).outcome
}

fn index(SpaceId(space): SpaceId) -> usize {
    usize::try_from(space).unwrap_or(usize::MAX)
}

/// Charges of a request for which nothing is taken from the heap.
const INLINE: usize = 8;
/// Calls of [`Sweep::Slice`] after which every shard has been swept.
const SLICES: usize = 100;

#[cfg(test)]
mod tests;
