//! What is known of one counter: how busy it is here, what is leased, what the store last said, and what it denied.

use super::rate::{HORIZON, Rate};
use super::rules::{self, Course};
use super::shard::Told;
use super::{Return, Spend};
use crate::clock::{Nanos, SECOND};
use crate::limit::{Algorithm, Boost, Charge, Key, Outcome, Quota, QuotaId, Quotas, Reach, SpaceId, Verdict};
use crate::store::redis::{Answer, signed};
use crate::store::{Origin, Taken};

/// See the module.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key: Key,
    space: SpaceId,
    entity: u64,
    quota: QuotaId,
    rate: Rate,
    /// Whether leasing pays at present.
    is_leased: bool,
    pub(super) lease: Lease,
    word: Word,
    denial: Denial,
    /// When a charge was last corrected from here, if one was.
    corrected: Option<Nanos>,
    /// When somebody began to ask for a block; 0 if nobody does.
    asking: Nanos,
    /// Until when it is not worth asking for one.
    asks_after: Nanos,
}

/// Cells that may be spent here.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Lease {
    pub(super) cells: u64,
    /// How many there were when they came.
    block: u64,
    window: u64,
    mark: u64,
    /// When they end, at the earliest.
    ends: Nanos,
    /// When somebody last needed them.
    needed: Nanos,
}

/// What the store last said. Nothing yet, if its limit is 0.
#[derive(Debug, Clone, Copy, Default)]
struct Word {
    /// When it was asked.
    sent: Nanos,
    limit: u64,
    remaining: u64,
    /// When the window ends, at the earliest.
    ends: Nanos,
    /// When nothing is used any more, at the earliest.
    resets: Nanos,
}

/// What is refused until then without asking, under this generation of the configuration.
#[derive(Debug, Clone, Copy, Default)]
struct Denial {
    until: Nanos,
    /// Until when it is repeated beyond that while somebody asks.
    probed_until: Nanos,
    /// The charge that was refused; of a pause the least.
    cost: u64,
    generation: u64,
    /// When it would pass, as far as the client should know: later than `until` where that is only how long we believe it.
    passes: Nanos,
}

impl Entry {
    pub(super) fn new(charge: &Charge<'_>, now: Nanos) -> Self {
        let mut rate = Rate::default();
        rate.note(charge.cost, now);
        Self {
            key: charge.key,
            space: charge.space,
            entity: charge.sharing.map_or(0, |sharing| sharing.entity),
            quota: charge.quota.id,
            rate,
            is_leased: false,
            lease: Lease::default(),
            word: Word::default(),
            denial: Denial::default(),
            corrected: None,
            asking: 0,
            asks_after: 0,
        }
    }

    /// Brings the entry to what is true at `now` under the charge's quota: what ended or belongs to other numbers is over. What goes back of it.
    pub(super) fn settle(&mut self, charge: &Charge<'_>, now: Nanos, quotas: &Quotas) -> Option<Return> {
        let quota = charge.quota;
        if self.quota != quota.id {
            let returned = self.end_lease(now, quotas);
            *self = Self { rate: self.rate, ..Self::new(charge, now) };
            return returned.map(|returned| returned.under(quota));
        }
        if self.lease.cells > 0 && now >= self.lease.ends { self.end_lease(now, quotas) } else { None }
    }

    /// Whether [`Entry::settle`] would do something.
    #[inline]
    pub(super) fn is_settled(&self, charge: &Charge<'_>, now: Nanos) -> bool {
        self.quota == charge.quota.id && (self.lease.cells == 0 || now < self.lease.ends)
    }

    #[inline]
    pub(super) fn spend(&mut self, charge: &Charge<'_>, generation: u64, now: Nanos) -> Spend {
        let quota = &charge.quota.quota;
        self.rate.note(charge.cost, now);
        if charge.cost <= self.lease.cells && self.lease.cells > 0 {
            self.lease.cells -= charge.cost;
            self.lease.needed = self.lease.needed.max(now);
            let refill = self.lease.cells <= self.lease.block / 2 && self.may_ask(now) && !self.is_denied(1, generation, now);
            return Spend::Spent { outcome: self.outcome(quota, Verdict::Conforms, now), window: self.lease.window, refill };
        }
        match self.refusal(charge, generation, now) {
            Some(verdict) => Spend::Denied { outcome: self.outcome(quota, verdict, now) },
            None => Spend::Ask,
        }
    }

