//! What each algorithm is by its documentation: obvious, slow, in 128 bits, without a bound on memory.
//!
//! A [`Definition`] says only what fits and what is used. Everything that is told beyond that follows from it here: `retry_after` is the
//! first moment at which the same charge fits, searched for and not computed.

mod bucket;
mod log;
mod queue;
mod windows;

use bucket::Bucket;
use log::Events;
use queue::Queue;
use tollgate::clock::{Nanos, SECOND};
use tollgate::limit::{Algorithm, Boost, Outcome, Quota, Verdict};
use windows::{Fixed, Sliding};

/// A counter.
#[derive(Debug, Clone)]
pub(crate) enum Oracle {
    Bucket(Bucket),
    Queue(Queue),
    Fixed(Fixed),
    Sliding(Sliding),
    Log(Events),
}

/// An algorithm. Moments are [`Time`]s; what is asked of a later moment than [`Definition::come_to`]'s changes nothing.
trait Definition {
    /// Time has moved, perhaps backwards.
    fn come_to(&mut self, now: Time);
    /// Whether a cost of at least 1 passes.
    fn fits(&self, now: Time, cost: u64) -> bool;
    /// Whether it never will.
    fn is_too_much(&self, cost: u64) -> bool;
    /// How long it waits for its place if it passes.
    fn delay(&self, now: Time, cost: u64) -> Time;
    /// Takes cells, whether they fit or not.
    fn take(&mut self, now: Time, cost: u64);
    /// What a counter begins with whose client has just used this much: no more than it holds, unless clients may owe.
    fn begin_with(&mut self, now: Time, used: u64);
    /// By which what was just taken is found again.
    fn receipt(&self, now: Time) -> Receipt;
    /// Takes back cells of the charge with this receipt, as far as they still count; without one, of what is there.
    fn give_back(&mut self, receipt: Option<Receipt>, now: Time, cost: u64);
    fn limit(&self) -> u64;
    fn remaining(&self, now: Time) -> u64;
    fn reset_after(&self, now: Time) -> Time;
    /// Cells in use, rounded up.
    fn used(&self, now: Time) -> u64;
    /// Nothing is in use, and nothing was taken: as good as never seen.
    fn forget(&mut self) {}
}

/// What is remembered of a charge in case it is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Receipt {
    /// When the bucket would have been empty, or the next place free.
    Empty(Time),
    /// The number of the window it was counted in.
    Window(i128),
    /// When it was.
    At(Time),
}

/// Wide enough for differences and for products with cells.
type Time = i128;

impl Oracle {
    /// Never seen.
    pub(crate) fn new(quota: &Quota, phase: u64) -> Self {
        match quota.algorithm() {
            Algorithm::LeakyBucket if quota.max_delay() > 0 => Self::Queue(Queue::new(quota)),
            Algorithm::Gcra | Algorithm::TokenBucket | Algorithm::LeakyBucket => Self::Bucket(Bucket::new(quota)),
            Algorithm::FixedWindow => Self::Fixed(Fixed::new(quota, phase)),
            Algorithm::SlidingWindow => Self::Sliding(Sliding::new(quota, phase)),
            Algorithm::SlidingLog => Self::Log(Events::new(quota)),
            Algorithm::FirstSeen => panic!("it limits nothing"),
        }
    }

    /// Somebody who has just used `used` cells.
    pub(crate) fn with_used(quota: &Quota, phase: u64, now: Nanos, used: u64) -> Self {
        let mut oracle = Self::new(quota, phase);
        if used > 0 {
            oracle.definition_mut().begin_with(Time::from(now), used);
        }
        oracle
    }

    /// Charges if it conforms.
    pub(crate) fn charge(&mut self, now: Nanos, cost: u64) -> Outcome {
        let (it, now) = (self.definition_mut(), Time::from(now));
        it.come_to(now);
        let verdict = if cost == 0 {
            Verdict::Conforms
        } else if it.is_too_much(cost) {
            Verdict::Never
        } else if it.fits(now, cost) {
            Verdict::Conforms
        } else {
            Verdict::Exceeds { retry_after: first(|wait| it.fits(now + Time::from(wait), cost)) }
        };
        let takes = verdict.conforms() && cost > 0;
        let delay = if takes { it.delay(now, cost) } else { 0 };
        if takes {
            it.take(now, cost);
        } else if it.used(now) == 0 {
            it.forget();
        }
        let (limit, remaining) = (it.limit(), it.remaining(now));
        let (reset_after, delay) = (nanos(it.reset_after(now)), nanos(delay));
        Outcome { verdict, limit, remaining, reset_after, delay, boost: Boost::NONE, mark: 0 }
    }

