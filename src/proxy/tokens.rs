//! A request's token: what it says, if it is believed. The only place where a request may wait for an issuer.

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use super::gateway::Gateway;
use crate::clock::{SECOND, unix_seconds};
use crate::identity::jwt::{Cache, Checked, Claims, Newer, TokenFault, Verifier, named_key};
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
/// # Errors
/// 401 for a token that is not believed, 503 for one that can't be judged with the keys there are.
pub(super) async fn claims(
    gateway: &Gateway,
    verifier: &Verifier,
    rules: &IdentityRules,
    facts: &Facts<'_>,
) -> Result<Option<Rc<Claims>>, Answer> {
    let (checked, wait) = match verifier.find(facts, &rules.key_sources) {
        Ok(None) => return Ok(None),
        Err(fault) => (Err(fault), SOON),
        Ok(Some(token)) => match check(gateway, verifier, &token) {
            // Boxed: it is rare, and every request's future would be larger for it.
            Err(fault) if fault.is_for_want_of_keys() => Box::pin(with_newer_keys(gateway, verifier, &token, fault)).await,
            checked => (checked, SOON),
        },
    };
    gateway.tokens.count(&checked, gateway.lane);
    match (checked, wait) {
        (Ok((claims, _)), _) => Ok(Some(claims)),
        (Err(fault), _) if verifier.ignores(fault) => Ok(None),
        (Err(TokenFault::KeyPending), Newer::Due(wait)) => Err(Answer::NoTokenKeys { retry_after: wait }),
        (Err(TokenFault::NoKeys | TokenFault::KeyPending), _) => Err(Answer::NoTokenKeys { retry_after: SECOND }),
        (Err(fault), _) => Err(Answer::Unauthorized(IdentityFault::Token(fault))),
    }
}

/// Checks again with newer keys. A token that names a key we don't have may be signed with one that the issuer has just introduced. So
/// the request waits for newer keys, not for long; and where none may be fetched at once it is not told that its token is no good.
async fn with_newer_keys(gateway: &Gateway, verifier: &Verifier, token: &[u8], fault: TokenFault) -> (Outcome, Newer) {
    let key = named_key(token);
    let (mut checked, mut answer) = (Err(fault), SOON);
    let asking = async {
        // Twice: a fetch that was on its way already may have begun before the issuer had the key. A third time hears what came of
        // the second.
        for _ in 0..3 {
            answer = verifier.keys.newer(key, gateway.clock.now()).await;
            checked = check(gateway, verifier, token);
            if answer != Newer::Ended || !checked.as_ref().is_err_and(|fault| fault.is_for_want_of_keys()) {
                return;
            }
        }
    };
    // When patience ends, so does the look for keys.
    let _ = tokio::time::timeout(PATIENCE, asking).await;
    if answer != Newer::Absent && checked.as_ref().is_err_and(|fault| *fault == TokenFault::UnknownKey) {
        checked = Err(TokenFault::KeyPending);
    }
    (checked, answer)
}

fn check(gateway: &Gateway, verifier: &Verifier, token: &[u8]) -> Outcome {
    let now = unix_seconds(gateway.clock.wall_now());
    gateway.tokens.cache.borrow_mut().check(verifier, token, now)
}

type Outcome = Result<(Rc<Claims>, Checked), TokenFault>;

impl Tokens {
    pub(super) fn new(registry: Registry) -> Self {
        Self { cache: RefCell::default(), registry, counters: OnceCell::new() }
    }

    fn count(&self, checked: &Outcome, lane: Lane) {
        let counters = self.counters.get_or_init(|| Counters::new(&self.registry));
        let counter = match checked {
            Ok((_, Checked::Cached)) => Some(&counters.cached),
            Ok((_, Checked::Verified)) => Some(&counters.verified),
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
/// When to come again if nothing is known.
const SOON: Newer = Newer::Due(SECOND);
