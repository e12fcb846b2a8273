//! A part of a space: a table of counters behind one lock, and what happens in it.
//!
//! A key has a place in one of two sets of eight. An idle entry is written over. **When both sets are full of counters in use** and the
//! table may not grow, a newcomer looks at all of them, takes the one with the least of
//! its quota in use, and *inherits* what that one has used (Space-Saving, Metwally et al. 2005, applied to limiter state). So a key that is over
//! its limit is pushed out only if everything it was compared with is at least as far over its own, and if it comes back it finds at least
//! that much inherited: a flood of new keys frees nobody. The price is one-sided: newcomers may be refused early, until counters drain.

use std::borrow::Cow;

use super::super::Taken;
use super::logs::Logs;
use super::size::Size;
use super::table::{Entry, NEARLY_FULL, Place, Table, WAYS};
use super::usage::{free, fullness, is_idle, used};
use crate::clock::Nanos;
use crate::limit::{
    Algorithm, Boost, Charge, Interned, Key, Log, Outcome, Quota, QuotaId, Quotas, Step, Verdict, sliding_log, until,
};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Shard {
    table: Table,
    size: Size,
    is_closed: bool,
    keys: usize,
    /// Changes when entries come or move.
    version: u32,
    logs: Logs,
    stats: Stats,
}

/// What happened to a shard.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Stats {
    pub(super) evicted_idle: u64,
    pub(super) evicted_live: u64,
    pub(super) inherited: [u64; DEBT_SHARES.len() + 1],
    pub(super) inherited_sum: u64,
}

/// Where a charge's counter is, or would be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spot {
    /// It is there.
    Present(Place),
    /// It would be written over a free or idle entry.
    Vacant(Place),
    /// It would take over this entry, and what it has used.
    Inherits(Place),
}

/// What [`Shard::commit`] has to know of a look.
#[derive(Debug, Clone, Copy)]
pub(super) struct Look {
    spot: Spot,
    /// The state after the charge, if it conforms. For a log: nothing.
    pub(super) state: u64,
    /// The table's version when it was looked at.
    version: u32,
    boost: Boost,
}

/// When a counter goes over to the quota that it is charged under: see [`until`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rewriting {
    /// It is under that already.
    Never,
    /// Whatever comes of the charge.
    Now,
    /// When one passes.
    Later,
}

/// Whose place a newcomer can take.
enum Rival {
    Idle(Place),
    Live(Place),
}

/// What a charge is decided under: the quota as it is for this caller, and what it was multiplied with.
struct Under<'q> {
    quota: &'q Quota,
    boost: Boost,
}

impl Shard {
    /// How a charge stands whose counter is there, under its quota, and whose state is a number: nearly all do. `mark` is the state after
    /// it, to be put into the entry if it passes. Inlined for good: moving an [`Outcome`] through memory costs as much as deciding it.
    #[inline(always)]
    pub(super) fn decide_present(&mut self, charge: &Charge<'_>, now: Nanos) -> Option<(&mut Entry, Outcome)> {
        let Interned { id, quota } = charge.quota;
        let entry = self.table.find_mut(charge.key)?;
        if entry.key.tag() != *id || charge.warmup.is_some() || quota.algorithm() == Algorithm::SlidingLog {
            return None;
        }
        let Step { state, outcome } = quota.decide(entry.state, charge.key.phase(), now, charge.cost);
        let is_usual = if outcome.verdict.conforms() { state != 0 } else { state == entry.state };
        is_usual.then_some((entry, Outcome { mark: state, ..outcome }))
    }

