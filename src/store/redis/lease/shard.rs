//! The counters behind one lock: a slab of entries, an index by key, and what waits to go back.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::entry::Entry;
use super::{Occupancy, Return, Spend};
use crate::clock::Nanos;
use crate::limit::{Charge, Key, Quota, Quotas, Reach};
use crate::store::redis::Answer;

/// See the module.
#[derive(Debug)]
pub(super) struct Shard {
    places: HashMap<Key, u32, BuildHasherDefault<AsItIs>>,
    entries: Vec<Entry>,
    most: usize,
    /// Where the search for somebody to make room goes on.
    hand: usize,
    /// Whether any entry may have cells.
    holds_cells: bool,
    returns: Vec<Return>,
    evicted: u64,
    lost: u64,
}

/// Under which configuration and when the store was asked, and when it answered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Told {
    pub(super) generation: u64,
    pub(super) sent: Nanos,
    pub(super) now: Nanos,
}

impl Shard {
    pub(super) fn new(most: usize) -> Self {
        Self {
            places: HashMap::default(),
            entries: Vec::new(),
            most,
            hand: 0,
            holds_cells: false,
            returns: Vec::new(),
            evicted: 0,
            lost: 0,
        }
    }

    #[inline]
    pub(super) fn spend(&mut self, charge: &Charge<'_>, generation: u64, now: Nanos, quotas: &Quotas) -> Spend {
        self.settled(charge, now, quotas).map_or(Spend::Ask, |entry| entry.spend(charge, generation, now))
    }

    pub(super) fn unspend(&mut self, key: Key, window: u64, cells: u64, now: Nanos) -> bool {
        let is_back = self.find(key).is_some_and(|entry| entry.unspend(window, cells, now));
        self.holds_cells |= is_back;
        is_back
    }

    pub(super) fn block(&mut self, charge: &Charge<'_>, who: (Reach, u32), now: Nanos, quotas: &Quotas) -> u64 {
        self.settled(charge, now, quotas).map_or(0, |entry| entry.block(charge, who.0, who.1, now))
    }

    pub(super) fn refill(&mut self, charge: &Charge<'_>, who: (Reach, u32), now: Nanos, quotas: &Quotas) -> u64 {
        let charge = Charge { cost: 0, ..*charge };
        self.settled(&charge, now, quotas).map_or(0, |entry| entry.refill(&charge, who.0, who.1, now))
    }

    pub(super) fn answered(&mut self, charge: &Charge<'_>, answer: &Answer, told: Told, quotas: &Quotas) {
        if !self.places.contains_key(&charge.key) {
            self.insert(Entry::new(charge, told.now), told.now, quotas);
        }
        let returned = self.settled(charge, told.now, quotas).and_then(|entry| entry.answered(charge, answer, told, quotas));
        self.holds_cells |= answer.granted > 0;
        self.give_back(returned);
    }

    pub(super) fn unanswered(&mut self, key: Key, sent: Nanos, now: Nanos) {
        if let Some(entry) = self.find(key) {
            entry.unanswered(sent, now);
        }
    }

    pub(super) fn corrected(&mut self, key: Key, quota: &Quota, delta: i64, now: Nanos) {
        if let Some(entry) = self.find(key) {
            entry.correct(quota, delta, now);
        }
    }

    pub(super) fn forget(&mut self, key: Key) {
        if let Some(entry) = self.find(key) {
            entry.forget();
        }
    }

    pub(super) fn forget_all(&mut self) {
        self.entries.iter_mut().for_each(Entry::forget);
    }

    pub(super) fn holds_cells(&self) -> bool {
        self.holds_cells || !self.returns.is_empty()
    }

    /// Collects what goes back, and drops entries that say nothing.
    pub(super) fn tidy(&mut self, now: Nanos, quotas: &Quotas, returns: &mut Vec<Return>) {
        returns.append(&mut self.returns);
        self.holds_cells = false;
        let mut at = 0;
        while let Some(entry) = self.entries.get_mut(at) {
            if entry.lease.cells > 0 {
                if entry.is_idle(now) {
                    returns.extend(entry.end_lease(now, quotas));
                } else {
                    self.holds_cells = true;
                }
            }
            if entry.is_blank(now) {
                self.remove(at);
            } else {
                at += 1;
            }
        }
    }

    /// Collects everything, for the end.
    pub(super) fn close(&mut self, now: Nanos, quotas: &Quotas, returns: &mut Vec<Return>) {
        returns.append(&mut self.returns);
        returns.extend(self.entries.iter_mut().filter_map(|entry| entry.end_lease(now, quotas)));
        self.places.clear();
        self.entries.clear();
        self.holds_cells = false;
    }

    pub(super) fn occupancy(&self) -> Occupancy {
        let cells = || self.entries.iter().map(|entry| entry.lease.cells);
        Occupancy {
            entries: self.entries.len(),
            leases: cells().filter(|cells| *cells > 0).count(),
            cells: cells().fold(0, u64::saturating_add),
            evicted: self.evicted,
            lost: self.lost,
        }
    }

    /// The charge's entry, as it is at `now`.
    #[inline]
    fn settled(&mut self, charge: &Charge<'_>, now: Nanos, quotas: &Quotas) -> Option<&mut Entry> {
        let place = usize::try_from(*self.places.get(&charge.key)?).ok()?;
        if !self.entries.get(place)?.is_settled(charge, now) {
            let returned = self.entries.get_mut(place)?.settle(charge, now, quotas);
            self.give_back(returned);
        }
        self.entries.get_mut(place)
    }

    fn find(&mut self, key: Key) -> Option<&mut Entry> {
        let place = usize::try_from(*self.places.get(&key)?).ok()?;
        self.entries.get_mut(place)
    }

    fn insert(&mut self, entry: Entry, now: Nanos, quotas: &Quotas) {
        if self.entries.len() >= self.most {
            self.make_room(now, quotas);
        }
        self.places.insert(entry.key, u32::try_from(self.entries.len()).unwrap_or(u32::MAX));
        self.entries.push(entry);
    }

    /// Drops whoever is worth least of the next few; what it still had goes back.
    fn make_room(&mut self, now: Nanos, quotas: &Quotas) {
        let length = self.entries.len().max(1);
        let candidates = (0..SAMPLE.min(length)).map(|i| (self.hand + i) % length);
        let worth = |at: &usize| self.entries.get(*at).map(|entry| entry.worth(now));
        let Some(least) = candidates.min_by_key(worth) else { return };
        self.hand = (self.hand + SAMPLE) % length;
        let returned = self.entries.get_mut(least).and_then(|entry| entry.end_lease(now, quotas));
        self.give_back(returned);
        self.remove(least);
        self.evicted += 1;
    }

    fn remove(&mut self, at: usize) {
        let gone = self.entries.swap_remove(at);
        self.places.remove(&gone.key);
        if let Some(moved) = self.entries.get(at) {
            self.places.insert(moved.key, u32::try_from(at).unwrap_or(u32::MAX));
        }
    }

    fn give_back(&mut self, returned: Option<Return>) {
        match returned {
            Some(returned) if self.returns.len() >= MOST_RETURNS => self.lost = self.lost.saturating_add(returned.taken.cost),
            Some(returned) => self.returns.push(returned),
            None => {}
        }
    }
}

/// Keys are digests with a secret: they need no other hash.
#[derive(Debug, Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, digest: u64) {
        self.0 = digest;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// How many are looked at when somebody must make room.
const SAMPLE: usize = 8;
/// What may wait to go back, between two calls that collect it.
const MOST_RETURNS: usize = 256;
