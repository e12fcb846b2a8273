//! Decisions that need the shared store: the same rules as in [`admit`](super::admit), with a wait in between.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{Cause, Decision, Denial, Permit, Registries, denial, longest, queued};
use crate::clock::Nanos;
use crate::limit::{Charge, SlotCharge};
use crate::store::redis::JointVerdict;
use crate::store::{Origin, Outcomes, Store};

/// Decides over all `slots` and `charges` together, of which other gateways count some.
pub async fn admit_shared(
    store: &Arc<Store>,
    registries: &Registries,
    slots: &[SlotCharge],
    charges: &[Charge<'_>],
    generation: u64,
    now: Nanos,
) -> Decision {
    let Some(shared) = &store.shared else { return super::admit(store, registries, slots, charges, now) };
    let (mut held, mut shadow_hits) = (SmallVec::new(), SmallVec::new());
    for slot in slots {
        match registries.slots.take(slot.key, slot.max) {
            Some(one) => held.push(one),
            None if slot.shadow => shadow_hits.push(slot.limit),
            None => {
                let busy = Denial::busy(slot.limit);
                return Decision {
                    verdict: Err(busy),
                    outcomes: store.peek(charges, now).outcomes,
                    origins: Vec::new(),
                    shadow_hits,
                };
            }
        }
    }
    let mut joint = shared.charge(store, charges, generation, now).await;
    let verdict = match joint.verdict {
        JointVerdict::Conforms => queued(store, registries, charges, &mut joint.outcomes, &joint.origins, now)
            .map(|waiting| Permit { _held: held, waiting }),
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

/// Charges each shadow limit for itself. Only for requests that were admitted.
pub async fn shadow_shared(store: &Arc<Store>, charges: &[Charge<'_>], generation: u64, now: Nanos) -> (Outcomes, Vec<Origin>) {
    let (mut outcomes, mut origins) = (Outcomes::new(), Vec::new());
    for charge in charges {
        let one = std::slice::from_ref(charge);
        match &store.shared {
            Some(shared) if charge.sharing.is_some() => {
                let mut joint = shared.charge(store, one, generation, now).await;
                outcomes.append(&mut joint.outcomes);
                origins.append(&mut joint.origins);
            }
            _ => {
                let mut here = Outcomes::new();
                let _ = store.charge_into(one, &mut here, now);
                outcomes.append(&mut here);
                origins.push(Origin::Memory);
            }
        }
    }
    (outcomes, origins)
}
