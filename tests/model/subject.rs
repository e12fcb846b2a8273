//! What is tested: one counter, through the public functions of its algorithm.

use tollgate::clock::Nanos;
use tollgate::limit::{Algorithm, Log, Outcome, Quota, sliding_log};

/// A counter and its state, as a store would keep it.
#[derive(Debug, Clone)]
pub(crate) struct Counter {
    pub(crate) quota: Quota,
    phase: u64,
    state: u64,
    log: Log,
}

impl Counter {
    pub(crate) fn new(quota: Quota, phase: u64) -> Self {
        Self { quota, phase, state: 0, log: Log::default() }
    }

    /// Charges, and keeps what a refusal found out about the clock.
    pub(crate) fn charge(&mut self, now: Nanos, cost: u64) -> Outcome {
        if self.is_log() {
            sliding_log::heal(&self.quota, &mut self.log, now);
            let outcome = self.ask(now, cost);
            if outcome.verdict.conforms() && cost > 0 {
                sliding_log::commit(&self.quota, &mut self.log, now, cost);
            }
            return outcome;
        }
        let step = self.quota.decide(self.state, self.phase, now, cost);
        self.state = step.state;
        step.outcome
    }

    /// What a charge would be told.
    pub(crate) fn ask(&self, now: Nanos, cost: u64) -> Outcome {
        if self.is_log() {
            return sliding_log::decide(&self.quota, &self.log, now, cost);
        }
        self.quota.decide(self.state, self.phase, now, cost).outcome
    }

    pub(crate) fn conforms(&self, now: Nanos, cost: u64) -> bool {
        self.ask(now, cost).verdict.conforms()
    }

    pub(crate) fn force(&mut self, now: Nanos, cost: u64) {
        if self.is_log() {
            sliding_log::commit(&self.quota, &mut self.log, now, cost);
        } else {
            self.state = self.quota.force(self.state, self.phase, now, cost);
        }
    }

    /// By which a charge that was made just now is found again.
    pub(crate) fn mark(&self, now: Nanos) -> u64 {
        if self.is_log() { now } else { self.state }
    }

    pub(crate) fn refund(&mut self, mark: Option<u64>, now: Nanos, cost: u64) {
        if self.is_log() {
            sliding_log::refund(&self.quota, &mut self.log, mark, now, cost);
        } else {
            self.state = self.quota.refund(self.state, self.phase, mark, now, cost);
        }
    }

    pub(crate) fn used(&self, now: Nanos) -> u64 {
        if self.is_log() {
            return sliding_log::used(&self.quota, &self.log, now);
        }
        self.quota.used(self.state, self.phase, now)
    }

    fn is_log(&self) -> bool {
        self.quota.algorithm() == Algorithm::SlidingLog
    }
}
