//! Requests in flight per key. A slot that was taken comes back when its [`Held`] is dropped, and no other way.

use std::sync::Arc;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;

use crate::limit::Key;

/// Counts of requests in flight. Cheap to clone; clones agree. As large as the number of requests in flight, never larger.
#[derive(Debug, Clone, Default)]
pub struct Slots(Arc<DashMap<Key, u32>>);

/// One slot.
#[derive(Debug)]
pub struct Held {
    slots: Slots,
    key: Key,
}

impl Slots {
    /// A slot of `key`, unless `max` are taken.
    #[must_use]
    pub fn take(&self, key: Key, max: u32) -> Option<Held> {
        match self.0.entry(key) {
            Entry::Occupied(mut taken) if *taken.get() < max => *taken.get_mut() += 1,
            Entry::Vacant(free) if max > 0 => {
                free.insert(1);
            }
            _ => return None,
        }
        Some(Held { slots: self.clone(), key })
    }

    /// Requests in flight over all keys.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.0.iter().map(|entry| u64::from(*entry.value())).sum()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Entry::Occupied(mut taken) = self.slots.0.entry(self.key) {
            *taken.get_mut() -= 1;
            if *taken.get() == 0 {
                taken.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::KeyHasher;

    #[test]
    fn slots_come_back() {
        let slots = Slots::default();
        let key = KeyHasher::default().start("k").finish();
        let held: Vec<_> = (0..3).filter_map(|_| slots.take(key, 2)).collect();
        assert_eq!((held.len(), slots.in_flight()), (2, 2));
        drop(held);
        assert_eq!(slots.in_flight(), 0);
        assert!(slots.0.is_empty());
    }
}
