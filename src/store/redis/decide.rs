//! The joint decision over charges of which other gateways count some.
//!
//! First what can be said here: leases are spent, denials that are remembered are repeated, and what this process counts by itself is looked
//! at. Only if none of that refuses, the store is asked about the rest, all charges of an entity in one script, several entities at
//! once. Then everything is taken or everything goes back.
//!
//! A question to the store runs on the store's own thread to its end even if the client that caused it leaves: cells that were leased must
//! not be lost with it.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::lease::Spend;
use super::script::{self, Ask};
use super::{Answer, Joint, JointVerdict, Patience, SharedStore, fallback};
use crate::clock::Nanos;
use crate::limit::{Boost, Charge, Consistency, Interned, Key, OnFailure, Outcome, Sharing, SpaceId, Verdict};
use crate::store::{Origin, Outcomes, Store, Taken};
use crate::telemetry::metrics::Lane;

/// For whom and when is decided.
#[derive(Debug, Clone, Copy)]
pub struct Asking<'a> {
    /// All stores.
    pub store: &'a Arc<Store>,
    /// Of the configuration that the charges are from.
    pub generation: u64,
    /// Where it is counted.
    pub lane: Lane,
    /// When it began.
    pub now: Nanos,
    /// How long it waits, for everything that it asks.
    pub patience: &'a Patience,
}

/// A decision whose questions are on their way.
#[derive(Debug)]
pub struct Deciding {
    steps: Steps,
    questions: SmallVec<[(Group, Option<Question>); 2]>,
}

/// One question, which ends by itself.
type Question = tokio::task::JoinHandle<Option<Answers>>;

/// How far the decision about one charge is.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// This process counts it alone.
    Here,
    /// It is paid from a lease.
    Spent { outcome: Outcome, window: u64 },
    /// The store would refuse it, or has.
    Denied(Outcome),
    /// Only the store knows.
    Ask(Sharing),
    /// The store has taken it.
    Taken { answer: Answer },
    /// The store can't be asked.
    Failed(OnFailure),
}

/// A charge that outlives its request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    /// Its place among the request's charges.
    at: usize,
    pub(super) key: Key,
    space: SpaceId,
    pub(super) quota: Interned,
    pub(super) cost: u64,
    pub(super) more: u64,
    queue: u32,
    pub(super) sharing: Sharing,
}

/// When a question was thought of, and until when somebody waits for its answer.
#[derive(Debug, Clone, Copy)]
struct Span {
    sent: Nanos,
    awaited: Nanos,
}

type Steps = SmallVec<[Step; 6]>;

