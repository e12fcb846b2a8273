//! Counters that several gateways share: a Redis or Valkey server, alone, with Sentinel, or a cluster.
//!
//! [`SharedStore::charge`] decides over all charges of a request, of which it knows some from leases and some from what the store said last, and asks
//! about the rest. `decide` is that decision, [`lease`] what is known without asking, [`script`] what is asked, [`link`] the way
//! there, `fallback` what is done without an answer, `slots` requests in flight over all gateways, `patience` how long a request waits. Everything in the background happens on
//! the thread `store`.

mod answer;
mod book;
mod decide;
mod fallback;
mod invocation;
pub mod lease;
pub mod link;
mod metrics;
mod patience;
pub mod script;
mod slots;

use std::sync::Arc;
use std::time::Duration;

use super::{MemoryStore, Origin, Outcomes, Store, Taken};
use crate::clock::{Clock, Nanos, unix_seconds};
use crate::limit::{Key, Quotas};
use crate::telemetry::metrics::{Lane, Registry};
use book::Book;
use fallback::Shares;
use lease::{Leases, Occupancy};
use link::Link;
use metrics::Decisions;
use script::Correction;

pub use answer::Answer;
pub use decide::{Asking, Deciding};
pub use invocation::{Args, Invocation, Script, StoreKey};
pub use patience::Patience;
pub use slots::{NoSlot, SharedSlot};

/// The counters that several gateways share.
#[derive(Debug)]
pub struct SharedStore {
    link: Arc<Link>,
    leases: Leases,
    shares: Shares,
    book: Arc<Book>,
    clock: Clock,
    metrics: Decisions,
    prefix: Box<str>,
    instance: Box<str>,
    /// Where questions run.
    runtime: tokio::runtime::Handle,
    /// Where those are counted.
    lane: Lane,
}

/// The joint decision over charges of which other gateways count some.
#[derive(Debug)]
pub struct Joint {
    /// What it came to.
    pub verdict: JointVerdict,
    /// One answer per charge.
    pub outcomes: Outcomes,
    /// Where each was taken.
    pub origins: Vec<Origin>,
}

/// What a joint decision came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JointVerdict {
    /// All charges were taken.
    Conforms,
    /// None was: some exceed.
    Exceeds,
    /// None was: a limit that is closed without the store could not ask it.
    NoStore {
        /// Its place among the charges.
        charge: usize,
    },
}

impl SharedStore {
    /// Over a link. `quotas` must be the table that interned every quota that will be charged.
    #[must_use]
    pub fn new(link: Arc<Link>, quotas: &Quotas, max_leases: usize, clock: Clock, registry: &Registry) -> Self {
        Self {
            leases: Leases::new(quotas.clone(), max_leases),
            shares: Shares::new(quotas.clone()),
            book: Arc::default(),
            clock,
            metrics: Decisions::new(registry),
            prefix: link.settings().key_prefix.as_str().into(),
            instance: link.settings().instance.as_str().into(),
            runtime: link.runtime(),
            lane: registry.shared_lane(),
            link,
        }
    }

    /// Corrects a charge to what it turned out to cost: see [`Store::settle`].
    pub fn settle(&self, memory: &MemoryStore, taken: &Taken, cost: u64, now: Nanos) {
        let less = taken.cost.saturating_sub(cost);
        // Cells that go back into a lease stay ours, and memory has counted them since the lease came.
        if let Origin::Lease(window) = taken.origin
            && less > 0
            && self.leases.unspend(taken.key, window, less, now)
        {
            return;
        }
        let delta = if less > 0 { -signed(less) } else { signed(cost.saturating_sub(taken.cost)) };
        if delta != 0 {
            self.leases.corrected(taken.key, &taken.quota.quota, delta, now);
        }
        self.correct(memory, taken, delta, now);
    }

    /// Corrects a counter in the store, and what is kept warm here of it.
    fn correct(&self, memory: &MemoryStore, taken: &Taken, delta: i64, now: Nanos) {
        if delta != 0 {
            let share = self.shares.of(&taken.quota, self.link.instances());
            fallback::correct(memory, taken, &share, delta, now);
            self.post_correction(taken, delta, now);
        }
    }

    fn post_correction(&self, taken: &Taken, delta: i64, now: Nanos) {
        let correction = Correction {
            key: self.key(taken.entity, taken.key),
            quota: &taken.quota.quota,
            boost: taken.boost,
            phase: taken.key.phase(),
            mark: Some(taken.mark).filter(|mark| *mark != 0),
            delta,
        };
        self.link.post(script::settle(&correction, now, None));
    }

    /// What happens in the background as long as the process lives; on the thread `store`.
    pub async fn tend(store: Arc<Store>) {
        let mut ticks = tokio::time::interval(TEND_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let (mut since_renewal, mut recoveries) = (Duration::ZERO, 0);
        loop {
            ticks.tick().await;
            let Some(shared) = &store.shared else { return };
            shared.return_idle(&store.memory);
            since_renewal += TEND_EVERY;
            // A node that has come up may have lost what it was told before, and has not heard what happened meanwhile.
            let recovered = recoveries != shared.link.recoveries();
            recoveries = shared.link.recoveries();
            if recovered || since_renewal >= slots::SLOT_LEASE / 3 {
                since_renewal = Duration::ZERO;
                shared.renew_slots();
            }
            shared.say_again();
        }
    }

    /// Starts [`SharedStore::tend`], if there is a shared store.
    pub fn start_tending(store: &Arc<Store>) {
        if let Some(shared) = &store.shared {
            shared.runtime.spawn(Self::tend(Arc::clone(store)));
        }
    }

    fn return_idle(&self, memory: &MemoryStore) {
        let now = self.clock.now();
        for back in self.leases.take_idle(now) {
            self.correct(memory, &back.taken, -signed(back.taken.cost), now);
        }
    }

    /// The process ends: leases go back, slots of requests that are cut off too, and others hear of it.
    pub fn stop(&self) {
        let now = self.clock.now();
        for back in self.leases.take_all(now) {
            self.post_correction(&back.taken, -signed(back.taken.cost), now);
        }
        self.leave_slots();
        self.link.stop();
    }

    /// How many counters are leased, and how many cells.
    #[must_use]
    pub fn occupancy(&self) -> Occupancy {
        self.leases.occupancy()
    }

    /// Since when something is so, in seconds since 1970, that is so since `since` by the link's clock.
    #[must_use]
    pub fn unix_time_of(&self, since: Nanos) -> u64 {
        let ago = Duration::from_nanos(self.clock.now().saturating_sub(since));
        // To the half second, so that it does not change between two looks because both clocks are read anew.
        let then = self.clock.wall_now().checked_sub(ago).and_then(|then| then.checked_add(Duration::from_millis(500)));
        unix_seconds(then.unwrap_or_else(|| self.clock.wall_now()))
    }

    /// The way to the store.
    #[must_use]
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// What a counter is called in the store.
    fn key(&self, entity: u64, key: Key) -> StoreKey {
        StoreKey::counter(&self.prefix, entity, key)
    }
}

fn signed(cells: u64) -> i64 {
    i64::try_from(cells).unwrap_or(i64::MAX)
}

const TEND_EVERY: Duration = Duration::from_millis(100);
