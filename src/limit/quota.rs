//! The numbers of a limit: rate, burst and algorithm, checked once so that no arithmetic below has to.

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::{Algorithm, Calendar, fixed_window, sliding_log, sliding_window};
use crate::clock::{Nanos, SECOND, saturating_nanos};

/// `count` cells per `period`, at most `burst` at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Quota {
    count: NonZeroU64,
    period: NonZeroU64,
    burst: NonZeroU64,
    capacity: u64,
    /// `⌈P/L⌉`: what a cost of 1, which most are, takes.
    interval: u64,
    /// The part of the capacity that is room for rounding.
    slack: u64,
    max_delay: Nanos,
    algorithm: Algorithm,
    may_owe: bool,
    calendar: Option<&'static Calendar>,
}

/// Why numbers don't make a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QuotaError {
    /// Count, period or burst is zero.
    #[error("a rate, its period and its burst must be more than zero")]
    Zero,
    /// More than one cell per nanosecond.
    #[error("a rate above 1000000000/s cannot be counted; leave the limit out or write unlimited")]
    TooFast,
    /// A full bucket would take longer than a century to drain.
    #[error("a burst that takes more than 100 years to refill is a typing error")]
    TooSlow,
    /// The state has too few bits.
    #[error("{0} counts at most {1} per window; use gcra for more")]
    WindowCount(&'static str, u64),
    /// Window numbers would come round too soon.
    #[error("{0} needs a period of at least {1}; use gcra for shorter ones")]
    WindowPeriod(&'static str, &'static str),
    /// `burst` has no meaning for the algorithm.
    #[error("{0} has no burst: the whole count may come at once")]
    WindowBurst(&'static str),
    /// A queue has no burst.
    #[error("leaky_bucket with a delay has no burst: requests leave one by one, and `queue` says how many may wait")]
    QueueBurst,
    /// Only fixed windows begin and end.
    #[error("only fixed_window has windows that can begin with a calendar's")]
    NoCalendar,
    /// The algorithm has no future in which a request could have its place.
    #[error("{0} has no place to wait for; use gcra, token_bucket or leaky_bucket")]
    NoDelay(&'static str),
}

impl Quota {
    /// `burst` defaults to `count`.
    ///
    /// # Errors
    /// When the numbers can't be enforced exactly; see [`QuotaError`].
    pub fn new(count: u64, period: Duration, burst: Option<u64>, algorithm: Algorithm) -> Result<Self, QuotaError> {
        let burst_cells = NonZeroU64::new(burst.unwrap_or(count)).ok_or(QuotaError::Zero)?;
        let count = NonZeroU64::new(count).ok_or(QuotaError::Zero)?;
        let period = NonZeroU64::new(saturating_nanos(period)).ok_or(QuotaError::Zero)?;
        if count > period {
            return Err(QuotaError::TooFast);
        }
        if let Some(WindowBounds { name, count: most, period: (shortest, text) }) = window_bounds(algorithm) {
            if count.get() > most {
                return Err(QuotaError::WindowCount(name, most));
            }
            if period.get() < shortest {
                return Err(QuotaError::WindowPeriod(name, text));
            }
            if burst.is_some_and(|burst| burst != count.get()) {
                return Err(QuotaError::WindowBurst(name));
            }
        }
        let mut quota = Self {
            count,
            period,
            burst: burst_cells,
            capacity: 0,
            interval: 0,
            slack: 0,
            max_delay: 0,
            algorithm,
            may_owe: false,
            calendar: None,
        };
        quota = quota.filled().filter(|quota| quota.capacity <= CENTURY).ok_or(QuotaError::TooSlow)?;
        Ok(quota)
    }

    /// The same quota, whose requests may wait up to this long for their place instead of being refused, this many at once. A leaky bucket
    /// becomes a queue.
    ///
    /// # Errors
    /// When the algorithm has no place to wait for, or a queue was given a burst.
    pub fn delaying(self, max: Duration, queue: u32) -> Result<Self, QuotaError> {
        if let Some(WindowBounds { name, .. }) = window_bounds(self.algorithm) {
            return Err(QuotaError::NoDelay(name));
        }
        let max_delay = saturating_nanos(max);
        if self.algorithm != Algorithm::LeakyBucket || max_delay == 0 {
            return Ok(Self { max_delay, ..self });
        }
        if self.burst != self.count {
            return Err(QuotaError::QueueBurst);
        }
        // What a queue takes at once: the request that passes, and those that find a place behind it.
        let places = NonZeroU64::new(self.places_in(max_delay).min(u64::from(queue) + 1)).unwrap_or(NonZeroU64::MIN);
        Ok(Self { max_delay, burst: places, ..self })
    }

    /// The same quota, which a response may overdraw: what is beyond the burst is worked off before anything passes again.
    #[must_use]
    pub fn owing(self) -> Self {
        Self { may_owe: true, ..self }
    }

    /// The same quota, whose windows are a calendar's instead of `period` long each.
    ///
    /// # Errors
    /// When the algorithm has no windows that begin and end.
    pub fn aligned(self, calendar: &'static Calendar) -> Result<Self, QuotaError> {
        if self.algorithm == Algorithm::FixedWindow {
            Ok(Self { calendar: Some(calendar), ..self })
        } else {
            Err(QuotaError::NoCalendar)
        }
    }

    /// The same quota with other counts, for as long as a decision takes.
    #[must_use]
    pub(super) fn scaled(&self, scale: impl Fn(u64) -> u64) -> Self {
        let scale = |cells: NonZeroU64| NonZeroU64::new(scale(cells.get())).unwrap_or(cells);
        let scaled = Self { count: scale(self.count), burst: scale(self.burst), interval: 0, ..*self };
        scaled.filled().unwrap_or(*self)
    }

    /// With its capacity: `⌈B·P/L⌉`, and room for the rounding of `B` single cells, so that a burst fits whether it comes at once or one by
    /// one. The room is less than a cell, so where an interval has fewer nanoseconds than a burst has cells, single cells at the very
    /// same instant may be short of the burst by their rounding.
    fn filled(self) -> Option<Self> {
        let is_queue = self.algorithm == Algorithm::LeakyBucket && self.max_delay > 0;
        let at_once = if is_queue { self.count } else { self.burst };
        let full = self.time_of(at_once.get())?;
        let interval = self.period.get() / self.count.get();
        let is_whole = self.period.get().is_multiple_of(self.count.get());
        let slack = if is_whole { 0 } else { (at_once.get() - 1).min(interval.saturating_sub(1)) };
        let interval = self.period.get().div_ceil(self.count.get());
        Some(Self { capacity: full.checked_add(slack)?, interval, slack, ..self })
    }

    /// Requests of one cell that a queue takes whose last place is this far ahead.
    #[must_use]
    pub(super) fn places_in(&self, room: Nanos) -> u64 {
        room / self.interval.max(1) + 1
    }

    /// Cells per period (`L`).
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count.get()
    }

    /// The period (`P` or `W`) in nanoseconds.
    #[must_use]
    pub fn period(&self) -> Nanos {
        self.period.get()
    }

    /// Cells at once from idle (`B`).
    #[must_use]
    pub fn burst(&self) -> u64 {
        self.burst.get()
    }

    /// The largest cost that can ever pass.
    #[must_use]
    pub fn largest_cost(&self) -> u64 {
        self.cells_in(self.capacity)
    }

    /// The time in which a full burst drains (`cap = ⌈B·P/L⌉`, and less than one cell of room for rounding).
    #[must_use]
    pub fn capacity(&self) -> Nanos {
        self.capacity
    }

    /// The part of the capacity that is room for rounding.
    #[must_use]
    pub(super) fn slack(&self) -> Nanos {
        self.slack
    }

    /// How long a request may wait for its place; 0 if it is refused instead.
    #[must_use]
    pub fn max_delay(&self) -> Nanos {
        self.max_delay
    }

    /// Whether more than the burst can have been taken.
    #[must_use]
    pub fn may_owe(&self) -> bool {
        self.may_owe
    }

    /// The calendar whose windows are counted in, if there is one.
    #[must_use]
    pub fn calendar(&self) -> Option<&'static Calendar> {
        self.calendar
    }

    /// The furthest ahead of now that a TAT can be; what is beyond is a clock that went back.
    #[must_use]
    pub fn ceiling(&self) -> Nanos {
        if self.may_owe { CENTURY } else { self.capacity.saturating_add(self.max_delay) }
    }

    /// How it is enforced.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// `⌈cells·P/L⌉`: how long that many cells take to drain. Rounded once for the whole cost; `None` past 64 bits.
    #[must_use]
    #[inline]
    pub fn time_of(&self, cells: u64) -> Option<Nanos> {
        if cells == 1 && self.interval > 0 {
            return Some(self.interval);
        }
        match cells.checked_mul(self.period.get()) {
            Some(product) => Some(product.div_ceil(self.count.get())),
            None => self.long_time_of(cells),
        }
    }

    /// Apart, because it is rare and its division is a call.
    #[cold]
    fn long_time_of(&self, cells: u64) -> Option<Nanos> {
        let product = u128::from(cells) * u128::from(self.period.get());
        u64::try_from(product.div_ceil(u128::from(self.count.get()))).ok()
    }

    /// `⌊time·L/P⌋`: whole cells that drain in `time`.
    #[must_use]
    #[inline]
    pub fn cells_in(&self, time: Nanos) -> u64 {
        match time.checked_mul(self.count.get()) {
            Some(product) => product / self.period.get(),
            None => self.cells_in_long(time),
        }
    }

    #[cold]
    fn cells_in_long(&self, time: Nanos) -> u64 {
        let cells = u128::from(time) * u128::from(self.count.get()) / u128::from(self.period.get());
        u64::try_from(cells).unwrap_or(u64::MAX)
    }
}

