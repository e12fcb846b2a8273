//! A request's token: what it says, if it is believed. The only place where a request may wait for an issuer.

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use super::gateway::Gateway;
use crate::clock::unix_seconds;
use crate::identity::jwt::{Cache, Checked, Claims, TokenFault, Verifier};
use crate::identity::{IdentityFault, IdentityRules};
use crate::request::Facts;
use crate::respond::Answer;
use crate::telemetry::metrics::{self, Counter, Lane, Registry};

/// What a worker knows of tokens.
#[derive(Debug)]
pub(super) struct Tokens {
    cache: RefCell<Cache>,
    registry: Registry,
    /// Made with the first token: most gateways never see one.
    counters: OnceCell<Counters>,
}

#[derive(Debug)]
struct Counters {
    verified: Counter,
    cached: Counter,
    faults: Vec<(TokenFault, Counter)>,
}

/// Claims of the request's token; `None` if it has none, or one that is not believed and may be ignored.
///
/// A token that names a key we don't have may be signed with one that the issuer has just introduced. So the request waits for newer
/// keys, not for long, and no request fails when keys change.
pub(super) async fn claims(
    gateway: &Gateway,
    verifier: &Verifier,
    rules: &IdentityRules,
    facts: &Facts<'_>,
) -> Result<Option<Rc<Claims>>, Answer> {
    let check = || {
        let Some(token) = verifier.find(facts, &rules.key_sources)? else { return Ok(None) };
        let now = unix_seconds(gateway.clock.wall_now());
        gateway.tokens.cache.borrow_mut().check(verifier, &token, now).map(Some)
    };
    let mut checked = check();
    if lacks_keys(&checked) {
        let newer = async {
            // Twice: a fetch that was on its way already may have begun before the issuer had the key.
            for _ in 0..2 {
                verifier.keys.newer(gateway.clock.now()).await;
                checked = check();
                if !lacks_keys(&checked) {
                    return;
                }
            }
        };
        // Boxed: it is rare, and every request's future would be larger for it. When patience ends, so does the look for keys.
        let _ = Box::pin(tokio::time::timeout(PATIENCE, newer)).await;
    }
    gateway.tokens.count(&checked, gateway.lane);
    match checked {
        Ok(found) => Ok(found.map(|(claims, _)| claims)),
        Err(fault) if verifier.ignores(fault) => Ok(None),
        Err(fault) => Err(Answer::Unauthorized(IdentityFault::Token(fault))),
    }
}

type Outcome = Result<Option<(Rc<Claims>, Checked)>, TokenFault>;

fn lacks_keys(checked: &Outcome) -> bool {
    checked.as_ref().is_err_and(|fault| fault.is_for_want_of_keys())
}

impl Tokens {
    pub(super) fn new(registry: Registry) -> Self {
        Self { cache: RefCell::default(), registry, counters: OnceCell::new() }
    }

    fn count(&self, checked: &Outcome, lane: Lane) {
        if matches!(checked, Ok(None)) {
            return;
        }
        let counters = self.counters.get_or_init(|| Counters::new(&self.registry));
        let counter = match checked {
            Ok(Some((_, Checked::Cached))) => Some(&counters.cached),
            Ok(_) => Some(&counters.verified),
            Err(fault) => counters.faults.iter().find(|(counted, _)| counted == fault).map(|(_, counter)| counter),
        };
        if let Some(counter) = counter {
            counter.one(lane);
        }
    }
}

impl Counters {
    fn new(registry: &Registry) -> Self {
        let result = |result| registry.counter(metrics::JWT, &[("result", result)]);
        Self {
            verified: result("verified"),
            cached: result("cached"),
            faults: TokenFault::ALL.into_iter().map(|fault| (fault, result(fault.label()))).collect(),
        }
    }
}

/// Longer than a fetch takes, shorter than anybody's patience.
const PATIENCE: Duration = Duration::from_secs(2);