    /// How the store would refuse a charge; `None` if it might not, or if only the store knows how.
    fn refusal(&self, charge: &Charge<'_>, generation: u64, now: Nanos) -> Option<Verdict> {
        if charge.cost > charge.quota.quota.largest_cost() {
            // That it never passes is in the quota, of whatever generation; what is left beside it is the store's to say now and then.
            let is_known = self.word.limit > 0 && now < self.word.sent.saturating_add(rules::life(charge, self.is_leased));
            return is_known.then_some(Verdict::Never);
        }
        let retry_after = self.passes_at(charge, generation, now)?.saturating_sub(now).max(1);
        Some(Verdict::Exceeds { retry_after })
    }

    /// Whether the cells could be put back; if not, the caller gives them to the store.
    pub(super) fn unspend(&mut self, window: u64, cells: u64, now: Nanos) -> bool {
        let is_same = self.lease.block > 0 && self.lease.window == window && now < self.lease.ends;
        if is_same {
            self.lease.cells = self.lease.cells.saturating_add(cells);
        }
        is_same
    }

    pub(super) fn block(&mut self, charge: &Charge<'_>, reach: Reach, instances: u32, now: Nanos) -> u64 {
        let sixteenths = self.rate.sixteenths(now);
        self.is_leased = rules::may_lease(charge, instances) && rules::pays(sixteenths, reach, self.is_leased);
        if !self.is_leased || !self.may_ask(now) {
            return 0;
        }
        let quota = &charge.quota.quota;
        let ends_in = self.word.ends_in(quota, now);
        let block = rules::block(quota, sixteenths, self.left(quota, now), instances, ends_in);
        let more = block.saturating_sub(charge.cost);
        if more > 0 {
            self.asking = now.max(1);
        }
        more
    }

    /// A block beside what is there. If there is none to be had, nobody asks again for a while.
    pub(super) fn refill(&mut self, charge: &Charge<'_>, reach: Reach, instances: u32, now: Nanos) -> u64 {
        if !self.may_ask(now) {
            return 0;
        }
        let more = self.block(charge, reach, instances, now);
        if more == 0 {
            self.asks_after = now.saturating_add(HOLD_OFF);
        }
        more
    }

    pub(super) fn unanswered(&mut self, sent: Nanos, now: Nanos) {
        self.asked(sent);
        self.asks_after = now.saturating_add(HOLD_OFF);
    }

    fn asked(&mut self, sent: Nanos) {
        if self.asking == sent.max(1) {
            self.asking = 0;
        }
    }

    /// Takes in what the store said. What goes back at once: cells whose window is over, or of a window that isn't the newest.
    pub(super) fn answered(&mut self, charge: &Charge<'_>, answer: &Answer, told: Told, quotas: &Quotas) -> Option<Return> {
        self.asked(told.sent);
        let is_newest = told.sent >= self.word.sent;
        if is_newest {
            let quota = &charge.quota.quota;
            let resets = answer.outcome.reset_after.saturating_add(drains_in(quota, answer.granted));
            self.word = Word {
                sent: told.sent,
                limit: answer.outcome.limit,
                // What was granted is ours now.
                remaining: answer.outcome.remaining.saturating_sub(answer.granted),
                ends: told.sent.saturating_add(answer.until_end),
                resets: told.sent.saturating_add(resets),
            };
            self.note_denial(charge, answer, told);
        }
        if answer.granted > 0 { self.granted(charge, answer, told, is_newest, quotas) } else { None }
    }

    fn granted(
        &mut self,
        charge: &Charge<'_>,
        answer: &Answer,
        Told { sent, now, .. }: Told,
        is_newest: bool,
        quotas: &Quotas,
    ) -> Option<Return> {
        let Answer { granted, window, .. } = *answer;
        let ends = sent.saturating_add(answer.until_end);
        let new = Lease { cells: granted, block: granted, window, mark: answer.outcome.mark, ends, needed: now };
        if now >= ends || (!is_newest && self.lease.cells > 0 && self.lease.window != window) {
            return is_worth_returning(&charge.quota.quota, now < ends)
                .then(|| Return { taken: Taken { cost: granted, mark: new.mark, ..self.taken(&charge.quota.quota) }, window });
        }
        if self.lease.window == window && now < self.lease.ends {
            let latest = if is_newest { new } else { self.lease };
            self.lease = Lease { cells: self.lease.cells.saturating_add(granted), block: granted, needed: now, ..latest };
            return None;
        }
        let returned = self.end_lease(now, quotas);
        self.lease = new;
        returned
    }