/// Names a quota in four bytes, so that a counter can say under which numbers it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct QuotaId(pub u32);

/// A quota with its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interned {
    /// For counters.
    pub id: QuotaId,
    /// The numbers.
    pub quota: Quota,
}

/// Every quota that was ever configured in this process, by id. Outlives reloads: a counter written under last
/// week's quota can still be converted. Grows by the number of distinct quotas, never with traffic.
#[derive(Debug, Clone, Default)]
pub struct Quotas(Arc<Table>);

#[derive(Debug, Default)]
struct Table {
    ids: Mutex<HashMap<Quota, QuotaId>>,
    /// Read without a lock.
    by_id: boxcar::Vec<Quota>,
}

impl Quotas {
    /// The id of a quota; the same numbers have the same id for ever. `None` when all ids are taken.
    #[must_use]
    pub fn intern(&self, quota: Quota) -> Option<Interned> {
        let mut ids = self.0.ids.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(id) = ids.get(&quota) {
            return Some(Interned { id: *id, quota });
        }
        let id = QuotaId(u32::try_from(ids.len()).ok().filter(|next| *next <= QuotaId::MAX)?);
        self.0.by_id.push(quota);
        ids.insert(quota, id);
        Some(Interned { id, quota })
    }

    /// The numbers behind an id.
    #[must_use]
    pub fn get(&self, id: QuotaId) -> Option<Quota> {
        self.0.by_id.get(usize::try_from(id.0).ok()?).copied()
    }
}

