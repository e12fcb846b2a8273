//! The joint decision over all charges of a request, and its proof.
//!
//! [`admit`] takes concurrency slots first (they can be given back without a trace), then charges the store, all or
//! none. A [`Permit`] can be made nowhere else; forwarding asks for one. It holds the slots and travels in the response's
//! body, so they are held to the last byte and come back however the request ends; and it knows what was taken, as long as that
//! may have to be corrected. Where other gateways count with us, [`admit_shared`] asks the shared store as well. Knows no routes and no
//! HTTP.

mod lines;
mod shared;
mod slots;
mod waiting;

use std::cell::Cell;

use smallvec::SmallVec;

use crate::clock::Nanos;
use crate::limit::{Charge, SlotCharge, Verdict};
use crate::store::redis::SharedSlot;
use crate::store::{Origin, Outcomes, Store};

pub use lines::Lines;
pub use shared::{admit_shared, shadow_shared};
pub use slots::{Held, Slots};
pub use waiting::Waiting;

/// The proof that a request was admitted. Dropping it ends the request.
#[derive(Debug)]
pub struct Permit {
    _held: SmallVec<[Held; 1]>,
    /// Slots over all gateways.
    _shared: Vec<SharedSlot>,
    waiting: Option<Box<Waiting>>,
    tries: Cell<u32>,
}

impl Permit {
    /// How long the request has to wait before it may go on, and because of which limit; nothing if it may at once.
    #[must_use]
    pub fn wait(&self) -> Option<(Nanos, u16)> {
        self.waiting.as_ref().map(|waiting| (waiting.delay, waiting.limit))
    }

    /// For a copy of the request, which nobody counts: it holds no slot.
    #[must_use]
    pub fn of_copy(&self) -> Self {
        Self { _held: SmallVec::new(), _shared: Vec::new(), waiting: None, tries: Cell::new(1) }
    }

