//! Where a shard's entries lie: sets of eight, two for every key.
//!
//! A table begins with a few sets and doubles up to its budget. There are no tombstones and there is no spare capacity: an entry costs 24
//! bytes, used or not, and a free one is simply written over. When the table doubles, every set becomes two, and its entries go to
//! those: that always works, and takes one pass.

use crate::limit::Key;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Table(Vec<Set>);

/// Three cache lines.
#[derive(Debug, Clone, Copy, Default)]
#[repr(align(64))]
struct Set([Entry; WAYS]);

/// A counter: the key, tagged with the quota it was written under, and its state. State 0 is a free place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) key: Key,
    pub(super) state: u64,
}

/// A place in the table: the set and the way in it. One number, so that it travels in a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Place(u32);

impl Place {
    fn at(set: u32, way: usize) -> Self {
        Self(set * WAYS as u32 + way as u32)
    }

    fn set(self) -> usize {
        self.0 as usize / WAYS
    }

    fn way(self) -> usize {
        self.0 as usize % WAYS
    }
}

impl Table {
    /// Sets there are.
    pub(super) fn sets(&self) -> usize {
        self.0.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.len() * size_of::<Set>()
    }

    #[inline]
    pub(super) fn entry(&self, place: Place) -> Option<&Entry> {
        self.0.get(place.set())?.0.get(place.way())
    }

    #[inline]
    pub(super) fn entry_mut(&mut self, place: Place) -> Option<&mut Entry> {
        self.0.get_mut(place.set())?.0.get_mut(place.way())
    }

    /// The entries in use.
    pub(super) fn used_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.0.iter_mut().flat_map(|set| set.0.iter_mut()).filter(|entry| entry.state != 0)
    }

    #[inline]
    pub(super) fn find(&self, key: Key) -> Option<Place> {
        let [first, second] = key.0;
        self.find_in(home(first, self.0.len()), key).or_else(|| self.find_in(home(second, self.0.len()), key))
    }

    #[inline]
    pub(super) fn find_mut(&mut self, key: Key) -> Option<&mut Entry> {
        let place = self.find(key)?;
        self.entry_mut(place)
    }

    #[inline]
    fn find_in(&self, set: u32, key: Key) -> Option<Place> {
        let Set(entries) = self.0.get(set as usize)?;
        let way = entries.iter().position(|entry| entry.key.is_same_counter(key) && entry.state != 0)?;
        Some(Place::at(set, way))
    }

    /// The entries a key could take the place of.
    pub(super) fn rivals(&self, key: Key) -> impl Iterator<Item = (Place, &Entry)> {
        self.homes(key).into_iter().flat_map(|set| {
            let entries = self.0.get(set as usize).map(|Set(entries)| (0..).zip(entries));
            entries.into_iter().flatten().map(move |(way, entry)| (Place::at(set, way), entry))
        })
    }

    /// A free place: in the first set unless that is nearly full and the second is less so. Most keys are then found with the first look.
    pub(super) fn free_place(&self, key: Key) -> Option<Place> {
        let [first, second] = self.homes(key).map(|set| self.free_in(set));
        match (first, second) {
            (Some((free, place)), other) if free > NEARLY_FULL || other.is_none_or(|(others, _)| others <= free) => Some(place),
            (_, Some((_, place))) | (Some((_, place)), None) => Some(place),
            (None, None) => None,
        }
    }

    fn free_in(&self, set: u32) -> Option<(usize, Place)> {
        let Set(entries) = self.0.get(set as usize)?;
        let way = entries.iter().position(|entry| entry.state == 0)?;
        Some((entries.iter().filter(|entry| entry.state == 0).count(), Place::at(set, way)))
    }

    /// Makes a place free for a key whose sets are full, by moving somebody in them to his other set; where, if that is possible.
    pub(super) fn make_room(&mut self, key: Key) -> Option<Place> {
        let moves = self.rivals(key).find_map(|(place, entry)| {
            let other = self.homes(entry.key).into_iter().find(|set| *set as usize != place.set())?;
            Some((place, self.free_in(other)?.1))
        });
        let (from, to) = moves?;
        let entry = std::mem::take(self.entry_mut(from)?);
        *self.entry_mut(to)? = entry;
        Some(from)
    }

    /// Begins with this many sets, and addresses for `reserve`.
    pub(super) fn begin(&mut self, sets: usize, reserve: usize) {
        self.0 = Vec::with_capacity(reserve.max(sets));
        self.0.resize(sets, Set::default());
    }

    /// Makes that many sets of each, in place where the memory is there. Always works: the entries of one set go to sets of their own.
    pub(super) fn multiply(&mut self, by: usize, reserve: usize) {
        let before = self.0.len();
        if self.0.capacity() < before * by {
            let mut moved = Vec::with_capacity(reserve.max(before * by));
            moved.append(&mut self.0);
            self.0 = moved;
        }
        self.0.resize(before * by, Set::default());
        // From the last, so that nothing lies yet where it goes: set `i` becomes `by·i` and those behind it.
        for set in (0..before).rev() {
            let Set(entries) = self.0.get_mut(set).map(std::mem::take).unwrap_or_default();
            for entry in entries.into_iter().filter(|entry| entry.state != 0) {
                let [first, second] = entry.key.0;
                let own = if home(first, before) as usize == set { first } else { second };
                let free = self.free_in(home(own, self.0.len()));
                if let Some(free) = free.and_then(|(_, place)| self.entry_mut(place)) {
                    *free = entry;
                }
            }
        }
    }

    /// Moves everything into a table of any other size; says no, and changes nothing, if some key would find no place.
    pub(super) fn rehash(&mut self, sets: usize, reserve: usize) -> bool {
        let mut other = Self::default();
        other.begin(sets, reserve);
        for entry in self.used_mut() {
            let place = other.emptier_place(entry.key).or_else(|| other.make_room(entry.key));
            match place.and_then(|place| other.entry_mut(place)) {
                Some(free) => *free = *entry,
                None => return false,
            }
        }
        *self = other;
        true
    }

    /// A free place in the emptier set: crowds least.
    fn emptier_place(&self, key: Key) -> Option<Place> {
        let places = self.homes(key).map(|set| self.free_in(set));
        places.into_iter().flatten().max_by_key(|(free, _)| *free).map(|(_, place)| place)
    }

    /// The two sets of a key. By the high bits of both halves: the low ones of the first choose the shard, those of the second hold the tag.
    fn homes(&self, key: Key) -> [u32; 2] {
        key.0.map(|half| home(half, self.0.len()))
    }
}

impl Default for Entry {
    fn default() -> Self {
        Self { key: Key([0, 0]), state: 0 }
    }
}

/// Scales the high 32 bits of a hash to the number of sets: with `n` times as many, set `i` becomes `n·i` to `n·i + n − 1`.
#[inline]
fn home(hash: u64, sets: usize) -> u32 {
    (((hash >> 32) * sets as u64) >> 32) as u32
}

/// Entries in a set.
pub(super) const WAYS: usize = 8;
/// A first set with at most this many free places lets the second have the newcomer, if that is emptier. Simulated: with 3 a fifth of all keys
/// lie in their second set, and at three quarters full 0.007 % of newcomers find both full; with 0 it is 1 %.
pub(super) const NEARLY_FULL: usize = 3;
