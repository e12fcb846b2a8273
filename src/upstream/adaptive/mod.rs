//! How many exchanges an upstream may have under way, found out from its answers, and who goes without when there are more.
//!
//! A [`Limiter`] belongs to an upstream of a name: all workers share it, and it outlives reloads. An exchange holds a [`Place`] from when it is
//! dispatched until the head of its response is here, so bodies that stream for hours and tunnels are no load. A place is one addition on
//! one atomic number; an answer adds to the window that is open, and the one that is due to close it does so under a lock that nobody waits
//! for. What the limit then is says [`estimate`].
//!
//! The more important a tier, the more of the limit it may use: of all that is in flight, not of its own. So when upstream is full,
//! those who are shed first are those of the lowest tier, and there is always room for the highest that no one else can take.

mod estimate;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use bytes::Bytes;
use parking_lot::Mutex;

use super::Shared;
use crate::body::Tap;
use crate::clock::{Clock, Nanos, SECOND};
use crate::snapshot::{Adaptive, Upstream};
use crate::telemetry::metrics::{self, Counter, Lane};
use estimate::{Bounds, Estimate, Window};

/// By upstream, with the rules of the configuration in force.
pub(super) type Limiters = HashMap<Arc<str>, (Arc<Limiter>, Adaptive)>;

/// What all workers share about one upstream's load.
#[derive(Debug)]
pub(super) struct Limiter {
    in_flight: AtomicU32,
    /// The estimate's, rounded.
    limit: AtomicU32,
    open: Open,
    estimate: Mutex<Estimate>,
}

/// The window that is open.
#[derive(Debug, Default)]
struct Open {
    began: AtomicU64,
    answers: AtomicU32,
    /// Of their latencies, in nanoseconds.
    sum: AtomicU64,
    peak: AtomicU32,
    shed: AtomicBool,
    /// The baseline, for whoever measures.
    baseline: AtomicU64,
}

/// How an upstream's load is, for people.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdaptiveState {
    /// How many exchanges may be in flight.
    pub limit: u32,
    /// How many are.
    pub in_flight: u32,
    /// How long an answer takes without a queue, as far as is known.
    pub baseline: Nanos,
    /// How long it took in the last window.
    pub latency: Nanos,
    /// Whether somebody is shed for it.
    pub enforced: bool,
}

impl Limiter {
    pub(super) fn new(initial: u32) -> Self {
        Self {
            in_flight: AtomicU32::new(0),
            limit: AtomicU32::new(initial),
            open: Open::default(),
            estimate: Mutex::new(Estimate::new(f64::from(initial))),
        }
    }

    /// Takes a place within `room`, which is what of the limit the asker may use; whether there was one.
    fn take(&self, room: u32) -> bool {
        let before = self.in_flight.fetch_add(1, Ordering::Relaxed);
        if before < room {
            self.open.peak.fetch_max(before + 1, Ordering::Relaxed);
            return true;
        }
        if !self.open.shed.load(Ordering::Relaxed) {
            self.open.shed.store(true, Ordering::Relaxed);
        }
        self.give_back();
        false
    }

    /// Takes one though there is none left.
    fn take_anyway(&self) {
        let before = self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.open.peak.fetch_max(before + 1, Ordering::Relaxed);
    }

