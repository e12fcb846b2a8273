//! What a limit is, and its arithmetic: pure functions of (state, now, cost), without locks or IO. The one exception is [`calendar`], which
//! has to know a time zone's rules and how far the wall clock is from ours.
//!
//! One file per algorithm, dispatched in [`Quota`]'s methods below. Every state but the log's fits one `u64` in which 0 means "never
//! seen", so an absent key needs no entry. All arithmetic is on integers; a product that could overflow goes through
//! 128 bits, and a hostile cost ends in [`Verdict::Never`], never in a wrapped number.

pub mod calendar;
mod carry;
pub mod first_seen;
pub mod fixed_window;
pub mod gcra;
mod key;
pub mod leaky_bucket;
mod quota;
mod sharing;
pub mod sliding_log;
pub mod sliding_window;
mod space;
pub mod token_bucket;
mod warmup;

pub use calendar::{Calendar, CalendarUnit, Calendars, UnixWindow, UnknownZone, WallOffset};
pub use carry::until;
pub use key::{Key, KeyHasher, KeyParts};
pub use quota::{Interned, Quota, QuotaError, QuotaId, Quotas};
pub use sharing::{Consistency, OnFailure, Reach, Sharing, share_of};
pub use sliding_log::Log;
pub use space::{SpaceId, Spaces};
pub use warmup::{Boost, Warmup};

use crate::clock::Nanos;

/// How a quota is enforced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// [`gcra`]: smooth, burst-bounded.
    Gcra,
    /// [`token_bucket`]: the same by its other name.
    TokenBucket,
    /// [`leaky_bucket`]: a meter, or a queue.
    LeakyBucket,
    /// [`fixed_window`]: a count that starts again with every window.
    FixedWindow,
    /// [`sliding_window`]: two counts, the older one fading.
    SlidingWindow,
    /// [`sliding_log`]: every cell's time.
    SlidingLog,
    /// [`first_seen`]: limits nothing, remembers since when.
    FirstSeen,
}

/// What one request asks of one window of one limit. The keys of a request's charges are distinct.
#[derive(Debug, Clone, Copy)]
pub struct Charge<'q> {
    /// The counter.
    pub key: Key,
    /// Where it is kept.
    pub space: SpaceId,
    /// The numbers it is held against.
    pub quota: &'q Interned,
    /// How many cells; 0 asks without taking.
    pub cost: u64,
    /// Which limit of the plan this belongs to; the store passes it through.
    pub limit: u16,
    /// Requests that may wait for their place in this counter at once.
    pub queue: u32,
    /// Whether newcomers have more, and under which key it is remembered since when this one is known.
    pub warmup: Option<(&'q Warmup, Key)>,
    /// Whether other gateways count with us.
    pub sharing: Option<Sharing>,
}

/// What one request asks of one concurrency limit.
#[derive(Debug, Clone, Copy)]
pub struct SlotCharge {
    /// The counter.
    pub key: Key,
    /// Requests in flight at most.
    pub max: u32,
    /// Which limit of the plan this belongs to.
    pub limit: u16,
    /// Whether it only watches.
    pub shadow: bool,
    /// Whether other gateways count with us.
    pub sharing: Option<Sharing>,
}

/// The answer to one [`Charge`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// Passes, or when it would.
    pub verdict: Verdict,
    /// Cells that fit at once from idle.
    pub limit: u64,
    /// Cells that would still conform now and without a wait: after the charge if it conforms, without it otherwise. Of a queue: requests
    /// of one cell that it would take.
    pub remaining: u64,
    /// Until nothing is used any more, if no one asks again.
    pub reset_after: Nanos,
    /// How long a request that conforms has to wait for its place. 0 unless the quota allows a delay.
    pub delay: Nanos,
    /// What the quota was multiplied with for a newcomer.
    pub boost: Boost,
    /// By which a charge that conforms is found again, to be given back: see [`Quota::refund`].
    pub mark: u64,
}

impl Outcome {
    /// What it says after a charge of `was` cells under `quota` has turned out to cost `is`, if nothing else has happened: where the counter itself is
    /// too far away to be looked at again. Of sliding windows and logs the reset stays what it was.
    #[must_use]
    pub fn corrected(self, quota: &Quota, was: u64, is: u64) -> Self {
        let (remaining, reset_after) = match quota.algorithm() {
            Algorithm::Gcra | Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                let time_of = |cells| quota.time_of(cells).unwrap_or(Nanos::MAX);
                let backlog = self.reset_after.saturating_sub(time_of(was)).saturating_add(time_of(is));
                (quota.cells_in(quota.capacity().saturating_sub(backlog)), backlog)
            }
            _ => {
                let remaining = self.remaining.saturating_add(was).saturating_sub(is);
                (remaining, if remaining >= self.limit { 0 } else { self.reset_after })
            }
        };
        Self { remaining: remaining.min(self.limit), reset_after, ..self }
    }
}

/// Conforms or exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Within the quota.
    Conforms,
    /// Over it; the same charge conforms after this long if no one else is served meanwhile, and not a nanosecond earlier.
    Exceeds {
        /// Time to wait, at least 1.
        retry_after: Nanos,
    },
    /// The cost alone is more than the quota ever holds: waiting does not help.
    Never,
}

impl Verdict {
    /// Whether the charge passes.
    #[must_use]
    pub fn conforms(self) -> bool {
        matches!(self, Self::Conforms)
    }
}