    /// Time passes, or goes back.
    pub(crate) fn come_to(&mut self, now: Nanos) {
        self.definition_mut().come_to(Time::from(now));
    }

    pub(crate) fn force(&mut self, now: Nanos, cost: u64) {
        self.definition_mut().come_to(Time::from(now));
        self.definition_mut().take(Time::from(now), cost);
    }

    /// Of the charge that was made just now.
    pub(crate) fn receipt(&self, now: Nanos) -> Receipt {
        self.definition().receipt(Time::from(now))
    }

    /// Whether so much was given back that it is as it was at the beginning.
    pub(crate) fn is_unused(&self) -> bool {
        match self {
            Self::Bucket(it) => it.is_unused(),
            Self::Queue(it) => it.is_unused(),
            Self::Fixed(_) | Self::Sliding(_) | Self::Log(_) => false,
        }
    }

    /// Whether nothing came after the charge with this receipt.
    pub(crate) fn is_tail(&self, receipt: Receipt) -> bool {
        match self {
            Self::Bucket(it) => it.receipt(0) == receipt,
            Self::Queue(it) => it.receipt(0) == receipt,
            Self::Fixed(_) | Self::Sliding(_) | Self::Log(_) => false,
        }
    }

    pub(crate) fn refund(&mut self, receipt: Option<Receipt>, now: Nanos, cost: u64) {
        self.definition_mut().give_back(receipt, Time::from(now), cost);
    }

    pub(crate) fn used(&self, now: Nanos) -> u64 {
        self.definition().used(Time::from(now))
    }

    fn definition(&self) -> &dyn Definition {
        match self {
            Self::Bucket(it) => it,
            Self::Queue(it) => it,
            Self::Fixed(it) => it,
            Self::Sliding(it) => it,
            Self::Log(it) => it,
        }
    }

    fn definition_mut(&mut self) -> &mut dyn Definition {
        match self {
            Self::Bucket(it) => it,
            Self::Queue(it) => it,
            Self::Fixed(it) => it,
            Self::Sliding(it) => it,
            Self::Log(it) => it,
        }
    }
}

/// The first number from 1 on that `is_enough`, if every larger one is too.
fn first(is_enough: impl Fn(u64) -> bool) -> u64 {
    let (mut too_short, mut enough) = (0, 1);
    while !is_enough(enough) {
        (too_short, enough) = (enough, enough.checked_mul(2).expect("a charge that is not too much passes one day"));
    }
    while enough - too_short > 1 {
        let middle = too_short + (enough - too_short) / 2;
        if is_enough(middle) { enough = middle } else { too_short = middle }
    }
    enough
}

/// `⌈cells·P/L⌉`.
fn time_of(cells: u64, quota: &Quota) -> Time {
    ceiling_div(Time::from(cells) * Time::from(quota.period()), Time::from(quota.count()))
}

/// What [`Quota::capacity`] documents: the time of a burst, and room for the rounding of its cells one by one.
fn capacity(burst: u64, quota: &Quota) -> Time {
    time_of(burst, quota) + slack(burst, quota)
}

/// A nanosecond for each cell of a burst after the first, but less than the time of a cell.
fn slack(burst: u64, quota: &Quota) -> Time {
    let (period, count) = (Time::from(quota.period()), Time::from(quota.count()));
    let is_exact = period % count == 0;
    if is_exact { 0 } else { Time::from(burst - 1).min(period / count - 1) }
}

/// The fewest cells whose charge explains a backlog, be it that of each of them rounded up.
fn explanation(backlog: Time, slack: Time, quota: &Quota) -> u64 {
    if backlog == 0 { 0 } else { first(|cells| time_of(cells, quota) + slack >= backlog) }
}

fn ceiling_div(of: i128, by: i128) -> i128 {
    of.div_euclid(by) + i128::from(of.rem_euclid(by) > 0)
}

fn cells(of: i128) -> u64 {
    u64::try_from(of.max(0)).unwrap_or(u64::MAX)
}

fn nanos(of: Time) -> Nanos {
    Nanos::try_from(of).expect("durations are not negative and fit 64 bits")
}

/// No debt is longer.
const CENTURY: Time = 100 * 366 * 86_400 * SECOND as Time;
