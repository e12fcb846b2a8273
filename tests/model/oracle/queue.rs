//! The leaky bucket as a queue: whoever comes waits until the place behind everybody else is free.

use super::bucket::undrained;
use super::{Definition, Receipt, Time, capacity, cells, explanation, slack, time_of};
use tollgate::limit::Quota;

#[derive(Debug, Clone)]
pub(crate) struct Queue {
    quota: Quota,
    next_free: Time,
}

impl Queue {
    pub(super) fn new(quota: &Quota) -> Self {
        Self { quota: *quota, next_free: 0 }
    }

    pub(super) fn is_unused(&self) -> bool {
        self.next_free <= 0
    }

    fn wait(&self, now: Time) -> Time {
        (self.next_free - now).max(0)
    }

    /// Requests of one cell that find a place when the next one is `wait` away: the last waits `max_delay` at most. Not more than may wait.
    fn places(&self, wait: Time) -> u64 {
        let room = Time::from(self.quota.max_delay()) - wait;
        if room < 0 { 0 } else { cells(room / time_of(1, &self.quota) + 1).min(self.quota.burst()) }
    }

    fn furthest(&self) -> Time {
        capacity(self.quota.count(), &self.quota) + Time::from(self.quota.max_delay())
    }
}

impl Definition for Queue {
    fn come_to(&mut self, now: Time) {
        self.next_free = self.next_free.min(now + self.furthest());
    }

    fn fits(&self, now: Time, _cost: u64) -> bool {
        self.wait(now) <= Time::from(self.quota.max_delay())
    }

    fn is_too_much(&self, cost: u64) -> bool {
        cost > self.quota.count()
    }

    fn delay(&self, now: Time, _cost: u64) -> Time {
        self.wait(now)
    }

    fn take(&mut self, now: Time, cost: u64) {
        self.next_free = now + (self.wait(now) + time_of(cost, &self.quota)).min(self.furthest());
    }

    fn begin_with(&mut self, now: Time, used: u64) {
        let most = if self.quota.may_owe() { self.furthest() } else { capacity(self.quota.count(), &self.quota) };
        self.next_free = now + time_of(used, &self.quota).min(most);
    }

    fn receipt(&self, _now: Time) -> Receipt {
        Receipt::Empty(self.next_free)
    }

    fn give_back(&mut self, receipt: Option<Receipt>, now: Time, cost: u64) {
        self.come_to(now);
        self.next_free -= undrained(receipt, now, time_of(cost, &self.quota));
    }

    fn limit(&self) -> u64 {
        self.places(0)
    }

    fn remaining(&self, now: Time) -> u64 {
        self.places(self.wait(now))
    }

    fn reset_after(&self, now: Time) -> Time {
        self.wait(now)
    }

    fn used(&self, now: Time) -> u64 {
        explanation(self.wait(now).min(self.furthest()), slack(self.quota.count(), &self.quota), &self.quota)
    }
}
