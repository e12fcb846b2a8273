//! From a plan's charges to a permit or a refusal: the only place that sees both policy and store.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue};

use super::gateway::Gateway;
use super::record::Completion;
use crate::admission::{self, Cause, Decision, Denial};
use crate::clock::{Nanos, SECOND, unix_seconds};
use crate::headers::{Numbers, add_rate_limit, rate_limit_policy};
use crate::limit::{Boost, Charge, Outcome, Verdict};
use crate::policy::{Proceed, Window};
use crate::respond::Answer;
use crate::snapshot::Snapshot;
use crate::store::redis::{Asking, Patience};
use crate::store::{Origin, Outcomes, Taken};
use crate::upstream::{Limited, Shed};

/// Where a client stands: the window that its response reports.
#[derive(Debug, Default)]
pub(super) struct Standing<'s>(Option<Reported<'s>>);

#[derive(Debug)]
struct Reported<'s> {
    outcome: Outcome,
    window: &'s Window,
    charge: Charge<'s>,
}

/// Admits the request or says why not, and notes either. The permit goes into `completion`'s keeping.
pub(super) async fn admit<'s>(
    gateway: &Gateway,
    snapshot: &'s Snapshot,
    proceed: &Proceed<'s>,
    completion: &mut Completion,
    standing: &mut Standing<'s>,
    limited: Option<Rc<Limited>>,
) -> Result<(), Answer> {
    let now = completion.started;
    // One for everything that this request asks the shared store.
    let patience = Patience::default();
    let decision = match &gateway.store.shared {
        // On the heap, so that requests that need no shared store are not larger for it.
        Some(_) if proceed.shared => Box::pin(ask(gateway, snapshot.generation, proceed, now, &patience)).await,
        _ => admission::admit(&gateway.store, &gateway.registries, &proceed.slots, &proceed.charges, now),
    };
    let tier = completion.tier;
    let metrics = |limit: u16| snapshot.limit_metrics.get(usize::from(limit));
    let note_shadow = |completion: &mut Completion, limit: u16| {
        if let Some(counter) = metrics(limit).and_then(|metrics| metrics.shadow.get(tier)) {
            counter.one(gateway.lane);
        }
        completion.shadow = Some(limit);
    };
    decision.shadow_hits.into_iter().for_each(|limit| note_shadow(completion, limit));
    match decision.verdict {
        Ok(mut permit) => {
            *standing = Standing::at(tightest(&decision.outcomes, &proceed.windows), &decision.outcomes, proceed);
            if permit.wait().is_some() {
                completion.wants_place(limited);
            } else if let Some(limited) = limited
                && let Err(Shed) = completion.take_place(&limited, now)
            {
                admission::give_back(&gateway.store, &proceed.charges, &decision.outcomes, &decision.origins, now);
                standing.came_to(0);
                standing.look_again(gateway, now);
                return Err(Answer::Shed);
            }
            let shadow = watch(gateway, snapshot.generation, proceed, now, &patience).await;
            for (charge, outcome) in proceed.shadow.iter().zip(&shadow.outcomes) {
                if !outcome.verdict.conforms() {
                    note_shadow(completion, charge.limit);
                }
            }
            if proceed.settles {
                completion.unsettled.add(gateway, snapshot, &proceed.charges, &decision.outcomes, &decision.origins);
                completion.unsettled.add(gateway, snapshot, &proceed.shadow, &shadow.outcomes, &shadow.origins);
            }
            permit.also_took(&proceed.shadow, &shadow.outcomes, &shadow.origins);
            completion.keep(permit);
            Ok(())
        }
        Err(Denial { cause: Cause::NoStore, .. }) => Err(Answer::NoStore),
        Err(Denial { limit, charge, retry_after, cause: Cause::Exceeded }) => {
            if let Some(counter) = metrics(limit).and_then(|metrics| metrics.limited.get(tier)) {
                counter.one(gateway.lane);
            }
            completion.limited_by = Some(limit);
            *standing = Standing::at(charge, &decision.outcomes, proceed);
            let policy = standing.0.as_ref().map(|reported| Arc::clone(&reported.window.policy_name));
            let name = snapshot.policy.limits.get(usize::from(limit)).map_or("", |limit| &limit.name);
            Err(Answer::Limited { limit: name.into(), policy, retry_after, status: snapshot.rejection.status })
        }
    }
}

/// What limits that only watch took.
struct Watched {
    outcomes: Outcomes,
    origins: Vec<Origin>,
}

/// Asks the shared store too.
async fn ask(gateway: &Gateway, generation: u64, proceed: &Proceed<'_>, now: Nanos, patience: &Patience) -> Decision {
    let asking = Asking { store: &gateway.store, generation, lane: gateway.lane, now, patience };
    admission::admit_shared(&asking, &gateway.registries, &proceed.slots, &proceed.charges).await
}

/// Charges limits that only watch.
async fn watch(gateway: &Gateway, generation: u64, proceed: &Proceed<'_>, now: Nanos, patience: &Patience) -> Watched {
    if proceed.shadow.iter().all(|charge| charge.sharing.is_none()) {
        return Watched { outcomes: admission::shadow(&gateway.store, &proceed.shadow, now), origins: Vec::new() };
    }
    let asking = Asking { store: &gateway.store, generation, lane: gateway.lane, now, patience };
    let (outcomes, origins) = Box::pin(admission::shadow_shared(&asking, &proceed.shadow)).await;
    Watched { outcomes, origins }
}

