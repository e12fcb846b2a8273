//! Slots of concurrency limits over all gateways. Each says how many it has, as a whole number that expires: a gateway that is killed has none
//! soon, and a store that lost its data, or did not hear what was said during an outage, is told all again when it is back.

use std::sync::Arc;
use std::time::Duration;

use super::book::Said;
use super::decide::Asking;
use super::script::{self, Slots, SlotsAnswer};
use super::{SharedStore, StoreKey};
use crate::limit::{Key, OnFailure, SlotCharge, share_of};
use crate::store::Store;

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
        if answer.is_none() {
            self.book.unheard(charge.key, sharing.entity);
        }
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
        let unheard = self.book.take_unheard(usize::MAX).into_iter().map(|(key, entity)| (key, entity, self.book.say(key)));
        for (key, entity, said) in self.book.all().into_iter().chain(unheard) {
            self.tell(key, entity, Said { count: 0, ..said });
        }
    }

    /// Says again what is had, before the store forgets it.
    pub(super) fn renew_slots(&self) {
        for (key, entity, said) in self.book.all() {
            self.tell(key, entity, said);
        }
    }

    /// Says again what the store has not heard, where it may hear it now: also that there are none any more.
    pub(super) fn say_again(&self) {
        for (key, entity) in self.book.take_unheard(SAID_AGAIN_AT_ONCE) {
            if self.link.is_up(&self.key(entity, key)) {
                self.tell(key, entity, self.book.say(key));
            } else {
                self.book.unheard(key, entity);
            }
        }
    }

    fn tell(&self, key: Key, entity: u64, said: Said) {
        let invocation = script::renew_slots(&self.slots(&self.key(entity, key), said), None);
        let book = Arc::clone(&self.book);
        self.link.post_or(invocation, move || book.unheard(key, entity));
    }

    fn slots<'s>(&'s self, key: &StoreKey, Said { count, sequence }: Said) -> Slots<'s> {
        Slots { key: key.clone(), instance: &self.instance, count, lease: SLOT_LEASE, sequence }
    }
}

impl Drop for SharedSlot {
    fn drop(&mut self) {
        if let Some(shared) = &self.store.shared {
            shared.tell(self.key, self.entity, shared.book.give_back(self.key));
        }
    }
}

/// How long slots outlive the gateway that has them.
pub(super) const SLOT_LEASE: Duration = Duration::from_secs(15);
/// How often one slot is asked for while others overtake the question.
const ASKED_AT_MOST: usize = 4;
/// How many keys are said again in a tenth of a second, so that other posts have room beside them.
const SAID_AGAIN_AT_ONCE: usize = 256;