    fn note_denial(&mut self, charge: &Charge<'_>, answer: &Answer, Told { generation, sent, now }: Told) {
        let quota = &charge.quota.quota;
        let pause =
            if self.is_leased { rules::pause(quota, self.rate.sixteenths(now), self.word.ends_in(quota, now)) } else { 0 };
        let (retry_after, cost) = match answer.outcome.verdict {
            Verdict::Exceeds { retry_after } => (retry_after, charge.cost),
            Verdict::Conforms => {
                // What was refused before waits longer now, except for a window's end.
                if charge.cost.saturating_add(answer.granted) > 0 && Course::of(quota) != Course::Window {
                    self.denial = Denial::default();
                }
                if self.word.remaining > 0 || pause == 0 {
                    return;
                }
                // The last cells went: the next one that comes is not worth a question of its own.
                (pause, 1)
            }
            Verdict::Never => return,
        };
        // What was corrected a moment ago may not have been there yet when the store said so.
        let is_settled = self.corrected.is_none_or(|corrected| sent >= corrected.saturating_add(ON_ITS_WAY));
        let life = if is_settled { rules::life(charge, self.is_leased).max(pause) } else { pause };
        // Ours may be believed until it would pass if it was asked in the first moment that the store can have been; a client is
        // told to wait as if it had been the last one.
        let until = sent.saturating_add(retry_after.max(pause));
        let believed = until.min(sent.saturating_add(life));
        let denial = Denial {
            until: believed,
            probed_until: believed.saturating_add(pause),
            cost: cost.max(1),
            generation,
            passes: now.saturating_add(retry_after).max(until),
        };
        let kept = self.denial;
        let keeps =
            now < kept.until && (kept.generation > generation || (kept.generation == generation && kept.cost < denial.cost));
        if !keeps {
            self.denial = denial;
        }
    }

    #[inline]
    fn is_denied(&self, cost: u64, generation: u64, now: Nanos) -> bool {
        let Denial { until, probed_until, .. } = self.denial;
        // After a denial one asks for all: the others would only be denied with it, each at the price of a question.
        let is_over = now >= until && (self.asking == 0 || now >= probed_until);
        !is_over && cost >= self.denial.cost && self.denial.generation == generation
    }

    /// When a charge passes that the store would refuse now; `None` if it might not, or if only the store knows how long.
    fn passes_at(&self, charge: &Charge<'_>, generation: u64, now: Nanos) -> Option<Nanos> {
        let (quota, denial) = (&charge.quota.quota, &self.denial);
        if charge.cost == 0 || !self.is_denied(charge.cost, generation, now) {
            return None;
        }
        match Course::of(quota) {
            _ if charge.cost == denial.cost => Some(denial.passes),
            Course::Window => Some(denial.passes),
            Course::Steady => {
                let longer = quota.time_of(charge.cost)?.saturating_sub(quota.time_of(denial.cost)?);
                Some(denial.passes.saturating_add(longer))
            }
            Course::Fading | Course::Unknown => None,
        }
    }

    /// How much the store probably has.
    fn left(&self, quota: &Quota, now: Nanos) -> u64 {
        let limit = quota.burst();
        match Course::of(quota) {
            _ if self.word.limit == 0 => 0,
            Course::Window if now >= self.word.ends => limit,
            Course::Window => self.word.remaining,
            _ => self.word.remaining.saturating_add(quota.cells_in(now.saturating_sub(self.word.sent))).min(limit),
        }
    }

    /// The numbers to report: what the store said it had left, what has come back steadily since, and what is left here.
    #[inline]
    fn outcome(&self, quota: &Quota, verdict: Verdict, now: Nanos) -> Outcome {
        let Word { limit, resets, .. } = self.word;
        let backlog = resets.saturating_sub(now);
        let remaining = match Course::of(quota) {
            Course::Steady => quota.cells_in(quota.capacity().saturating_sub(backlog)),
            _ => self.word.remaining,
        };
        let wait = if let Verdict::Exceeds { retry_after } = verdict { retry_after } else { 0 };
        Outcome {
            verdict,
            limit,
            remaining: remaining.saturating_add(self.lease.cells).min(limit),
            reset_after: backlog.max(wait),
            delay: 0,
            boost: Boost::NONE,
            mark: self.lease.mark,
        }
    }

