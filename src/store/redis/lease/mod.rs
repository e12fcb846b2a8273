//! Blocks of cells that were taken from the store and are spent here, and what is known without asking.
//!
//! A busy counter would cost a round trip per request. Instead a gateway takes a block of cells at once, spends it in memory, and has it
//! refilled in the background when half of it is gone. The store has counted every cell before it is spent, so no window ever
//! admits more than its limit; of GCRA at most what is leased comes on top of a burst. Cells end with the window they came from, counted from when
//! the question was *sent*: early rather than late. What nobody needs goes back.
//!
//! Beside its lease an entry remembers what the store last refused, and repeats it until it can have changed (the negative cache): for seconds at
//! most, because other gateways give cells back and administrators reset counters, and for a moment where responses give back what was charged.
//! Only where it is known how long a larger charge would have to wait, that is refused as well.
//!
//! Knows no connections, keys of the store or configuration: time, the number of instances and the answers are arguments. `mod` is the
//! table that threads share; `shard` what is behind one lock; `entry` what is known of one counter; `rate` how busy it is;
//! `rules` which charges may be leased, and how much.

mod entry;
mod rate;
mod rules;
mod shard;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};

use super::Answer;
use crate::clock::Nanos;
use crate::limit::{Charge, Interned, Key, Outcome, Quota, Quotas, Reach};
use crate::store::Taken;

use shard::Shard;

/// See the module.
#[derive(Debug)]
pub struct Leases {
    shards: Box<[Padded]>,
    quotas: Quotas,
    /// Which shards are tidied next although they hold no cells.
    swept: AtomicUsize,
}

/// What is known of a charge without asking the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spend {
    /// It was paid from the lease.
    Spent {
        /// Estimated from the last answer. By its `mark` the store finds the cells again.
        outcome: Outcome,
        /// For [`Leases::unspend`].
        window: u64,
        /// Whether it is time to call [`Leases::refill`].
        refill: bool,
    },
    /// The store would refuse it.
    Denied {
        /// From the last answer.
        outcome: Outcome,
    },
    /// Only the store knows.
    Ask,
}

/// Cells that go back to the store.
#[derive(Debug, Clone, Copy)]
pub struct Return {
    /// Whose, under which quota and by which mark; `cost` is how many.
    pub taken: Taken,
    /// The window they came from: where that is over they are worth nothing.
    pub window: u64,
}

impl Return {
    /// The same cells under the numbers that hold now, so that the store does not go back to the old ones. If its windows were counted differently
    /// the cells have no place among the new ones, and stay with the old.
    fn under(self, quota: &Interned) -> Self {
        let old = &self.taken.quota.quota;
        let is_same =
            |new: &Quota| (new.algorithm(), new.period(), new.calendar()) == (old.algorithm(), old.period(), old.calendar());
        if is_same(&quota.quota) { Self { taken: Taken { quota: *quota, ..self.taken }, ..self } } else { self }
    }
}

impl Leases {
    /// Room for `max_entries` counters. `quotas` must be the table that interned every quota that is charged.
    #[must_use]
    pub fn new(quotas: Quotas, max_entries: usize) -> Self {
        let each = max_entries.div_ceil(SHARDS).max(1);
        let shards = (0..SHARDS).map(|_| Padded(Mutex::new(Shard::new(each)))).collect();
        Self { shards, quotas, swept: AtomicUsize::new(0) }
    }

    /// Spends `charge.cost` of what was leased, or says from what is known that the store would deny it, or that it must be asked.
    #[must_use]
    pub fn spend(&self, charge: &Charge<'_>, generation: u64, now: Nanos) -> Spend {
        self.lock(charge.key).map_or(Spend::Ask, |mut shard| shard.spend(charge, generation, now, &self.quotas))
    }

    /// Puts spent cells back: another limit refused, or a response refunded them. Whether they could be put back; if not, because their
    /// lease is over, they are the store's to settle.
    #[must_use]
    pub fn unspend(&self, key: Key, window: u64, cells: u64, now: Nanos) -> bool {
        self.lock(key).is_some_and(|mut shard| shard.unspend(key, window, cells, now))
    }

    /// How many more cells to ask for beside a charge that must be asked; 0 while strict is better, or while somebody else is asking
    /// for a block. `now` is what [`Leases::answered`] is told as `sent`.
    #[must_use]
    pub fn block(&self, charge: &Charge<'_>, reach: Reach, instances: u32, now: Nanos) -> u64 {
        self.lock(charge.key).map_or(0, |mut shard| shard.block(charge, (reach, instances), now, &self.quotas))
    }