    /// How a charge stands. Changes nothing that could be noticed: the table may grow, and a refusal keeps what it found out.
    pub(super) fn look(&mut self, charge: &Charge<'_>, boost: Boost, quotas: &Quotas, now: Nanos) -> (Look, Outcome) {
        let spot = self.spot(charge, quotas, now);
        let quota = &charge.quota.quota.boosted(boost);
        let under = Under { quota, boost };
        let rewriting = self.rewriting(spot, charge, quotas);
        let (outcome, state) = if quota.algorithm() == Algorithm::SlidingLog {
            if let Some(log) = self.log_mut(spot, charge) {
                sliding_log::heal(quota, log, now);
            }
            let outcome = sliding_log::decide(quota, &self.log_at(spot, charge, &under, quotas, now), now, charge.cost);
            if !outcome.verdict.conforms() && rewriting == Rewriting::Now {
                let state = self.new_log(spot, charge, &under, quotas, now, |_| {});
                self.write(spot, charge, state, quotas, now);
            }
            (Outcome { mark: now, ..outcome }, 0)
        } else {
            let state = self.state_at(spot, charge, &under, quotas, now);
            let step = quota.decide(state, charge.key.phase(), now, charge.cost);
            let is_kept = match rewriting {
                Rewriting::Never => step.state != state,
                Rewriting::Now => true,
                Rewriting::Later => false,
            };
            if !step.outcome.verdict.conforms() && is_kept {
                self.keep_refused(spot, charge, step.state, quotas, now);
            }
            (Outcome { mark: step.state, ..step.outcome }, step.state)
        };
        let outcome = match outcome.verdict {
            Verdict::Exceeds { .. } if rewriting == Rewriting::Later => {
                let retry_after = self.wait_of_rewritten(spot, charge, &under, quotas, now);
                Outcome { verdict: Verdict::Exceeds { retry_after }, ..outcome }
            }
            _ => outcome,
        };
        (Look { spot, state, version: self.version, boost }, Outcome { boost, ..outcome })
    }

    /// Takes a charge that conforms. Between [`Shard::look`] and this only other commits of the same decision may have happened.
    #[inline]
    pub(super) fn commit(&mut self, charge: &Charge<'_>, look: &Look, quotas: &Quotas, now: Nanos) {
        if charge.cost == 0 {
            // Nothing to remember: asking makes no counter.
            return;
        }
        let boost = look.boost;
        let (spot, state) =
            if look.version == self.version { (look.spot, look.state) } else { self.again(charge, boost, quotas, now) };
        let state = if charge.quota.quota.algorithm() == Algorithm::SlidingLog {
            let quota = charge.quota.quota.boosted(boost);
            let under = Under { quota: &quota, boost };
            match self.log_mut(spot, charge) {
                Some(log) => return sliding_log::commit(&quota, log, now, charge.cost),
                None => self.new_log(spot, charge, &under, quotas, now, |log| sliding_log::commit(&quota, log, now, charge.cost)),
            }
        } else {
            state
        };
        if state != 0 {
            self.write(spot, charge, state, quotas, now);
        }
    }

    /// Where a charge goes, and what it leaves, when another charge of the same decision has come to lie where it would have gone. If it
    /// then inherits more than before it is taken all the same: the decision has been made.
    fn again(&mut self, charge: &Charge<'_>, boost: Boost, quotas: &Quotas, now: Nanos) -> (Spot, u64) {
        let (Look { spot, state, .. }, outcome) = self.look(charge, boost, quotas, now);
        if outcome.verdict.conforms() {
            return (spot, state);
        }
        let quota = charge.quota.quota.boosted(boost);
        let state = self.state_at(spot, charge, &Under { quota: &quota, boost }, quotas, now);
        (spot, quota.force(state, charge.key.phase(), now, charge.cost))
    }

    /// Corrects a charge; see [`Store::settle`](crate::store::Store::settle).
    pub(super) fn settle(&mut self, charge: &Charge<'_>, taken: &Taken, cost: u64, quotas: &Quotas, now: Nanos) {
        let more = cost.saturating_sub(taken.cost);
        let less = taken.cost.saturating_sub(cost);
        let spot = match self.table.find(charge.key) {
            Some(place) => Spot::Present(place),
            // It was idle and is gone, so there is nothing to give back; what is still to be taken needs a counter.
            None if more == 0 => return,
            None => self.vacancy(charge, quotas, now),
        };
        // Under the quota that is in force now, which may be another than the charge was made under.
        let in_force = match spot {
            Spot::Present(place) => self.table.entry(place).map(|entry| entry.key.tag()),
            _ => None,
        };
        let in_force = in_force.and_then(|id| quotas.get(id).map(|quota| Interned { id, quota })).unwrap_or(*charge.quota);
        let mark = (in_force.id == taken.quota.id && taken.mark != Taken::UNMARKED).then_some(taken.mark);
        let charge = Charge { quota: &in_force, ..*charge };
        let quota = in_force.quota.boosted(taken.boost);
        let under = Under { quota: &quota, boost: taken.boost };
        let state = if quota.algorithm() == Algorithm::SlidingLog {
            let correct = |log: &mut Log| {
                sliding_log::refund(&quota, log, mark, now, less);
                if more > 0 {
                    sliding_log::commit(&quota, log, now, more);
                }
            };
            match self.log_mut(spot, &charge) {
                Some(log) => return correct(log),
                None => self.new_log(spot, &charge, &under, quotas, now, correct),
            }
        } else {
            let (state, phase) = (self.state_at(spot, &charge, &under, quotas, now), charge.key.phase());
            // Others may have been told to wait behind this place; then it lapses.
            let less = if quota.max_delay() > 0 && state != taken.mark { 0 } else { less };
            let state = quota.refund(state, phase, mark, now, less);
            if more > 0 { quota.force(state, phase, now, more) } else { state }
        };
        self.write(spot, &charge, state, quotas, now);
    }

