//! How many slots of concurrency limits this process has, and of which the store has not heard the last word.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use parking_lot::Mutex;

use crate::limit::Key;

/// How many slots of each key this process has.
#[derive(Debug, Default)]
pub(super) struct Book {
    had: DashMap<Key, Had>,
    /// Of everything that is said; never the same twice.
    sequence: AtomicU64,
    unheard: Mutex<Unheard>,
}

#[derive(Debug, Clone, Copy)]
struct Had {
    count: u32,
    entity: u64,
}

/// Keys about which something was said that nobody answered. What the store believes of them may be wrong in both directions.
#[derive(Debug, Default)]
struct Unheard {
    /// With their entities. The longest waiting first, so that a shard that is down does not keep others waiting.
    order: VecDeque<(Key, u64)>,
    known: HashSet<Key>,
}

/// What is said to the store: a number, and which of those said it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Said {
    pub(super) count: u32,
    pub(super) sequence: u64,
}

impl Book {
    pub(super) fn take(&self, key: Key, entity: u64) -> Said {
        let mut had = self.had.entry(key).or_insert(Had { count: 0, entity });
        had.count = had.count.saturating_add(1);
        // While the entry is held, so that a later number has a later place.
        Said { count: had.count, sequence: self.next() }
    }

    pub(super) fn give_back(&self, key: Key) -> Said {
        match self.had.entry(key) {
            Entry::Occupied(mut had) => {
                let count = had.get().count.saturating_sub(1);
                had.get_mut().count = count;
                let said = Said { count, sequence: self.next() };
                if count == 0 {
                    had.remove();
                }
                said
            }
            Entry::Vacant(_) => Said { count: 0, sequence: self.next() },
        }
    }

    /// What is had, said anew.
    pub(super) fn say(&self, key: Key) -> Said {
        match self.had.entry(key) {
            Entry::Occupied(had) => Said { count: had.get().count, sequence: self.next() },
            // Also while the entry is held: who takes the first meanwhile has a later place.
            Entry::Vacant(_) => Said { count: 0, sequence: self.next() },
        }
    }

    /// Everything that is had, said anew.
    pub(super) fn all(&self) -> Vec<(Key, u64, Said)> {
        self.had.iter().map(|had| (*had.key(), had.entity, Said { count: had.count, sequence: self.next() })).collect()
    }

    /// What was said last of a key was not answered.
    pub(super) fn unheard(&self, key: Key, entity: u64) {
        let mut unheard = self.unheard.lock();
        if unheard.order.len() < UNHEARD_AT_MOST && unheard.known.insert(key) {
            unheard.order.push_back((key, entity));
        }
    }

    /// The first of those keys, up to `most`. Who takes them says them again.
    pub(super) fn take_unheard(&self, most: usize) -> Vec<(Key, u64)> {
        let mut unheard = self.unheard.lock();
        let most = most.min(unheard.order.len());
        let taken: Vec<_> = unheard.order.drain(..most).collect();
        taken.iter().for_each(|(key, _)| {
            unheard.known.remove(key);
        });
        taken
    }

    fn next(&self) -> u64 {
        self.sequence.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// More keys are not remembered through an outage, 5 MB of them; of others the store is right again when what it was told last has expired.
/// The first ones stay, since it is those that were in use when the outage began.
const UNHEARD_AT_MOST: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::KeyHasher;

    fn key(name: &str) -> Key {
        KeyHasher::keyed([7; 16]).start(name).finish()
    }

    #[test]
    fn later_words_have_later_places_and_what_was_given_back_is_zero() {
        let book = Book::default();
        let said = [book.take(key("a"), 1), book.take(key("a"), 1), book.give_back(key("a")), book.say(key("a"))];
        assert_eq!(said.map(|said| said.count), [1, 2, 1, 1]);
        assert!(said.is_sorted_by(|a, b| a.sequence < b.sequence));
        assert_eq!(book.give_back(key("a")).count, 0);
        assert_eq!(book.say(key("a")).count, 0);
        assert!(book.all().is_empty() && book.had.is_empty());
    }

    #[test]
    fn what_was_not_heard_is_taken_once_in_turn() {
        let book = Book::default();
        for name in ["a", "b", "a", "c"] {
            book.unheard(key(name), 7);
        }
        assert_eq!(book.take_unheard(2), [(key("a"), 7), (key("b"), 7)]);
        book.unheard(key("a"), 7);
        assert_eq!(book.take_unheard(9), [(key("c"), 7), (key("a"), 7)]);
        assert!(book.take_unheard(9).is_empty());
    }

    #[test]
    fn only_so_many_are_remembered() {
        let book = Book::default();
        for number in 0..=UNHEARD_AT_MOST {
            book.unheard(key(&number.to_string()), 0);
        }
        let taken = book.take_unheard(usize::MAX);
        assert_eq!((taken.len(), taken.first()), (UNHEARD_AT_MOST, Some(&(key("0"), 0))));
        assert!(book.unheard.lock().known.is_empty());
    }
}
