//! What is held against the store: a counter in memory, and the functions in `limit`.

use super::Taken;
use tollgate::limit::Algorithm::{FixedWindow, SlidingLog, SlidingWindow};
use tollgate::limit::{Log, Outcome, Quota, Verdict, sliding_log, until};

/// A store for one counter, as small as can be.
#[derive(Debug, Clone)]
pub(super) struct Counter {
    /// Under which it was written.
    pub(super) quota: Quota,
    phase: u64,
    pub(super) state: u64,
    log: Log,
    /// Whether it was ever written.
    present: bool,
}

impl Counter {
    pub(super) fn new(quota: Quota, phase: u64) -> Self {
        Self { quota, phase, state: 0, log: Log::default(), present: false }
    }

    fn is_log(&self) -> bool {
        self.quota.algorithm() == SlidingLog
    }

    pub(super) fn mark(&self, now: u64) -> u64 {
        if self.is_log() { now } else { self.state }
    }

    /// As it is under another quota.
    fn under(&self, quota: &Quota, now: u64) -> Self {
        if *quota == self.quota {
            return self.clone();
        }
        let used = match self.is_log() {
            true => sliding_log::used(&self.quota, &self.log, now),
            false => self.quota.used(self.state, self.phase, now),
        };
        let mut moved = Self { present: self.present, ..Self::new(*quota, self.phase) };
        if moved.is_log() {
            moved.log = sliding_log::with_used(quota, used, now);
        } else {
            moved.state = quota.with_used(used, self.phase, now);
        }
        moved
    }

    /// Charges. A refusal is kept only if the clock went back by much, or the quota is faster than the one before.
    pub(super) fn charge(&mut self, quota: &Quota, now: u64, cost: u64) -> Outcome {
        let mut moved = self.under(quota, now);
        if moved.quota != self.quota {
            let outcome = moved.charge_in_place(now, cost);
            let is_faster = quota.is_faster_than(&self.quota);
            if outcome.verdict.conforms() || is_faster && (moved.state != 0 || moved.log != Log::default()) {
                *self = Self { present: true, ..moved };
            } else if !is_faster && matches!(outcome.verdict, Verdict::Exceeds { .. }) {
                let fits = |wait| self.under(quota, now + wait).charge_in_place(now + wait, cost).verdict.conforms();
                return Outcome { verdict: Verdict::Exceeds { retry_after: until(fits) }, ..outcome };
            }
            return outcome;
        }
        self.charge_in_place(now, cost)
    }

    fn charge_in_place(&mut self, now: u64, cost: u64) -> Outcome {
        let quota = self.quota;
        if self.is_log() {
            let mut log = self.log.clone();
            let healed = sliding_log::heal(&quota, &mut log, now);
            let outcome = sliding_log::decide(&quota, &log, now, cost);
            if outcome.verdict.conforms() {
                sliding_log::commit(&quota, &mut log, now, cost);
            } else if !healed {
                return outcome;
            }
            (self.log, self.present) = (log, true);
            return outcome;
        }
        let step = quota.decide(self.state, self.phase, now, cost);
        let conforms = step.outcome.verdict.conforms();
        if conforms || self.is_far_ahead(now) && step.state != 0 {
            (self.state, self.present) = (step.state, true);
        }
        Outcome { mark: 0, ..step.outcome }
    }

    /// Whether the clock must have gone back by much.
    fn is_far_ahead(&self, now: u64) -> bool {
        let place = (now + self.phase % self.quota.period()) / self.quota.period();
        match self.quota.algorithm() {
            FixedWindow => self.state >> 32 > place + 1,
            SlidingWindow => {
                let ahead = (self.state >> 40).wrapping_sub(place) & 0xff_ffff;
                self.state != 0 && ahead > 1 && ahead < 1 << 23
            }
            _ => self.state > now + self.quota.ceiling(),
        }
    }

    /// The window that a sliding window's state has just been written in: it keeps only 24 bits of the number.
    pub(super) fn window(&self, quota: &Quota, now: u64) -> u64 {
        let place = (now + self.phase % quota.period()) / quota.period();
        place + ((self.state >> 40).wrapping_sub(place) & 0xff_ffff)
    }

    /// The most of `more` that conforms without a wait.
    pub(super) fn largest(&self, quota: &Quota, now: u64, more: u64) -> u64 {
        let fits = |cells: u64| {
            let outcome = quota.decide(self.state, self.phase, now, cells).outcome;
            outcome.verdict.conforms() && outcome.delay == 0
        };
        let (mut least, mut most) = (0, more);
        while least < most {
            let middle = most - (most - least) / 2;
            if fits(middle) { least = middle } else { most = middle - 1 }
        }
        least
    }

    pub(super) fn settle(&mut self, taken: &Taken, mark: Option<u64>, delta: i64, now: u64) {
        let (less, more) = (u64::try_from(-delta).unwrap_or(0), u64::try_from(delta).unwrap_or(0));
        if !self.present {
            if more == 0 {
                return;
            }
            *self = Self { present: true, ..Self::new(taken.pair.model, self.phase) };
        }
        let quota = self.quota;
        if self.is_log() {
            sliding_log::refund(&quota, &mut self.log, mark, now, less);
            if more > 0 {
                sliding_log::commit(&quota, &mut self.log, now, more);
            }
            return;
        }
        let less = if quota.max_delay() > 0 && self.state != taken.mark { 0 } else { less };
        if less > 0 {
            self.state = quota.refund(self.state, self.phase, mark, now, less);
        } else if more > 0 {
            self.state = quota.force(self.state, self.phase, now, more);
        }
    }
}