    fn give_back(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    /// Takes note of an answer after this long, and closes the window if it is time.
    fn answered(&self, after: Nanos, now: Nanos, rules: &Adaptive) {
        let open = &self.open;
        if open.began.load(Ordering::Relaxed) == 0 {
            // Those who are answered first of all are the quickest, and say little about the others: nothing is counted yet.
            open.began.store(now.max(1), Ordering::Relaxed);
            return;
        }
        let baseline = open.baseline.load(Ordering::Relaxed);
        // One that takes minutes says no more than one that takes too long.
        let after = if baseline == 0 { after } else { after.min(baseline.saturating_mul(LONGEST)) };
        open.sum.fetch_add(after, Ordering::Relaxed);
        let answers = open.answers.fetch_add(1, Ordering::Relaxed) + 1;
        let began = open.began.load(Ordering::Relaxed);
        let lasted = now.saturating_sub(began);
        // What is answered now was let in one latency ago: a window that is shorter would judge the limit before the last one.
        let shortest = SHORTEST.max(baseline.saturating_mul(3));
        let is_due = (answers >= ENOUGH && lasted >= shortest) || (answers >= FEW && lasted >= LONG.max(shortest));
        if is_due && let Some(mut estimate) = self.estimate.try_lock() {
            // Another worker may have closed it while this one looked.
            if open.began.load(Ordering::Relaxed) == began {
                self.close(&mut estimate, now, rules);
            }
        }
    }

    fn close(&self, estimate: &mut Estimate, now: Nanos, rules: &Adaptive) {
        let open = &self.open;
        let lasted = seconds(now.saturating_sub(open.began.swap(now, Ordering::Relaxed)));
        let (answers, sum) = (open.answers.swap(0, Ordering::Relaxed), open.sum.swap(0, Ordering::Relaxed));
        let peak = open.peak.swap(self.in_flight.load(Ordering::Relaxed), Ordering::Relaxed);
        let shed = open.shed.swap(false, Ordering::Relaxed);
        if answers == 0 || lasted > FORGOTTEN {
            // Nothing for so long: what there is now says nothing about a rate.
            return;
        }
        let latency = seconds(sum) / f64::from(answers);
        let window = Window { latency, rate: f64::from(answers) / lasted, peak: f64::from(peak), shed };
        estimate.take(window, rules.bounds());
        open.baseline.store(nanos(estimate.baseline), Ordering::Relaxed);
        self.limit.store(rounded(estimate.limit), Ordering::Relaxed);
    }

    pub(super) fn state(&self, rules: &Adaptive) -> AdaptiveState {
        let estimate = *self.estimate.lock();
        AdaptiveState {
            limit: self.limit_within(rules),
            in_flight: self.in_flight.load(Ordering::Relaxed),
            baseline: nanos(estimate.baseline),
            latency: nanos(estimate.latency),
            enforced: rules.enforced,
        }
    }

    /// A reload may have drawn the bounds anew.
    fn limit_within(&self, rules: &Adaptive) -> u32 {
        self.limit.load(Ordering::Relaxed).clamp(rules.min, rules.max)
    }
}

impl Adaptive {
    fn bounds(&self) -> Bounds {
        Bounds { min: f64::from(self.min), max: f64::from(self.max), tolerance: self.tolerance, enforced: self.enforced }
    }

    /// How much of a limit a tier may use, at least 1: the highest all, the next what is not reserved for that one, the lowest half of this,
    /// and those in between in equal steps.
    fn room(&self, limit: u32, tier: usize) -> u32 {
        let highest = self.tiers.saturating_sub(1);
        if tier >= highest {
            return limit;
        }
        let steps = highest.saturating_sub(1).max(1);
        let below = small(highest - 1 - tier) / small(steps);
        let share = (1.0 - self.reserve) * (1.0 - below / 2.0);
        rounded((f64::from(limit) * share).floor()).clamp(1, limit)
    }
}

/// An upstream's limiter, by the rules of one generation.
#[derive(Debug)]
pub struct Limited {
    pub(super) limiter: Arc<Limiter>,
    pub(super) rules: Adaptive,
    pub(super) clock: Clock,
    pub(super) lane: Lane,
    /// By tier: shed, or would have been.
    pub(super) shed: Vec<Counter>,
}

impl Shared {
    /// Follows a configuration. A limiter that stays keeps what it knows.
    pub(super) fn follow_load(&self, upstream: &Upstream) {
        let mut limiters = self.limiters.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(rules) = upstream.adaptive else {
            limiters.remove(&upstream.name);
            return;
        };
        let new = || (Arc::new(Limiter::new(rules.initial)), rules);
        limiters.entry(Arc::clone(&upstream.name)).or_insert_with(new).1 = rules;
    }

    /// A worker's way to an upstream's limiter. It may ask for one that a newer configuration does not have: that one stands alone.
    pub(super) fn limited(&self, upstream: &Upstream, tiers: &[Box<str>], lane: Lane) -> Option<Rc<Limited>> {
        let rules = upstream.adaptive?;
        let known = {
            let limiters = self.limiters.lock().unwrap_or_else(PoisonError::into_inner);
            limiters.get(&upstream.name).map(|(limiter, _)| Arc::clone(limiter))
        };
        let family = if rules.enforced { metrics::SHED } else { metrics::SHADOW_SHED };
        let counter = |tier: &str| self.registry.counter(family, &[("upstream", &upstream.name), ("tier", tier)]);
        Some(Rc::new(Limited {
            limiter: known.unwrap_or_else(|| Arc::new(Limiter::new(rules.initial))),
            rules,
            clock: self.clock.clone(),
            lane,
            shed: tiers.iter().map(|tier| counter(tier)).collect(),
        }))
    }

