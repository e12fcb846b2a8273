//! How slow an upload may be.
//!
//! A timeout between two bytes alone lets a client hold an upstream's connection for as long as it likes, a byte at a time. So waiting is
//! paid for: a body begins with an allowance, waiting for the client uses it up, and what the client sends fills it again, up to what it
//! began with. Over any stretch longer than that the client has then sent at least at the rate. Time in which nobody waits for the client,
//! because upstream takes nothing, costs nothing.

use std::num::NonZeroU32;
use std::time::Duration;

use super::RequestBodyError;

/// How long a client is waited for. Small, because it travels with every body.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// Between two pieces, in milliseconds; the largest number is for ever.
    pause: u32,
    /// Bytes per second.
    rate: Option<NonZeroU32>,
    /// What is left of it, in microseconds.
    allowance: u64,
}

impl Pace {
    /// Never longer than `pause` between two pieces.
    pub(super) fn new(pause: Duration) -> Self {
        Self { pause: u32::try_from(pause.as_millis()).unwrap_or(u32::MAX), rate: None, allowance: micros(pause) }
    }

    /// And at least this many bytes per second, over any stretch longer than the pause.
    pub(super) fn at_least(self, rate: Option<NonZeroU32>) -> Self {
        Self { rate, ..self }
    }

    /// How long the client may be waited for now, and what it is called if that was too long.
    pub(super) fn wait(&self) -> (Duration, RequestBodyError) {
        let (pause, allowance) = (self.pause(), Duration::from_micros(self.allowance));
        if self.rate.is_some() && allowance < pause {
            (allowance, RequestBodyError::TooSlow)
        } else {
            (pause, RequestBodyError::Idle)
        }
    }

    /// After waiting for it this long, the client has sent this many bytes.
    pub(super) fn received(&mut self, bytes: u64, waited: Duration) {
        let Some(rate) = self.rate else { return };
        let earned = bytes.saturating_mul(1_000_000) / u64::from(rate.get());
        let left = self.allowance.saturating_sub(micros(waited)).saturating_add(earned);
        self.allowance = left.min(micros(self.pause()));
    }

    fn pause(&self) -> Duration {
        if self.pause == u32::MAX { Duration::MAX } else { Duration::from_millis(self.pause.into()) }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(10);

    fn pace() -> Pace {
        Pace::new(GRACE).at_least(NonZeroU32::new(100))
    }

    /// The time until a client at 100 B/s is given up that sends `bytes` every `apart`; an hour at most.
    fn lasts(bytes: u64, apart: Duration) -> Duration {
        let (mut pace, mut passed) = (pace(), Duration::ZERO);
        while passed < Duration::from_secs(3600) {
            let (wait, _) = pace.wait();
            if wait < apart {
                return passed + wait;
            }
            passed += apart;
            pace.received(bytes, apart);
        }
        passed
    }

    #[test]
    fn whoever_keeps_the_rate_goes_on_for_ever_and_whoever_does_not_ends() {
        let (second, hour) = (Duration::from_secs(1), Duration::from_secs(3600));
        assert_eq!(lasts(100, second), hour);
        assert_eq!(lasts(900, Duration::from_secs(9)), hour, "in bursts too");
        assert_eq!(lasts(1, Duration::from_millis(10)), hour, "and byte by byte");
        assert_eq!(lasts(0, second), GRACE);
        assert_eq!(lasts(50, second), Duration::from_millis(19_500));
        assert!(lasts(99, second) < hour);
        assert!(lasts(1, Duration::from_millis(11)) < hour);
    }

    #[test]
    fn nobody_saves_up_more_than_he_began_with() {
        let mut pace = pace();
        pace.received(u64::MAX, Duration::ZERO);
        assert_eq!(pace.wait(), (GRACE, RequestBodyError::Idle));
        pace.received(0, Duration::from_secs(4));
        assert_eq!(pace.wait(), (Duration::from_secs(6), RequestBodyError::TooSlow));
        pace.received(0, Duration::from_secs(7));
        assert_eq!(pace.wait().0, Duration::ZERO);
    }

    #[test]
    fn without_a_rate_only_pauses_count() {
        let mut pace = Pace::new(GRACE);
        pace.received(1, GRACE);
        assert_eq!(pace.wait(), (GRACE, RequestBodyError::Idle));
        assert_eq!(Pace::new(Duration::MAX).wait().0, Duration::MAX);
        assert_eq!(size_of::<Pace>(), size_of::<Duration>());
    }
}