    /// Brings a queue back to what those made it who have passed: those who stood behind have left.
    pub(super) fn nobody_waits(&mut self, taken: &Taken, passed: u64) {
        let place = self.table.find(taken.key);
        if let Some(entry) = place.and_then(|place| self.table.entry_mut(place))
            && entry.key.tag() == taken.quota.id
            && is_time(taken.quota.quota.algorithm())
        {
            // 0 would be a place without a counter.
            entry.state = entry.state.min(passed.max(1));
        }
    }

    /// Keeps what a refusal found out: the clock went back, or the counter is under a faster quota now. Only then does waiting as long as
    /// was said help.
    fn keep_refused(&mut self, spot: Spot, charge: &Charge<'_>, state: u64, quotas: &Quotas, now: Nanos) {
        if matches!(spot, Spot::Present(_)) && state != 0 {
            self.write(spot, charge, state, quotas, now);
        }
    }

    /// How long until enough cells have come free under the quota that the counter was written under.
    fn wait_of_rewritten(&self, spot: Spot, charge: &Charge<'_>, under: &Under<'_>, quotas: &Quotas, now: Nanos) -> Nanos {
        let quota = under.quota;
        until(|wait| {
            let at = now.saturating_add(wait);
            if quota.algorithm() == Algorithm::SlidingLog {
                let log = self.log_at(spot, charge, under, quotas, at);
                return sliding_log::decide(quota, &log, at, charge.cost).verdict.conforms();
            }
            let state = self.state_at(spot, charge, under, quotas, at);
            quota.decide(state, charge.key.phase(), at, charge.cost).outcome.verdict.conforms()
        })
    }

    /// When a counter that was written under another quota than the charge's goes over to that.
    fn rewriting(&self, spot: Spot, charge: &Charge<'_>, quotas: &Quotas) -> Rewriting {
        let Spot::Present(place) = spot else { return Rewriting::Never };
        match self.table.entry(place).map(|entry| entry.key.tag()) {
            Some(id) if id != charge.quota.id => match quotas.get(id) {
                Some(old) if !charge.quota.quota.is_faster_than(&old) => Rewriting::Later,
                _ => Rewriting::Now,
            },
            _ => Rewriting::Never,
        }
    }

    /// Drops idle counters; gives memory back when little of it is used.
    pub(super) fn sweep(&mut self, quotas: &Quotas, now: Nanos) {
        let mut last = None;
        let (mut keys, logs) = (0, &mut self.logs);
        for entry in self.table.used_mut() {
            let tag = entry.key.tag();
            let quota = match last {
                Some((id, quota)) if id == tag => quota,
                _ => quotas.get(tag),
            };
            last = Some((tag, quota));
            if is_idle(entry, quota.as_ref(), logs, now) {
                free(entry, quota.as_ref(), logs);
            } else {
                keys += 1;
            }
        }
        self.keys = keys;
        if self.keys == 0 {
            (self.table, self.logs) = (Table::default(), Logs::default());
        } else if let Some(sets) = self.size.smaller(self.table.sets(), self.keys) {
            self.version = self.version.wrapping_add(1);
            self.table.rehash(sets, self.size.reserve(sets));
        }
    }

    /// A smaller size is reached as soon as the counters fit, a larger one as more come.
    pub(super) fn open(&mut self, size: Size) {
        (self.size, self.is_closed) = (size, false);
    }