    /// How many cells to ask for, without a charge (a cost of 0), after [`Spend::Spent`] said so. 0 if somebody else does it already, or if there is nothing
    /// to be had; otherwise the caller asks, and calls [`Leases::answered`] (with a charge whose cost is 0, and `now` as `sent`) or [`Leases::unanswered`].
    #[must_use]
    pub fn refill(&self, charge: &Charge<'_>, reach: Reach, instances: u32, now: Nanos) -> u64 {
        self.lock(charge.key).map_or(0, |mut shard| shard.refill(charge, (reach, instances), now, &self.quotas))
    }

    /// The store's answer to a charge that was asked at `sent`: cells for later, or a denial to remember.
    pub fn answered(&self, charge: &Charge<'_>, answer: &Answer, generation: u64, sent: Nanos, now: Nanos) {
        if let Some(mut shard) = self.lock(charge.key) {
            shard.answered(charge, answer, shard::Told { generation, sent, now }, &self.quotas);
        }
    }

    /// There was no answer to what was asked at `sent`: the next block may be asked for, after a little while.
    pub fn unanswered(&self, key: Key, sent: Nanos, now: Nanos) {
        if let Some(mut shard) = self.lock(key) {
            shard.unanswered(key, sent, now);
        }
    }

    /// A charge has turned out to cost this much more than was taken for it, or less, and the store will be told.
    pub fn corrected(&self, key: Key, quota: &Quota, delta: i64, now: Nanos) {
        if let Some(mut shard) = self.lock(key) {
            shard.corrected(key, quota, delta, now);
        }
    }

    /// An administrator has reset this counter: what the store said is not true any more. The lease stays, it was counted before.
    pub fn forget(&self, key: Key) {
        if let Some(mut shard) = self.lock(key) {
            shard.forget(key);
        }
    }

    /// The same for all counters.
    pub fn forget_all(&self) {
        self.shards.iter().for_each(|shard| shard.0.lock().forget_all());
    }

    /// What goes back to the store: leases nobody spent from for a while, of which nothing is left in their window, of quotas that changed, and
    /// of counters that made room for others. Drops what says nothing any more. To be called about every 100 ms: a call looks at every shard
    /// that holds cells and at an eighth of the others, one lock at a time.
    #[must_use]
    pub fn take_idle(&self, now: Nanos) -> Vec<Return> {
        let mut returns = Vec::new();
        let turn = self.swept.fetch_add(1, Ordering::Relaxed) % SLICES;
        for (i, shard) in self.shards.iter().enumerate() {
            let mut shard = shard.0.lock();
            if shard.holds_cells() || i % SLICES == turn {
                shard.tidy(now, &self.quotas, &mut returns);
            }
        }
        returns
    }

    /// Everything that is leased, for a shutdown; the shards are empty afterwards.
    #[must_use]
    pub fn take_all(&self, now: Nanos) -> Vec<Return> {
        let mut returns = Vec::new();
        self.shards.iter().for_each(|shard| shard.0.lock().close(now, &self.quotas, &mut returns));
        returns
    }

    /// How full the table is.
    #[must_use]
    pub fn occupancy(&self) -> Occupancy {
        self.shards.iter().fold(Occupancy::default(), |sum, shard| sum.and(&shard.0.lock().occupancy()))
    }

    fn lock(&self, key: Key) -> Option<MutexGuard<'_, Shard>> {
        let [digest, _] = key.0;
        // Bits that a map inside the shard uses neither for its buckets nor for its tags.
        let shard = usize::try_from((digest >> 40) % (SHARDS as u64)).unwrap_or(0);
        self.shards.get(shard).map(|shard| shard.0.lock())
    }
}

/// See [`Leases::occupancy`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Occupancy {
    /// Counters of which something is known.
    pub entries: usize,
    /// Counters with cells to spend.
    pub leases: usize,
    /// Cells leased and not spent.
    pub cells: u64,
    /// Counters that made room for others, ever.
    pub evicted: u64,
    /// Cells that could not be given back because too many were waiting to be, ever.
    pub lost: u64,
}

impl Occupancy {
    fn and(self, other: &Self) -> Self {
        Self {
            entries: self.entries + other.entries,
            leases: self.leases + other.leases,
            cells: self.cells.saturating_add(other.cells),
            evicted: self.evicted + other.evicted,
            lost: self.lost.saturating_add(other.lost),
        }
    }
}

/// On cache lines of its own, so that threads with different keys do not wait for each other's.
#[derive(Debug)]
#[repr(align(128))]
struct Padded(Mutex<Shard>);

/// Far more than worker threads, and few enough to look into all of them ten times a second.
const SHARDS: usize = 64;
/// In how many calls a sweep comes round.
const SLICES: usize = 8;
