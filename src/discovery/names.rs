//! What is known of names, for whoever asks; kept by the thread that looks them up.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::Notify;
use tracing::{info, warn};

use super::resolver::Fault;
use crate::clock::Clock;
use crate::snapshot::Query;
use crate::telemetry::metrics::{self, Registry};

/// Answers, by question.
#[derive(Debug)]
pub struct Names {
    known: Mutex<HashMap<Query, Known>>,
    /// Told whenever a name has been looked up for the first time.
    first: Condvar,
    changed: Notify,
    registry: Registry,
    clock: Clock,
}

/// One address that a name stands for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Found {
    /// Of a service, how many ranks are to be preferred to it.
    pub(super) rank: u16,
    pub(super) address: IpAddr,
    /// Of a service, where and how much of it there is.
    pub(super) at: Option<Share>,
}

/// What a service's record says of a host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Share {
    pub(super) port: u16,
    pub(super) weight: u32,
}

/// What one look-up has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    /// In order, without repetitions; never empty.
    pub(super) found: Vec<Found>,
    pub(super) ttl: Duration,
}

#[derive(Debug, Default)]
struct Known {
    found: Arc<Vec<Found>>,
    ttl: Duration,
    /// What the last look-up came to; nothing until there was one.
    last: Option<Result<(), Fault>>,
    succeeded_at: Option<SystemTime>,
}

/// What is known of a name, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameState {
    /// The name.
    pub name: Arc<str>,
    /// `host` or `service`.
    pub kind: &'static str,
    /// How many addresses it stands for.
    pub addresses: usize,
    /// For how long the last good answer was good.
    pub ttl: Duration,
    /// What the last look-up came to: `success`, or why not; `pending` before the first.
    pub result: &'static str,
    /// When there was the last good answer.
    pub succeeded_at: Option<SystemTime>,
}

impl Names {
    pub(super) fn new(registry: Registry, clock: Clock) -> Self {
        Self { known: Mutex::default(), first: Condvar::new(), changed: Notify::new(), registry, clock }
    }

    /// Forgets all but these.
    pub(super) fn want(&self, queries: &BTreeSet<Query>) {
        let mut known = self.lock();
        for gone in known.extract_if(|query, _| !queries.contains(query)).map(|(query, _)| query) {
            self.registry.forget(&[("name", gone.name())]);
        }
        for query in queries {
            known.entry(query.clone()).or_default();
        }
    }

    /// Waits until all of these have been looked up once, at most so long. Whoever calls it does nothing else meanwhile.
    pub fn wait(&self, queries: &BTreeSet<Query>, at_most: Duration) {
        let is_pending = |known: &mut HashMap<Query, Known>| {
            queries.iter().any(|query| known.get(query).is_none_or(|known| known.last.is_none()))
        };
        let waited = self.first.wait_timeout_while(self.lock(), at_most, is_pending);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Waits until there is something new since it was waited for the last time.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// What a name stands for; `None` until it has been looked up.
    pub(super) fn found(&self, query: &Query) -> Option<Arc<Vec<Found>>> {
        let known = self.lock();
        let known = known.get(query)?;
        known.last.as_ref().map(|_| Arc::clone(&known.found))
    }

    /// Takes note of a look-up. Of one that failed nothing is kept but that.
    pub(super) fn note(&self, query: &Query, answer: Result<Answer, Fault>) {
        let name = &**query.name();
        let result = answer.as_ref().map_or_else(Fault::label, |_| "success");
        let mut all = self.lock();
        // A reload may have just taken it out.
        let Some(known) = all.get_mut(query) else { return };
        self.registry.counter(metrics::DNS_LOOKUPS, &[("name", name), ("result", result)]).one(self.registry.shared_lane());
        let is_first = known.last.is_none();
        let before = known.last.take();
        let mut is_new = is_first;
        match answer {
            Ok(Answer { found, ttl }) => {
                known.succeeded_at = Some(self.clock.wall_now());
                known.ttl = ttl;
                if *known.found != found {
                    let addresses = found.len();
                    info!(name, addresses, ?ttl, "name resolved");
                    known.found = Arc::new(found);
                    is_new = true;
                } else if matches!(before, Some(Err(_))) {
                    info!(name, "name resolves again");
                }
                known.last = Some(Ok(()));
            }
            Err(fault) => {
                // Once for each reason, not once a second.
                if !matches!(&before, Some(Err(before)) if before.label() == fault.label()) {
                    let kept = known.found.len();
                    warn!(name, %fault, kept, "name does not resolve; what it stood for before stays in use");
                }
                known.last = Some(Err(fault));
            }
        }
        drop(all);
        if is_first {
            self.first.notify_all();
        }
        if is_new {
            self.changed.notify_one();
        }
    }

    /// Everything, for people, in order.
    #[must_use]
    pub fn states(&self) -> Vec<(Query, NameState)> {
        let known = self.lock();
        let mut states: Vec<_> = known.iter().map(|(query, known)| (query.clone(), known.state(query))).collect();
        states.sort_by(|(a, _), (b, _)| a.cmp(b));
        states
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Query, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn state(&self, query: &Query) -> NameState {
        NameState {
            name: Arc::clone(query.name()),
            kind: match query {
                Query::Host(_) => "host",
                Query::Service(_) => "service",
            },
            addresses: self.found.len(),
            ttl: self.ttl,
            result: match &self.last {
                None => "pending",
                Some(Ok(())) => "success",
                Some(Err(fault)) => fault.label(),
            },
            succeeded_at: self.succeeded_at,
        }
    }
}