    /// Forgets everything, and takes nothing until it is opened again.
    pub(super) fn close(&mut self) {
        *self = Self { is_closed: true, stats: self.stats, version: self.version, ..Self::default() };
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    pub(super) fn keys(&self) -> usize {
        self.keys
    }

    pub(super) fn max_keys(&self) -> usize {
        self.size.most() * WAYS
    }

    pub(super) fn bytes(&self) -> usize {
        self.table.bytes()
    }

    pub(super) fn stats(&self) -> Stats {
        self.stats
    }

    fn spot(&mut self, charge: &Charge<'_>, quotas: &Quotas, now: Nanos) -> Spot {
        match self.table.find(charge.key) {
            Some(place) => Spot::Present(place),
            None => self.vacancy(charge, quotas, now),
        }
    }

    /// Where a key without a counter would get one.
    fn vacancy(&mut self, charge: &Charge<'_>, quotas: &Quotas, now: Nanos) -> Spot {
        if self.table.sets() == 0 {
            self.table.begin(self.size.first, self.size.reserve(self.size.first));
        }
        loop {
            // A table from before the budget was lowered has free places that are not to be taken.
            let has_room = self.table.sets() <= self.size.most() || self.keys < self.size.most() * WAYS;
            if has_room && let Some(place) = self.table.free_place(charge.key) {
                return Spot::Vacant(place);
            }
            let place = match self.rival(charge.key, charge.quota.id, quotas, now) {
                Rival::Idle(place) => return Spot::Vacant(place),
                Rival::Live(place) => place,
            };
            if !self.grow() {
                return self.room_for(charge.key).unwrap_or(Spot::Inherits(place));
            }
        }
    }

    /// Makes the table larger, unless it is as large as it may be.
    fn grow(&mut self) -> bool {
        let sets = self.table.sets();
        let grown = self.size.steps().filter(|step| *step > sets).any(|step| {
            // The next step of its own series always works; that from a table of another budget's series nearly always.
            if step.is_multiple_of(sets) {
                self.table.multiply(step / sets, self.size.reserve(step));
                true
            } else {
                self.table.rehash(step, self.size.reserve(step))
            }
        });
        if grown {
            self.version = self.version.wrapping_add(1);
        }
        grown
    }

    /// A place for a key whose sets are full of counters in use, while there is room elsewhere: somebody moves to his other set.
    fn room_for(&mut self, key: Key) -> Option<Spot> {
        let has_room = self.keys * 20 < self.size.most() * WAYS * 19;
        let place = if has_room { self.table.make_room(key)? } else { return None };
        self.version = self.version.wrapping_add(1);
        Some(Spot::Vacant(place))
    }

    /// Of the counters in a newcomer's sets an idle one, or the one with the least of its quota in use: of those under the newcomer's own
    /// quota if there are any, since only they drain at the same speed.
    fn rival(&self, key: Key, id: QuotaId, quotas: &Quotas, now: Nanos) -> Rival {
        let mut least = (Place::default(), (true, u64::MAX));
        let mut idle = [(0, Place::default()); 2];
        let mut last = None;
        for (i, (place, entry)) in self.table.rivals(key).enumerate() {
            if entry.state == 0 {
                continue;
            }
            let tag = entry.key.tag();
            let quota = match last {
                Some((known, quota)) if known == tag => quota,
                _ => quotas.get(tag),
            };
            last = Some((tag, quota));
            if is_idle(entry, quota.as_ref(), &self.logs, now) {
                if let Some(of_set) = idle.get_mut(i / WAYS) {
                    *of_set = (of_set.0 + 1, place);
                }
                continue;
            }
            let fullness = quota.map_or(0, |quota| fullness(entry, &quota, &self.logs, now));
            let rank = (tag != id, fullness);
            if rank < least.1 {
                least = (place, rank);
            }
        }
        match idle {
            [(0, _), (0, _)] => Rival::Live(least.0),
            [(first, place), (second, _)] if first > NEARLY_FULL || first >= second => Rival::Idle(place),
            [_, (_, place)] => Rival::Idle(place),
        }
    }

    fn write(&mut self, spot: Spot, charge: &Charge<'_>, state: u64, quotas: &Quotas, now: Nanos) {
        let (Spot::Present(place) | Spot::Vacant(place) | Spot::Inherits(place)) = spot;
        let rewritten = self.table.entry(place).is_some_and(|entry| entry.state != 0 && entry.key.tag() != charge.quota.id);
        if rewritten || !matches!(spot, Spot::Present(_)) {
            self.version = self.version.wrapping_add(1);
            self.evict(place, spot, quotas, now);
        }
        let Some(entry) = self.table.entry_mut(place) else { return };
        self.keys = self.keys + usize::from(state != 0) - usize::from(entry.state != 0);
        *entry = Entry { key: charge.key.tagged(charge.quota.id), state };
    }

    /// Makes a place free, for a newcomer or for the same counter under another quota.
    fn evict(&mut self, place: Place, spot: Spot, quotas: &Quotas, now: Nanos) {
        let Some(entry) = self.table.entry_mut(place) else { return };
        if entry.state == 0 {
            return;
        }
        let quota = quotas.get(entry.key.tag());
        if let (Spot::Inherits(_), Some(quota)) = (spot, &quota) {
            let fullness = fullness(entry, quota, &self.logs, now);
            self.stats.evicted_live += 1;
            self.stats.inherited_sum += fullness;
            let bucket = DEBT_SHARES.iter().position(|(share, _)| fullness <= *share).unwrap_or(DEBT_SHARES.len());
            if let Some(count) = self.stats.inherited.get_mut(bucket) {
                *count += 1;
            }
        } else if let Spot::Vacant(_) = spot {
            self.stats.evicted_idle += 1;
        }
        free(entry, quota.as_ref(), &mut self.logs);
        self.keys -= 1;
    }

    /// The state that a charge is decided against: the counter's own, brought to the charge's quota if it was written under
    /// another, or the one it would inherit.
    fn state_at(&self, spot: Spot, charge: &Charge<'_>, under: &Under<'_>, quotas: &Quotas, now: Nanos) -> u64 {
        let Some(entry) = self.source(spot) else { return 0 };
        let travels = is_time(under.quota.algorithm()) || under.quota.algorithm() == Algorithm::FirstSeen;
        let same = entry.key.tag() == charge.quota.id && (travels || matches!(spot, Spot::Present(_)));
        // Since when somebody is known does not depend on for how long that is remembered.
        if same || under.quota.algorithm() == Algorithm::FirstSeen {
            return entry.state;
        }
        let used = quotas.get(entry.key.tag()).map_or(0, |from| used(entry, &from.boosted(under.boost), &self.logs, now));
        under.quota.with_used(used, charge.key.phase(), now)
    }

    fn log_at(&self, spot: Spot, charge: &Charge<'_>, under: &Under<'_>, quotas: &Quotas, now: Nanos) -> Cow<'_, Log> {
        let Some(entry) = self.source(spot) else { return Cow::Owned(Log::default()) };
        if entry.key.tag() == charge.quota.id
            && let Some(log) = self.logs.get(entry.state)
        {
            return Cow::Borrowed(log);
        }
        let used = quotas.get(entry.key.tag()).map_or(0, |from| used(entry, &from.boosted(under.boost), &self.logs, now));
        Cow::Owned(sliding_log::with_used(under.quota, used, now))
    }

