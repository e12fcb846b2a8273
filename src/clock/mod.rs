//! The only reader of time.
//!
//! Everything else takes `now` as an argument, so tests and the simulator own time. Limits count in [`Nanos`] of a
//! monotonic clock, which a stepped wall clock cannot move; the wall clock serves only what people and headers read.
//!
//! [`deadline`] holds the coarse timers of the hot path: arming one is a store into thread-local memory, while a
//! tokio timer per request would cost up to 0.7 µs.
#![allow(clippy::disallowed_methods, reason = "this module is where the clock is read")]

pub mod deadline;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// Nanoseconds since the clock's origin (for the system clock: process start). Good for 584 years.
pub type Nanos = u64;

/// One second in [`Nanos`].
pub const SECOND: Nanos = 1_000_000_000;

/// Where `now` comes from. Cheap to clone; clones agree.
#[derive(Clone, Debug)]
pub struct Clock {
    source: Source,
    wall_origin: SystemTime,
}

#[derive(Clone, Debug)]
enum Source {
    System(Instant),
    Manual(Arc<AtomicU64>),
}

impl Clock {
    /// The machine's monotonic clock, with its origin now.
    #[must_use]
    pub fn system() -> Self {
        Self { source: Source::System(Instant::now()), wall_origin: SystemTime::now() }
    }

    /// A clock that stands still until it is moved, and the hand that moves it.
    #[must_use]
    pub fn manual() -> (Self, ManualClock) {
        let hand = Arc::new(AtomicU64::new(0));
        let clock = Self { source: Source::Manual(Arc::clone(&hand)), wall_origin: SystemTime::UNIX_EPOCH };
        (clock, ManualClock(hand))
    }

    /// Nanoseconds since the origin. About 25 ns of CPU: read it once per request and pass it on.
    #[must_use]
    pub fn now(&self) -> Nanos {
        match &self.source {
            Source::System(origin) => saturating_nanos(origin.elapsed()),
            Source::Manual(hand) => hand.load(Ordering::Relaxed),
        }
    }

    /// The wall-clock time that corresponds to `now`, as of the origin: it does not follow later steps of the wall clock.
    #[must_use]
    pub fn wall(&self, now: Nanos) -> SystemTime {
        self.wall_origin + Duration::from_nanos(now)
    }

    /// Today's wall clock, which does follow steps. For timestamps in logs.
    #[must_use]
    pub fn wall_now(&self) -> SystemTime {
        match &self.source {
            Source::System(_) => SystemTime::now(),
            Source::Manual(hand) => self.wall(hand.load(Ordering::Relaxed)),
        }
    }
}

/// Moves a manual [`Clock`].
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// Sets the time; going back is allowed, as real clocks do it.
    pub fn set(&self, now: Nanos) {
        self.0.store(now, Ordering::Relaxed);
    }

    /// Moves the time forward.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(saturating_nanos(by), Ordering::Relaxed);
    }
}

/// A duration in [`Nanos`], capped at the largest value.
#[must_use]
pub fn saturating_nanos(duration: Duration) -> Nanos {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Seconds since the Unix epoch; 0 before it.
#[must_use]
pub fn unix_seconds(wall: SystemTime) -> u64 {
    wall.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_moves_only_by_hand() {
        let (clock, hand) = Clock::manual();
        assert_eq!(clock.now(), 0);
        hand.advance(Duration::from_secs(2));
        assert_eq!(clock.now(), 2 * SECOND);
        hand.set(5);
        assert_eq!(clock.now(), 5);
        assert_eq!(unix_seconds(clock.wall(3 * SECOND)), 3);
    }
}
