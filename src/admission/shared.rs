//! Decisions that need the shared store: the same rules as in [`admit`](super::admit), with a wait in between.

use std::cell::Cell;

use smallvec::SmallVec;

use super::{Cause, Decision, Denial, Permit, Registries, denial, longest, queued};
use crate::limit::{Charge, SlotCharge};
use crate::store::redis::{Asking, JointVerdict, NoSlot, SharedSlot, SharedStore};
use crate::store::{Origin, Outcomes};

/// Decides over all `slots` and `charges` together, of which other gateways count some.
pub async fn admit_shared(
    asking: &Asking<'_>,
    registries: &Registries,
    slots: &[SlotCharge],
    charges: &[Charge<'_>],
) -> Decision {
    let Asking { store, now, .. } = *asking;
    let Some(shared) = &store.shared else { return super::admit(store, registries, slots, charges, now) };
    let (mut held, mut shadow_hits) = (SmallVec::new(), SmallVec::new());
    let mut here = Ok(());
    for slot in slots {
        match registries.slots.take(slot.key, slot.max) {
            Some(one) => held.push(one),
            None if slot.shadow => shadow_hits.push(slot.limit),
            None => here = Err(Denial::busy(slot.limit)),
        }
    }
    let mut shared_slots = Vec::new();
    let taken = match here {
        Ok(()) => take_slots(shared, asking, slots, &mut shared_slots, &mut shadow_hits).await,
        Err(busy) => Err(busy),
    };
    if let Err(busy) = taken {
        let outcomes = store.peek(charges, now).outcomes;
        return Decision { verdict: Err(busy), outcomes, origins: Vec::new(), shadow_hits };
    }
    let mut joint = shared.charge(asking, charges).await;
    let verdict = match joint.verdict {
        JointVerdict::Conforms => queued(store, registries, charges, &mut joint.outcomes, &joint.origins, now)
            .map(|waiting| Permit { _held: held, _shared: shared_slots, waiting, tries: Cell::new(1) }),
        JointVerdict::Exceeds => Err(denial(charges, &joint.outcomes).unwrap_or(Denial::busy(0))),
        JointVerdict::NoStore { charge } => {
            let limit = charges.get(charge).map_or(0, |charge| charge.limit);
            let closed = Denial { cause: Cause::NoStore, charge: Some(charge), ..Denial::busy(limit) };
            // Who is over a limit anyway should not come back at once.
            Err(denial(charges, &joint.outcomes).map_or(closed, |over| longest(closed, over)))
        }
    };
    Decision { verdict, outcomes: joint.outcomes, origins: joint.origins, shadow_hits }
}

/// Slots over all gateways, one after another: a request has one such limit, hardly ever two, and one that the first refuses should not hold a
/// slot of the second meanwhile.
async fn take_slots(
    shared: &SharedStore,
    asking: &Asking<'_>,
    slots: &[SlotCharge],
    taken: &mut Vec<SharedSlot>,
    shadow_hits: &mut SmallVec<[u16; 2]>,
) -> Result<(), Denial> {
    for slot in slots {
        match shared.take_slot(asking, slot).await {
            Ok(slot) => taken.extend(slot),
            Err(_) if slot.shadow => shadow_hits.push(slot.limit),
            Err(NoSlot::Full) => return Err(Denial::busy(slot.limit)),
            Err(NoSlot::NoStore) => return Err(Denial { cause: Cause::NoStore, ..Denial::busy(slot.limit) }),
        }
    }
    Ok(())
}

/// Charges each shadow limit for itself, all at once. Only for requests that were admitted.
pub async fn shadow_shared(asking: &Asking<'_>, charges: &[Charge<'_>]) -> (Outcomes, Vec<Origin>) {
    let shared = asking.store.shared.as_ref();
    let begin = |charge: &Charge<'_>| {
        let shared = shared.filter(|_| charge.sharing.is_some())?;
        Some((shared, shared.begin_charge(asking, std::slice::from_ref(charge))))
    };
    let under_way: Vec<_> = charges.iter().map(begin).collect();
    let (mut outcomes, mut origins) = (Outcomes::new(), Vec::new());
    for (charge, deciding) in charges.iter().zip(under_way) {
        let one = std::slice::from_ref(charge);
        match deciding {
            Some((shared, deciding)) => {
                let mut joint = shared.decided(asking, one, deciding).await;
                outcomes.append(&mut joint.outcomes);
                origins.append(&mut joint.origins);
            }
            None => {
                outcomes.append(&mut super::shadow(asking.store, one, asking.now));
                origins.push(Origin::Memory);
            }
        }
    }
    (outcomes, origins)
}