    /// The log of a counter that has one under this quota already.
    fn log_mut(&mut self, spot: Spot, charge: &Charge<'_>) -> Option<&mut Log> {
        let Spot::Present(place) = spot else { return None };
        let entry = *self.table.entry(place)?;
        if entry.key.tag() == charge.quota.id { self.logs.get_mut(entry.state) } else { None }
    }

    /// A log of its own for a counter that has none: begun with what [`Shard::log_at`] says, then changed.
    fn new_log(
        &mut self,
        spot: Spot,
        charge: &Charge<'_>,
        under: &Under<'_>,
        quotas: &Quotas,
        now: Nanos,
        change: impl FnOnce(&mut Log),
    ) -> u64 {
        let mut log = self.log_at(spot, charge, under, quotas, now).into_owned();
        change(&mut log);
        self.logs.keep(log)
    }

    /// The entry whose usage a charge goes on from.
    fn source(&self, spot: Spot) -> Option<&Entry> {
        match spot {
            Spot::Present(place) | Spot::Inherits(place) => self.table.entry(place),
            Spot::Vacant(_) => None,
        }
    }
}

/// Whether the state is a point in time, the same whoever's key it is under.
fn is_time(algorithm: Algorithm) -> bool {
    matches!(algorithm, Algorithm::Gcra | Algorithm::TokenBucket | Algorithm::LeakyBucket)
}

/// Upper bounds of how much of a quota an inherited debt was, in 2^-16ths and as metrics print them.
pub const DEBT_SHARES: [(u64, &str); 5] = [(6554, "0.1"), (16_384, "0.25"), (32_768, "0.5"), (49_152, "0.75"), (65_536, "1")];
