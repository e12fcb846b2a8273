//! The algorithms that count in windows, with window numbers that never come round.
//!
//! If the clock steps back, a window that is one ahead stays; what is further ahead is counted in the current one.

use super::{Definition, Receipt, Time, cells};
use tollgate::limit::Quota;

/// Where a moment lies.
#[derive(Debug, Clone, Copy)]
struct Grid {
    period: Time,
    phase: Time,
}

impl Grid {
    fn new(quota: &Quota, phase: u64) -> Self {
        let period = Time::from(quota.period());
        Self { period, phase: Time::from(phase) % period }
    }

    fn number(&self, now: Time) -> i128 {
        (now + self.phase) / self.period
    }

    fn start(&self, number: i128) -> Time {
        number * self.period - self.phase
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Fixed {
    limit: u64,
    may_owe: bool,
    grid: Grid,
    /// A window and its count.
    window: Option<(i128, u64)>,
}

impl Fixed {
    pub(super) fn new(quota: &Quota, phase: u64) -> Self {
        Self { limit: quota.count(), may_owe: quota.may_owe(), grid: Grid::new(quota, phase), window: None }
    }

    fn at(&self, now: Time) -> (i128, u64) {
        let number = self.grid.number(now);
        match self.window {
            Some((kept, count)) if kept == number || kept == number + 1 => (kept, count),
            Some((ahead, count)) if ahead > number => (number, count),
            _ => (number, 0),
        }
    }
}

impl Definition for Fixed {
    fn come_to(&mut self, now: Time) {
        self.window = Some(self.at(now));
    }

    fn fits(&self, now: Time, cost: u64) -> bool {
        let (_, count) = self.at(now);
        u128::from(count) + u128::from(cost) <= u128::from(self.limit)
    }

    fn is_too_much(&self, cost: u64) -> bool {
        cost > self.limit
    }

    fn delay(&self, _now: Time, _cost: u64) -> Time {
        0
    }

    fn take(&mut self, now: Time, cost: u64) {
        let (number, count) = self.at(now);
        self.window = Some((number, count.saturating_add(cost).min(u64::from(u32::MAX))));
    }

    fn begin_with(&mut self, now: Time, used: u64) {
        self.take(now, if self.may_owe { used } else { used.min(self.limit) });
    }

    fn receipt(&self, now: Time) -> Receipt {
        Receipt::Window(self.at(now).0)
    }

    fn give_back(&mut self, receipt: Option<Receipt>, now: Time, cost: u64) {
        let (number, count) = self.at(now);
        if receipt.is_none_or(|receipt| receipt == Receipt::Window(number)) {
            self.window = Some((number, count.saturating_sub(cost)));
        }
    }

    fn limit(&self) -> u64 {
        self.limit
    }

    fn remaining(&self, now: Time) -> u64 {
        self.limit.saturating_sub(self.at(now).1)
    }

    fn reset_after(&self, now: Time) -> Time {
        match self.at(now) {
            (_, 0) => 0,
            (number, _) => self.grid.start(number + 1) - now,
        }
    }

    fn used(&self, now: Time) -> u64 {
        self.at(now).1
    }

    fn forget(&mut self) {
        self.window = None;
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Sliding {
    limit: u64,
    may_owe: bool,
    grid: Grid,
    counts: Option<Counts>,
}

#[derive(Debug, Clone, Copy)]
struct Counts {
    number: i128,
    current: u64,
    previous: u64,
}

impl Sliding {
    pub(super) fn new(quota: &Quota, phase: u64) -> Self {
        Self { limit: quota.count(), may_owe: quota.may_owe(), grid: Grid::new(quota, phase), counts: None }
    }

    fn at(&self, now: Time) -> Counts {
        let number = self.grid.number(now);
        let Some(counts) = self.counts else { return Counts { number, current: 0, previous: 0 } };
        match number - counts.number {
            0 | -1 => counts,
            1 => Counts { number, current: 0, previous: counts.current.min(self.limit) },
            2.. => Counts { number, current: 0, previous: 0 },
            _ => Counts { number, ..counts },
        }
    }

    /// Cells in use times the period, so that it is whole: `previous·(W − e) + current·W`. A window ahead is looked at from its beginning.
    fn weight(&self, now: Time) -> i128 {
        let Counts { number, current, previous } = self.at(now);
        let elapsed = (now - self.grid.start(number)).max(0);
        i128::from(previous) * (self.grid.period - elapsed) + i128::from(current) * self.grid.period
    }
}

impl Definition for Sliding {
    fn come_to(&mut self, now: Time) {
        self.counts = Some(self.at(now));
    }

    fn fits(&self, now: Time, cost: u64) -> bool {
        self.weight(now) + i128::from(cost) * self.grid.period <= i128::from(self.limit) * self.grid.period
    }

    fn is_too_much(&self, cost: u64) -> bool {
        cost > self.limit
    }

    fn delay(&self, _now: Time, _cost: u64) -> Time {
        0
    }

    fn take(&mut self, now: Time, cost: u64) {
        let counts = self.at(now);
        self.counts = Some(Counts { current: counts.current.saturating_add(cost).min(MOST), ..counts });
    }

    fn begin_with(&mut self, now: Time, used: u64) {
        self.take(now, if self.may_owe { used } else { used.min(self.limit) });
    }

    fn receipt(&self, now: Time) -> Receipt {
        Receipt::Window(self.at(now).number)
    }

    fn give_back(&mut self, receipt: Option<Receipt>, now: Time, cost: u64) {
        let counts = self.at(now);
        let receipt = receipt.unwrap_or(Receipt::Window(counts.number));
        if receipt == Receipt::Window(counts.number) {
            self.counts = Some(Counts { current: counts.current.saturating_sub(cost), ..counts });
        } else if receipt == Receipt::Window(counts.number - 1) {
            self.counts = Some(Counts { previous: counts.previous.saturating_sub(cost), ..counts });
        }
    }

    fn limit(&self) -> u64 {
        self.limit
    }

    fn remaining(&self, now: Time) -> u64 {
        let limit = i128::from(self.limit) * self.grid.period;
        cells((limit - self.weight(now)).div_euclid(self.grid.period))
    }

    fn reset_after(&self, now: Time) -> Time {
        match self.at(now) {
            Counts { current: 0, previous: 0, .. } => 0,
            Counts { current: 0, number, .. } => self.grid.start(number + 1) - now,
            Counts { number, .. } => self.grid.start(number + 2) - now,
        }
    }

    fn used(&self, now: Time) -> u64 {
        cells(super::ceiling_div(self.weight(now), self.grid.period))
    }

    fn forget(&mut self) {
        self.counts = None;
    }
}

/// Counts have 20 bits, also what is forced.
const MOST: u64 = (1 << 20) - 1;
