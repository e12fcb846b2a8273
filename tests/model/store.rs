//! A store as its documentation has it: a map from keys to oracles, all or none, and no limit on memory.

use std::collections::HashMap;

use crate::chance::Random;
use crate::oracle::{Oracle, Receipt};
use tollgate::clock::Nanos;
use tollgate::limit::{Algorithm, Charge, Interned, Key, Outcome, Quota, QuotaId, Quotas, SpaceId, Verdict, until};
use tollgate::store::{Budget, Charged, MemoryStore, Taken};

/// Every counter, with the quota that is in force for it.
#[derive(Debug, Default)]
pub(crate) struct Model(HashMap<(SpaceId, Key), (Interned, Oracle)>);

impl Model {
    /// Charges all or none. What a refusal finds out, that time has moved or that the quota is a faster one, is kept for what refuses; to ask (cost
    /// 0) leaves no trace, except in a log, whose cells from a distant future are always brought to now.
    pub(crate) fn charge(&mut self, charges: &[Charge<'_>], now: Nanos) -> Charged {
        let mut looks: Vec<(Oracle, Outcome)> = Vec::new();
        for charge in charges {
            let mut oracle = self.oracle(charge, now);
            let mut outcome = oracle.charge(now, charge.cost);
            if let Verdict::Exceeds { retry_after } = &mut outcome.verdict
                && self.is_slower(charge)
            {
                *retry_after = until(|wait| {
                    let at = now + wait;
                    self.oracle(charge, at).charge(at, charge.cost).verdict.conforms()
                });
            }
            looks.push((oracle, outcome));
        }
        let conforms = looks.iter().all(|(_, outcome)| outcome.verdict.conforms());
        let outcomes = looks.iter().map(|(_, outcome)| *outcome).collect();
        for (charge, (oracle, outcome)) in charges.iter().zip(looks) {
            let is_taken = conforms && charge.cost > 0;
            // A log that a refusal begins is kept even if it is empty.
            let begins_log = charge.quota.quota.algorithm() == Algorithm::SlidingLog && self.is_rewritten(charge);
            let is_told_more = !outcome.verdict.conforms() && !self.is_slower(charge) && (oracle.used(now) > 0 || begins_log);
            if is_taken || is_told_more {
                self.0.insert((charge.space, charge.key), (*charge.quota, oracle));
            } else if charge.quota.quota.algorithm() == Algorithm::SlidingLog {
                self.heal(charge, now);
            }
        }
        Charged { conforms, outcomes }
    }

    /// Of a charge that was taken just now.
    pub(crate) fn receipt(&self, charge: &Charge<'_>, now: Nanos) -> Receipt {
        self.0[&(charge.space, charge.key)].1.receipt(now)
    }

    /// Corrects a charge under the quota that is in force. If that is another than the charge's, what is there is reduced; if requests wait
    /// in it, only the last gives its place back.
    pub(crate) fn settle(&mut self, taken: &Taken, receipt: Receipt, cost: u64, now: Nanos) {
        let (in_force, oracle) = self
            .0
            .entry((taken.space, taken.key))
            .or_insert_with(|| (taken.quota, Oracle::new(&taken.quota.quota, taken.key.phase())));
        let lapses = in_force.quota.max_delay() > 0 && !oracle.is_tail(receipt);
        let less = if lapses { 0 } else { taken.cost.saturating_sub(cost) };
        oracle.refund((in_force.id == taken.quota.id).then_some(receipt), now, less);
        if cost > taken.cost {
            oracle.force(now, cost - taken.cost);
        }
        // Then the next settlement finds no counter, and so no quota in force.
        if oracle.is_unused() {
            self.0.remove(&(taken.space, taken.key));
        }
    }

    fn is_rewritten(&self, charge: &Charge<'_>) -> bool {
        self.0.get(&(charge.space, charge.key)).is_some_and(|(in_force, _)| in_force.id != charge.quota.id)
    }

    /// Whether the counter is under a quota at least as fast as the charge's.
    fn is_slower(&self, charge: &Charge<'_>) -> bool {
        let in_force = self.0.get(&(charge.space, charge.key)).map(|(in_force, _)| in_force);
        in_force.is_some_and(|old| old.id != charge.quota.id && !charge.quota.quota.is_faster_than(&old.quota))
    }

    /// A charge's counter under the charge's quota: usage goes over in cells, and more than fits counts as all of it.
    fn oracle(&self, charge: &Charge<'_>, now: Nanos) -> Oracle {
        let (quota, phase) = (&charge.quota.quota, charge.key.phase());
        match self.0.get(&(charge.space, charge.key)) {
            None => Oracle::new(quota, phase),
            Some((in_force, oracle)) if in_force.id == charge.quota.id => oracle.clone(),
            Some((_, oracle)) => Oracle::with_used(quota, phase, now, oracle.used(now)),
        }
    }

    fn heal(&mut self, charge: &Charge<'_>, now: Nanos) {
        if let Some((in_force, oracle)) = self.0.get_mut(&(charge.space, charge.key))
            && in_force.id == charge.quota.id
        {
            oracle.come_to(now);
        }
    }
}

/// The store that is tested, with plenty of room for each of its spaces.
pub(crate) struct Fixture {
    pub(crate) store: MemoryStore,
    quotas: Quotas,
}

impl Fixture {
    pub(crate) fn new(max_keys: usize) -> Self {
        let quotas = Quotas::default();
        let store = MemoryStore::new(quotas.clone());
        store.arrange(&SPACES.map(|space| Budget { space, max_keys }));
        Self { store, quotas }
    }

    pub(crate) fn intern(&self, quota: Quota) -> Interned {
        self.quotas.intern(quota).unwrap()
    }

    /// Cells in use of a quota without debts.
    pub(crate) fn used(&self, charge: &Charge<'_>, now: Nanos) -> u64 {
        let told = self.store.peek(&[Charge { cost: 0, ..*charge }], now).outcomes[0];
        told.limit - told.remaining
    }

    /// Nobody had to make room: else the model, which has no bounds, would be none.
    pub(crate) fn assert_roomy(&self) {
        let occupancy = self.store.occupancy();
        assert!(occupancy.iter().all(|space| space.evicted_live == 0), "{occupancy:?}");
    }
}

/// A client's key for a limit. Not from the hasher, whose seed is another in every process: a failure must come again.
pub(crate) fn key(limit: u64, client: u64) -> Key {
    let mut random = Random::new((limit << 32) | client);
    // The low bits of the second half are the store's.
    Key([random.next(), random.next() & !u64::from(QuotaId::MAX)])
}

pub(crate) fn charge(space: SpaceId, key: Key, quota: &Interned, cost: u64) -> Charge<'_> {
    Charge { key, space, quota, cost, limit: 0, queue: 0, warmup: None, sharing: None }
}

/// An answer without its marks, which are the store's own: oracles have receipts.
pub(crate) fn unmarked(mut charged: Charged) -> Charged {
    for outcome in &mut charged.outcomes {
        outcome.mark = 0;
    }
    charged
}

/// The longest wait of those that refuse; none if nothing does, or if waiting helps none of it.
pub(crate) fn wait(charged: &Charged) -> Option<Nanos> {
    let mut longest = None;
    for outcome in &charged.outcomes {
        match outcome.verdict {
            Verdict::Conforms => {}
            Verdict::Exceeds { retry_after } => longest = longest.max(Some(retry_after)),
            Verdict::Never => return None,
        }
    }
    longest
}

pub(crate) const SPACES: [SpaceId; 3] = [SpaceId(0), SpaceId(1), SpaceId(2)];