impl QuotaId {
    /// Ids have 20 bits: they share a counter's entry with its key.
    pub const MAX: u32 = (1 << 20) - 1;
}

/// What an algorithm that counts in windows can count.
struct WindowBounds {
    name: &'static str,
    count: u64,
    period: (Nanos, &'static str),
}

fn window_bounds(algorithm: Algorithm) -> Option<WindowBounds> {
    let bounds = |name, count, period| Some(WindowBounds { name, count, period });
    match algorithm {
        Algorithm::FixedWindow => bounds("fixed_window", fixed_window::MASK, (SECOND, "1s")),
        Algorithm::SlidingWindow => bounds("sliding_window", sliding_window::COUNT_MASK, (SECOND / 100, "10ms")),
        Algorithm::SlidingLog => bounds("sliding_log", sliding_log::MAX_CELLS, (1, "1ns")),
        Algorithm::Gcra | Algorithm::TokenBucket | Algorithm::LeakyBucket | Algorithm::FirstSeen => None,
    }
}

const CENTURY: Nanos = 100 * 366 * 86_400 * SECOND;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_numbers_are_refused() {
        let second = Duration::from_secs(1);
        let year = Duration::from_secs(366 * 86_400);
        for (count, period, burst, algorithm, expected) in [
            (0, second, None, Algorithm::Gcra, QuotaError::Zero),
            (1, second, Some(0), Algorithm::Gcra, QuotaError::Zero),
            (1, Duration::ZERO, None, Algorithm::Gcra, QuotaError::Zero),
            (1_000_000_001, second, None, Algorithm::Gcra, QuotaError::TooFast),
            (1, year, Some(101), Algorithm::Gcra, QuotaError::TooSlow),
            (1, year, Some(u64::MAX), Algorithm::Gcra, QuotaError::TooSlow),
            (
                1 << 33,
                Duration::from_secs(60),
                None,
                Algorithm::FixedWindow,
                QuotaError::WindowCount("fixed_window", u64::from(u32::MAX)),
            ),
            (5, Duration::from_millis(10), None, Algorithm::FixedWindow, QuotaError::WindowPeriod("fixed_window", "1s")),
            (5, second, Some(6), Algorithm::FixedWindow, QuotaError::WindowBurst("fixed_window")),
            (4097, second, None, Algorithm::SlidingLog, QuotaError::WindowCount("sliding_log", 4096)),
            (1 << 20, second, None, Algorithm::SlidingWindow, QuotaError::WindowCount("sliding_window", (1 << 20) - 1)),
            (5, Duration::from_millis(9), None, Algorithm::SlidingWindow, QuotaError::WindowPeriod("sliding_window", "10ms")),
        ] {
            assert_eq!(Quota::new(count, period, burst, algorithm), Err(expected));
        }
    }

