//! What this process enforces by itself while the shared store doesn't answer: its share of every quota, from counters that are kept warm
//! while it does, so that an outage doesn't begin with everybody's quota unused.

use dashmap::DashMap;

use crate::clock::Nanos;
use crate::limit::{Boost, Charge, Interned, QuotaId, Quotas, Verdict};
use crate::store::{MemoryStore, Origin, Taken};

/// Shares of quotas, made when they are first needed.
#[derive(Debug)]
pub(super) struct Shares {
    quotas: Quotas,
    known: DashMap<QuotaId, (u32, Interned)>,
}

impl Shares {
    pub(super) fn new(quotas: Quotas) -> Self {
        Self { quotas, known: DashMap::new() }
    }

    /// The share of one of `instances` gateways.
    pub(super) fn of(&self, quota: &Interned, instances: u32) -> Interned {
        if let Some(known) = self.known.get(&quota.id).filter(|known| known.0 == instances) {
            return known.1;
        }
        // If there are a million quotas already, the whole one has to do.
        let share = self.quotas.intern(quota.quota.share_of(instances)).unwrap_or(*quota);
        self.known.insert(quota.id, (instances, share));
        share
    }
}

/// Counts cells that the shared store has let pass, whether they fit the share or not.
pub(super) fn keep_warm(memory: &MemoryStore, charge: &Charge<'_>, share: &Interned, cells: u64, now: Nanos) {
    if cells > 0 {
        memory.settle(&taken(charge, share, 0), cells, now);
    }
}

/// Follows a correction of what was counted by [`keep_warm`]: cells that were given back, or that were taken whether they fit or not.
pub(super) fn correct(memory: &MemoryStore, taken: &Taken, share: &Interned, delta: i64, now: Nanos) {
    let cells = delta.unsigned_abs();
    let (had, has) = if delta < 0 { (cells, 0) } else { (0, cells) };
    memory.settle(&Taken { quota: *share, cost: had, mark: Taken::UNMARKED, ..*taken }, has, now);
}

fn taken(charge: &Charge<'_>, share: &Interned, cost: u64) -> Taken {
    let Charge { key, space, .. } = *charge;
    Taken { key, space, quota: *share, cost, mark: 0, boost: Boost::NONE, entity: 0, origin: Origin::Fallback }
}

/// A cost that the share never holds but the whole quota does can be asked of the store again soon.
pub(super) fn verdict(charge: &Charge<'_>, verdict: Verdict) -> Verdict {
    match verdict {
        Verdict::Never if charge.cost <= charge.quota.quota.largest_cost() => {
            Verdict::Exceeds { retry_after: crate::clock::SECOND }
        }
        other => other,
    }
}
