//! Counters in this process: a sharded map from key to one `u64`.
//!
//! A counter is an atomic under a shared lock of its shard, so two requests for different keys of a shard don't wait for
//! each other, and two for the same key race by compare-and-swap. Only a new key, or a counter written under another
//! quota, takes the shard alone.
//!
//! Several charges: all are looked at first, then taken one by one, narrow before broad (the caller's order), and given back
//! if a racing request took the last cell in between. At most one guard is held at any time. So nothing is ever admitted
//! beyond a quota; a request that loses such a race may be refused a moment early.
//!
//! Memory is bounded: at `max_keys` a newcomer shares one of a fixed number of overflow counters with others whose keys
//! hash alike, which can only be stricter, until the sweep has made room. A flood of new keys so never pushes out a key in debt.

use std::collections::hash_map::Entry as StdEntry;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;

use super::{Charged, Outcomes};
use crate::clock::Nanos;
use crate::limit::{Charge, Key, Outcome, Quota, QuotaId, Quotas};

/// See the module.
#[derive(Debug)]
pub struct MemoryStore {
    counters: DashMap<Key, Counter, BuildHasherDefault<KeyIsHash>>,
    quotas: Quotas,
    max_keys: AtomicUsize,
    /// Kept beside the map: its own `len` locks every shard.
    keys: AtomicUsize,
    overflows: AtomicU64,
}

/// A counter and the quota it was written under.
#[derive(Debug)]
struct Counter {
    state: AtomicU64,
    quota: QuotaId,
}

/// How full the store is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Occupancy {
    /// Counters kept.
    pub keys: usize,
    /// Counters kept at most, overflow counters not included.
    pub max_keys: usize,
    /// Charges held against an overflow counter, ever.
    pub overflows: u64,
}

impl MemoryStore {
    /// Room for `max_keys` counters; memory is taken as they come, a shard at a time. `quotas` must be the table that
    /// interned every quota that will be charged here.
    #[must_use]
    pub fn new(max_keys: usize, quotas: Quotas) -> Self {
        Self {
            counters: DashMap::with_hasher_and_shard_amount(BuildHasherDefault::default(), SHARDS),
            quotas,
            max_keys: AtomicUsize::new(max_keys),
            keys: AtomicUsize::new(0),
            overflows: AtomicU64::new(0),
        }
    }

    /// Changes the cap; counters beyond a lower one stay until they are idle.
    pub fn set_max_keys(&self, max_keys: usize) {
        self.max_keys.store(max_keys, Ordering::Relaxed);
    }

    /// How full it is.
    #[must_use]
    pub fn occupancy(&self) -> Occupancy {
        Occupancy {
            keys: self.keys.load(Ordering::Relaxed),
            max_keys: self.max_keys.load(Ordering::Relaxed),
            overflows: self.overflows.load(Ordering::Relaxed),
        }
    }

