//! What a limit is, and its arithmetic: pure functions of (state, now, cost). No clock, no locks, no IO.
//!
//! One file per algorithm. Every state fits one `u64` in which 0 means "never seen", so a store can keep it in an
//! atomic and an absent key needs no entry. All arithmetic is on integers; a product that could overflow goes through
//! 128 bits, and a hostile cost ends in [`Verdict::Never`], never in a wrapped number.

pub mod fixed_window;
pub mod gcra;
mod key;
mod quota;

pub use key::{Key, KeyHasher, KeyParts};
pub use quota::{Interned, Quota, QuotaError, QuotaId, Quotas};

use crate::clock::Nanos;

/// How a quota is enforced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// [`gcra`]: smooth, burst-bounded.
    Gcra,
    /// [`fixed_window`]: a count that starts again with every window.
    FixedWindow,
}

/// What one request asks of one window of one limit.
#[derive(Debug, Clone, Copy)]
pub struct Charge<'q> {
    /// The counter.
    pub key: Key,
    /// The numbers it is held against.
    pub quota: &'q Interned,
    /// How many cells; 0 asks without taking.
    pub cost: u64,
    /// Which limit of the plan this belongs to; the store passes it through.
    pub limit: u16,
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
}

/// The answer to one [`Charge`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// Passes, or when it would.
    pub verdict: Verdict,
    /// Cells that fit at once from idle.
    pub limit: u64,
    /// Cells that would still conform now: after the charge if it conforms, without it otherwise.
    pub remaining: u64,
    /// Until nothing is used any more, if no one asks again.
    pub reset_after: Nanos,
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

/// The state after a conforming charge, with what to report. The state is unchanged when the charge exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// What to store.
    pub state: u64,
    /// What to report.
    pub outcome: Outcome,
}

impl Quota {
    /// Decides one charge against `state`. `phase` (any number, fixed per key) shifts the edges of windows, so that
    /// not all keys start afresh in the same instant.
    #[must_use]
    pub fn decide(&self, state: u64, phase: u64, now: Nanos, cost: u64) -> Step {
        match self.algorithm() {
            Algorithm::Gcra => gcra::decide(self, state, now, cost),
            Algorithm::FixedWindow => fixed_window::decide(self, state, phase, now, cost),
        }
    }

    /// Takes back a charge that was made at about `now` under this quota.
    #[must_use]
    pub fn refund(&self, state: u64, phase: u64, now: Nanos, cost: u64) -> u64 {
        match self.algorithm() {
            Algorithm::Gcra => gcra::refund(self, state, cost),
            Algorithm::FixedWindow => fixed_window::refund(self, state, phase, now, cost),
        }
    }

    /// Cells in use at `now`, rounded up.
    #[must_use]
    pub fn used(&self, state: u64, phase: u64, now: Nanos) -> u64 {
        match self.algorithm() {
            Algorithm::Gcra => gcra::used(self, state, now),
            Algorithm::FixedWindow => fixed_window::used(self, state, phase, now),
        }
    }

    /// The state of somebody who has just used `used` cells: how usage moves to a changed quota. More than the quota
    /// holds counts as all of it.
    #[must_use]
    pub fn with_used(&self, used: u64, phase: u64, now: Nanos) -> u64 {
        match self.algorithm() {
            Algorithm::Gcra => gcra::with_used(self, used, now),
            Algorithm::FixedWindow => fixed_window::with_used(self, used, phase, now),
        }
    }

    /// Whether `state` means the same as an absent key, so it can be dropped.
    #[must_use]
    pub fn is_idle(&self, state: u64, phase: u64, now: Nanos) -> bool {
        self.used(state, phase, now) == 0
    }
}