    /// What limits that only watch took: given back too, if the request leaves while it waits.
    pub fn also_took(&mut self, charges: &[Charge<'_>], outcomes: &Outcomes, origins: &[Origin]) {
        if let Some(waiting) = &mut self.waiting {
            waiting.took(charges, outcomes, origins);
        }
    }

    /// Upstream is asked once more, which takes nothing more of any limit.
    pub fn again(&self) {
        self.tries.set(self.tries.get().saturating_add(1));
    }

    /// How often upstream was asked, the first time included.
    #[must_use]
    pub fn tries(&self) -> u32 {
        self.tries.get()
    }

    /// The wait is over: others may wait in its place.
    pub fn go_on(&mut self, store: &Store) {
        if let Some(waiting) = self.waiting.take() {
            waiting.go_on(store);
        }
    }

    /// The request won't go on. If it still waits, what it took is given back where that is possible; whether it did.
    pub fn abandon(&mut self, store: &Store, now: Nanos) -> bool {
        self.waiting.take().map(|waiting| waiting.give_up(store, now)).is_some()
    }
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Denial {
    /// Which limit refuses: of those that do, the one that takes longest to conform.
    pub limit: u16,
    /// Its place among the charges; `None` for a concurrency limit.
    pub charge: Option<usize>,
    /// When trying again makes sense: the longest wait over all refusing limits. `None` if it never does.
    pub retry_after: Option<Nanos>,
    /// Whose fault it is.
    pub cause: Cause,
}

/// Whose fault a refusal is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The client's: it is over a limit.
    Exceeded,
    /// Ours: the shared store can't be asked, and the limit is closed then.
    NoStore,
}

/// The decision, with every charge's numbers.
#[derive(Debug)]
pub struct Decision {
    /// Admitted or not.
    pub verdict: Result<Permit, Denial>,
    /// One per charge, in their order.
    pub outcomes: Outcomes,
    /// Where each charge was taken; none means all here.
    pub origins: Vec<Origin>,
    /// Concurrency limits that only watch and would have refused.
    pub shadow_hits: SmallVec<[u16; 2]>,
}

/// Where slots are counted.
#[derive(Debug, Clone, Default)]
pub struct Registries {
    /// Requests in flight.
    pub slots: Slots,
    /// Requests that wait for their place.
    pub waiting: Lines,
}

/// Decides over all `slots` and `charges` together: all are taken or none. Without any, the request is admitted.
#[must_use]
pub fn admit(store: &Store, registries: &Registries, slots: &[SlotCharge], charges: &[Charge<'_>], now: Nanos) -> Decision {
    let mut held = SmallVec::new();
    let mut shadow_hits = SmallVec::new();
    for slot in slots {
        match registries.slots.take(slot.key, slot.max) {
            Some(one) => held.push(one),
            None if slot.shadow => shadow_hits.push(slot.limit),
            None => {
                let outcomes = store.peek(charges, now).outcomes;
                let busy = Denial::busy(slot.limit);
                let verdict = Err(denial(charges, &outcomes).map_or(busy, |rate| longest(busy, rate)));
                return Decision { verdict, outcomes, origins: Vec::new(), shadow_hits };
            }
        }
    }
    let mut outcomes = Outcomes::new();
    let verdict = if charges.is_empty() || store.charge_into(charges, &mut outcomes, now) {
        queued(store, registries, charges, &mut outcomes, &[], now).map(|waiting| Permit {
            _held: held,
            _shared: Vec::new(),
            waiting,
            tries: Cell::new(1),
        })
    } else {
        // The store says no, so there is a charge that says why; if there were none, the answer would still be no.
        Err(denial(charges, &outcomes).unwrap_or(Denial::busy(0)))
    };
    Decision { verdict, outcomes, origins: Vec::new(), shadow_hits }
}

/// A place behind those that wait already, if there is something to wait for.
fn queued(
    store: &Store,
    registries: &Registries,
    charges: &[Charge<'_>],
    outcomes: &mut Outcomes,
    origins: &[Origin],
    now: Nanos,
) -> Result<Option<Box<Waiting>>, Denial> {
    let waiting = Waiting::behind(store, &registries.waiting, charges, outcomes, origins, now);
    if let Err(Denial { charge: Some(at), retry_after: Some(retry_after), .. }) = waiting
        && let Some(outcome) = outcomes.get_mut(at)
    {
        (outcome.verdict, outcome.remaining) = (Verdict::Exceeds { retry_after }, 0);
    }
    waiting
}

/// Gives back what an admitted request has been charged: it won't go on after all, for a reason that is not the client's.
pub fn give_back(store: &Store, charges: &[Charge<'_>], outcomes: &Outcomes, origins: &[Origin], now: Nanos) {
    waiting::taken(charges, outcomes, origins).for_each(|taken| store.settle(&taken, 0, now));
}

/// Charges each shadow limit for itself. Only for requests that were admitted.
#[must_use]
pub fn shadow(store: &Store, charges: &[Charge<'_>], now: Nanos) -> Outcomes {
    let (mut one, mut all) = (Outcomes::new(), Outcomes::new());
    for charge in charges {
        let _ = store.charge_into(std::slice::from_ref(charge), &mut one, now);
        all.append(&mut one);
    }
    all
}

fn denial(charges: &[Charge<'_>], outcomes: &Outcomes) -> Option<Denial> {
    let denials = charges.iter().zip(outcomes).enumerate().filter_map(|(i, (charge, outcome))| {
        let retry_after = match outcome.verdict {
            Verdict::Conforms => return None,
            Verdict::Exceeds { retry_after } => Some(retry_after),
            Verdict::Never => None,
        };
        Some(Denial { limit: charge.limit, charge: Some(i), retry_after, cause: Cause::Exceeded })
    });
    denials.reduce(longest)
}

impl Denial {
    /// All slots are taken.
    fn busy(limit: u16) -> Self {
        Self { limit, charge: None, retry_after: Some(BUSY_RETRY), cause: Cause::Exceeded }
    }
}

/// Never outlasts every wait.
fn longest(a: Denial, b: Denial) -> Denial {
    let wait = |denial: Denial| denial.retry_after.unwrap_or(Nanos::MAX);
    if wait(b) > wait(a) { b } else { a }
}

/// Nobody knows when a slot comes free; a second is what HTTP can say at least.
const BUSY_RETRY: Nanos = crate::clock::SECOND;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SECOND;
    use crate::limit::SpaceId;
    use crate::limit::{Algorithm, Interned, KeyHasher, Quota, Quotas};
    use crate::store::{Budget, MemoryStore};
    use std::time::Duration;

    fn store(quotas: &Quotas) -> Store {
        let store = MemoryStore::new(quotas.clone());
        store.arrange(&[Budget { space: SpaceId(0), max_keys: 100 }]);
        Store::alone(store)
    }

    fn charge(key: crate::limit::Key, quota: &Interned, cost: u64) -> Charge<'_> {
        Charge { key, space: SpaceId(0), quota, cost, limit: 0, queue: 1, warmup: None, sharing: None }
    }

    #[test]
    fn the_longest_wait_over_all_refusing_limits_is_reported() {
        let quotas = Quotas::default();
        let store = store(&quotas);
        let hasher = KeyHasher::default();
        let per = |seconds| quotas.intern(Quota::new(1, Duration::from_secs(seconds), None, Algorithm::Gcra).unwrap()).unwrap();
        let (second, hour, minute): (Interned, Interned, Interned) = (per(1), per(3600), per(60));
        let charges: Vec<_> = [&second, &hour, &minute]
            .into_iter()
            .zip(0..)
            .map(|(quota, limit)| Charge { limit, ..charge(hasher.start("k").finish().window(limit as u8), quota, 1) })
            .collect();
        assert!(admit(&store, &Registries::default(), &[], &charges, 0).verdict.is_ok());
        let denial = admit(&store, &Registries::default(), &[], &charges, 0).verdict.unwrap_err();
        assert_eq!(denial, Denial { limit: 1, charge: Some(1), retry_after: Some(3600 * SECOND), cause: Cause::Exceeded });
        assert!(admit(&store, &Registries::default(), &[], &charges, 3600 * SECOND).verdict.is_ok());
    }

    #[test]
    fn a_request_without_a_slot_is_charged_to_nothing() {
        let quotas = Quotas::default();
        let store = store(&quotas);
        let hasher = KeyHasher::default();
        let quota = quotas.intern(Quota::new(5, Duration::from_secs(3600), None, Algorithm::Gcra).unwrap()).unwrap();
        let charges = [charge(hasher.start("rate").finish(), &quota, 1)];
        let slots = [SlotCharge { key: hasher.start("slots").finish(), max: 1, limit: 1, shadow: false, sharing: None }];
        let registry = Registries::default();
        let first = admit(&store, &registry, &slots, &charges, 0);
        for _ in 0..3 {
            let busy = admit(&store, &registry, &slots, &charges, 0);
            assert_eq!(busy.verdict.unwrap_err().limit, 1);
        }
        drop(first);
        let again = admit(&store, &registry, &slots, &charges, 0);
        assert!(again.verdict.is_ok());
        assert_eq!(again.outcomes[0].remaining, 3);
    }

    #[test]
    fn a_rate_refusal_gives_the_slot_back() {
        let quotas = Quotas::default();
        let store = store(&quotas);
        let key = KeyHasher::default().start("k").finish();
        let quota = quotas.intern(Quota::new(1, Duration::from_secs(60), None, Algorithm::Gcra).unwrap()).unwrap();
        let charges = [charge(key, &quota, 2)];
        let registry = Registries::default();
        let refused =
            admit(&store, &registry, &[SlotCharge { key, max: 1, limit: 1, shadow: false, sharing: None }], &charges, 0);
        assert_eq!(refused.verdict.unwrap_err(), Denial { limit: 0, charge: Some(0), retry_after: None, cause: Cause::Exceeded });
        assert!(registry.slots.take(key, 1).is_some());
    }

    #[test]
    fn who_waits_has_a_place_and_who_leaves_gives_it_back() {
        let quotas = Quotas::default();
        let store = store(&quotas);
        let quota = Quota::new(1, Duration::from_secs(1), None, Algorithm::LeakyBucket).unwrap();
        let quota = quotas.intern(quota.delaying(Duration::from_secs(60), 100).unwrap()).unwrap();
        let charges = [charge(KeyHasher::default().start("k").finish(), &quota, 1)];
        let registry = Registries::default();
        let ask = || admit(&store, &registry, &[], &charges, 0);
        assert_eq!(ask().verdict.unwrap().wait(), None);
        let mut waiting = ask().verdict.unwrap();
        assert_eq!((waiting.wait().map(|(wait, _)| wait), registry.waiting.waiting()), (Some(SECOND), 1));
        let refused = ask().verdict.unwrap_err();
        assert_eq!(
            refused,
            Denial { limit: 0, charge: Some(0), retry_after: Some(2 * SECOND), cause: Cause::Exceeded },
            "the queue is full"
        );
        assert!(waiting.abandon(&store, 0));
        assert_eq!(registry.waiting.waiting(), 0);
        let mut again = ask().verdict.unwrap();
        assert_eq!(again.wait(), Some((SECOND, 0)), "nobody stood behind");
        again.go_on(&store);
        assert!(!again.abandon(&store, 0), "what has gone on stays charged");
    }

    #[test]
    fn a_queue_is_as_long_as_those_made_it_who_have_passed() {
        let quotas = Quotas::default();
        let store = store(&quotas);
        let quota = Quota::new(20, Duration::from_secs(1), None, Algorithm::LeakyBucket).unwrap();
        let quota = quotas.intern(quota.delaying(Duration::from_secs(1), 100).unwrap()).unwrap();
        let one = Charge { queue: 100, ..charge(KeyHasher::default().start("k").finish(), &quota, 1) };
        let registry = Registries::default();
        let ask = |now| admit(&store, &registry, &[], &[one], now).verdict.unwrap();
        let interval = SECOND / 20;
        assert_eq!(ask(SECOND).wait(), None);
        let mut waiters: Vec<_> = (0..10).map(|_| ask(SECOND)).collect();
        // The third leaves first, then the first two pass, then the others leave.
        assert!(waiters.remove(2).abandon(&store, SECOND));
        let now = SECOND + 2 * interval;
        waiters.drain(..2).for_each(|mut waiter| waiter.go_on(&store));
        waiters.drain(..).for_each(|mut waiter| assert!(waiter.abandon(&store, now)));
        assert_eq!(ask(now).wait(), Some((interval, 0)), "behind the one that has just passed");
        // And if the last one passes, behind whom others have left.
        let mut waiters: Vec<_> = (0..4).map(|_| ask(now)).collect();
        for mut waiter in waiters.drain(1..) {
            assert!(waiter.abandon(&store, now));
        }
        waiters.remove(0).go_on(&store);
        assert_eq!((registry.waiting.waiting(), ask(now).wait()), (0, Some((3 * interval, 0))));
    }

    #[test]
    fn places_of_those_who_left_are_gone_when_nobody_waits() {
        let quotas = Quotas::default();
        let store = store(&quotas);
        let quota = Quota::new(1, Duration::from_secs(1), None, Algorithm::Gcra).unwrap();
        let quota = quotas.intern(quota.delaying(Duration::from_secs(60), 10).unwrap()).unwrap();
        let one = Charge { queue: 10, ..charge(KeyHasher::default().start("k").finish(), &quota, 1) };
        let registry = Registries::default();
        let ask = || admit(&store, &registry, &[], &[one], 0).verdict.unwrap();
        assert_eq!(ask().wait(), None);
        let mut last = ask();
        for _ in 0..20 {
            // Always one behind the one that leaves.
            let next = ask();
            assert!(std::mem::replace(&mut last, next).abandon(&store, 0));
        }
        assert_eq!(ask().wait(), Some((22 * SECOND, 0)), "the last one's place is behind all of them");
        assert!(last.abandon(&store, 0));
        assert_eq!(ask().wait(), Some((SECOND, 0)), "the bucket is as full as those who passed made it");
    }
}