    pub(super) fn load_state(&self, upstream: &str) -> Option<AdaptiveState> {
        let limiters = self.limiters.lock().unwrap_or_else(PoisonError::into_inner);
        limiters.get(upstream).map(|(limiter, rules)| limiter.state(rules))
    }
}

/// Too much is in flight for a request of this tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shed;

impl Limited {
    /// A place for a request of this tier, dispatched at `now`.
    ///
    /// # Errors
    /// [`Shed`] when there is none for it; counted.
    pub fn take(self: &Rc<Self>, tier: usize, now: Nanos) -> Result<Place, Shed> {
        let room = self.rules.room(self.limiter.limit_within(&self.rules), tier);
        if !self.limiter.take(room) {
            if let Some(counter) = self.shed.get(tier) {
                counter.one(self.lane);
            }
            if self.rules.enforced {
                return Err(Shed);
            }
            self.limiter.take_anyway();
        }
        Ok(Place { limited: Rc::clone(self), dispatched: Some(now), upload: None })
    }
}

/// An exchange's place among those in flight, until dropped.
#[derive(Debug)]
pub struct Place {
    limited: Rc<Limited>,
    /// None once it has been counted.
    dispatched: Option<Nanos>,
    /// When the client had sent its body, if it has one: how long that takes is the client's doing.
    upload: Option<Rc<Cell<Option<Nanos>>>>,
}

impl Place {
    /// Who notes when the client's body has passed.
    pub fn upload(&mut self) -> Box<dyn Tap> {
        let at = Rc::new(Cell::new(None));
        self.upload = Some(Rc::clone(&at));
        Box::new(Upload { at, clock: self.limited.clock.clone() })
    }

    /// The response's head is here, and is no failure.
    pub fn answered(mut self) {
        self.count(|_| true);
    }

    fn count(&mut self, counts: impl FnOnce(Nanos) -> bool) {
        // Who is answered, or leaves, before everything has been said, says nothing.
        let Some(since) = self.upload.as_ref().map_or(self.dispatched, |upload| upload.get()) else { return };
        let Limited { limiter, rules, clock, .. } = &*self.limited;
        let now = clock.now();
        let after = now.saturating_sub(since);
        if counts(after) {
            limiter.answered(after, now, rules);
        }
        self.dispatched = None;
        self.upload = None;
    }
}

impl Drop for Place {
    /// A failure that comes fast does not make an upstream fast. One that comes late is as good a sign of a queue as any answer, and so is a
    /// client that waited no longer: else an upstream that answers nobody in time would never be found full.
    fn drop(&mut self) {
        let baseline = self.limited.limiter.open.baseline.load(Ordering::Relaxed);
        self.count(|after| baseline > 0 && after > baseline);
        self.limited.limiter.give_back();
    }
}

#[derive(Debug)]
struct Upload {
    at: Rc<Cell<Option<Nanos>>>,
    clock: Clock,
}

impl Tap for Upload {
    fn passed(&mut self, _: &Bytes) {}

    fn ended(&mut self) {
        self.at.set(Some(self.clock.now()));
    }
}

fn seconds(nanos: Nanos) -> f64 {
    std::time::Duration::from_nanos(nanos).as_secs_f64()
}

fn nanos(seconds: f64) -> Nanos {
    std::time::Duration::try_from_secs_f64(seconds).map_or(Nanos::MAX, crate::clock::saturating_nanos)
}

fn small(n: usize) -> f64 {
    f64::from(u32::try_from(n).unwrap_or(u32::MAX))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float that is too large or negative becomes the bound"
)]
fn rounded(n: f64) -> u32 {
    n.round() as u32
}

/// A window is open for at least this long, and until so many answers are in it …
const SHORTEST: Nanos = SECOND / 10;
const ENOUGH: u32 = 100;
/// … or this long, with fewer.
const LONG: Nanos = SECOND / 2;
const FEW: u32 = 10;
/// In seconds. A window that was open for longer had no traffic to speak of.
const FORGOTTEN: f64 = 60.0;
/// An answer counts as at most so many baselines.
const LONGEST: u64 = 10;