impl SharedStore {
    /// Decides over all charges together: all are taken or none.
    pub async fn charge(&self, asking: &Asking<'_>, charges: &[Charge<'_>]) -> Joint {
        self.decided(asking, charges, self.begin_charge(asking, charges)).await
    }

    /// Begins to decide over all charges together, so that several decisions can be under way at once. Goes on with
    /// [`SharedStore::decided`].
    #[must_use]
    pub fn begin_charge(&self, asking: &Asking<'_>, charges: &[Charge<'_>]) -> Deciding {
        let steps = self.without_asking(asking, charges);
        let refused = steps.iter().any(|step| matches!(step, Step::Denied(_)));
        let asks = steps.iter().any(|step| matches!(step, Step::Ask(_)));
        let questions = if asks && !refused && self.conforms_here(asking, charges, &steps) {
            self.ask(asking, charges, &steps)
        } else {
            SmallVec::new()
        };
        Deciding { steps, questions }
    }

    /// What a decision about the same charges comes to: as soon as everything is answered, or the budget is used up.
    pub async fn decided(&self, asking: &Asking<'_>, charges: &[Charge<'_>], deciding: Deciding) -> Joint {
        let Deciding { mut steps, questions } = deciding;
        for (group, question) in questions {
            let answers = match question {
                Some(question) => self.wait(asking, question).await,
                None => None,
            };
            self.note(&group, answers, asking, &mut steps);
        }
        self.conclude(asking, charges, &steps)
    }

    /// Waits as long as the request does. An answer that is there already counts, however late it is looked for.
    async fn wait(&self, asking: &Asking<'_>, question: Question) -> Option<Answers> {
        let left = self.left(asking).unwrap_or_default();
        tokio::time::timeout(left, question).await.ok().and_then(Result::ok).flatten()
    }

    /// What the request may still wait; nothing if its budget is used up.
    pub(super) fn left(&self, asking: &Asking<'_>) -> Option<Duration> {
        asking.patience.left(self.link.settings().timeout, self.clock.now())
    }

    /// What can be said of each charge here and now.
    fn without_asking(&self, asking: &Asking<'_>, charges: &[Charge<'_>]) -> Steps {
        let step = |charge: &Charge<'_>| {
            let Some(sharing) = charge.sharing else { return Step::Here };
            match self.leases.spend(charge, asking.generation, asking.now) {
                Spend::Spent { outcome, window, refill } => {
                    if refill {
                        self.refill(asking, charge, sharing);
                    }
                    self.metrics.lease.one(asking.lane);
                    Step::Spent { outcome, window }
                }
                Spend::Denied { outcome } => {
                    self.metrics.remembered.one(asking.lane);
                    Step::Denied(outcome)
                }
                Spend::Ask => Step::Ask(sharing),
            }
        };
        charges.iter().map(step).collect()
    }

    fn conforms_here(&self, asking: &Asking<'_>, charges: &[Charge<'_>], steps: &Steps) -> bool {
        let here: SmallVec<[Charge<'_>; 6]> =
            charges.iter().zip(steps).filter(|(_, step)| matches!(step, Step::Here)).map(|(charge, _)| *charge).collect();
        here.is_empty() || asking.store.memory.peek(&here, asking.now).conforms
    }

    /// Asks the store about everything that only it knows.
    fn ask(&self, asking: &Asking<'_>, charges: &[Charge<'_>], steps: &Steps) -> SmallVec<[(Group, Option<Question>); 2]> {
        let instances = self.link.instances();
        let mut wanted: SmallVec<[Wanted; 4]> = SmallVec::new();
        for (at, (charge, step)) in charges.iter().zip(steps.iter()).enumerate() {
            if let Step::Ask(sharing) = step {
                let more = match sharing.consistency {
                    Consistency::Lease => self.leases.block(charge, sharing.reach, instances, asking.now),
                    Consistency::Strict => 0,
                };
                wanted.push(Wanted::of(at, charge, *sharing, more));
            }
        }
        wanted.sort_by_key(|wanted| wanted.sharing.entity);
        let is_patient = self.left(asking).is_some();
        let awaited = asking.patience.ends();
        let question = |group: &[Wanted]| {
            if is_patient {
                return self.begin(asking, SmallVec::from_slice(group), awaited);
            }
            self.unanswered(group, asking.now);
            None
        };
        let groups = wanted.chunk_by(|a, b| a.sharing.entity == b.sharing.entity);
        groups.map(|group| (SmallVec::from_slice(group), question(group))).collect()
    }

    /// Puts the question on its way, if the store is worth asking. It has the store's whole time even if the request waits less, until
    /// `awaited`: how a node does is not judged by what was left of a budget, and an answer is worth having for the next one.
    fn begin(&self, asking: &Asking<'_>, group: Group, awaited: Nanos) -> Option<Question> {
        let first = group.first()?;
        if !self.link.is_up(&self.key(first.sharing.entity, first.key)) {
            self.link.declined(asking.lane);
            self.unanswered(&group, asking.now);
            return None;
        }
        let (store, generation) = (Arc::clone(asking.store), asking.generation);
        let span = Span { sent: asking.now, awaited };
        Some(self.runtime.spawn(async move { store.shared.as_ref()?.question(&store, &group, generation, span).await }))
    }

    /// One round trip, with everything that follows from its answer whoever still waits for it.
    async fn question(&self, store: &Store, group: &Group, generation: u64, Span { sent, awaited }: Span) -> Option<Answers> {
        let asks: SmallVec<[Ask<'_>; 4]> = group.iter().map(|wanted| self.ask_of(wanted)).collect();
        let invocation = script::charge(&asks, sent, None);
        let timeout = self.link.settings().timeout;
        let answers = self.link.ask(self.lane, &invocation, timeout, |reply| script::charged(&asks, reply)).await.ok();
        let now = self.clock.now();
        let Some(answers) = answers else {
            self.unanswered(group, sent);
            return None;
        };
        let conforms = answers.iter().all(|answer| answer.outcome.verdict.conforms());
        let instances = self.link.instances();
        for (wanted, answer) in group.iter().zip(&answers) {
            let charge = wanted.charge();
            self.leases.answered(&charge, answer, generation, sent, now);
            if conforms && wanted.sharing.on_failure == OnFailure::Local {
                let share = self.shares.of(&wanted.quota, instances);
                // Without an answer in time the request was counted here.
                let cost = if now < awaited { wanted.cost } else { 0 };
                fallback::keep_warm(&store.memory, &charge, &share, cost.saturating_add(answer.granted), now);
            }
        }
        Some(answers.into_iter().collect())
    }

    fn ask_of<'w>(&self, wanted: &'w Wanted) -> Ask<'w> {
        Ask {
            key: self.key(wanted.sharing.entity, wanted.key),
            quota: &wanted.quota.quota,
            phase: wanted.key.phase(),
            boost: Boost::NONE,
            cost: wanted.cost,
            more: wanted.more,
        }
    }

    fn unanswered(&self, group: &[Wanted], sent: Nanos) {
        let now = self.clock.now();
        group.iter().for_each(|wanted| self.leases.unanswered(wanted.key, sent, now));
    }

    /// Takes down what the store said about a group, or that it said nothing.
    fn note(&self, group: &[Wanted], answers: Option<Answers>, asking: &Asking<'_>, steps: &mut Steps) {
        let conforms = answers.as_ref().is_some_and(|answers| answers.iter().all(|answer| answer.outcome.verdict.conforms()));
        for (i, wanted) in group.iter().enumerate() {
            let Some(step) = steps.get_mut(wanted.at) else { continue };
            *step = match answers.as_ref().and_then(|answers| answers.get(i)) {
                Some(answer) if conforms => Step::Taken { answer: *answer },
                // Of a group that was refused nothing was taken, so what conforms by itself is still to be had.
                Some(answer) => Step::Denied(answer.outcome),
                None => Step::Failed(wanted.sharing.on_failure),
            };
            match step {
                Step::Failed(OnFailure::Local) => &self.metrics.fallback,
                Step::Failed(OnFailure::Open) => &self.metrics.open,
                Step::Failed(OnFailure::Closed) => &self.metrics.closed,
                _ => &self.metrics.store,
            }
            .one(asking.lane);
        }
    }

    /// Takes what is counted here as well, or gives everything back.
    fn conclude(&self, asking: &Asking<'_>, charges: &[Charge<'_>], steps: &Steps) -> Joint {
        let closed = steps.iter().position(|step| matches!(step, Step::Failed(OnFailure::Closed)));
        let refused = steps
            .iter()
            .any(|step| matches!(step, Step::Denied(outcome) if !outcome.verdict.conforms()) || matches!(step, Step::Ask(_)));
        let instances = self.link.instances();
        let shares: SmallVec<[Interned; 6]> = charges
            .iter()
            .zip(steps)
            .map(|(charge, step)| match step {
                Step::Failed(OnFailure::Local) => self.shares.of(charge.quota, instances),
                _ => *charge.quota,
            })
            .collect();
        let counted_here = |step: &Step| matches!(step, Step::Here | Step::Failed(OnFailure::Local));
        let here: SmallVec<[Charge<'_>; 6]> = charges
            .iter()
            .zip(&shares)
            .zip(steps)
            .filter(|(_, step)| counted_here(step))
            .map(|((charge, share), _)| Charge { quota: share, ..*charge })
            .collect();
        let mut outcomes_here = Outcomes::new();
        let takes = closed.is_none() && !refused;
        let conforms_here = if here.is_empty() {
            true
        } else if takes {
            asking.store.memory.charge_into(&here, &mut outcomes_here, asking.now)
        } else {
            outcomes_here = asking.store.memory.peek(&here, asking.now).outcomes;
            false
        };
        let conforms = takes && conforms_here;
        let mut here = outcomes_here.into_iter();
        let (mut outcomes, mut origins) = (Outcomes::new(), Vec::with_capacity(charges.len()));
        for (charge, step) in charges.iter().zip(steps) {
            let (outcome, origin) = match step {
                Step::Spent { outcome, window } => (*outcome, Origin::Lease(*window)),
                Step::Denied(outcome) => (*outcome, Origin::Nowhere),
                Step::Taken { answer } => (answer.outcome, self.origin_of(charge, answer)),
                step if counted_here(step) => {
                    let origin = if matches!(step, Step::Here) { Origin::Memory } else { Origin::Fallback };
                    let outcome = here.next().unwrap_or_else(|| unused(charge, asking.now));
                    (Outcome { verdict: fallback::verdict(charge, outcome.verdict), ..outcome }, origin)
                }
                _ => (unused(charge, asking.now), Origin::Nowhere),
            };
            if !conforms {
                self.give_back(asking, charge, &outcome, origin);
            }
            outcomes.push(outcome);
            origins.push(origin);
        }
        let verdict = match closed {
            _ if conforms => JointVerdict::Conforms,
            Some(charge) => JointVerdict::NoStore { charge },
            None => JointVerdict::Exceeds,
        };
        Joint { verdict, outcomes, origins }
    }

    /// Where the store's cells are to be found again: those of a counter with a lease go back into that.
    fn origin_of(&self, charge: &Charge<'_>, answer: &Answer) -> Origin {
        let leased = charge.sharing.is_some_and(|sharing| sharing.consistency == Consistency::Lease) && answer.granted > 0;
        if leased { Origin::Lease(answer.window) } else { Origin::Shared }
    }

    /// Another charge of the request was refused.
    fn give_back(&self, asking: &Asking<'_>, charge: &Charge<'_>, outcome: &Outcome, origin: Origin) {
        if matches!(origin, Origin::Lease(_) | Origin::Shared) && charge.cost > 0 {
            self.metrics.refunds.one(asking.lane);
            self.settle(&asking.store.memory, &Taken::of(charge, outcome, origin), 0, asking.now);
        }
    }

    /// Asks for the next block of cells in the background.
    fn refill(&self, asking: &Asking<'_>, charge: &Charge<'_>, sharing: Sharing) {
        let more = self.leases.refill(charge, sharing.reach, self.link.instances(), asking.now);
        if more > 0 {
            let wanted = Wanted { cost: 0, ..Wanted::of(0, charge, sharing, more) };
            drop(self.begin(asking, SmallVec::from_iter([wanted]), Nanos::MAX));
        }
    }
}

/// Charges of one entity: one script.
pub(super) type Group = SmallVec<[Wanted; 4]>;
/// What the store says about a group.
pub(super) type Answers = SmallVec<[Answer; 4]>;

impl Wanted {
    fn of(at: usize, charge: &Charge<'_>, sharing: Sharing, more: u64) -> Self {
        let Charge { key, space, quota, cost, queue, .. } = *charge;
        Self { at, key, space, quota: *quota, cost, more, queue, sharing }
    }

    fn charge(&self) -> Charge<'_> {
        let Self { key, space, quota, cost, queue, sharing, .. } = self;
        Charge { key: *key, space: *space, quota, cost: *cost, limit: 0, queue: *queue, warmup: None, sharing: Some(*sharing) }
    }
}

/// The answer for a charge that nobody was asked about: as if nothing had been used.
fn unused(charge: &Charge<'_>, now: Nanos) -> Outcome {
    let outcome = charge.quota.quota.decide(0, charge.key.phase(), now, charge.cost).outcome;
    Outcome {
        verdict: if charge.cost > charge.quota.quota.largest_cost() { Verdict::Never } else { Verdict::Conforms },
        boost: Boost::NONE,
        ..outcome
    }
}