    fn may_ask(&self, now: Nanos) -> bool {
        now >= self.asks_after && (self.asking == 0 || now >= self.asking.saturating_add(PATIENCE))
    }

    /// The store counts so many more, or less, or is about to: what it denied waits longer, or may pass.
    pub(super) fn correct(&mut self, quota: &Quota, delta: i64, now: Nanos) {
        let (word, cells) = (&mut self.word, delta.unsigned_abs());
        if delta < 0 {
            word.resets = word.resets.saturating_sub(drains_in(quota, cells));
            word.remaining = word.remaining.saturating_add(cells).min(word.limit);
        } else {
            word.resets = word.resets.max(now).saturating_add(drains_in(quota, cells));
            word.remaining = word.remaining.saturating_sub(cells);
        }
        self.denial = Denial::default();
        self.corrected = Some(now);
    }

    /// An administrator did something: believe nothing.
    pub(super) fn forget(&mut self) {
        self.denial = Denial::default();
        self.word = Word::default();
    }

    /// Whether its cells should go back: nobody has needed them for a while, or they are over.
    pub(super) fn is_idle(&self, now: Nanos) -> bool {
        now >= self.lease.ends || now >= self.lease.needed.saturating_add(IDLE)
    }

    /// Whether nothing would be lost with it.
    pub(super) fn is_blank(&mut self, now: Nanos) -> bool {
        self.lease.cells == 0
            && now >= self.denial.until
            && (self.asking == 0 || now >= self.asking.saturating_add(PATIENCE))
            && self.rate.is_idle(now)
    }

    /// How much would be lost with it, for whoever must make room: the least first.
    pub(super) fn worth(&self, now: Nanos) -> (u8, Nanos) {
        let worth = match (self.lease.cells > 0, now < self.denial.until) {
            (false, false) => 0,
            (false, true) => 1,
            (true, _) => 2,
        };
        (worth, self.word.sent.max(self.lease.needed))
    }

    /// Ends the lease. What goes back: nothing into a fixed window that is over, which would be another one's.
    pub(super) fn end_lease(&mut self, now: Nanos, quotas: &Quotas) -> Option<Return> {
        let Lease { cells, window, mark, ends, .. } = std::mem::take(&mut self.lease);
        let quota = quotas.get(self.quota)?;
        if cells == 0 || !is_worth_returning(&quota, now < ends) {
            return None;
        }
        if now < ends {
            self.correct(&quota, -signed(cells), now);
        }
        Some(Return { taken: Taken { cost: cells, mark, ..self.taken(&quota) }, window })
    }

    fn taken(&self, quota: &Quota) -> Taken {
        let quota = crate::limit::Interned { id: self.quota, quota: *quota };
        Taken {
            key: self.key,
            space: self.space,
            quota,
            cost: 0,
            mark: 0,
            boost: Boost::NONE,
            entity: self.entity,
            origin: Origin::Shared,
        }
    }
}

impl Word {
    /// How long cells that are taken now may be spent, as far as known.
    fn ends_in(&self, quota: &Quota, now: Nanos) -> Nanos {
        match Course::of(quota) {
            Course::Steady => Nanos::MAX,
            _ if now < self.ends => self.ends - now,
            _ if quota.algorithm() == Algorithm::FixedWindow && quota.calendar().is_some() => Nanos::MAX,
            // Of windows of one length that begin where another ended.
            _ => quota.period() - now.saturating_sub(self.ends) % quota.period(),
        }
    }
}

/// How much later nothing is used any more for so many cells.
fn drains_in(quota: &Quota, cells: u64) -> Nanos {
    if Course::of(quota) == Course::Steady { quota.time_of(cells).unwrap_or(Nanos::MAX) } else { 0 }
}

/// Whether cells can still go back: a fixed window that is over does not take any; of a sliding one they still weigh.
fn is_worth_returning(quota: &Quota, is_current: bool) -> bool {
    is_current || Course::of(quota) != Course::Window
}

/// How long a lease may lie there unused: three times what a block should last.
const IDLE: Nanos = 3 * HORIZON;
/// After this long an answer that never came does not keep others from asking.
const PATIENCE: Nanos = SECOND;
/// After this long, a correction has come to the store.
const ON_ITS_WAY: Nanos = HORIZON;
/// How long nobody asks for a block after there was none.
const HOLD_OFF: Nanos = HORIZON / 8;
