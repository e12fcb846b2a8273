//! The sliding window log: what was taken and when, added up anew for every question.
//!
//! Cells up to a period ahead are another thread's, whose clock is ahead: they count as long as any other. What is further ahead counts as
//! made now. Cells that have ended are forgotten when others are written; until then they would count again if the clock went back to
//! their time.

use super::{Definition, Receipt, Time};
use tollgate::limit::Quota;

#[derive(Debug, Clone)]
pub(crate) struct Events {
    limit: u64,
    period: Time,
    /// When and how many, oldest first.
    events: Vec<(Time, u64)>,
}

impl Events {
    pub(super) fn new(quota: &Quota) -> Self {
        Self { limit: quota.count(), period: Time::from(quota.period()), events: Vec::new() }
    }

    fn count(&self, now: Time) -> u64 {
        self.events.iter().filter(|(then, _)| then + self.period > now).map(|(_, cells)| cells).sum()
    }

    /// Up to so many cells of those events, oldest first, are gone.
    fn remove<'e>(events: impl Iterator<Item = &'e mut (Time, u64)>, mut cells: u64) {
        for (_, kept) in events {
            let gone = cells.min(*kept);
            (*kept, cells) = (*kept - gone, cells - gone);
        }
    }
}

impl Definition for Events {
    fn come_to(&mut self, now: Time) {
        for (then, _) in &mut self.events {
            *then = if *then - now > self.period { now } else { *then };
        }
        self.events.sort_by_key(|(then, _)| *then);
    }

    fn fits(&self, now: Time, cost: u64) -> bool {
        u128::from(self.count(now)) + u128::from(cost) <= u128::from(self.limit)
    }

    fn is_too_much(&self, cost: u64) -> bool {
        cost > self.limit
    }

    fn delay(&self, _now: Time, _cost: u64) -> Time {
        0
    }

    fn take(&mut self, now: Time, cost: u64) {
        self.events.retain(|(then, _)| then + self.period > now);
        // Not more than the limit are kept: the oldest of those there are make room.
        let cost = cost.min(self.limit);
        let beyond = (self.count(now) + cost).saturating_sub(self.limit);
        Self::remove(self.events.iter_mut(), beyond);
        self.events.push((now, cost));
        self.events.retain(|(_, cells)| *cells > 0);
        self.events.sort_by_key(|(then, _)| *then);
    }

    fn begin_with(&mut self, now: Time, used: u64) {
        self.take(now, used);
    }

    fn receipt(&self, now: Time) -> Receipt {
        Receipt::At(now)
    }

    fn give_back(&mut self, receipt: Option<Receipt>, now: Time, cost: u64) {
        let at = match receipt {
            Some(Receipt::At(at)) => Some(at),
            _ => None,
        };
        let is_its = |(then, _): &(Time, u64)| Some(*then) == at;
        if self.events.iter().any(is_its) {
            Self::remove(self.events.iter_mut().filter(|event| is_its(event)), cost);
        } else if at.is_none_or(|at| at + self.period > now) {
            Self::remove(self.events.iter_mut().rev(), cost);
        }
        self.events.retain(|(_, cells)| *cells > 0);
    }

    fn limit(&self) -> u64 {
        self.limit
    }

    fn remaining(&self, now: Time) -> u64 {
        self.limit.saturating_sub(self.count(now))
    }

    fn reset_after(&self, now: Time) -> Time {
        self.events.iter().map(|(then, _)| then + self.period - now).max().unwrap_or(0).max(0)
    }

    fn used(&self, now: Time) -> u64 {
        self.count(now)
    }
}
