//! Slots of concurrency limits over all gateways. Each says how many it has, as a whole number that expires: a gateway that is killed has none
//! soon, and a store that lost its data knows all again after the next renewal.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;

use super::decide::Asking;
use super::script::{self, Slots, SlotsAnswer};
use super::{SharedStore, StoreKey};
use crate::limit::{Key, OnFailure, SlotCharge, share_of};
use crate::store::Store;

/// How many slots of each key this process has.
#[derive(Debug, Default)]
pub(super) struct Book {
    had: DashMap<Key, Had>,
    /// Of everything that is said; never the same twice.
    sequence: AtomicU64,
}

#[derive(Debug, Clone, Copy)]
struct Had {
    count: u32,
    entity: u64,
}

/// A slot over all gateways. Comes back when it is dropped.
#[derive(Debug)]
pub struct SharedSlot {
    store: Arc<Store>,
    key: Key,
    entity: u64,
}

/// Why there is no slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoSlot {
    /// All are taken.
    Full,
    /// The store can't be asked, and the limit is closed then.
    NoStore,
}

/// What is said to the store: a number, and which of those said it is.
#[derive(Debug, Clone, Copy)]
struct Said {
    count: u32,
    sequence: u64,
}

impl Book {
    fn take(&self, key: Key, entity: u64) -> Said {
        let mut had = self.had.entry(key).or_insert(Had { count: 0, entity });
        had.count = had.count.saturating_add(1);
        // While the entry is held, so that a later number has a later place.
        Said { count: had.count, sequence: self.next() }
    }

    fn give_back(&self, key: Key) -> Said {
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
    fn say(&self, key: Key) -> Said {
        let had = self.had.get(&key);
        // While the entry is held, as above.
        Said { count: had.as_ref().map_or(0, |had| had.count), sequence: self.next() }
    }

    fn next(&self) -> u64 {
        self.sequence.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Everything that is had, said anew.
    fn all(&self) -> Vec<(Key, u64, Said)> {
        self.had.iter().map(|had| (*had.key(), had.entity, Said { count: had.count, sequence: self.next() })).collect()
    }
}

impl SharedStore {
    /// A slot, if over all gateways there is one left.
    ///
    /// # Errors
    /// [`NoSlot`].
    pub async fn take_slot(&self, asking: &Asking<'_>, charge: &SlotCharge) -> Result<Option<SharedSlot>, NoSlot> {
        let Some(sharing) = charge.sharing else { return Ok(None) };
        let said = self.book.take(charge.key, sharing.entity);
        // From here on it comes back whatever happens.
        let slot = SharedSlot { store: Arc::clone(asking.store), key: charge.key, entity: sharing.entity };
        let key = self.key(sharing.entity, charge.key);
        let answer = self.ask_for_slot(asking, charge, &key, said).await;
        let metrics = &self.metrics;
        let (verdict, counter) = match (answer, sharing.on_failure) {
            (Some(SlotsAnswer::Full { .. } | SlotsAnswer::Overtaken), _) => (Err(NoSlot::Full), &metrics.store),
            (Some(SlotsAnswer::Taken { .. }), _) => (Ok(()), &metrics.store),
            (None, OnFailure::Local) if u64::from(said.count) > share_of(charge.max.into(), self.link.instances()) => {
                (Err(NoSlot::Full), &metrics.fallback)
            }
            (None, OnFailure::Local) => (Ok(()), &metrics.fallback),
            (None, OnFailure::Open) => (Ok(()), &metrics.open),
            (None, OnFailure::Closed) => (Err(NoSlot::NoStore), &metrics.closed),
        };
        counter.one(asking.lane);
        verdict.map(|()| Some(slot))
    }

    /// Asks for all that is had here, this slot included. What overtook the question may have been said without regard to the limit, as
    /// releases and renewals are, so being overtaken is no answer: then it is asked again, within the same budget.
    async fn ask_for_slot(
        &self,
        asking: &Asking<'_>,
        charge: &SlotCharge,
        key: &StoreKey,
        mut said: Said,
    ) -> Option<SlotsAnswer> {
        for _ in 0..ASKED_AT_MOST {
            if !self.link.is_up(key) {
                self.link.declined(asking.lane);
                return None;
            }
            let invocation = script::take_slots(&self.slots(key, said), charge.max, None);
            match self.link.ask(asking.lane, &invocation, self.left(asking)?, script::said_slots).await.ok()? {
                SlotsAnswer::Overtaken => said = self.book.say(charge.key),
                answer => return Some(answer),
            }
        }
        Some(SlotsAnswer::Overtaken)
    }

    /// Gives back whatever is had: the requests end with the process.
    pub(super) fn leave_slots(&self) {
        for (key, entity, said) in self.book.all() {
            let key = self.key(entity, key);
            self.link.post(script::renew_slots(&self.slots(&key, Said { count: 0, ..said }), None));
        }
    }

    /// Says again what is had, before the store forgets it.
    pub(super) fn renew_slots(&self) {
        for (key, entity, said) in self.book.all() {
            let key = self.key(entity, key);
            self.link.post(script::renew_slots(&self.slots(&key, said), None));
        }
    }

    fn slots<'s>(&'s self, key: &StoreKey, Said { count, sequence }: Said) -> Slots<'s> {
        Slots { key: key.clone(), instance: &self.instance, count, lease: SLOT_LEASE, sequence }
    }
}

impl Drop for SharedSlot {
    fn drop(&mut self) {
        if let Some(shared) = &self.store.shared {
            let said = shared.book.give_back(self.key);
            let key = shared.key(self.entity, self.key);
            shared.link.post(script::renew_slots(&shared.slots(&key, said), None));
        }
    }
}

/// How long slots outlive the gateway that has them.
pub(super) const SLOT_LEASE: Duration = Duration::from_secs(15);
/// How often one slot is asked for while others overtake the question.
const ASKED_AT_MOST: usize = 4;
