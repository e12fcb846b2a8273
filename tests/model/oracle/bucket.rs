//! GCRA, which is the token bucket, which is the leaky bucket as a meter: the theoretical arrival time, by its definition.

use super::{CENTURY, Definition, Receipt, Time, capacity, cells, explanation, slack, time_of};
use tollgate::limit::Quota;

#[derive(Debug, Clone)]
pub(crate) struct Bucket {
    quota: Quota,
    capacity: Time,
    /// When the bucket is empty again.
    tat: Time,
}

impl Bucket {
    pub(super) fn new(quota: &Quota) -> Self {
        Self { quota: *quota, capacity: capacity(quota.burst(), quota), tat: 0 }
    }

    fn backlog(&self, now: Time) -> Time {
        (self.tat - now).max(0)
    }

    pub(super) fn is_unused(&self) -> bool {
        self.tat <= 0
    }

    /// How far ahead a TAT can be.
    fn furthest(&self) -> Time {
        if self.quota.may_owe() { CENTURY } else { self.capacity + Time::from(self.quota.max_delay()) }
    }
}

impl Definition for Bucket {
    fn come_to(&mut self, now: Time) {
        self.tat = self.tat.min(now + self.furthest());
    }

    fn fits(&self, now: Time, cost: u64) -> bool {
        self.delay(now, cost) <= Time::from(self.quota.max_delay())
    }

    fn is_too_much(&self, cost: u64) -> bool {
        cost > self.quota.burst()
    }

    fn delay(&self, now: Time, cost: u64) -> Time {
        (self.backlog(now) + time_of(cost, &self.quota) - self.capacity).max(0)
    }

    fn take(&mut self, now: Time, cost: u64) {
        self.tat = now + (self.backlog(now) + time_of(cost, &self.quota)).min(self.furthest());
    }

    fn begin_with(&mut self, now: Time, used: u64) {
        let most = if self.quota.may_owe() { self.furthest() } else { self.capacity };
        self.tat = now + time_of(used, &self.quota).min(most);
    }

    fn receipt(&self, _now: Time) -> Receipt {
        Receipt::Empty(self.tat)
    }

    fn give_back(&mut self, receipt: Option<Receipt>, now: Time, cost: u64) {
        self.come_to(now);
        self.tat -= undrained(receipt, now, time_of(cost, &self.quota));
    }

    fn limit(&self) -> u64 {
        self.quota.burst()
    }

    /// Cells that fit without a wait.
    fn remaining(&self, now: Time) -> u64 {
        let room = (self.capacity - self.backlog(now)).max(0);
        cells(room * Time::from(self.quota.count()) / Time::from(self.quota.period())).min(self.quota.burst())
    }

    fn reset_after(&self, now: Time) -> Time {
        self.backlog(now)
    }

    fn used(&self, now: Time) -> u64 {
        explanation(self.backlog(now).min(self.furthest()), slack(self.quota.burst(), &self.quota), &self.quota)
    }
}

/// What is left of a charge: nothing beyond the moment at which all would have drained that there was after it.
pub(super) fn undrained(receipt: Option<Receipt>, now: Time, whole: Time) -> Time {
    match receipt {
        Some(Receipt::Empty(empty)) => whole.min((empty - now).max(0)),
        _ => whole,
    }
}