    #[test]
    fn only_a_place_in_the_future_can_be_waited_for() {
        let second = Duration::from_secs(1);
        for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow, Algorithm::SlidingLog] {
            let quota = Quota::new(5, second, None, algorithm).unwrap();
            assert!(matches!(quota.delaying(second, 100), Err(QuotaError::NoDelay(_))), "{algorithm:?}");
        }
        let leaky = |burst| Quota::new(5, second, burst, Algorithm::LeakyBucket).unwrap().delaying(second, 100);
        assert_eq!(leaky(Some(6)), Err(QuotaError::QueueBurst));
        assert_eq!(leaky(None).unwrap().burst(), 6);
    }

    #[test]
    fn a_whole_burst_fits_and_not_a_cell_more() {
        let millisecond = Duration::from_millis(1);
        for (count, burst) in [(7, 7), (14, 14), (3, 100), (999, 1), (1000, 1000), (6_999, 6_999), (333_333, 3)] {
            let quota = Quota::new(count, millisecond, Some(burst), Algorithm::Gcra).unwrap();
            assert_eq!(quota.largest_cost(), burst, "{count} burst {burst}");
            let mut tat = 0;
            for left in (0..burst).rev() {
                let step = quota.decide(tat, 0, 0, 1);
                if u64::from(u32::try_from(burst).unwrap()) < 1_000_000 / count {
                    assert_eq!((step.outcome.verdict.conforms(), step.outcome.remaining), (true, left), "{count} burst {burst}");
                }
                tat = step.state;
            }
            assert!(!quota.decide(tat, 0, 0, 1).outcome.verdict.conforms(), "{count} burst {burst}");
        }
    }

    #[test]
    fn the_same_numbers_have_the_same_id() {
        let quotas = Quotas::default();
        let quota = |count| Quota::new(count, Duration::from_secs(1), None, Algorithm::Gcra).unwrap();
        let (a, b) = (quotas.intern(quota(1)).unwrap(), quotas.intern(quota(2)).unwrap());
        assert_ne!(a.id, b.id);
        assert_eq!(quotas.intern(quota(1)).unwrap().id, a.id);
        assert_eq!(quotas.get(b.id), Some(quota(2)));
        assert_eq!(quotas.get(QuotaId(99)), None);
    }
}