    /// Charges all or none; see the module for how.
    #[must_use]
    pub fn charge(&self, charges: &[Charge<'_>], now: Nanos) -> Charged {
        if let [only] = charges {
            let outcome = self.take(only, now);
            return Charged { conforms: outcome.verdict.conforms(), outcomes: Outcomes::from_iter([outcome]) };
        }
        let mut charged = self.peek(charges, now);
        if !charged.conforms {
            return charged;
        }
        for (i, (charge, outcome)) in charges.iter().zip(charged.outcomes.iter_mut()).enumerate() {
            *outcome = self.take(charge, now);
            if !outcome.verdict.conforms() {
                // A racing request was faster: give back what was taken and say how things stand now.
                for taken in charges.iter().take(i) {
                    self.give_back(taken, now);
                }
                let mut standing = self.peek(charges, now);
                if let Some(lost) = standing.outcomes.get_mut(i) {
                    *lost = *outcome;
                }
                return Charged { conforms: false, ..standing };
            }
        }
        charged
    }

    /// What [`MemoryStore::charge`] would answer.
    #[must_use]
    pub fn peek(&self, charges: &[Charge<'_>], now: Nanos) -> Charged {
        let outcomes: Outcomes = charges.iter().map(|charge| self.look(charge, now)).collect();
        Charged { conforms: outcomes.iter().all(|outcome| outcome.verdict.conforms()), outcomes }
    }

    /// Drops counters that say no more than absent ones would. Locks one shard at a time; for a thread of its own.
    pub fn sweep(&self, now: Nanos) {
        let mut known = std::collections::HashMap::new();
        let mut dropped = 0;
        self.counters.retain(|key, counter| {
            let quota = match known.entry(counter.quota) {
                StdEntry::Occupied(found) => *found.get(),
                StdEntry::Vacant(vacant) => *vacant.insert(self.quotas.get(counter.quota)),
            };
            let idle = quota.is_none_or(|quota| quota.is_idle(*counter.state.get_mut(), key.phase(), now));
            dropped += usize::from(idle);
            !idle
        });
        self.keys.fetch_sub(dropped, Ordering::Relaxed);
    }

    fn look(&self, charge: &Charge<'_>, now: Nanos) -> Outcome {
        let quota = &charge.quota.quota;
        let key = self.home_of(charge);
        let state = self.counters.get(&key).map(|counter| {
            let state = counter.state.load(Ordering::Relaxed);
            if counter.quota == charge.quota.id { state } else { self.convert(state, counter.quota, quota, key, now) }
        });
        quota.decide(state.unwrap_or(0), key.phase(), now, charge.cost).outcome
    }

    fn take(&self, charge: &Charge<'_>, now: Nanos) -> Outcome {
        let quota = &charge.quota.quota;
        let key = self.home_of(charge);
        if key != charge.key {
            self.overflows.fetch_add(1, Ordering::Relaxed);
        }
        let phase = key.phase();
        loop {
            if let Some(counter) = self.counters.get(&key) {
                if counter.quota == charge.quota.id {
                    return swap(&counter.state, |state| {
                        let step = quota.decide(state, phase, now, charge.cost);
                        (step.state, step.outcome)
                    });
                }
                drop(counter);
                self.rewrite(key, charge, now);
                continue;
            }
            let step = quota.decide(self.inherited(charge, key, now), phase, now, charge.cost);
            if step.state == 0 {
                // Nothing to remember, so nothing to insert: refused costs and peeks don't cost memory.
                return step.outcome;
            }
            if let Entry::Vacant(vacant) = self.counters.entry(key) {
                vacant.insert(Counter { state: AtomicU64::new(step.state), quota: charge.quota.id });
                self.keys.fetch_add(1, Ordering::Relaxed);
                return step.outcome;
            }
        }
    }

    fn give_back(&self, charge: &Charge<'_>, now: Nanos) {
        let key = self.home_of(charge);
        if let Some(counter) = self.counters.get(&key)
            && counter.quota == charge.quota.id
        {
            swap(&counter.state, |state| (charge.quota.quota.refund(state, key.phase(), now, charge.cost), ()));
        }
    }

    /// Brings a counter that was written under another quota to this one, usage carried over in cells.
    fn rewrite(&self, key: Key, charge: &Charge<'_>, now: Nanos) {
        if let Some(mut counter) = self.counters.get_mut(&key)
            && counter.quota != charge.quota.id
        {
            let from = counter.quota;
            let state = counter.state.get_mut();
            *state = self.convert(*state, from, &charge.quota.quota, key, now);
            counter.quota = charge.quota.id;
        }
    }

    fn convert(&self, state: u64, from: QuotaId, to: &Quota, key: Key, now: Nanos) -> u64 {
        let used = self.quotas.get(from).map_or(0, |from| from.used(state, key.phase(), now));
        to.with_used(used, key.phase(), now)
    }

    /// What a new counter starts from: nothing, or what its overflow counter says if there ever was one. The key may have been
    /// counted there; if it was not, it is treated more strictly than it deserves, for as long as that counter drains.
    fn inherited(&self, charge: &Charge<'_>, key: Key, now: Nanos) -> u64 {
        if key != charge.key || self.overflows.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let shared = overflow_key(charge);
        let quota = &charge.quota.quota;
        let used =
            self.counters.get(&shared).map(|counter| quota.used(counter.state.load(Ordering::Relaxed), shared.phase(), now));
        used.map_or(0, |used| quota.with_used(used, key.phase(), now))
    }

    /// Where a key's counter is: its own place, or an overflow counter while the store is full and it has none.
    fn home_of(&self, charge: &Charge<'_>) -> Key {
        if self.keys.load(Ordering::Relaxed) < self.max_keys.load(Ordering::Relaxed) || self.counters.contains_key(&charge.key) {
            return charge.key;
        }
        overflow_key(charge)
    }
}

/// The counter that a key shares while the store is full. One set per quota, so its state is always of the charge's own quota.
fn overflow_key(charge: &Charge<'_>) -> Key {
    let [hash, _] = charge.key.0;
    let bucket = hash % OVERFLOW_COUNTERS;
    // Spread over the shards, and apart from every digest but by chance in 2^128.
    Key([bucket.wrapping_mul(0x9e37_79b9_7f4a_7c15), u64::from(charge.quota.id.0)])
}

/// Compare-and-swap until it holds; the closure may run more than once.
fn swap<T>(state: &AtomicU64, step: impl Fn(u64) -> (u64, T)) -> T {
    let mut current = state.load(Ordering::Relaxed);
    loop {
        let (next, result) = step(current);
        if next == current {
            return result;
        }
        // Relaxed is enough: the number is all there is, nothing else is published by it.
        match state.compare_exchange_weak(current, next, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return result,
            Err(actual) => current = actual,
        }
    }
}

/// Keys are keyed digests already, so the first half serves as the hash.
#[derive(Debug, Default)]
struct KeyIsHash(u64);

impl Hasher for KeyIsHash {
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
    fn write(&mut self, bytes: &[u8]) {
        // Not reached: `Key` writes one u64.
        self.0 = bytes.iter().fold(self.0, |hash, byte| hash.rotate_left(8) ^ u64::from(*byte));
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

/// Enough that a sweep holds each for well under a millisecond at a million keys, and that growth is no long pause.
const SHARDS: usize = 128;
/// Per quota; small beside any sensible `max_keys`.
const OVERFLOW_COUNTERS: u64 = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SECOND;
    use crate::limit::{Algorithm, Interned, KeyHasher};
    use std::time::Duration;

    struct Fixture {
        store: MemoryStore,
        quotas: Quotas,
        hasher: KeyHasher,
    }

    fn fixture(max_keys: usize) -> Fixture {
        let quotas = Quotas::default();
        Fixture { store: MemoryStore::new(max_keys, quotas.clone()), quotas, hasher: KeyHasher::default() }
    }

    impl Fixture {
        fn quota(&self, count: u64, seconds: u64, algorithm: Algorithm) -> Interned {
            self.quotas.intern(Quota::new(count, Duration::from_secs(seconds), None, algorithm).unwrap())
        }

        fn key(&self, name: &str) -> Key {
            self.hasher.start(name).finish()
        }
    }

    fn charge<'q>(key: Key, quota: &'q Interned, cost: u64) -> Charge<'q> {
        Charge { key, quota, cost, limit: 0 }
    }

    #[test]
    fn all_or_none_whatever_the_algorithm() {
        for algorithm in [Algorithm::Gcra, Algorithm::FixedWindow] {
            let f = fixture(100);
            let (wide, narrow) = (f.quota(10, 3600, algorithm), f.quota(2, 3600, algorithm));
            let charges = [charge(f.key("narrow"), &narrow, 1), charge(f.key("wide"), &wide, 1)];
            for left in [1, 0] {
                let charged = f.store.charge(&charges, 0);
                assert!(charged.conforms);
                assert_eq!(charged.outcomes[0].remaining, left);
            }
            for _ in 0..5 {
                assert!(!f.store.charge(&charges, 0).conforms);
            }
            assert_eq!(f.store.peek(&charges, 0).outcomes[1].remaining, 7, "{algorithm:?}: 2 used and this one");
        }
    }

    #[test]
    fn many_threads_admit_exactly_the_limit() {
        let f = fixture(1000);
        let (own, shared) = (f.quota(50, 3600, Algorithm::Gcra), f.quota(120, 3600, Algorithm::FixedWindow));
        let shared_key = f.key("shared");
        let admitted: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|t| {
                    let (f, own, shared) = (&f, &own, &shared);
                    let key = f.key(&format!("own{}", t % 4));
                    scope.spawn(move || {
                        let charges = [charge(key, own, 1), charge(shared_key, shared, 1)];
                        (0..500).filter(|_| f.store.charge(&charges, 0).conforms).count()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(admitted, 120);
        assert_eq!(f.store.peek(&[charge(shared_key, &shared, 1)], 0).outcomes[0].remaining, 0);
    }

    #[test]
    fn a_changed_quota_keeps_usage_in_cells() {
        for (from, to) in [
            (Algorithm::Gcra, Algorithm::Gcra),
            (Algorithm::FixedWindow, Algorithm::FixedWindow),
            (Algorithm::Gcra, Algorithm::FixedWindow),
            (Algorithm::FixedWindow, Algorithm::Gcra),
        ] {
            let f = fixture(100);
            let key = f.key("k");
            let (five, ten, two) = (f.quota(5, 3600, from), f.quota(10, 3600, to), f.quota(2, 3600, to));
            let admitted = |quota: &Interned| (0..20).filter(|_| f.store.charge(&[charge(key, quota, 1)], 0).conforms).count();
            assert_eq!(admitted(&five), 5);
            assert_eq!(admitted(&ten), 5, "{from:?} to {to:?}");
            assert_eq!(admitted(&two), 0);
        }
    }

    #[test]
    fn a_sweep_drops_what_is_idle_and_nothing_else() {
        let f = fixture(100);
        let (slow, fast) = (f.quota(1, 3600, Algorithm::Gcra), f.quota(1, 1, Algorithm::FixedWindow));
        assert!(f.store.charge(&[charge(f.key("slow"), &slow, 1), charge(f.key("fast"), &fast, 1)], 0).conforms);
        assert_eq!(f.store.occupancy().keys, 2);
        f.store.sweep(2 * SECOND);
        assert_eq!(f.store.occupancy().keys, 1);
        assert!(!f.store.charge(&[charge(f.key("slow"), &slow, 1)], 2 * SECOND).conforms);
    }

    #[test]
    fn a_flood_of_keys_neither_grows_the_store_nor_frees_a_blocked_key() {
        let f = fixture(1000);
        let quota = f.quota(1, 3600, Algorithm::Gcra);
        let blocked = f.key("blocked");
        assert!(f.store.charge(&[charge(blocked, &quota, 1)], 0).conforms);
        for i in 0..20_000 {
            let _ = f.store.charge(&[charge(f.key(&format!("{i}")), &quota, 1)], 0);
        }
        let occupancy = f.store.occupancy();
        assert!(occupancy.keys <= 1000 + OVERFLOW_COUNTERS as usize, "{occupancy:?}");
        assert!(occupancy.overflows > 0);
        assert!(!f.store.charge(&[charge(blocked, &quota, 1)], 0).conforms);
        f.store.sweep(7200 * SECOND);
        assert_eq!(f.store.occupancy().keys, 0);
    }

    #[test]
    fn usage_in_an_overflow_counter_is_not_forgotten_when_there_is_room_again() {
        let f = fixture(1);
        let (long, short) = (f.quota(2, 3600, Algorithm::Gcra), f.quota(1, 1, Algorithm::Gcra));
        assert!(f.store.charge(&[charge(f.key("fills"), &short, 1)], 0).conforms);
        let late = [charge(f.key("late"), &long, 1)];
        assert_eq!((0..5).filter(|_| f.store.charge(&late, 0).conforms).count(), 2);
        f.store.sweep(2 * SECOND);
        f.store.set_max_keys(10);
        assert!(!f.store.charge(&late, 2 * SECOND).conforms);
    }

    #[test]
    fn a_refused_first_request_leaves_no_entry() {
        let f = fixture(100);
        let quota = f.quota(1, 1, Algorithm::Gcra);
        assert!(!f.store.charge(&[charge(f.key("k"), &quota, 2)], 0).conforms);
        assert_eq!(f.store.occupancy().keys, 0);
    }
}
