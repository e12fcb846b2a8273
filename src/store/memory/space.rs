//! The room of a limit's window: shards, and how large they may grow.

use parking_lot::{Mutex, MutexGuard};

use super::shard::{DEBT_SHARES, Shard, Stats};
use super::size::Size;
use super::table::WAYS;
use crate::clock::Nanos;
use crate::limit::{Key, Quotas, SpaceId};

/// How much room a limit gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    /// Whose.
    pub space: SpaceId,
    /// Counters at most.
    pub max_keys: usize,
}

/// How full a space is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Occupancy {
    /// Whose.
    pub space: SpaceId,
    /// Counters kept.
    pub keys: usize,
    /// Counters kept at most.
    pub max_keys: usize,
    /// Bytes taken for entries, used or not; logs not included.
    pub bytes: usize,
    /// Idle counters that made room for newcomers, ever.
    pub evicted_idle: u64,
    /// Counters in use that newcomers took over with their debt, ever.
    pub evicted_live: u64,
    /// Those by how much of the quota the debt was: up to each of [`DEBT_SHARES`], and above.
    pub inherited: [u64; DEBT_SHARES.len() + 1],
    /// The sum of those shares, in 2^-16ths.
    pub inherited_sum: u64,
}

impl Occupancy {
    /// Adds up two rooms.
    pub fn add(&mut self, other: &Self) {
        self.keys += other.keys;
        self.max_keys += other.max_keys;
        self.bytes += other.bytes;
        self.evicted_idle += other.evicted_idle;
        self.evicted_live += other.evicted_live;
        self.inherited_sum += other.inherited_sum;
        for (sum, count) in self.inherited.iter_mut().zip(other.inherited) {
            *sum += count;
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Space {
    id: SpaceId,
    shards: Box<[Padded]>,
}

/// Apart by two cache lines, which processors fetch together.
#[derive(Debug)]
#[repr(align(128))]
struct Padded(Mutex<Shard>);

impl Space {
    /// Empty. The number of shards stays what the first budget makes it.
    pub(super) fn new(budget: &Budget) -> Self {
        let least = MIN_SHARDS.min(budget.max_keys / (WAYS * MIN_SETS)).max(1);
        let shards = power_of_two_below((budget.max_keys / KEYS_PER_SHARD).clamp(least, MAX_SHARDS));
        Self { id: budget.space, shards: (0..shards).map(|_| Padded(Mutex::default())).collect() }
    }

    pub(super) fn set_budget(&self, budget: &Budget) {
        // Whole sets; a budget that is no multiple of them is rounded up.
        let sets = budget.max_keys.div_ceil(self.shards.len() * WAYS).max(1);
        for Padded(shard) in &self.shards {
            shard.lock().open(Size::of(sets));
        }
    }

    /// Forgets everything: the limit is gone.
    pub(super) fn close(&self) {
        self.shards.iter().for_each(|Padded(shard)| shard.lock().close());
    }

    pub(super) fn shards(&self) -> usize {
        self.shards.len()
    }

    /// By low bits of the digest; the high ones choose the set.
    pub(super) fn shard_of(&self, key: Key) -> usize {
        let [low, _] = key.0;
        usize::try_from(low & 0xffff).unwrap_or(0) & (self.shards.len() - 1)
    }

    /// Nothing if the space is closed.
    #[inline]
    pub(super) fn lock(&self, shard: usize) -> Option<MutexGuard<'_, Shard>> {
        self.lock_any(shard).filter(|shard| !shard.is_closed())
    }

    #[inline]
    pub(super) fn lock_any(&self, shard: usize) -> Option<MutexGuard<'_, Shard>> {
        let Padded(shard) = self.shards.get(shard)?;
        Some(shard.lock())
    }

    pub(super) fn sweep(&self, shard: usize, quotas: &Quotas, now: Nanos) {
        if let Some(mut shard) = self.lock(shard) {
            shard.sweep(quotas, now);
        }
    }

    pub(super) fn occupancy(&self) -> Occupancy {
        let of_shard = |Padded(shard): &Padded| {
            let shard = shard.lock();
            let Stats { evicted_idle, evicted_live, inherited, inherited_sum } = shard.stats();
            let (keys, max_keys, bytes) = (shard.keys(), shard.max_keys(), shard.bytes());
            Occupancy { space: self.id, keys, max_keys, bytes, evicted_idle, evicted_live, inherited, inherited_sum }
        };
        let mut shards = self.shards.iter().map(of_shard);
        let first = shards.next();
        let empty = Occupancy { space: self.id, ..Occupancy::default() };
        shards.fold(first.unwrap_or(empty), |mut sum, shard| {
            sum.add(&shard);
            sum
        })
    }
}

fn power_of_two_below(n: usize) -> usize {
    if n.is_power_of_two() { n } else { n.next_power_of_two() / 2 }
}

/// A shard of this size is swept or grown in well under a millisecond.
const KEYS_PER_SHARD: usize = 4096;
/// Enough that few cores rarely meet.
const MIN_SHARDS: usize = 64;
/// With fewer sets in a shard, chance would fill some long before the others.
const MIN_SETS: usize = 32;
const MAX_SHARDS: usize = 4096;