/// The state after a decision, with what to report. A charge that exceeds changes nothing, but if the clock went back by much, the
/// state is brought to what can be true now: only if that is kept does the clock's step lock nobody out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// What to store.
    pub state: u64,
    /// What to report.
    pub outcome: Outcome,
}

/// The arithmetic of every algorithm whose state is one number. A quota of a log is decided by [`sliding_log`]; these treat its state as
/// never seen.
impl Quota {
    /// Decides one charge against `state`. `phase` (any number, fixed per key) shifts the edges of windows, so that
    /// not all keys start afresh in the same instant.
    #[must_use]
    #[inline(always)] // What it returns is larger than the way to it.
    pub fn decide(&self, state: u64, phase: u64, now: Nanos, cost: u64) -> Step {
        match self.algorithm() {
            Algorithm::Gcra | Algorithm::TokenBucket => gcra::decide(self, state, now, cost),
            Algorithm::LeakyBucket => leaky_bucket::decide(self, state, now, cost),
            Algorithm::FixedWindow => fixed_window::decide(self, state, phase, now, cost),
            Algorithm::SlidingWindow => sliding_window::decide(self, state, phase, now, cost),
            Algorithm::SlidingLog => Step { state, outcome: sliding_log::decide(self, &Log::default(), now, cost) },
            Algorithm::FirstSeen => first_seen::decide(self, state, now),
        }
    }

    /// Takes cells whether they fit or not: for what is known only when a response has ended.
    #[must_use]
    pub fn force(&self, state: u64, phase: u64, now: Nanos, cost: u64) -> u64 {
        match self.algorithm() {
            Algorithm::Gcra | Algorithm::TokenBucket | Algorithm::LeakyBucket => gcra::force(self, state, now, cost),
            Algorithm::FixedWindow => fixed_window::force(self, state, phase, now, cost),
            Algorithm::SlidingWindow => sliding_window::force(self, state, phase, now, cost),
            Algorithm::SlidingLog | Algorithm::FirstSeen => state,
        }
    }

    /// Takes back cells of a charge, as far as they still count. `mark` is the state that the charge left behind; without one the
    /// counter has been rewritten since, and what is there now is reduced.
    #[must_use]
    pub fn refund(&self, state: u64, phase: u64, mark: Option<u64>, now: Nanos, cost: u64) -> u64 {
        match self.algorithm() {
            Algorithm::Gcra | Algorithm::TokenBucket | Algorithm::LeakyBucket => gcra::refund(self, state, mark, now, cost),
            Algorithm::FixedWindow => fixed_window::refund(self, state, phase, mark, now, cost),
            Algorithm::SlidingWindow => sliding_window::refund(self, state, phase, mark, now, cost),
            Algorithm::SlidingLog | Algorithm::FirstSeen => state,
        }
    }

    /// Cells in use at `now`, rounded up.
    #[must_use]
    pub fn used(&self, state: u64, phase: u64, now: Nanos) -> u64 {
        match self.algorithm() {
            Algorithm::Gcra | Algorithm::TokenBucket | Algorithm::LeakyBucket => gcra::used(self, state, now),
            Algorithm::FixedWindow => fixed_window::used(self, state, phase, now),
            Algorithm::SlidingWindow => sliding_window::used(self, state, phase, now),
            Algorithm::SlidingLog | Algorithm::FirstSeen => 0,
        }
    }

    /// The state of somebody who has just used `used` cells: how usage moves to a changed quota. More than the quota
    /// holds counts as all of it, unless the quota lets clients owe.
    #[must_use]
    pub fn with_used(&self, used: u64, phase: u64, now: Nanos) -> u64 {
        match self.algorithm() {
            Algorithm::Gcra | Algorithm::TokenBucket | Algorithm::LeakyBucket => gcra::with_used(self, used, now),
            Algorithm::FixedWindow => fixed_window::with_used(self, used, phase, now),
            Algorithm::SlidingWindow => sliding_window::with_used(self, used, phase, now),
            Algorithm::SlidingLog | Algorithm::FirstSeen => 0,
        }
    }

    /// Whether `state` means the same as an absent key, so it can be dropped.
    #[must_use]
    pub fn is_idle(&self, state: u64, phase: u64, now: Nanos) -> bool {
        match self.algorithm() {
            // A TAT in the past, without the division.
            Algorithm::Gcra | Algorithm::TokenBucket | Algorithm::LeakyBucket => state <= now,
            Algorithm::FirstSeen => first_seen::is_forgotten(self, state, now),
            _ => self.used(state, phase, now) == 0,
        }
    }

    /// How much of the quota is in use, where 2^16 is all of it: what the store goes by when somebody has to make room.
    #[must_use]
    pub fn fullness(&self, state: u64, phase: u64, now: Nanos) -> u64 {
        match self.algorithm() {
            Algorithm::Gcra | Algorithm::TokenBucket | Algorithm::LeakyBucket => gcra::fullness(self, state, now),
            Algorithm::FirstSeen => first_seen::fullness(self, state, now),
            _ => share(self.used(state, phase, now), self.count()),
        }
    }
}

/// `part / whole` in 2^-16ths, saturating.
pub(crate) fn share(part: u64, whole: u64) -> u64 {
    let whole = whole.max(1);
    if part < 1 << 47 {
        (part << 16) / whole
    } else {
        u64::try_from((u128::from(part) << 16) / u128::from(whole)).unwrap_or(u64::MAX)
    }
}
