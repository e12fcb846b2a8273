//! From a plan's charges to a permit or a refusal: the only place that sees both policy and store.

use std::sync::Arc;

use http::HeaderMap;

use super::gateway::Gateway;
use super::record::Completion;
use crate::admission::{self, Denial, Permit};
use crate::clock::{SECOND, unix_seconds};
use crate::headers::{Numbers, add_rate_limit};
use crate::limit::{Outcome, Verdict};
use crate::policy::{Proceed, Window};
use crate::respond::Answer;
use crate::snapshot::Snapshot;

/// Where a client stands: the window that its response reports.
#[derive(Debug, Default)]
pub(super) struct Standing<'s> {
    window: Option<(Outcome, &'s Window)>,
}

/// Admits the request or says why not, and notes either.
pub(super) fn admit<'s>(
    gateway: &Gateway,
    snapshot: &'s Snapshot,
    proceed: &Proceed<'s>,
    completion: &mut Completion,
    standing: &mut Standing<'s>,
) -> Result<Permit, Answer> {
    let now = completion.started;
    let decision = admission::admit(&gateway.store, &gateway.slots, &proceed.slots, &proceed.charges, now);
    let tier = completion.tier;
    let metrics = |limit: u16| snapshot.limit_metrics.get(usize::from(limit));
    let mut note_shadow = |limit: u16| {
        if let Some(counter) = metrics(limit).and_then(|metrics| metrics.shadow.get(tier)) {
            counter.one(gateway.lane);
        }
        completion.shadow = Some(limit);
    };
    decision.shadow_hits.into_iter().for_each(&mut note_shadow);
    match decision.verdict {
        Ok(permit) => {
            if !proceed.shadow.is_empty() {
                admission::shadow(&gateway.store, &proceed.shadow, now).into_iter().for_each(&mut note_shadow);
            }
            let tightest = tightest(&decision.outcomes, &proceed.windows)
                .and_then(|at| Some((decision.outcomes.get(at)?, proceed.windows.get(at)?)));
            *standing = tightest.map(|(outcome, window)| Standing::of(outcome, window)).unwrap_or_default();
            Ok(permit)
        }
        Err(Denial { limit, charge, retry_after }) => {
            if let Some(counter) = metrics(limit).and_then(|metrics| metrics.limited.get(tier)) {
                counter.one(gateway.lane);
            }
            completion.limited_by = Some(limit);
            let refusing = charge.and_then(|at| Some((decision.outcomes.get(at)?, proceed.windows.get(at)?)));
            *standing = refusing.map(|(outcome, window)| Standing::of(outcome, window)).unwrap_or_default();
            let policy = refusing.map(|(_, window)| Arc::clone(&window.policy_name));
            let name = snapshot.policy.limits.get(usize::from(limit)).map_or("", |limit| &limit.name);
            Err(Answer::Limited { limit: name.into(), policy, retry_after, status: snapshot.rejection.status })
        }
    }
}

impl<'s> Standing<'s> {
    fn of(outcome: &Outcome, window: &'s Window) -> Self {
        Self { window: Some((*outcome, window)) }
    }

    /// Puts the numbers on a response.
    pub(super) fn report(&self, gateway: &Gateway, snapshot: &Snapshot, headers: &mut HeaderMap) {
        let Some((outcome, window)) = &self.window else { return };
        let retry_after = match outcome.verdict {
            Verdict::Exceeds { retry_after } => Some(retry_after.max(SECOND)),
            Verdict::Conforms | Verdict::Never => None,
        };
        let numbers = Numbers {
            limit: &window.limit,
            remaining: outcome.remaining,
            reset_after: outcome.reset_after,
            retry_after,
            policy: &window.policy,
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
    use crate::limit::{Algorithm, Quota, Quotas};
    use http::HeaderValue;
    use std::time::Duration;

    fn window(own: bool) -> Window {
        let quota = Quota::new(1, Duration::from_secs(1), None, Algorithm::Gcra).unwrap();
        let value = HeaderValue::from_static("x");
        Window { quota: Quotas::default().intern(quota), policy: value.clone(), policy_name: "x".into(), limit: value, own }
    }

    #[test]
    fn the_smallest_share_of_the_callers_own_is_the_tightest() {
        let outcome = |remaining, limit| Outcome { verdict: Verdict::Conforms, limit, remaining, reset_after: 0 };
        let (own, shared) = (window(true), window(false));
        assert_eq!(tightest(&[outcome(50, 100), outcome(4, 10), outcome(999, 1000)], &[&own, &own, &own]), Some(1));
        assert_eq!(tightest(&[outcome(0, 10), outcome(0, 5)], &[&own, &own]), Some(0));
        assert_eq!(tightest(&[outcome(50, 100), outcome(1, 10)], &[&own, &shared]), Some(0));
        assert_eq!(tightest(&[outcome(1, 10), outcome(9, 10)], &[&shared, &own]), Some(1));
        assert_eq!(tightest(&[outcome(1, 10)], &[&shared]), Some(0));
        assert_eq!(tightest(&[], &[]), None);
    }
}
