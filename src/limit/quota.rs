//! The numbers of a limit: rate, burst and algorithm, checked once so that no arithmetic below has to.

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::Algorithm;
use crate::clock::{Nanos, saturating_nanos};

/// `count` cells per `period`, at most `burst` at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Quota {
    count: NonZeroU64,
    period: NonZeroU64,
    burst: NonZeroU64,
    capacity: u64,
    algorithm: Algorithm,
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
    /// A fixed window counts in 32 bits.
    #[error("fixed_window counts at most 4294967295 per window; use gcra for more")]
    WindowCount,
    /// Window numbers have 32 bits.
    #[error("fixed_window needs a period of at least 1s; use gcra for shorter ones")]
    WindowPeriod,
    /// `burst` has no meaning for the algorithm.
    #[error("fixed_window has no burst: the whole count may come at once in every window")]
    WindowBurst,
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
        if algorithm == Algorithm::FixedWindow {
            if count.get() > u64::from(u32::MAX) {
                return Err(QuotaError::WindowCount);
            }
            if period.get() < crate::clock::SECOND {
                return Err(QuotaError::WindowPeriod);
            }
            if burst.is_some_and(|burst| burst != count.get()) {
                return Err(QuotaError::WindowBurst);
            }
        }
        let mut quota = Self { count, period, burst: burst_cells, capacity: 0, algorithm };
        quota.capacity = quota.time_of(burst_cells.get()).filter(|t| *t <= CENTURY).ok_or(QuotaError::TooSlow)?;
        Ok(quota)
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

    /// The time in which a full burst drains (`cap = ⌈B·P/L⌉`).
    #[must_use]
    pub fn capacity(&self) -> Nanos {
        self.capacity
    }

    /// How it is enforced.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// `⌈cells·P/L⌉`: how long that many cells take to drain. Rounded once for the whole cost; `None` past 64 bits.
    #[must_use]
    pub fn time_of(&self, cells: u64) -> Option<Nanos> {
        if let Some(product) = cells.checked_mul(self.period.get()) {
            return Some(product.div_ceil(self.count.get()));
        }
        let product = u128::from(cells) * u128::from(self.period.get());
        u64::try_from(product.div_ceil(u128::from(self.count.get()))).ok()
    }

    /// `⌊time·L/P⌋`: whole cells that drain in `time`.
    #[must_use]
    pub fn cells_in(&self, time: Nanos) -> u64 {
        if let Some(product) = time.checked_mul(self.count.get()) {
            return product / self.period.get();
        }
        let cells = u128::from(time) * u128::from(self.count.get()) / u128::from(self.period.get());
        u64::try_from(cells).unwrap_or(u64::MAX)
    }

    /// `⌈time·L/P⌉`: cells that take at least `time` to drain.
    #[must_use]
    pub fn cells_covering(&self, time: Nanos) -> u64 {
        let product = u128::from(time) * u128::from(self.count.get());
        u64::try_from(product.div_ceil(u128::from(self.period.get()))).unwrap_or(u64::MAX)
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
pub struct Quotas(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    by_id: Vec<Quota>,
    ids: HashMap<Quota, QuotaId>,
}

impl Quotas {
    /// The id of a quota; the same numbers have the same id for ever.
    #[must_use]
    pub fn intern(&self, quota: Quota) -> Interned {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let next = QuotaId(u32::try_from(table.by_id.len()).unwrap_or(u32::MAX));
        let id = *table.ids.entry(quota).or_insert(next);
        if id == next {
            table.by_id.push(quota);
        }
        Interned { id, quota }
    }

    /// The numbers behind an id. Takes a lock: for conversions and sweeps, not for every request.
    #[must_use]
    pub fn get(&self, id: QuotaId) -> Option<Quota> {
        let index = usize::try_from(id.0).ok()?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).by_id.get(index).copied()
    }
}

const CENTURY: Nanos = 100 * 366 * 86_400 * crate::clock::SECOND;

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
            (1 << 33, Duration::from_secs(60), None, Algorithm::FixedWindow, QuotaError::WindowCount),
            (5, Duration::from_millis(10), None, Algorithm::FixedWindow, QuotaError::WindowPeriod),
            (5, second, Some(6), Algorithm::FixedWindow, QuotaError::WindowBurst),
        ] {
            assert_eq!(Quota::new(count, period, burst, algorithm), Err(expected));
        }
    }

    #[test]
    fn the_same_numbers_have_the_same_id() {
        let quotas = Quotas::default();
        let quota = |count| Quota::new(count, Duration::from_secs(1), None, Algorithm::Gcra).unwrap();
        let (a, b) = (quotas.intern(quota(1)), quotas.intern(quota(2)));
        assert_ne!(a.id, b.id);
        assert_eq!(quotas.intern(quota(1)).id, a.id);
        assert_eq!(quotas.get(b.id), Some(quota(2)));
        assert_eq!(quotas.get(QuotaId(99)), None);
    }
}