impl<'s> Standing<'s> {
    /// Reports the charge at this place.
    fn at(place: Option<usize>, outcomes: &[Outcome], proceed: &Proceed<'s>) -> Self {
        Self(place.and_then(|at| {
            let (outcome, window, charge) = (outcomes.get(at)?, proceed.windows.get(at)?, proceed.charges.get(at)?);
            Some(Reported { outcome: *outcome, window, charge: *charge })
        }))
    }

    /// A charge came to cost something else, or nothing. What the shared store would say of it now is not worth asking it again.
    pub(super) fn settled(&mut self, taken: &Taken, cost: u64) {
        if self.0.as_ref().is_some_and(|Reported { charge, .. }| (charge.key, charge.space) == (taken.key, taken.space)) {
            self.came_to(cost);
        }
    }

    /// The reported charge came to cost this.
    fn came_to(&mut self, cost: u64) {
        if let Some(Reported { outcome, charge, .. }) = &mut self.0
            && charge.sharing.is_some()
        {
            *outcome = outcome.corrected(&charge.quota.quota, charge.cost, cost);
        }
    }

    /// Looks again at what this process counts for itself: it has changed since it was taken.
    pub(super) fn look_again(&mut self, gateway: &Gateway, now: Nanos) {
        if let Some(Reported { outcome, charge, .. }) = &mut self.0
            && charge.sharing.is_none()
        {
            let asking = Charge { cost: 0, ..*charge };
            *outcome = gateway.store.peek(&[asking], now).outcomes.first().copied().unwrap_or(*outcome);
        }
    }

    /// Puts the numbers on a response.
    pub(super) fn report(&self, gateway: &Gateway, snapshot: &Snapshot, headers: &mut HeaderMap) {
        let Some(Reported { outcome, window, .. }) = &self.0 else { return };
        let retry_after = match outcome.verdict {
            Verdict::Exceeds { retry_after } => Some(retry_after.max(SECOND)),
            Verdict::Conforms | Verdict::Never => None,
        };
        let plain = (Cow::Borrowed(&window.limit), Cow::Borrowed(&window.policy));
        let (limit, policy) = if outcome.boost == Boost::NONE {
            plain
        } else {
            let more = rate_limit_policy(&window.policy_name, &window.quota.quota.boosted(outcome.boost));
            (Cow::Owned(HeaderValue::from(outcome.limit)), more.map_or(plain.1, Cow::Owned))
        };
        let numbers = Numbers {
            limit,
            remaining: outcome.remaining,
            reset_after: outcome.reset_after,
            retry_after,
            policy,
            policy_name: &window.policy_name,
            unix_now: &|| unix_seconds(gateway.clock.wall_now()),
        };
        add_rate_limit(headers, &snapshot.rejection.families, &numbers);
    }
}

/// The window with the smallest share left, of the caller's own: how much is left of a counter that everybody shares is nobody's
/// business, so that is only reported when there is nothing else.
fn tightest(outcomes: &[Outcome], windows: &[&Window]) -> Option<usize> {
    // a/b < c/d without division; counts are below 2^40, so the products fit.
    let share_less =
        |a: &Outcome, b: &Outcome| u128::from(a.remaining) * u128::from(b.limit) < u128::from(b.remaining) * u128::from(a.limit);
    let better = |(outcome, window): (&Outcome, &&Window), (best, of): (&Outcome, &&Window)| {
        (window.own && !of.own) || (window.own == of.own && share_less(outcome, best))
    };
    let mut tightest = None;
    for (at, candidate) in outcomes.iter().zip(windows).enumerate() {
        if tightest.is_none_or(|(_, best)| better(candidate, best)) {
            tightest = Some((at, candidate));
        }
    }
    tightest.map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{Algorithm, Quota, Quotas, SpaceId};
    use http::HeaderValue;
    use std::time::Duration;

    fn window(own: bool) -> Window {
        let quota = Quota::new(1, Duration::from_secs(1), None, Algorithm::Gcra).unwrap();
        let value = HeaderValue::from_static("x");
        Window {
            space: SpaceId(0),
            quota: Quotas::default().intern(quota).unwrap(),
            policy: value.clone(),
            policy_name: "x".into(),
            limit: value,
            own,
        }
    }

    #[test]
    fn the_smallest_share_of_the_callers_own_is_the_tightest() {
        let outcome = |remaining, limit| Outcome {
            verdict: Verdict::Conforms,
            limit,
            remaining,
            reset_after: 0,
            delay: 0,
            boost: Boost::NONE,
            mark: 0,
        };
        let (own, shared) = (window(true), window(false));
        assert_eq!(tightest(&[outcome(50, 100), outcome(4, 10), outcome(999, 1000)], &[&own, &own, &own]), Some(1));
        assert_eq!(tightest(&[outcome(0, 10), outcome(0, 5)], &[&own, &own]), Some(0));
        assert_eq!(tightest(&[outcome(50, 100), outcome(1, 10)], &[&own, &shared]), Some(0));
        assert_eq!(tightest(&[outcome(1, 10), outcome(9, 10)], &[&shared, &own]), Some(1));
        assert_eq!(tightest(&[outcome(1, 10)], &[&shared]), Some(0));
        assert_eq!(tightest(&[], &[]), None);
    }
}
